"""How long the report of a large run takes and how large it is; compare and export of such runs.

The runs are fabricated (tests/report/make_run.py), 1,000 points of five repetitions, once with the plain parts of a
result and once with what a YCSB run adds: four latency histograms a measurement, windows, six rungs. Telemetry is
added until the folder has the size that export is measured with. Every step runs in a process of its own, so that the
time is that of a command and the peak of memory is its own. JSON lines for programs, then a table for people.

    .venv/bin/python bench/report.py [--points 1000] [--repetitions 5] [--megabytes 100] [--profile]
"""

import argparse
import cProfile
import dataclasses
import json
import os
import pstats
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

LIMITS = {"report": 10.0, "compare": 5.0, "export": 5.0}  # s; export for each 100 MB
PAGE_LIMIT = 15.0  # MB


def make(folder: Path, points: int, repetitions: int, kind: str, seed: int) -> Path:
    """Fabricate a run below `folder` and return its path."""
    from tests.report.make_run import large, make_run  # noqa: PLC0415 - the timed processes do without

    folder.mkdir(parents=True)
    return make_run(folder, dataclasses.replace(large(points, repetitions), kind=kind, noise_seed=seed))


def add_telemetry(run: Path, megabytes: float) -> None:
    """Host records until the run holds so many MB in all."""
    rng = random.Random(1)
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    folder = run / "telemetry" / "p01" / "r1"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "host-local.jsonl").open("w", encoding="utf-8") as file:
        clock = 1_753_000_000.0
        while size < megabytes * 1e6:
            clock += 1
            record = {
                "t": clock, "host": "local", "seconds": 1.0, "cores": 2,
                "cpu": {name: round(rng.random(), 4) for name in ("user", "sys", "iowait", "idle", "steal")},
                "mem": {"total": 8_000_000_000, "available": rng.randrange(8_000_000_000)},
                "proc": {f"shard{n:02d}": {"pid": 4000 + n, "cpu": round(rng.random(), 4), "rss": rng.randrange(10**8)}
                         for n in range(16)},
            }  # fmt: skip
            size += file.write(json.dumps(record) + "\n")


def step(name: str, run: Path, other: Path) -> float:
    """Do one step in this process; returns its seconds without the interpreter's start."""
    started = time.perf_counter()
    if name == "report":
        from microshard.report import write  # noqa: PLC0415 - its import is part of what is timed

        write(run)
    elif name == "compare":
        from microshard.compare.runs import compare  # noqa: PLC0415 - its import is part of what is timed

        compare(run, other)
    else:
        from microshard.run.folder import RunFolder  # noqa: PLC0415 - its import is part of what is timed
        from microshard.share.bundle import export  # noqa: PLC0415 - its import is part of what is timed
        from microshard.share.redact import for_run  # noqa: PLC0415 - its import is part of what is timed

        export(
            RunFolder.open(run), run.parent / "bundle.microshard.tgz", for_run(run, Path(__file__).resolve().parents[1])
        )
    return time.perf_counter() - started


def measure(name: str, run: Path, other: Path, *, profile: bool) -> dict[str, float]:
    """A step in a process of its own: seconds from its start to its end, and the peak of its memory."""
    command = [sys.executable, __file__, "--step", name, "--run", str(run), "--other", str(other)]
    if profile:
        command.append("--profile")
    started = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=not profile, env=os.environ | {"PYTHONHASHSEED": "0"})
    seconds = time.perf_counter() - started
    told = {} if profile else json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, **told}


def main() -> int:
    """Measure and print; 0 when every limit is kept."""
    parser = argparse.ArgumentParser(description="How long reports, comparisons and exports of large runs take")
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=100.0, help="size of the run that is exported")
    parser.add_argument("--profile", action="store_true", help="show where the time of each step goes")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--other", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        return _child(given)
    kept = True
    lines = []
    with tempfile.TemporaryDirectory(prefix="microshard-bench-") as scratch:
        for kind in ("", "ladder"):
            name = kind or "plain"
            runs = [make(Path(scratch) / f"{name}{n}", given.points, given.repetitions, kind, n) for n in (7, 8)]
            for what in ("report", "compare", "export"):
                if what == "export":
                    add_telemetry(runs[0], given.megabytes)
                held = sum(path.stat().st_size for path in runs[0].rglob("*") if path.is_file()) / 1e6
                limit = LIMITS[what] * (held / 100 if what == "export" else 1)
                found = measure(what, *runs, profile=given.profile)
                page_mb = 0.0
                row = {"run": name, "step": what, **found, "limit": limit, "run_mb": held}
                kept &= found["seconds"] <= limit
                if what == "report":
                    page_mb = (runs[0] / "report" / "report.html").stat().st_size / 1e6
                    kept &= page_mb <= PAGE_LIMIT
                print(json.dumps(row | {"page_mb": page_mb}), flush=True)
                page = f", page {page_mb:.1f} of {PAGE_LIMIT:g} MB" if page_mb else ""
                cpu = found.get("cpu_seconds", 0.0)
                lines.append(
                    f"{name:7} {what:8} {found['seconds']:6.1f} s of {limit:.1f} s ({cpu:.1f} s of CPU), "
                    f"run of {held:.0f} MB{page}"
                )
    print("\n".join(lines))
    return 0 if kept else 1


def _child(given: argparse.Namespace) -> int:
    if given.profile:
        profiler = cProfile.Profile()
        profiler.runcall(step, given.step, given.run, given.other)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
        return 0
    seconds = step(given.step, given.run, given.other)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cpu = time.process_time()
    print(json.dumps({"without_start": seconds, "cpu_seconds": cpu, "peak_mib": peak}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
