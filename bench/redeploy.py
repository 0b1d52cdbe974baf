"""Redeploying a running point (row 3): what is restarted, and how long it takes against a full teardown and deploy.

A point of four shards is up. Then its variables change as those of another point would: one more shard, another cache,
another compressor; each is deployed over what is there by playbooks/deploy.yml, as the run does. The baseline: the
teardown playbook and a deploy of the same from nothing. Restarted processes are recognised by pid and start time, what
they did meanwhile by their logs.
"""

import dataclasses
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.alone import alone, rounds, say, scratch, timed
from bench.clusters import log_entries
from bench.findings import Findings, Row, Target, compared
from microshard.backends.local import LocalBackend
from microshard.cli.clusters import StageLine
from microshard.model.plan import Plan
from microshard.records.run_folder import RunFolder
from microshard.run.cluster import choose, down, up
from microshard.run.prepare import PreparedRun, prepared, write_variables

SHARDS = 4
EXPERIMENT = """
microshard: 1
name: bench-redeploy
topology:
  shards: {{count: {shards}}}
  network: {{base_port: {port}}}
  storage: {{block_compressor: {compressor}, cache: {{policy: per_process_mb, value: {cache}}}}}
  collections: [{{namespace: vosa.mot_results, shard_key: {{_id: hashed}}}}]
workload: [{{load: {{engine: insert, documents: 1}}}}, {{measure: {{engine: aggregate, pipeline: mot_greenness}}}}]
"""
BASE: dict[str, Any] = {"shards": SHARDS, "cache": 256, "compressor": "snappy"}
# What changes → which processes have to be restarted for it, and how many new ones there are.
CHANGES: dict[str, tuple[dict[str, Any], int, int]] = {
    "nothing": ({}, 0, 0),
    "one more shard": ({"shards": SHARDS + 1}, 0, 1),
    "another cache": ({"cache": 300}, SHARDS, 0),
    "another compressor": ({"compressor": "zlib"}, SHARDS, 0),
}


@dataclass(frozen=True)
class Redeploy:
    """What one showed."""

    seconds: float
    anew: float  # s of teardown and deploy instead
    restarted: int  # processes
    new: int  # processes
    opening: float  # s the slowest restarted mongod takes to open what it stores
    primaries: float  # s from then until the last one is a primary


class Redeploys:
    """A run whose one point is deployed as one thing and then as another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = LocalBackend()
        self.listener = StageLine(Console(stderr=True, quiet=True))

    def experiment(self, port: int | str, change: dict[str, Any]) -> Path:
        """The experiment file with a change."""
        path = self.folder / "experiment.yml"
        path.write_text(EXPERIMENT.format(**{**BASE, **change, "port": port}), encoding="utf-8")
        return path

    def measure(self, change: dict[str, Any]) -> Redeploy:
        """Redeploy a point that is up, then tear it down and deploy it."""
        runs = self.folder / "runs"
        with prepared(self.experiment("auto", {}), runs=runs, backend=self.backend) as ready:
            picked = dataclasses.replace(ready, plan=choose(ready.plan, None))
            run = up(picked, runs, self.listener)
            try:
                port = min(p.port for p in picked.plan.points[0].processes)
                before = pids(run)
                with self.planned(port, change) as other:
                    variables = self.write(run, other)
                playbooks = self.backend.playbooks(run, lambda _event: None)
                began = time.time()
                seconds = timed(lambda: playbooks.run("deploy", variables))
                opening, primaries = restarts(run, began)
                after = pids(run)
                restarted = sum(before[name] != after.get(name) for name in before)
                new = len(after.keys() - before.keys())

                def anew() -> None:
                    playbooks.run("teardown", variables)
                    playbooks.run("deploy", variables)

                return Redeploy(seconds, timed(anew), restarted, new, opening, primaries)
            finally:
                if left := down(run, lambda _: self.backend, self.listener):
                    raise SystemExit(f"left: {left}")

    def planned(self, port: int, change: dict[str, Any]) -> Any:
        """The plan of the changed experiment on the same ports."""
        return prepared(self.experiment(port, change), runs=self.folder / "runs", backend=self.backend)

    def write(self, run: RunFolder, other: PreparedRun) -> Path:
        """The variables of the changed point in place of those that are there."""
        plan: Plan = other.plan
        (point,) = plan.points
        return write_variables(run, point, self.backend.binaries(plan)[point.id], None, backend=self.backend)


def restarts(run: RunFolder, since: float) -> tuple[float, float]:
    """Of the mongods that began after a moment (epoch), by their logs, s; both 0 where there is none.

    How long the slowest takes to open what it stores; how long from then until the last one is a primary.
    """
    opening = opened = primary = 0.0
    for log in run.path.glob("deployments/*/shard*/mongod.log"):
        for moment, entry in log_entries(log):
            if moment < since:
                continue
            if entry["msg"] == "WiredTiger opened":
                opening, opened = max(opening, entry["attr"]["durationMillis"] / 1000), max(opened, moment)
            if entry["msg"].startswith("Transition to primary complete"):
                primary = max(primary, moment)
    return opening, max(primary - opened, 0.0)


def pids(run: RunFolder) -> dict[str, str]:
    """Name of each deployed process → its pid and when it was started."""
    found = {}
    for path in sorted(run.path.glob("deployments/*/*/pid")):
        pid = path.read_text(encoding="ascii").strip()
        started = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        found[path.parent.name] = f"{pid} {started}"
    return found


def measure(quick: bool) -> Findings:
    """Row 3."""
    found = Findings()
    taken: dict[str, list[Redeploy]] = defaultdict(list)
    changes = {name: CHANGES[name] for name in CHANGES if not quick or name in {"one more shard", "another cache"}}
    for _ in rounds(1 if quick else 3, 1 if quick else 5, 130):
        for name, (change, _must, _new) in changes.items():
            with scratch() as folder:
                taken[name].append(Redeploys(folder).measure(change))
            say(f"{name}: {taken[name][-1]}")
    for name, (_change, must, new) in changes.items():
        mine = taken[name]
        ours, anew = [one.seconds for one in mine], [one.anew for one in mine]
        what = f"redeploy with {name}"
        note = _made_of(name, mine) if must else ""
        found.rows.append(compared(3, what, ours, "tearing all down and up", anew, "s", Target(1.0), note))
        wrong = statistics.median(abs(one.restarted - must) + abs(one.new - new) for one in mine)
        seen = f"restarted {mine[-1].restarted}, new {mine[-1].new}"
        note = f"{name}: {must} to be restarted, {new} new, of {SHARDS + 2} processes; {seen}"
        what += ": restarted though unchanged, or not though changed"
        found.rows.append(Row(3, what, "", wrong, None, Target(0), unit="processes", note=note))
    return found


def _made_of(name: str, redeploys: list[Redeploy]) -> str:
    """What a restart waits for that a new mongod does not."""
    opening = statistics.median(one.opening for one in redeploys)
    primaries = statistics.median(one.primaries for one in redeploys)
    return (
        f"{name}: each keeps its data; the slowest takes {opening:.1f} s to open them, and from then {primaries:.1f} s "
        "pass until the last one is a primary: shards that restart look for one another every 0.5 s (MongoDB's replica "
        "set monitor), new ones know of no other"
    )


if __name__ == "__main__":
    sys.exit(alone(measure))
