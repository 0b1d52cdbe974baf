"""Planning and validating experiments of up to 10,000 points (row 8): seconds of the commands, and their growth."""

import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from bench.alone import BIN, alone, rounds, say, scratch, timed
from bench.findings import Findings, Target, absolute, growth

LIMIT = 120  # s, for one command
# Shard counts and cache sizes, and an axis of the balancer or of the workload: points as sweeps have them.
EXPERIMENT = """
microshard: 1
name: bench-planning
topology:
  storage: {{cache: {{policy: per_process_mb, value: 256}}}}
  collections: [{{namespace: vosa.mot_results, shard_key: {{_id: 1}}, presplit: {{policy: key_ranges}}}}]
workload:
  - load: {{engine: insert, documents: 1000}}
  - measure: {{engine: aggregate, pipeline: mot_greenness}}
matrix:
  topology.shards.count: [1, 2]
  topology.storage.cache.value: {caches}
  {axis}: {values}
repetitions: 1
order: {{redeploy: per_repetition}}
"""


BALANCER, WORKLOAD = "topology.balancer.chunk_size_mb", "workload.0.load.seed"


def experiment(path: Path, points: int, axis: str = BALANCER) -> Path:
    """An experiment of so many points, a multiple of 200."""
    values = {"caches": list(range(256, 356)), "values": list(range(1, points // 200 + 1))}
    path.write_text(EXPERIMENT.format(axis=axis, **values), encoding="utf-8")
    return path


def measure(quick: bool) -> Findings:
    """Row 8; growth with points."""
    sizes = (1000, 10000) if quick else (1000, 3000, 10000)
    taken: dict[tuple[str, str], dict[int, list[float]]] = {}
    with scratch() as folder:
        for _ in rounds(1 if quick else 3, 1 if quick else 5, 40):
            for points in sizes:
                for command, axis in (("validate", BALANCER), ("plan", BALANCER), ("plan", WORKLOAD)):
                    file = experiment(folder / "experiment.yml", points, axis)
                    options = ["--runs-dir", str(folder / "runs")] if command == "plan" else []
                    words = [str(BIN / "microshard"), command, str(file), *options]
                    called = partial(subprocess.run, words, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
                    seconds = timed(called)
                    taken.setdefault((command, axis), {}).setdefault(points, []).append(seconds)
                    say(f"{command} {points} points, axis {axis}: {seconds:.2f} s")
    found = Findings()
    for (command, axis), series in taken.items():
        name = f"microshard {command}, 10,000 points" + (", an axis of the workload" if axis == WORKLOAD else "")
        found.rows.append(absolute(8, name, series[10000], "s", Target(3.0), _made_of(command, series)))
        found.growths.append(growth(name.replace(", 10,000 points", ""), "points", "s", series))
    return found


def _made_of(command: str, series: dict[int, list[float]]) -> str:
    """What is spent whatever there is to plan, and on each point."""
    fewer, more = (statistics.median(series[points]) for points in (1000, 10000))
    each = (more - fewer) / 9000
    return (
        f"microshard {command}: {fewer - 1000 * each:.2f} s whatever there is to plan (Python, pydantic's models, the "
        f"engines), {each * 1e6:.0f} µs a point, all in one thread"
    )


if __name__ == "__main__":
    sys.exit(alone(measure))
