"""docs/benchmarks.md and its picture, from findings."""

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import picture, render
from bench.catalog import BENCHES, TABLE
from bench.findings import Findings, Row
from microshard.embedded.binary import find_mongod, version

DATA = "benchmarks.json"  # the figures of the page, for those that are not measured again
_HEAD = """# Benchmarks

Written by `make bench`. Machines: {cpu}, {cores} cores, {ram} GB RAM, {system}; MongoDB {mongod}. The last table
says what was measured when.

Every figure is compared with a baseline, what one would use instead, measured in turns in the same run. *ours* and
*baseline figure* are medians of *n* repetitions; *figure* is the median ratio (×) of neighbouring measurements, or
the figure itself where there is no baseline, with its 95 % bootstrap interval. With three repetitions no interval
covers more than 75 %. *unsure*: the interval crosses the limit. The head of
`bench/NAME.py` says what each benchmark does; `.venv/bin/python -m bench.NAME` runs one.

![the share of its target that each figure uses, and how figures grow](benchmarks.svg)
"""


@dataclass(frozen=True)
class Machine:
    """Where it was measured: a kind of machine. Of the kernel the version, without what its builder has added."""

    cpu: str
    cores: int
    ram_gb: int
    system: str
    mongod: str


def machine() -> Machine:
    """This machine, now."""
    cpu = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    ram = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
    system = f"Linux {platform.release().partition('-')[0]}"
    return Machine(cpu, os.cpu_count() or 1, ram, system, version(find_mongod(None)).text)


def kept(out: Path, where: Machine) -> dict[str, Findings] | None:
    """What was measured before on such a machine, by benchmark; None where it was another."""
    path = out / DATA
    if not path.exists():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["machine"] != dataclasses.asdict(where):
        return None
    return {name: Findings.of_json(found) for name, found in data["found"].items()}


def write(out: Path, found: Mapping[str, Findings], where: Machine) -> list[Path]:
    """Write page, picture and the figures for the next page; returns their paths."""
    found = {bench.module: found[bench.module] for bench in BENCHES if bench.module in found}
    rows = sorted((row for one in found.values() for row in one.rows), key=lambda row: row.number or 99)
    growths = [growth for one in found.values() for growth in one.growths if len(growth.sizes) > 1]
    missing = [what for one in found.values() for what in one.missing]
    out.mkdir(parents=True, exist_ok=True)
    drawn = out / "benchmarks.svg"
    picture.draw(drawn, rows, growths)
    lines = [_HEAD.format(cpu=where.cpu, cores=where.cores, ram=where.ram_gb, system=where.system, mongod=where.mongod)]
    targeted = [row for row in rows if row.target]
    lines += ["## Targets", "", *_summary(targeted), ""]
    lines += ["## All figures", "", *render.rows_table(rows), ""]
    notes = dict.fromkeys(f"- {row.number or 'other'}: {row.note}" for row in rows if row.note)
    lines += ["## Notes", "", *notes, ""] if notes else []
    lines += ["## Growth", "", "Exponent b of figure = a · size^b, least squares on logarithms.", ""]
    lines += [*render.growth_table(growths), ""]
    lines += ["## Not measured", "", *(f"- {what}" for what in missing), ""] if missing else []
    lines += ["## When", "", "Load: average over the minute before it.", ""]
    lines += ["| benchmark | rows | measured | took | load |", "|---|---|---|---|---|"]
    for bench in BENCHES:
        if one := found.get(bench.module):
            rows_of = ", ".join(str(number) for number in bench.rows if number) or "other"
            lines.append(f"| {bench.module} | {rows_of} | {one.date} | {one.seconds:.0f} s | {one.load:.1f} |")
    path = out / "benchmarks.md"
    path.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
    data = {"machine": dataclasses.asdict(where), "found": {name: one.as_json() for name, one in found.items()}}
    (out / DATA).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return [path, drawn, out / DATA]


def _summary(targeted: list[Row]) -> list[str]:
    """Targets met and missed, a row of the table each."""
    lines = ["| # | what | targets | met | missed |", "|---|---|---|---|---|"]
    for number in dict.fromkeys(row.number for row in targeted):
        mine = [row for row in targeted if row.number == number]
        broken = "; ".join(
            f"{row.name}: {render.figure(row)}, target {render.target(row.target, row.unit)}"
            for row in mine
            if not row.met
        )
        met = sum(bool(row.met) for row in mine)
        lines.append(f"| {number or ''} | {TABLE[number]} | {len(mine)} | {met} | {broken or '–'} |")
    return lines
