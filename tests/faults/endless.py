"""Deploys and teardowns in a row, in one run: memory, open files, temporary files and ports must not grow."""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from tests.faults.kills import definition
from tests.faults.table import Row
from tests.faults.watched import Watched, left

# What a hundred deploys may add. The runner keeps every result in memory until the report: that is some of it.
MOST = {"rss_mib": 16.0, "files": 0.9, "temporary": 0.9, "ports": 0.9}
NOISE = {"rss_mib": 4.0, "files": 1.5, "temporary": 1.5, "ports": 1.5}  # whatever the number of deploys


@dataclass(frozen=True, slots=True)
class Sample:
    """The runner after a deployment."""

    rss_mib: float
    files: int
    temporary: int  # entries of the run's tmp folder
    ports: int  # sockets the runner has


def grown(samples: Sequence[Sample]) -> Iterator[str]:
    """What grows: the median of the last quarter against that of the second one (the first warms up)."""
    quarter = len(samples) // 4
    for name, most in MOST.items():
        values = [float(getattr(sample, name)) for sample in samples]
        more = statistics.median(values[-quarter:]) - statistics.median(values[quarter : 2 * quarter])
        if more > max(NOISE[name], most * (len(samples) * 5 / 8) / 100):
            yield f"{name} grew by {more:.1f} over {len(samples)} deploys"


def _sample(pid: int, folder: Path) -> Sample:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(str(entry.readlink()))
    return Sample(
        rss_mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        files=len(links),
        temporary=sum(1 for _ in (folder / "tmp").iterdir()),
        ports=sum(1 for link in links if link.startswith("socket:")),
    )


def campaign(folder: Path, deploys: int, tell: Callable[[str], None] = lambda _: None) -> Row:
    """One run with a deployment for every measurement."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "endless.yml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(
            definition("standalone")
            | {
                "matrix": {},
                "repetitions": deploys,
                "order": {"redeploy": "per_repetition"},
                "name": "endless",
                # What is measured does not matter here, only that it is deployed, measured and torn down.
                "workload": [
                    {"load": {"engine": "insert", "documents": 100, "seed": 7}},
                    {"measure": {"engine": "aggregate", "pipeline": "mot_greenness", "iterations": 1}},
                ],
            },
            file,
        )
    row = Row("deploys in a row", "runner")
    watched = Watched(("run", str(path)), folder, f"endless-{os.getpid()}")
    samples: list[Sample] = []
    try:
        while not watched.is_over:
            done = watched.events().count("step done")
            if done > len(samples) and watched.run is not None:
                with contextlib.suppress(OSError, ValueError):
                    samples.append(_sample(watched.process.pid, watched.run.path))
                    tell(f"{done} deploys: {samples[-1]}")
            time.sleep(0.1)
    finally:
        if not watched.is_over:  # the campaign was stopped: its run stops too, and cleans up
            watched.process.terminate()
            watched.process.wait()
    row.times = len(samples)
    if watched.process.returncode != 0 or len(samples) < deploys * 0.9:
        row.lost.append(f"exit code {watched.process.returncode} after {len(samples)}: {watched.said()[-1000:]}")
    if len(samples) >= 8:
        row.left += grown(samples)
    row.left += left(watched.run, watched.token)
    watched.close()
    return row
