"""A comparison for the terminal and for programs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from microshard.analysis.comparison import LEVEL, Change, ComparedPhase, Comparison
from microshard.records.differences import Difference

MOST_ROWS = 60
_STYLES = {
    "worse": "bold red",
    "better": "green",
    "no difference": "",
    "inconclusive": "yellow",
    "not comparable": "bold yellow",
}


def as_json(found: Comparison) -> dict[str, Any]:
    """Everything, for programs; ratios are the second run over the first."""
    value = dataclasses.asdict(found)
    value["level"] = LEVEL
    value["worse"] = [row.label for row in found.worse]
    return value


def render(found: Comparison, console: Console) -> None:
    """Print a comparison: what is worse first, then the rest in the order of the plan."""
    console.print(f"[bold]{found.other}[/bold] against [bold]{found.base}[/bold]", highlight=False, soft_wrap=True)
    console.print(_table(found))
    hidden = len(found.rows) - MOST_ROWS
    if hidden > 0:
        console.print(f"… and {hidden} more; --json has them all")
    for row in found.rows:
        if row.other_answer:
            console.print(f"[bold red]{row.label}: the same question was answered otherwise[/bold red]")
        for name, side in (("first", row.base), ("second", row.other)):
            if side.invalid:
                reasons = "; ".join(side.invalid[:3])
                console.print(f"[yellow]{row.label}, {name} run:[/yellow] not counted: {reasons}", highlight=False)
    for name, labels in ((found.base, found.only_base), (found.other, found.only_other)):
        if labels:
            shown = ", ".join(labels[:8]) + (" …" if len(labels) > 8 else "")
            console.print(f"only in {name}: {shown}", highlight=False, soft_wrap=True)
    _differences(console, "The experiments are not the same", found.definition)
    _differences(console, "The machines are not the same", found.environment)
    if not found.definition and not found.environment:
        console.print("The definitions and the machines are the same.")
    console.print(summary(found), highlight=False)


def summary(found: Comparison) -> str:
    """One sentence on all points."""
    count = {verdict: sum(row.change.verdict == verdict for row in found.rows) for verdict in _STYLES}
    parts = [f"{number} {verdict}" for verdict, number in count.items() if number]
    beyond = f" beyond {found.tolerance:.1%}" if found.tolerance else ""
    text = f"{len(found.rows)} measured: {', '.join(parts)}{beyond} ({LEVEL:.0%}, adjusted for their number)"
    if found.incomparable:
        text += "; points that loaded other data or measured another query are not compared: see what differs above"
    if found.unseen and count["no difference"]:
        (least, _), (most, label) = found.unseen[0], found.unseen[-1]
        spread = f" ({most:.1%} at {label})" if most > least else ""
        text += f"; differences below {least:.1%}{spread} could not have been seen"
    return text


def _table(found: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    several = len({row.phase for row in found.rows}) > 1
    table.add_column("point")
    if several:
        table.add_column("phase")
    for name in ("first", "second"):
        table.add_column(f"{name}\n[dim]mean[/dim]", justify="right")
    table.add_column("change", justify="right")
    table.add_column(f"{LEVEL:.0%} interval", justify="right")
    table.add_column("verdict")
    bad = {id(row) for row in found.worse}
    for row in sorted(found.rows, key=lambda r: id(r) not in bad)[:MOST_ROWS]:
        cells: list[str | Text] = [row.label, *([row.phase] if several else [])]
        cells += [_value(row.base.mean, row), _value(row.other.mean, row), *_change(row.change)]
        verdict = Text("another answer" if row.other_answer else row.change.verdict)
        if row.change.why:
            verdict.append(f": {row.change.why}")
        verdict.stylize("bold red" if row.other_answer else _STYLES[row.change.verdict])
        table.add_row(*cells, verdict)
    return table


def _value(value: float | None, row: ComparedPhase) -> str:
    return "–" if value is None else f"{value:,.4g} {row.unit}".rstrip()


def _change(change: Change) -> tuple[str, str]:
    ratio = "–" if change.ratio is None else f"{change.ratio - 1:+.1%}"
    if change.low is None or change.high is None:
        return ratio, "–"
    return ratio, f"{change.low - 1:+.1%} … {change.high - 1:+.1%}"


def _differences(console: Console, title: str, found: Sequence[Difference]) -> None:
    if not found:
        return
    console.print(f"[yellow]{title}:[/yellow]")
    for item in found[:25]:
        console.print(f"  {item}", highlight=False, soft_wrap=True)
    if len(found) > 25:
        console.print(f"  … and {len(found) - 25} more; --json has them all")
