"""How long the report of a large run takes and how large it is; compare and export of such runs.

The runs are fabricated (tests/report/make_run.py), 1,000 points of five repetitions, once with the plain parts of a
result and once with what a YCSB run adds: four latency histograms a measurement, windows, six rungs. Telemetry is
added until the folder has the size that export is measured with. Every step runs in a process of its own, so that the
time is that of a command and the peak of memory is its own. `--profile` shows where the time of each step goes.
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
import time
from pathlib import Path

from bench.alone import ROOT, alone, say, scratch
from bench.findings import Findings, Target, absolute

LIMITS = {"report": 10.0, "compare": 5.0, "export": 5.0}  # s; export for each 100 MB
PAGE_LIMIT = 15.0  # MB
LIMIT_SECONDS = 120  # for one step


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
        from microshard.analysis.comparison import compare  # noqa: PLC0415 - its import is part of what is timed

        compare(run, other)
    else:
        from microshard.records.bundle import export  # noqa: PLC0415 - its import is part of what is timed
        from microshard.records.redaction import for_run  # noqa: PLC0415 - its import is part of what is timed
        from microshard.records.run_folder import RunFolder  # noqa: PLC0415 - its import is part of what is timed

        export(RunFolder.open(run), run.parent / "bundle.microshard.tgz", for_run(run, ROOT))
    return time.perf_counter() - started


def measured(name: str, run: Path, other: Path, *, profile: bool) -> dict[str, float]:
    """A step in a process of its own: seconds from its start to its end, and the peak of its memory."""
    command = [sys.executable, "-m", "bench.report", "--step", name, "--run", str(run), "--other", str(other)]
    if profile:
        command.append("--profile")
    started = time.perf_counter()
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, check=True, capture_output=not profile, env=environment, cwd=ROOT, timeout=LIMIT_SECONDS
    )
    seconds = time.perf_counter() - started
    reported = {} if profile else json.loads(done.stdout.splitlines()[-1])
    return {"seconds": seconds, **reported}


def found_in(points: int, repetitions: int, megabytes: float, *, profile: bool) -> Findings:
    """Rows of all steps for both kinds of runs."""
    found = Findings()
    with scratch() as folder:
        for kind in ("", "ladder"):
            name = kind or "plain"
            runs = [make(folder / f"{name}{n}", points, repetitions, kind, n) for n in (7, 8)]
            for what in ("report", "compare", "export"):
                if what == "export":
                    add_telemetry(runs[0], megabytes)
                held = sum(path.stat().st_size for path in runs[0].rglob("*") if path.is_file()) / 1e6
                taken = measured(what, *runs, profile=profile)
                limit = LIMITS[what] * (held / 100 if what == "export" else 1)
                size = f"{points:,} points, {held:.0f} MB"
                target = Target(limit) if points == 1000 else None
                peak = taken.get("peak_mib", 0.0)
                row = absolute(0, f"{what} of a {name} run, {size}", [taken["seconds"]], "s", target)
                found.rows.append(dataclasses.replace(row, note=f"{what}, {name}: peak of memory {peak:.0f} MiB"))
                if what == "report":
                    page = (runs[0] / "report" / "report.html").stat().st_size / 1e6
                    limit_mb = Target(PAGE_LIMIT)
                    found.rows.append(absolute(0, f"page of a {name} run, {points:,} points", [page], "MB", limit_mb))
                say(f"{name} {what}: {taken['seconds']:.1f} s")
    return found


def measure(quick: bool) -> Findings:
    """Rows that are not in the table."""
    return found_in(*((100, 2, 10.0) if quick else (1000, 5, 100.0)), profile=False)


def main() -> int:
    """One step in this process, on request; else the benchmark."""
    if "--step" not in sys.argv and "--profile" not in sys.argv:
        return alone(measure)
    parser = argparse.ArgumentParser(description="Where the time of reports, comparisons and exports goes")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--step")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--other", type=Path)
    given = parser.parse_args()
    if given.step:
        return _child(given)
    found_in(1000, 5, 100.0, profile=True)
    return 0


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
