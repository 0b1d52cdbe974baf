"""docs/benchmarks.md and its picture, from findings."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import picture, render
from bench.alone import available_mib
from bench.catalog import TABLE
from bench.findings import Findings, Row
from microshard.embedded.binary import find_mongod, version

_HEAD = """# Benchmarks

Written by `make bench` ({seconds} s; {form}), {date}. Machine: {cpu}, {cores} cores, {ram} GB RAM, {system}; MongoDB
{mongod}. Load before it began: {load}.

Every figure stands beside what one would take instead, measured in the same run in turns. *figure* is ours over the
other (×), or the figure itself where nothing stands beside it; medians with 95 % bootstrap intervals, *n* repetitions.
With three repetitions no interval covers more than 75 %. *unsure*: the interval reaches over the limit. What each
benchmark does stands at the head of `bench/NAME.py`; `.venv/bin/python -m bench.NAME` runs one.

![how much of what is asked each figure uses, and how figures grow](benchmarks.svg)
"""


@dataclass(frozen=True)
class Machine:
    """Where it was measured."""

    cpu: str
    cores: int
    ram_gb: float
    system: str
    mongod: str
    load: float  # average over a minute, before anything was started
    available_gb: float


def machine() -> Machine:
    """This machine, now."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    system = f"Linux {platform.release()}"
    return Machine(
        cpu,
        os.cpu_count() or 1,
        ram,
        system,
        str(version(find_mongod(None))),
        os.getloadavg()[0],
        available_mib() / 1024,
    )


def write(out: Path, found: Mapping[str, Findings], where: Machine, *, seconds: float, quick: bool) -> list[Path]:
    """Write both files; returns their paths."""
    rows = sorted((row for one in found.values() for row in one.rows), key=lambda row: row.number or 99)
    growths = [growth for one in found.values() for growth in one.growths if len(growth.sizes) > 1]
    missing = [what for one in found.values() for what in one.missing]
    out.mkdir(parents=True, exist_ok=True)
    drawn = out / "benchmarks.svg"
    picture.draw(drawn, rows, growths)
    lines = [
        _HEAD.format(
            seconds=round(seconds),
            form="`QUICK=1`: few repetitions, small sizes" if quick else "the whole",
            date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            cpu=where.cpu,
            cores=where.cores,
            ram=round(where.ram_gb),
            system=where.system,
            mongod=where.mongod,
            load=f"{where.load:.1f}",
        )
    ]
    asked = [row for row in rows if row.target]
    lines += ["## What is asked", "", *_summary(asked), ""]
    lines += ["## All figures", "", *render.rows_table(rows), ""]
    notes = dict.fromkeys(f"- {row.number or 'besides'}: {row.note}" for row in rows if row.note)
    lines += ["## Notes", "", *notes, ""] if notes else []
    lines += ["## Growth", "", "Exponent b of figure = a · size^b, least squares on logarithms.", ""]
    lines += [*render.growth_table(growths), ""]
    lines += ["## Not measured", "", *(f"- {what}" for what in missing), ""] if missing else []
    path = out / "benchmarks.md"
    path.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
    return [path, drawn]


def _summary(asked: list[Row]) -> list[str]:
    """Held and not held, a row of the table each."""
    lines = ["| # | what | asked | held | not held |", "|---|---|---|---|---|"]
    for number in dict.fromkeys(row.number for row in asked):
        mine = [row for row in asked if row.number == number]
        broken = "; ".join(
            f"{row.name}: {render.figure(row)}, asked {render.target(row.target, row.unit)}"
            for row in mine
            if not row.held
        )
        held = sum(bool(row.held) for row in mine)
        lines.append(f"| {number or ''} | {TABLE[number]} | {len(mine)} | {held} | {broken or '–'} |")
    return lines
