"""Redeploying a point that is up (row 3): what is restarted, and how long it takes beside taking all down and up.

A point of four shards is up. Then its variables change as those of another point would: one more shard, another cache,
another compressor; each is deployed over what is there by playbooks/deploy.yml, as the run does. Beside it: the
teardown playbook and a deploy of the same from nothing. Who was restarted is told by pid and start time.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.alone import alone, rounds, say, scratch, timed
from bench.findings import Findings, Row, Target, compared
from microshard.plan.model import Plan
from microshard.run.backend import Local
from microshard.run.cluster import choose, down, up
from microshard.run.folder import RunFolder
from microshard.run.prepare import Prepared, prepared, write_variables
from microshard.run.stage_line import StageLine

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


class Redeploys:
    """A run whose one point is deployed as one thing and then as another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = Local()
        self.listener = StageLine(Console(stderr=True, quiet=True))

    def experiment(self, port: int | str, change: dict[str, Any]) -> Path:
        """The experiment file with a change."""
        path = self.folder / "experiment.yml"
        path.write_text(EXPERIMENT.format(**{**BASE, **change, "port": port}), encoding="utf-8")
        return path

    def measure(self, change: dict[str, Any]) -> tuple[float, float, int, int]:
        """Seconds of the redeploy; of teardown and deploy; processes restarted; processes new."""
        runs = self.folder / "runs"
        with prepared(self.experiment("auto", {}), runs=runs) as ready:
            picked = dataclasses.replace(ready, plan=choose(ready.plan, None))
            run = up(picked, runs, self.listener)
            try:
                port = min(p.port for p in picked.plan.points[0].processes)
                before = pids(run)
                with self.planned(port, change) as other:
                    variables = self.write(run, other)
                playbooks = self.backend.playbooks(run, lambda _event: None, ())
                seconds = timed(lambda: playbooks.run("deploy", variables))
                after = pids(run)
                restarted = sum(before[name] != after.get(name) for name in before)
                new = len(after.keys() - before.keys())

                def anew() -> None:
                    playbooks.run("teardown", variables)
                    playbooks.run("deploy", variables)

                return seconds, timed(anew), restarted, new
            finally:
                if left := down(run, self.listener):
                    raise SystemExit(f"left: {left}")

    def planned(self, port: int, change: dict[str, Any]) -> Any:
        """The plan of the changed experiment on the same ports."""
        return prepared(self.experiment(port, change), runs=self.folder / "runs")

    def write(self, run: RunFolder, other: Prepared) -> Path:
        """The variables of the changed point in place of those that are there."""
        plan: Plan = other.plan
        (point,) = plan.points
        return write_variables(run, point, self.backend.binaries(plan)[point.id], None, backend=self.backend)


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
    taken: dict[str, list[tuple[float, float, int, int]]] = defaultdict(list)
    changes = {name: CHANGES[name] for name in CHANGES if not quick or name in {"one more shard", "another cache"}}
    for _ in rounds(1 if quick else 3, 1 if quick else 5, 130):
        for name, (change, _must, _new) in changes.items():
            with scratch() as folder:
                taken[name].append(Redeploys(folder).measure(change))
            say(f"{name}: {json.dumps(taken[name][-1])}")
    for name, (_change, must, new) in changes.items():
        mine = taken[name]
        ours, anew = [one[0] for one in mine], [one[1] for one in mine]
        what = f"redeploy with {name}"
        found.rows.append(compared(3, what, ours, "tearing all down and up", anew, "s", Target(1.0)))
        wrong = statistics.median(abs(one[2] - must) + abs(one[3] - new) for one in mine)
        seen = f"restarted {mine[-1][2]}, new {mine[-1][3]}"
        note = f"{name}: {must} to be restarted, {new} new, of {SHARDS + 2} processes; {seen}"
        what += ": restarted though unchanged, or not though changed"
        found.rows.append(Row(3, what, "", wrong, None, Target(0), unit="processes", note=note))
    return found


if __name__ == "__main__":
    sys.exit(alone(measure))
