"""The table in the terminal: partial while the run is active, complete at the end.

Columns are left out by priority until the table fits; a line is never broken. Nothing is said by colour alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement as Width
from rich.table import Table
from rich.text import Text

from microshard.analysis.report_model import PhaseFigures, PointReport, ReportModel
from microshard.report import format as fmt
from microshard.report import takeaways

GAP = 2  # between columns
MOST_ROWS = 60  # of the final table; the report has them all
LIVE_ROWS = 20

LiveState = Literal["waiting", "deploying", "loading", "measuring", "done", "partial", "failed"]

_STYLES = {"failed": "bold red", "partial": "yellow", "waiting": "dim", "done": "green"}
_MARKS = {"equal": ("✓", "yes", "green"), "differs": ("✗ differs", "NO", "bold red"), "none": (fmt.NONE, "-", "dim")}


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


@dataclass(frozen=True, slots=True)
class _Column:
    header: str  # name and unit, on two lines
    cells: tuple[Text, ...]
    rank: int  # the lower, the longer it stays
    right: bool = True

    @property
    def width(self) -> int:
        lines = [Text(line) for line in self.header.split("\n")]
        return max(text.cell_len for text in (*lines, *self.cells))


class _Fitting:
    """A table that leaves out columns until it fits the width it is given."""

    def __init__(
        self,
        columns: Sequence[_Column],
        width: int | None,
        title: str = "",
        below: str = "",
        compact: Sequence[_Column] = (),
    ) -> None:
        self.columns = columns
        self.compact = compact or columns  # instead, where not all of `columns` fit
        self.width = width
        self.title = title
        self.below = below

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Width:
        return Width(1, min(options.max_width, self.width or options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self.width or options.max_width, options.max_width)
        first = _shortened(self.columns[0], max(12, width * 2 // 5))
        kept = _fit([first, *self.columns[1:]], width)
        if len(kept) < len(self.columns):
            kept = _fit([first, *self.compact[1:]], width)
        # one column of padding and one of the box's own divider: GAP
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for column in kept:
            table.add_column(
                column.header, justify="right" if column.right else "left", no_wrap=True, overflow="ellipsis",
                header_style="bold", vertical="bottom",
            )  # fmt: skip
        for row in range(len(self.columns[0].cells)):
            table.add_row(*(_plain(column.cells[row], options) for column in kept))
        if self.title:
            yield Text(_ascii(self.title, options), style="bold", overflow="fold")
        yield table
        if self.below:
            yield Text(_ascii(self.below, options), style="dim")


def _fit(columns: Sequence[_Column], width: int) -> list[_Column]:
    """The columns that fit, in their order; columns of one rank come and go together, the first always stays."""
    by_rank: dict[int, list[int]] = {}
    for index, column in enumerate(columns):
        by_rank.setdefault(column.rank, []).append(index)
    chosen: set[int] = set()
    used = 0
    for _, group in sorted(by_rank.items()):
        need = sum(columns[index].width for index in group) + GAP * (len(group) if chosen else len(group) - 1)
        if used + need <= width or not chosen:
            chosen.update(group)
            used += need
    return [columns[index] for index in sorted(chosen)]


def _shortened(column: _Column, most: int) -> _Column:
    """The first column, with labels cut where they would leave no room for figures."""
    if column.width <= most:
        return column
    cells = []
    for cell in column.cells:
        cut = cell.copy()
        cut.truncate(most, overflow="ellipsis")
        cells.append(cut)
    return replace(column, cells=tuple(cells))


def _ascii(text: str, options: ConsoleOptions) -> str:
    if not options.ascii_only:
        return text
    for fancy, plain in (("✓", "yes"), ("✗ differs", "NO"), (fmt.DASH, "-"), ("×", "x"), ("…", "..."), ("·", "-")):
        text = text.replace(fancy, plain)
    return text.encode("ascii", "replace").decode("ascii")


def _plain(text: Text, options: ConsoleOptions) -> Text:
    return Text(_ascii(text.plain, options), style=text.style) if options.ascii_only else text


def final(model: ReportModel, width: int | None = None) -> RenderableType:
    """The table at the end of a run, at most `width` columns wide; as wide as the terminal when None."""
    rows = list(model.points)
    hidden = max(0, len(rows) - MOST_ROWS)
    shown = rows[:MOST_ROWS]
    if not shown:
        return Text("no points")
    below = f"… and {hidden:,} more points, all of them in the report" if hidden else ""
    wide, compact = _columns(model, shown, wide=True), _columns(model, shown, wide=False)
    parts: list[RenderableType] = [_Fitting(wide, width, takeaways.headline(model), below, compact)]
    serious = [notice for notice in model.notices if notice.level != "note"]
    parts += [_notice(notice.level, notice.text) for notice in serious[:8]]
    if len(serious) > 8:
        parts.append(Text(f"  … and {len(serious) - 8} more in the report", style="dim"))
    return Group(*parts)


class _notice:  # noqa: N801 - reads as a function where it is used
    """A warning below the table; long ones go on in the next line, indented."""

    def __init__(self, level: str, text: str) -> None:
        self.level, self.text = level, text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        mark = "ERROR   " if self.level == "error" else "warning "
        style = "bold red" if self.level == "error" else "yellow"
        grid = Table.grid(padding=0)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(mark, style=style), Text(_ascii(self.text, options)))
        yield grid


def _columns(model: ReportModel, points: Sequence[PointReport], *, wide: bool) -> list[_Column]:
    """All columns of the final table; the CPU split is four of them, or one when not `wide`."""

    def column(
        header: str, rank: int, cell: Callable[[PointReport, PhaseFigures | None], str], style: str = ""
    ) -> _Column | None:
        texts = tuple(Text(cell(p, model.figures(p)), style=style) for p in points)
        return None if all(t.plain in {fmt.NONE, ""} for t in texts) else _Column(header, texts, rank)

    unit = f"{model.metric}\n{model.unit}"
    loads = {p.id: model.figures(p, model.load) for p in points} if model.load else {}
    cpu: list[tuple[str, Callable[[PhaseFigures], float | None]]] = [
        ("user\n%", lambda f: f.cpu.user if f.cpu else None),
        ("sys\n%", lambda f: f.cpu.sys if f.cpu else None),
        ("iowait\n%", lambda f: f.cpu.iowait if f.cpu else None),
        ("idle\n%", lambda f: f.cpu.idle + f.cpu.steal if f.cpu else None),
    ]
    split = [column("us/sy/wa/id\n%", 8, lambda _, f: _vmstat(f))]
    if wide:
        split = [column(name, 8, lambda _, f, pick=pick: fmt.percent(pick(f)) if f else fmt.NONE) for name, pick in cpu]  # type: ignore[misc]
    state = tuple(Text(p.state, style=_STYLES.get(p.state, "")) for p in points)
    unusual = any(p.state != "done" for p in points)
    columns = [
        _Column(model.axis_label if len(model.series) == 1 and model.axis else "point",
                tuple(Text(p.label, style="bold") for p in points), 0, right=False),
        _Column("state", state, 1 if unusual else 90, right=False) if unusual else None,
        column(unit, 2, lambda _, f: fmt.spread(f.estimate) if f else fmt.NONE),
        _verdicts(points, model),
        column("speed-up\ntimes", 3, lambda _, f: fmt.spread(f.speed_up) if f else fmt.NONE),
        column("effic.\n%", 5, lambda _, f: fmt.percent(f.efficiency.value) if f and f.efficiency else fmt.NONE),
        column("of the\ncores %", 12,
               lambda _, f: fmt.percent(f.efficiency_of_cores.value) if f and f.efficiency_of_cores else fmt.NONE),
        column("pub-\nlished", 6, lambda p, _: fmt.factor(p.published_speed_up), "dim"),
        column("load\ndocs/s", 7,
               lambda p, _: fmt.number(f.estimate.value) if (f := loads.get(p.id)) and f.estimate else fmt.NONE),
        *split,
        column("data\nMiB", 10, lambda p, _: fmt.mib(p.storage.total) if p.storage else fmt.NONE),
        column("disk\nMiB", 11, lambda p, _: fmt.mib(p.storage.db_path) if p.storage else fmt.NONE),
        _Column("answer", tuple(Text(_MARKS[p.answers][0], _MARKS[p.answers][2]) for p in points), 4, right=False),
    ]  # fmt: skip
    return [c for c in columns if c is not None]


def _verdicts(points: Sequence[PointReport], model: ReportModel) -> _Column | None:
    """The bottleneck of every point; the report has the figures it rests on."""
    found = [figures.verdict if (figures := model.figures(point)) else None for point in points]
    if not any(found):
        return None
    return _Column("bound\nby", tuple(Text(verdict.name if verdict else fmt.NONE) for verdict in found), 3, right=False)


def _vmstat(figures: PhaseFigures | None) -> str:
    """The CPU split in one cell, in the order in which vmstat has it."""
    if figures is None or figures.cpu is None:
        return fmt.NONE
    cpu = figures.cpu
    return "/".join(fmt.percent(share) for share in (cpu.user, cpu.sys, cpu.iowait, cpu.idle + cpu.steal))


def live(points: Sequence[LivePoint], width: int | None = None, most_rows: int = LIVE_ROWS) -> RenderableType:
    """The table while the run goes: state, repetitions done and the median so far of every point.

    Of many points those are shown where something happens, then the latest done, then the next waiting.
    """
    if not points:
        return Text("no points")
    shown = _interesting(points, most_rows)
    named = next((p for p in points if p.metric), points[0])
    header = f"{named.metric or 'value'} so far\n{named.unit}"
    columns = [
        _Column("point", tuple(Text(p.label, style="bold") for p in shown), 0, right=False),
        _Column("state", tuple(Text(p.state, style=_STYLES.get(p.state, "cyan")) for p in shown), 1, right=False),
        _Column("reps", tuple(Text(f"{p.done} of {p.planned}") for p in shown), 2),
        _Column(header, tuple(Text(_so_far(p)) for p in shown), 3),
        _Column("bound\nby", tuple(Text(p.bottleneck) for p in shown), 5, right=False)
        if any(p.bottleneck for p in shown)
        else None,
        _Column("range", tuple(Text(_range(p), style="dim") for p in shown), 6),
        _Column("now", tuple(Text(p.note, style="dim") for p in shown), 4, right=False),
    ]
    hidden = len(points) - len(shown)
    waiting = sum(1 for p in points if p.state == "waiting")
    below = f"… {hidden:,} more points; {waiting:,} of {len(points):,} wait" if hidden else ""
    kept = [c for c in columns if c is not None and (c.rank != 4 or any(p.note for p in shown))]
    return _Fitting(kept, width, "", below)


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
