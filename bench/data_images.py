"""What data images save (row 12): `experiments/quickstart.yml` run twice, the second time restored from the first.

All figures are those of the two journals. A point is compared with itself: what deploying and loading 1,500,000
documents on 16 shards took in the first run, and restoring them until the cluster answers in the second. The quick form
has fewer documents, points and repetitions, and no targets.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.alone import BIN, ROOT, alone, scratch
from bench.findings import Findings, Target, compared
from bench.quickstart import FULL, LIMIT, QUICK
from microshard.records.run_folder import RunFolder, find_runs

BASE_PORT = 24000


def _sweep(runs: Path, *changes: str) -> RunFolder:
    """Run the quickstart and return its folder."""
    command = [str(BIN / "microshard"), "run", str(ROOT / "experiments" / "quickstart.yml"), "--yes", *changes]
    # Ports of its own: data images fit the ports they were made on only.
    command += ["--set", "load.image=use", "--set", f"topology.network.base_port={BASE_PORT}"]
    done = subprocess.run(
        [*command, "--runs-dir", str(runs)], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode not in {0, 3}:  # 3: a gate did not hold, which says something of the machine
        raise SystemExit(f"quickstart ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return find_runs(runs)[-1]


def _stages(run: RunFolder, stage: str, point: str | None = None) -> float:
    """Seconds of a run's plays of a stage; `point`: of this point alone."""
    steps = {step.index: step.point for step in run.plan().steps}
    return sum(
        event.seconds or 0.0
        for event in run.journal.records()
        if event.event == "stage" and event.stage == stage and point in {None, steps.get(event.step or 0)}
    )


def _loading(run: RunFolder, point: str) -> float:
    """Seconds of the load phases of a point."""
    results = [run.result(step.point, step.name) for step in run.plan().steps if step.point == point]
    return sum(phase.seconds for result in results for phase in result.phases if phase.kind == "load")


def measure(quick: bool) -> Findings:
    """Row 12."""
    with scratch() as folder:
        changes = QUICK if quick else FULL
        first, second = (_sweep(folder / "runs", *changes) for _ in range(2))
        events = [event for event in second.journal.records() if event.event == "data restored"]
        if len(events) != len(second.plan().points):
            # No image is made of a point whose measurements were not valid, as on a machine that others use.
            return Findings(missing=["12: a point of the first run was not valid, so it was not kept"])
        whole = [
            next(event.seconds or 0.0 for event in run.journal.records() if event.event == "run ended")
            for run in (first, second)
        ]
        last = first.plan().points[-1]
        loaded = [_loading(first, point.id) for point in first.plan().points]
        deployed = _stages(first, "deploy", last.id) + loaded[-1]
        restored, kept = _stages(second, "restore", last.id), _stages(first, "keep data")
    targets = (None, None, None) if quick else (Target(0.55), Target(0.25), Target(0.1))
    name = f"{last.shards} shards" if not quick else f"{last.shards} shards, small"
    return Findings(
        [
            compared(12, "the same sweep again", [whole[1]], "the first one", [whole[0]], "s", targets[0]),
            compared(12, f"restoring {name}", [restored], "deploying and loading", [deployed], "s", targets[1]),
            compared(12, "making the images of a sweep", [kept], "loading", [sum(loaded)], "s", targets[2]),
        ]
    )


if __name__ == "__main__":
    sys.exit(alone(measure))
