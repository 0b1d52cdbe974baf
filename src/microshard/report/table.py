"""The table in the terminal: partial while the run is active, complete at the end.

Columns are left out by priority until the table fits; a line is never broken. Nothing is said by colour alone.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from microshard.analysis.report_model import ReportModel
from microshard.report import format as fmt
from microshard.report import headline
from microshard.report.tables import summary_columns
from microshard.terminal_table import FittingTable, TextColumn, in_ascii, texts

MOST_ROWS = 60  # of the final table; the report has them all
MOST_NOTICES = 8
LIVE_ROWS = 20

LiveState = Literal["waiting", "deploying", "loading", "measuring", "done", "partial", "failed"]

_STYLES = {"failed": "bold red", "partial": "yellow", "waiting": "dim", "done": "green"}
_MARKS = {"equal": ("✓", "green"), "differs": ("✗ differs", "bold red"), "none": (fmt.NONE, "dim")}
_CPU = ("user", "sys", "iowait", "idle")
_NARROW = {  # headings on two lines
    "bound by": "bound\nby", "efficiency": "effic.\n%", "of the cores": "of the\ncores %",
    "published speed-up": "pub-\nlished", "load": "load\ndocs/s",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LivePoint:
    """A point while the run is active."""

    label: str
    state: LiveState
    done: int  # repetitions with a valid value
    planned: int
    values: tuple[float, ...] = ()  # of the main metric, measured so far
    metric: str = ""
    unit: str = ""
    note: str = ""  # what is happening: "41,210 documents/s"
    bottleneck: str = ""  # the verdict so far


def final(model: ReportModel, width: int | None = None) -> RenderableType:
    """The table at the end of a run, at most `width` columns wide; as wide as the terminal when None."""
    if not model.points:
        return Text("no points")
    hidden = len(model.points) - MOST_ROWS
    below = f"… and {hidden:,} more points, all of them in the report" if hidden > 0 else ""
    wide = _columns(model)
    cpu = [column for column in wide if column.header.partition("\n")[0] in _CPU]
    compact = [column for column in wide if column not in cpu]
    if cpu:
        joined = ["/".join(texts) for texts in zip(*([cell.plain for cell in c.cells] for c in cpu), strict=True)]
        unknown = "/".join(fmt.NONE for _ in cpu)
        shares = [fmt.NONE if cell == unknown else cell for cell in joined]
        compact.insert(wide.index(cpu[0]), texts("us/sy/wa/id\n%", shares, 8, right=True))
    parts: list[RenderableType] = [
        FittingTable(wide, width, headline.headline(model), below, compact, elsewhere="the report has them")
    ]
    serious = [notice for notice in model.notices if notice.level != "note"]
    parts += [_Notice(notice.level, notice.text) for notice in serious[:MOST_NOTICES]]
    if len(serious) > MOST_NOTICES:
        parts.append(_Notice("", f"… and {len(serious) - MOST_NOTICES} more in the report"))
    return Group(*parts)


@dataclass(frozen=True, slots=True)
class _Notice:
    """A warning below the table; long ones go on in the next line, indented."""

    level: str
    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark, style = {"error": ("ERROR   ", "bold red"), "warning": ("warning ", "yellow")}.get(self.level, ("  ", ""))
        grid = Table.grid(padding=0)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(mark, style=style), Text(in_ascii(self.text, options), style="" if style else "dim"))
        yield grid


def _columns(model: ReportModel) -> list[TextColumn]:
    """All columns of the final table."""
    points = model.points[:MOST_ROWS]
    first = model.axis_label if len(model.series) == 1 and model.axis else "point"
    columns = [texts(first, [p.label for p in points], 0, style="bold")]
    if any(p.state != "done" for p in points):
        state = tuple(Text(p.state, style=_STYLES.get(p.state, "")) for p in points)
        columns.append(TextColumn("state", state, 1, right=False))
    for column in summary_columns(model):
        header = _NARROW.get(column.name, f"{column.name}\n{column.unit}")
        style = "dim" if column.name.startswith("published") else ""
        shown = column.cells[:MOST_ROWS]
        columns.append(texts(header, shown, column.rank, right=column.name != "bound by", style=style))
    return [*columns, TextColumn("answer", tuple(Text(*_MARKS[p.answers]) for p in points), 4, right=False)]


def live(points: Sequence[LivePoint], width: int | None = None, most_rows: int = LIVE_ROWS) -> RenderableType:
    """The table while the run goes: state, repetitions done and the median so far of every point.

    Of many points those are shown where something happens, then the latest done, then the next waiting.
    """
    if not points:
        return Text("no points")
    shown = _interesting(points, most_rows)
    named = next((p for p in points if p.metric), points[0])
    columns = [
        texts("point", [p.label for p in shown], 0, style="bold"),
        TextColumn("state", tuple(Text(p.state, style=_STYLES.get(p.state, "cyan")) for p in shown), 1, right=False),
        texts("reps", [f"{p.done} of {p.planned}" for p in shown], 2, right=True),
        texts(f"{named.metric or 'value'} so far\n{named.unit}", [_so_far(p) for p in shown], 3, right=True),
        texts("bound\nby", [p.bottleneck for p in shown], 5),
        texts("range", [_range(p) for p in shown], 6, right=True, style="dim"),
        texts("now", [p.note for p in shown], 4, style="dim"),
    ]
    hidden = len(points) - len(shown)
    waiting = sum(1 for p in points if p.state == "waiting")
    below = f"… {hidden:,} more points; {waiting:,} of {len(points):,} wait" if hidden else ""
    kept = [c for c in columns if c.header not in {"bound\nby", "now"} or any(cell.plain for cell in c.cells)]
    return FittingTable(kept, width, "", below)


def _so_far(point: LivePoint) -> str:
    return fmt.number(statistics.median(point.values)) if point.values else fmt.NONE


def _range(point: LivePoint) -> str:
    if len(point.values) < 2:
        return ""
    return f"{fmt.number(min(point.values))}{fmt.DASH}{fmt.number(max(point.values))}"


def _interesting(points: Sequence[LivePoint], most: int) -> list[LivePoint]:
    if len(points) <= most:
        return list(points)
    places = range(len(points))
    busy = [i for i in places if points[i].state in {"deploying", "loading", "measuring", "failed"}]
    over = [i for i in reversed(places) if points[i].state in {"done", "partial"}]
    ahead = [i for i in places if points[i].state == "waiting"]
    chosen = (busy + over[: max(0, most - len(busy) - 2)] + ahead)[:most]
    return [points[i] for i in sorted(chosen)]
