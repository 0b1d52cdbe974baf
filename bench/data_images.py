"""What data images save (row 12): sweeps run twice, the second time restored from what the first one kept.

`experiments/quickstart.yml` says what a sweep saves: a point is compared with itself, what deploying and loading
1,500,000 documents on 16 shards took in the first run, and restoring them until the cluster answers in the second. A
smaller one says that restored points are measured like loaded ones, warm and cold. One that writes is redeployed for
each repetition, loaded or restored. `up` of an empty cluster is compared with mlaunch and with bare mongods, in turns.
The quick form has fewer documents, points and repetitions, and no targets.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from bench.alone import BIN, ROOT, alone, say, scratch
from bench.findings import Findings, Row, Target, absolute, compared
from bench.quickstart import FULL, LIMIT, QUICK
from bench.up_down import bare, mlaunch, ours
from microshard.records.run_folder import RunFolder, find_runs

QUERY = {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 3}
WRITE = {"engine": "insert", "documents": 10000, "namespace": "vosa.more"}
ROUNDS = 2
PAIRS = 4  # of a run with loaded and one with restored data


def _sweep(runs: Path, *changes: str) -> RunFolder:
    """Run the quickstart and return its folder."""
    command = [str(BIN / "microshard"), "run", str(ROOT / "experiments" / "quickstart.yml"), "--yes"]
    command += ["--set", "load.image=use", *changes, "--runs-dir", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode not in {0, 3}:  # 3: a gate did not hold, which says something of the machine
        raise SystemExit(f"quickstart ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return find_runs(runs)[-1]


def _stages(run: RunFolder, *stages: str, point: str | None = None) -> float:
    """Seconds of a run's plays of these stages; `point`: of this point alone."""
    steps = {step.index: step.point for step in run.plan().steps}
    return sum(
        event.seconds or 0.0
        for event in run.journal.records()
        if event.event == "stage" and event.stage in stages and point in {None, steps.get(event.step or 0)}
    )


def _phases(run: RunFolder, point: str, name: str) -> list[float]:
    """Of every repetition that has this phase: the median query, s; of the phase `load` all its seconds."""
    results = [run.result(step.point, step.name) for step in run.plan().steps if step.point == point]
    phases = [phase for result in results for phase in result.phases if phase.name == name]
    if name == "load":
        return [phase.seconds for phase in phases]
    return [phase.metric.value for phase in phases if phase.metric]


def _restored(run: RunFolder) -> bool:
    events = [event.event for event in run.journal.records()]
    return events.count("data restored") >= len(run.plan().points)


def _ended(run: RunFolder, key: str) -> float:
    return next(float(getattr(event, key)) for event in run.journal.records() if event.event == "run ended")


def sweeps(quick: bool) -> Findings:
    """The quickstart twice."""
    with scratch() as folder:
        first, second = (_sweep(folder / "runs", *(QUICK if quick else FULL)) for _ in range(2))
        if not _restored(second):
            # No image is made of a point whose measurements were not valid, as on a machine that others use.
            return Findings(missing=["12: a point of the first sweep was not valid, so it was not kept"])
        last = first.plan().points[-1]
        loading = sum(sum(_phases(first, point.id, "load")) for point in first.plan().points)
        deployed = _stages(first, "deploy", point=last.id) + sum(_phases(first, last.id, "load"))
        restored, kept = _stages(second, "restore", point=last.id), _stages(first, "keep data")
        alike = _alike([(first, second)], "measure", None if quick else Target(1.05))
        seconds, overhead = ([_ended(run, key) for run in (first, second)] for key in ("seconds", "orchestration"))
    targets = (None,) * 4 if quick else (Target(0.55), Target(1.0), Target(0.25), Target(0.1))
    name = f"{last.shards} shards" if not quick else f"{last.shards} shards, small"
    return Findings(
        [
            compared(12, "the same sweep again", [seconds[1]], "the first one", [seconds[0]], "s", targets[0]),
            compared(12, "its orchestration", [overhead[1]], "of the first one", [overhead[0]], "s", targets[1]),
            compared(12, f"restoring {name}", [restored], "deploying and loading", [deployed], "s", targets[2]),
            compared(12, "making the images of a sweep", [kept], "loading", [loading], "s", targets[3]),
            alike,
        ]
    )


def measurements(quick: bool) -> Findings:
    """The same points loaded and restored, in turns: query times, warm and cold, and the answers."""
    phases = [{"measure": {**QUERY, "cache": cache}, "name": cache} for cache in ("warm", "cold")]
    documents = 20_000 if quick else 200_000
    workload = [{"load": {"engine": "insert", "dataset": "mot", "documents": documents, "seed": 7}}, *phases]
    changes = ["--set", f"workload={json.dumps(workload)}", "--set", "repetitions=1"]
    # Two runs of the same point are compared, whatever the client needs of a short query.
    changes += ["--set", "gates={max_shard_skew: 3}"]
    changes += ["--set", f"matrix.topology.shards.count={[2] if quick else [1, 4]}"]
    pairs = []
    with scratch() as folder:
        _sweep(folder / "runs", *changes)  # makes the images
        for number in range(1 if quick else PAIRS):
            ways = ("never", "only") if number % 2 == 0 else ("only", "never")
            runs = {way: _sweep(folder / "runs", *changes, "--set", f"load.image={way}") for way in ways}
            pairs.append((runs["never"], runs["only"]))
        rows = [_alike(pairs, cache, None if quick else Target(1.05)) for cache in ("warm", "cold")]
        answers = {
            (point.label, phase.name, phase.answer_sha256)
            for pair in pairs for run in pair for point in run.plan().points
            for phase in run.result(point.id, "r1").phases if phase.answer_sha256
        }  # fmt: skip
        different = len(answers) - len({answer[:2] for answer in answers})
    return Findings([*rows, absolute(12, "other answers of restored points", [different], "answers", Target(0.0))])


def _alike(pairs: list[tuple[RunFolder, RunFolder]], cache: str, target: Target | None) -> Row:
    """The queries of restored points against those of loaded ones; `pairs`: runs with loaded and with restored data."""
    ours, other, inside = [], [], 0
    for first, second in pairs:
        for point in first.plan().points:
            loaded, restored = _phases(first, point.id, cache), _phases(second, point.id, cache)
            ours.append(statistics.median(restored))
            other.append(statistics.median(loaded))
            inside += min(restored) <= max(loaded) and min(loaded) <= max(restored)
    note = f"{cache}: the repetitions of {inside} of {len(ours)} points overlap" if len(pairs) == 1 else ""
    row = compared(12, f"query of restored points, {cache}", ours, "of loaded ones", other, "s", target, note)
    say(f"{row.name}: {row.ratio:.3f} {row.interval} {note}")
    return row


def redeploys(quick: bool) -> Findings:
    """A point whose measurement writes: what each repetition takes until it is measured, restored and loaded."""
    documents = 20_000 if quick else 300_000
    load = {"load": {"engine": "insert", "dataset": "mot", "documents": documents, "seed": 7}}
    changes = ["--set", f"workload={json.dumps([load, {'measure': WRITE}])}"]
    changes += ["--set", f"repetitions={2 if quick else 3}"]
    changes += ["--set", f"matrix.topology.shards.count={[2] if quick else [4]}"]
    with scratch() as folder:
        restored = _sweep(folder / "runs", *changes)
        loaded = _sweep(folder / "runs", *changes, "--set", "load.image=never")
        if not _restored(restored):
            return Findings(missing=["12: the point that writes was not kept"])
        # A measurement that was not valid is repeated, and restored or loaded again.
        events = [[event.stage for event in run.journal.records()] for run in (restored, loaded)]
        each = _stages(restored, "restore") / events[0].count("restore")
        loading = statistics.mean(_phases(loaded, "p01", "load"))
        other = _stages(loaded, "deploy") / events[1].count("deploy") + loading
    target = None if quick else Target(0.4)
    return Findings([compared(12, "per_repetition redeploy", [each], "loading again", [other], "s", target)])


def bring_up(quick: bool) -> Findings:
    """`up` of an empty cluster from its image, mlaunch and bare mongods, in turns."""
    shards = 2 if quick else 16
    figures: dict[str, list[float]] = {"ours": [], "mlaunch": [], "bare": []}
    with scratch() as folder:
        ours(folder, shards, "use")  # makes the image
        for number in range(1 if quick else ROUNDS):
            figures["ours"].append(ours(folder, shards, "use")["up"])
            for name, way in (("mlaunch", mlaunch), ("bare", bare)):
                own = folder / f"{name}{number}"
                own.mkdir()
                figures[name].append(way(own, shards)["up"])
    name, targets = f"up from an empty image, {shards} shards", (None, None) if quick else (Target(0.35), Target(1.3))
    return Findings(
        [
            compared(12, name, figures["ours"], "mlaunch", figures["mlaunch"], "s", targets[0]),
            compared(12, name, figures["ours"], "bare concurrent start", figures["bare"], "s", targets[1]),
        ]
    )


PARTS = (sweeps, measurements, redeploys, bring_up)


def measure(quick: bool) -> Findings:
    """Row 12."""
    parts = [part(quick) for part in PARTS]
    return Findings([row for part in parts for row in part.rows], missing=[each for p in parts for each in p.missing])


if __name__ == "__main__":
    sys.exit(alone(measure))
