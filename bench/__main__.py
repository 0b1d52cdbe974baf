"""`make bench`: every benchmark of the catalogue, one after the other, and docs/benchmarks.md with its picture."""

import argparse
import datetime
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench import page, supervised
from bench.alone import ROOT
from bench.catalog import BENCHES, Bench
from bench.findings import Findings

# All of it; a benchmark that would not fit any more is left out by name.
SECONDS, QUICK_SECONDS = 75 * 60, 15 * 60
_LEAST = 15.0  # s: less is not worth a start


def main() -> int:
    """Run and write; 0 when all ran, whether targets are held or not: the page says that."""
    names = [bench.module for bench in BENCHES]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions, small sizes: does all of it still run?")
    some = f"{', '.join(names)}; the others' figures stay"
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=some)
    parser.add_argument("--out", type=Path, help="folder for benchmarks.md, .svg and .json (docs; quick: none)")
    parser.add_argument("--seconds", type=float, help="most the whole may take (4500; quick: 900)")
    given = parser.parse_args()
    out = given.out or (None if given.quick else ROOT / "docs")
    machine = page.machine()
    kept: dict[str, Findings] = {}
    if out and given.only:
        known = page.kept(out, machine)
        if known is None:
            parser.error(f"{out / page.DATA} is of another machine or MongoDB: measure all, or name another --out")
        kept = known
    end = time.monotonic() + (given.seconds or (QUICK_SECONDS if given.quick else SECONDS))
    supervised.adopt_orphans()
    began = time.monotonic()
    found: dict[str, Findings] = {}
    broken = 0
    scratch = Path(tempfile.mkdtemp(prefix="microshard-bench-"))
    try:
        for bench in BENCHES:
            if bench.module not in (given.only or names) or (given.quick and not bench.in_quick):
                continue
            found[bench.module], problem = _one(bench, scratch, quick=given.quick, end=end)
            broken += bool(problem)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    took = time.monotonic() - began
    print(f"== {took:.0f} s in all", flush=True)
    if out:
        for path in page.write(out, kept | {n: one for n, one in found.items() if one.rows or n not in kept}, machine):
            print(f"written: {path}")
    return 1 if broken else 0


def _one(bench: Bench, scratch: Path, *, quick: bool, end: float) -> tuple[Findings, str]:
    """A benchmark's findings, and why it has none."""
    seconds = min(bench.quick_seconds if quick else bench.seconds, end - time.monotonic())
    if not quick:
        _settle()
    load = os.getloadavg()[0]
    print(f"== {bench.module} (load {load:.1f}, at most {max(seconds, 0):.0f} s)", flush=True)
    began = time.monotonic()
    result = scratch / f"{bench.module}.json"
    problem = "no time was left for it"
    if seconds >= _LEAST:
        command = [sys.executable, "-m", f"bench.{bench.module}", "--json", str(result), *(["--quick"] * quick)]
        problem = supervised.run(command, scratch / bench.module, ROOT, seconds)
    try:
        findings = Findings.of_json(json.loads(result.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        findings = Findings()
        problem = problem or "it broke off"
    if problem:
        print(f"== {bench.module}: {problem}", flush=True)
        numbers = ", ".join(str(number) for number in bench.rows if number) or "besides"
        findings.missing.append(f"{numbers}: {bench.module}: {problem}")
    findings.date, findings.load = datetime.datetime.now(tz=datetime.UTC).date().isoformat(), load
    findings.seconds = round(time.monotonic() - began, 1)
    print(f"   {findings.seconds:.0f} s", flush=True)
    return findings, problem


def _settle() -> None:
    """Wait, half a minute at most, until the last benchmark's pages are written and its hosts have ended."""
    os.sync()
    for _ in range(10):
        before = _idle_seconds()
        time.sleep(3)
        if _idle_seconds() - before > 0.9 * 3 * (os.cpu_count() or 1):
            return


def _idle_seconds() -> float:
    """Seconds in which cores had nothing to do since the machine began, all cores together."""
    ticks = int(Path("/proc/stat").read_text(encoding="ascii").split()[4])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main())
