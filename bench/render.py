"""Findings as text for a terminal and as Markdown tables."""

from collections.abc import Iterable

from bench.findings import Findings, Growth, Row, Target, formatted


def figure(row: Row) -> str:
    """The ratio or figure."""
    return formatted(row.ratio, row.unit)


def interval(row: Row) -> str:
    """The interval of the figure."""
    if row.interval is None:
        return "–"
    low, high = row.interval
    return f"{formatted(low, '').strip()} – {formatted(high, '').strip()}"


def target(wanted: Target | None, unit: str) -> str:
    """The target."""
    if wanted is None:
        return "–"
    return f"{'≤' if wanted.most else '≥'} {formatted(wanted.limit, unit)}"


def verdict(row: Row) -> str:
    """Whether the target is held; where the interval reaches over it, that too."""
    if row.target is None or row.met is None:
        return "–"
    word = "yes" if row.met else "**no**"
    unsure = row.interval is not None and len({row.target.met(end) for end in row.interval}) > 1
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
    return ", ".join(f"{size:,}: {formatted(value, growth.unit)}" for size, value in pairs)


def text(found: Findings) -> str:
    """For a terminal."""
    lines = []
    for row in found.rows:
        medians = f" ({row.ours} / {row.other})" if row.other else ""
        against = f" against {row.baseline}" if row.baseline else ""
        line = f"{row.number:2d}  {row.name}{against}: {figure(row)}{medians}"
        if row.interval:
            line += f" [{interval(row)}]"
        if row.target:
            line += f", target {target(row.target, row.unit)}: {verdict(row).replace('*', '')}"
        lines.append(line)
    lines += [f"    {one.name} by {one.along}: {points(one)}; exponent {exponent(one)}" for one in found.growths]
    lines += dict.fromkeys(f"    {row.note}" for row in found.rows if row.note)
    lines += [f"    not measured: {what}" for what in found.missing]
    return "\n".join(lines)


def rows_table(rows: Iterable[Row]) -> list[str]:
    """Markdown lines of a table of rows."""
    lines = [
        "| # | what | baseline | ours | baseline figure | figure | 95 % | target | met | n |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.number or ''} | {row.name} | {row.baseline or '–'} | {row.ours or '–'} | {row.other or '–'} "
        f"| {figure(row)} | {interval(row)} | {target(row.target, row.unit)} | {verdict(row)} | {row.repetitions} |"
        for row in rows
    ]
    return lines


def growth_table(growths: Iterable[Growth]) -> list[str]:
    """Markdown lines of a table of growths."""
    lines = ["| what | by | figures | exponent |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.along} | {points(one)} | {exponent(one)} |" for one in growths]
    return lines
