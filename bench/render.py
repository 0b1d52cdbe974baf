"""Findings as text for a terminal and as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

from bench.findings import Findings, Growth, Row, Target, told


def figure(row: Row) -> str:
    """The ratio or figure."""
    return told(row.ratio, row.unit)


def interval(row: Row) -> str:
    """The interval of the figure."""
    if row.interval is None:
        return "–"
    low, high = row.interval
    return f"{told(low, '').strip()} – {told(high, '').strip()}"


def target(wanted: Target | None, unit: str) -> str:
    """What is asked for."""
    if wanted is None:
        return "–"
    return f"{'≤' if wanted.most else '≥'} {told(wanted.limit, unit)}"


def verdict(row: Row) -> str:
    """Whether the target is held; where the interval reaches over it, that too."""
    if row.target is None or row.held is None:
        return "–"
    word = "yes" if row.held else "**no**"
    unsure = row.interval is not None and len({row.target.held(end) for end in row.interval}) > 1
    return f"{word} (unsure)" if unsure else word


def exponent(growth: Growth) -> str:
    """The exponent with its interval."""
    if growth.exponent is None:
        return "–"
    if growth.interval is None:
        return f"{growth.exponent:.2f}"
    return f"{growth.exponent:.2f} ({growth.interval[0]:.2f} – {growth.interval[1]:.2f})"


def points(growth: Growth) -> str:
    """Size and figure, one after the other."""
    pairs = zip(growth.sizes, growth.medians, strict=True)
    return ", ".join(f"{size:,}: {told(value, growth.unit)}" for size, value in pairs)


def text(found: Findings) -> str:
    """For a terminal."""
    lines = []
    for row in found.rows:
        medians = f" ({row.ours} / {row.other})" if row.other else ""
        against = f" against {row.beside}" if row.beside else ""
        said = f"{row.number:2d}  {row.name}{against}: {figure(row)}{medians}"
        if row.interval:
            said += f" [{interval(row)}]"
        if row.target:
            said += f", asked {target(row.target, row.unit)}: {verdict(row).replace('*', '')}"
        lines.append(said)
    lines += [f"    {one.name} by {one.along}: {points(one)}; exponent {exponent(one)}" for one in found.growths]
    lines += dict.fromkeys(f"    {row.note}" for row in found.rows if row.note)
    lines += [f"    not measured: {what}" for what in found.missing]
    return "\n".join(lines)


def rows_table(rows: Iterable[Row]) -> list[str]:
    """Markdown lines of a table of rows."""
    lines = [
        "| # | what | beside | ours | the other | figure | 95 % | asked | held | n |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.number or ''} | {row.name} | {row.beside or '–'} | {row.ours or '–'} | {row.other or '–'} "
        f"| {figure(row)} | {interval(row)} | {target(row.target, row.unit)} | {verdict(row)} | {row.repetitions} |"
        for row in rows
    ]
    return lines


def growth_table(growths: Iterable[Growth]) -> list[str]:
    """Markdown lines of a table of growths."""
    lines = ["| what | by | figures | exponent |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.along} | {points(one)} | {exponent(one)} |" for one in growths]
    return lines
