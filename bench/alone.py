"""What every benchmark needs: rounds within a time, progress, a scratch folder, its own command line."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import render
from bench.findings import Findings

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent


def say(text: str) -> None:
    """A line of progress."""
    print(f"  {text}", file=sys.stderr, flush=True)


def rounds(least: int, most: int, seconds: float) -> Iterator[int]:
    """Numbers of rounds: `least` in any case, then more up to `most` while the next is likely to end in time."""
    began = time.monotonic()
    for number in range(most):
        spent = time.monotonic() - began
        if number >= least and spent + spent / number > seconds:
            return
        yield number


def timed(action: Callable[[], object]) -> float:
    """Seconds an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards, and with it every process whose command line names it."""
    folder = Path(tempfile.mkdtemp(prefix="microshard-bench-"))
    try:
        yield folder
    finally:
        end_in(folder)
        shutil.rmtree(folder, ignore_errors=True)


def end_in(folder: Path) -> None:
    """End what still works in a scratch folder: servers of a tool that failed half way, for example."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


def available_mib() -> float:
    """RAM that may be used now, MiB."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return 0.0


def alone(measure: Callable[[bool], Findings]) -> int:
    """The command line of one benchmark: measure, print, and 1 where a target is not held."""
    parser = argparse.ArgumentParser(description=(sys.modules[measure.__module__].__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and sizes, the same code")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the findings there too")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is up is taken down
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # users' Pythons keep what they have compiled
    found = measure(given.quick)
    if given.json:
        given.json.write_text(json.dumps(found.as_json()), encoding="utf-8")
    print(render.text(found))
    return 1 if any(row.met is False for row in found.rows) else 0
