"""Panels below one another that share a horizontal axis, and rows of percentiles on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microshard.report.figures.curves import end_labels, places, tick_text
from microshard.report.figures.style import TEXT, WIDTH, add_axes, colour, new_figure, shortened, unit_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT = 44.0, 74.0
GAP = 28.0  # between panels, with the name of the lower one
FOOT = 38.0
SMALL_ROW, ROW = 9.0, 11.0  # of percentiles, points


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a panel; without a label it is one of many and drawn thin."""

    label: str
    role: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    spans: tuple[tuple[float, float], ...] = ()  # range of each value
    hollow: frozenset[float] = frozenset()  # places whose mark is empty
    ringed: float | None = None  # place with a ring
    dashed: bool = False
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the panels."""

    unit: str
    lines: tuple[Line, ...]
    stacked: bool = False
    log_y: bool = False
    published: tuple[tuple[float, float], ...] = ()  # places and values
    height: float = 104.0
    top: float | None = None  # end of the vertical axis


def draw(
    title: str, subtitle: str, axis: str, panels: Sequence[Panel], *, as_written: bool = True, mark: float | None = None
) -> tuple[Figure, float]:
    """The picture and the height of its heading in points.

    `as_written`: the places on the axis are those of the data and get its numbers (threads), else a scale (seconds).
    `mark` is a place with a line through all panels.
    """
    plot = sum(panel.height for panel in panels) + GAP * len(panels) + FOOT - 4
    figure, heading = new_figure(title, subtitle, plot)
    xs = sorted({x for panel in panels for line in panel.lines for x in line.x})
    y = plot - GAP + 2
    for number, panel in enumerate(panels):
        bottom = y - panel.height
        axes = add_axes(figure, heading, left=LEFT, right=RIGHT, top=plot - y, bottom=bottom)
        last = number == len(panels) - 1
        place = places(axes, xs, axis) if as_written else _scale(axes, xs, axis)
        if not last:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
        axes.grid(axis="y", color=colour("grid"), linewidth=0.8)
        _fill(axes, panel, place)
        if mark is not None:
            axes.axvline(place(mark), color=colour("cores"), linewidth=1.1, linestyle=(0, (1.5, 2)), zorder=1)
        unit_label(axes, shortened(panel.unit, 58))
        y = bottom - GAP
    return figure, heading


def _scale(axes: Axes, xs: Sequence[float], name: str) -> Callable[[float], float]:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    low, high = (xs[0], xs[-1]) if xs else (0.0, 1.0)
    axes.set_xlim(low, high if high > low else low + 1)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.10g}"))
    axes.set_xlabel(name, color=colour("muted"), fontsize=TEXT, labelpad=4)
    return lambda x: x


def _fill(axes: Axes, panel: Panel, place: Callable[[float], float]) -> None:
    if panel.stacked:
        _stack(axes, panel, place)
        return
    _vertical(axes, panel)
    for line in panel.lines:
        _draw_line(axes, line, place)
    if panel.published:
        axes.plot(
            [place(x) for x, _ in panel.published], [y for _, y in panel.published], linestyle="none", marker="D",
            markersize=5.5, color=colour("published"), zorder=6,
        )  # fmt: skip
    ends = [
        (known[-1], line.label, line.role)
        for line in panel.lines
        if line.label and (known := [v for v in line.y if v is not None])
    ]
    if ends:
        end_labels(axes, ends, axes.get_xlim()[1])


def _vertical(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    values = [v for line in panel.lines for v in line.y if v is not None] + [y for _, y in panel.published]
    values += [edge for line in panel.lines for span in line.spans for edge in span]
    if not values:
        return
    if panel.log_y and min(values) > 0:
        _log(axes, min(values), max(values))
        return
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: tick_text(round(float(tick), 9))))
    axes.set_ylim(min(0.0, *values), panel.top or max(values) * 1.08 or 1.0)


def _log(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(low / 1.3, high * 1.3)
    axes.set_yticks(ticks := _log_ticks(low / 1.3, high * 1.3, 5), [tick_text(tick) for tick in ticks])
    axes.set_yticks([], minor=True)


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two ends of a logarithmic scale: 1, 2, 5 of each decade, fewer where those are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for leads in ((1, 2, 5), (1, 3), (1,)):
        found = [lead * 10.0**n for n in decades for lead in leads if low <= lead * 10.0**n <= high]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]


def _draw_line(axes: Axes, line: Line, place: Callable[[float], float]) -> None:
    xs = [place(x) for x in line.x]
    if not line.label and not line.marks:
        axes.plot(xs, _gaps(line.y), color=colour(line.role), linewidth=0.6, alpha=0.5)
        return
    style: str | tuple[int, tuple[float, float]] = (0, (4, 2)) if line.dashed else "-"
    axes.plot(xs, _gaps(line.y), color=colour(line.role), linewidth=1.8, linestyle=style, zorder=4)
    for x, value, span in zip(xs, line.y, line.spans, strict=False):
        if value is not None and span[1] > span[0]:
            axes.errorbar(
                x, value, [[max(0.0, value - span[0])], [max(0.0, span[1] - value)]], color=colour(line.role),
                linewidth=1.3, capsize=3.5, capthick=1.3, zorder=4,
            )  # fmt: skip
    for x, position, value in zip(line.x, xs, line.y, strict=True):
        if value is None or not line.marks:
            continue
        empty = x in line.hollow
        axes.plot(
            position, value, marker="o", markersize=5.5, color=colour(line.role), zorder=5, markeredgewidth=1.5,
            markerfacecolor=colour("surface" if empty else line.role),
        )  # fmt: skip
        if x == line.ringed:
            axes.plot(
                position, value, marker="o", markersize=12, markerfacecolor="none", markeredgecolor=colour(line.role),
                markeredgewidth=1.4, zorder=5,
            )  # fmt: skip


def _gaps(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _stack(axes: Axes, panel: Panel, place: Callable[[float], float]) -> None:
    """Areas on one another; each that is thick enough at its end has its name there."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    columns = [[v or 0.0 for v in line.y] for line in panel.lines]
    tops = [sum(values) for values in zip(*columns, strict=True)]
    axes.stackplot(
        [place(x) for x in panel.lines[0].x], *columns, colors=[colour(line.role) for line in panel.lines],
        linewidth=0.6, edgecolor=colour("surface"),
    )  # fmt: skip
    axes.set_ylim(0, panel.top or max(tops, default=1.0) * 1.02 or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: tick_text(round(float(tick), 9))))
    ends, floor = [], 0.0
    for line, values in zip(panel.lines, columns, strict=True):
        if line.label:
            ends.append((floor + values[-1] / 2, line.label, "muted"))  # the areas' colours are too pale for text
        floor += values[-1]
    room = int(panel.height / 13)
    if ends:
        end_labels(axes, ends[:room] if len(ends) > room else ends, axes.get_xlim()[1])


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A row: the median, the 95th and the 99th percentile of one kind of operation."""

    role: str
    at: tuple[float, float, float]
    intended: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a point."""

    label: str
    rows: tuple[Percentiles, ...]


def percentiles(
    title: str, subtitle: str, unit: str, names: Sequence[tuple[str, str]], groups: Sequence[Group]
) -> tuple[Figure, float]:
    """Percentiles of latencies by point on a logarithmic scale: a stroke at the median, dots at p95 and p99."""
    pitch = [sum(SMALL_ROW if row.intended else ROW for row in group.rows) + 12 for group in groups]
    intended = any(row.intended for group in groups for row in group.rows)
    plot = 74.0 + sum(pitch)
    figure, heading = new_figure(title, subtitle, plot)
    widest = max(min(len(group.label), 19) for group in groups)
    axes = add_axes(figure, heading, left=min(130.0, 16 + widest * 6.4), right=18, top=36, bottom=36)
    values = [value for group in groups for row in group.rows for value in row.at]
    low, high = min(values) / 1.25, max(values) * 1.25
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(sum(pitch), 0)
    axes.set_xticks(ticks := _log_ticks(low, high, 7), [tick_text(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", color=colour("grid"), linewidth=0.8)
    axes.set_xlabel(unit, color=colour("muted"), fontsize=TEXT, labelpad=3)
    axes.spines["bottom"].set_visible(False)
    middles, top = [], 0.0
    for group, high_ in zip(groups, pitch, strict=True):
        middles.append(top + high_ / 2)
        y = top + 6.0
        for row in group.rows:
            step = SMALL_ROW if row.intended else ROW
            _percentile_row(axes, row, y + step / 2)
            y += step
        top += high_
    axes.set_yticks(middles, [shortened(group.label, 19) for group in groups], color=colour("ink"))
    _keys(figure, axes, names, intended=intended)
    return figure, heading


def _percentile_row(axes: Axes, row: Percentiles, y: float) -> None:
    tint = colour(row.role)
    p50, p95, p99 = row.at
    axes.plot([p50, p99], [y, y], color=tint, linewidth=1.6, linestyle=(0, (1.5, 1.2)) if row.intended else "-")
    face = colour("surface") if row.intended else tint
    axes.plot(p50, y, marker="|", markersize=8, markeredgewidth=2, color=tint)
    axes.plot(p95, y, marker="o", markersize=5, color=tint, markerfacecolor=face, markeredgewidth=1.3)
    axes.plot(p99, y, marker="D", markersize=4.6, color=tint, markerfacecolor=face, markeredgewidth=1.3)


def _keys(figure: Figure, axes: Axes, names: Sequence[tuple[str, str]], *, intended: bool) -> None:
    """What the marks are, and above it what the colours are."""
    height = figure.get_size_inches()[1] * 72
    y = axes.get_position().y1 * height + 8
    marks = "│ p50   ● p95   ◆ p99" + ("   ○ ◇ from the intended start" if intended else "")
    figure.text(10 / WIDTH, y / height, marks, fontsize=9, color=colour("muted"), va="baseline")
    x = 10.0
    for role, name in names:
        figure.text(x / WIDTH, (y + 15) / height, name, fontsize=9.5, color=colour(role), va="baseline", weight="bold")
        x += len(name) * 7.4 + 14
