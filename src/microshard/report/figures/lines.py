"""Pictures with lines: panels below one another that share a horizontal axis, and rows of percentiles."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from microshard.report import format as fmt
from microshard.report.figures.style import (
    SERIES,
    WIDTH,
    add_axes,
    apart,
    colour,
    linear,
    new_figure,
    note,
    shortened,
    tick_text,
    unit_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT = 44.0, 76.0  # margins in points; the labels of the lines stand on the right
GAP = 28.0  # between panels, with the name of the lower one
FOOT = 38.0
SMALL_ROW, ROW = 9.0, 11.0  # of percentiles, points
MOST_LINES = 6  # beyond, single lines cannot be distinguished
MOST_TICKS = 10
MOST_POWERS = 7  # of two on the vertical axis

Place = Callable[[float], float]  # from a value to its place on the axis


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
    style: Literal["-", "--", ":"] = "-"
    mark: Literal["", "o", "D"] = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the panels."""

    unit: str
    lines: tuple[Line, ...]
    stacked: bool = False
    log: Literal["", "powers of two", "decades"] = ""
    published: tuple[tuple[float, float], ...] = ()  # places and values, without a line
    height: float = 104.0
    top: float | None = None  # end of the vertical axis


def draw(
    title: str,
    subtitle: str,
    axis: str,
    panels: Sequence[Panel],
    *,
    as_written: bool = True,
    mark: float | None = None,
    mark_name: str = "",
) -> tuple[Figure, float]:
    """The picture and the height of its heading in points.

    `as_written`: the places on the axis are those of the data and get its numbers (threads), else a scale (seconds).
    `mark` is a place with a line through all panels.
    """
    plot = sum(panel.height for panel in panels) + GAP * len(panels) + FOOT - 4
    figure, heading = new_figure(title, subtitle, plot)
    xs = sorted({x for panel in panels for line in panel.lines if line.role != "ideal" for x in line.x})
    top = GAP - 2
    for panel in panels:
        last = panel is panels[-1]
        bottom = plot - top - panel.height
        axes = add_axes(
            figure, heading, left=LEFT, right=RIGHT, top=top, bottom=bottom, grid="y", name=axis if last else ""
        )
        place = _places(axes, xs) if as_written else _scale(axes, xs)
        axes.tick_params(labelbottom=last)
        (_stack if panel.stacked else _lines)(axes, panel, place)
        if mark is not None:
            axes.axvline(place(mark), color=colour("cores"), linewidth=1.1, linestyle=(0, (1.5, 2)), zorder=1)
            if mark_name:
                _name_mark(axes, panel, place, mark, mark_name)
        unit_label(axes, shortened(panel.unit, 58))
        top += panel.height + GAP
    return figure, heading


def line_roles(ranks: Sequence[float]) -> list[tuple[str, bool]]:
    """Colour of each line and whether it is named: all of a few, of many the highest and the lowest."""
    if len(ranks) == 1:
        return [("measured", True)]
    if len(ranks) <= MOST_LINES:
        return [(role, True) for role in SERIES[: len(ranks)]]
    low, high = ranks.index(min(ranks)), len(ranks) - 1 - list(reversed(ranks)).index(max(ranks))
    chosen = {low: ("series-3", True), high: ("series-1", True)}
    return [chosen.get(n, ("ideal", False)) for n in range(len(ranks))]


def _places(axes: Axes, xs: Sequence[float]) -> Place:
    """The horizontal axis: logarithmic when the numbers span a factor of four, with the real numbers as ticks."""
    logarithmic = bool(xs) and xs[0] > 0 and xs[-1] / xs[0] >= 4

    def place(x: float) -> float:
        return math.log2(x) if logarithmic else x

    if xs:
        span = (place(xs[-1]) - place(xs[0])) or 1.0
        axes.set_xlim(place(xs[0]) - span * 0.05, place(xs[-1]) + span * 0.05)
        ticks = _roomy(xs, place, span)
        axes.set_xticks([place(x) for x in ticks], [f"{x:g}" for x in ticks])
    return place


def _roomy(xs: Sequence[float], place: Place, span: float) -> list[float]:
    """The places that get a number: the ends, then powers of two, then others, where there is room between them."""

    def rank(x: float) -> tuple[bool, bool, float]:
        return x not in {xs[0], xs[-1]}, not (x > 0 and math.log2(x).is_integer()), x

    chosen: list[float] = []
    for x in sorted(xs, key=rank):
        if all(abs(place(x) - place(other)) >= span / MOST_TICKS for other in chosen):
            chosen.append(x)
    return sorted(chosen)


def _scale(axes: Axes, xs: Sequence[float]) -> Place:
    low, high = (xs[0], xs[-1]) if xs else (0.0, 1.0)
    axes.set_xlim(low, high if high > low else low + 1)
    linear(axes.xaxis, 6, lambda tick: f"{tick:,.10g}")
    return lambda x: x


def _lines(axes: Axes, panel: Panel, place: Place) -> None:
    _vertical(axes, panel)
    for line in panel.lines:
        _line(axes, line, place)
    if panel.published:
        x, y = zip(*((place(x), y) for x, y in panel.published), strict=True)
        axes.plot(x, y, linestyle="none", marker="D", markersize=5.5, color=colour("published"), zorder=6)
    curve = next((line for line in panel.lines if line.role == "published"), None)
    ends = []
    for line in panel.lines:
        known = [v for v in line.y if v is not None]
        if line.label and known and (line.role == "ideal" or (curve and line.x[-1] < curve.x[-1])):
            _near_end(axes, line, known[-1], curve, place)
        elif line.label and known:
            ends.append((known[-1], line.label, line.role))
    _end_labels(axes, ends)


def _vertical(axes: Axes, panel: Panel) -> None:
    """Limits and ticks of the vertical axis."""
    values = [v for line in panel.lines for v in line.y if v is not None] + [y for _, y in panel.published]
    values += [edge for line in panel.lines for span in line.spans for edge in span]
    if not values:
        return
    if not panel.log or min(values) <= 0:
        linear(axes.yaxis, 5 if panel.height > 110 else 4)
        axes.set_ylim(min(0.0, *values), panel.top or max(values) * 1.08 or 1.0)
        return
    low, high = min(values) / 1.2, max(values) * 1.28
    if panel.log == "decades":
        axes.set_yscale("log")
        axes.set_yticks(ticks := _decades(low, high, 5), [tick_text(tick) for tick in ticks])
    else:
        axes.set_yscale("log", base=2)
        first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
        powers = [2.0**n for n in range(first, last + 1, max(1, (last - first) // MOST_POWERS + 1))]
        axes.set_yticks(powers, [f"{p:g} {fmt.TIMES}" if p >= 1 else f"1/{1 / p:g} {fmt.TIMES}" for p in powers])
    axes.set_yticks([], minor=True)
    axes.set_ylim(low, high)


def _decades(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two ends of a logarithmic scale: 1, 2, 5 of each decade, fewer where those are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for leads in ((1, 2, 5), (1, 3), (1,)):
        found = [lead * 10.0**n for n in decades for lead in leads if low <= lead * 10.0**n <= high]
        if len(found) <= most:
            return found
    return found[:: -(-len(found) // most)]


def _line(axes: Axes, line: Line, place: Place) -> None:
    tint = colour(line.role)
    xs, ys = [place(x) for x in line.x], [math.nan if y is None else y for y in line.y]
    if not line.label:
        axes.plot(xs, ys, color=tint, linewidth=0.6, alpha=0.5)
        return
    style: str | tuple[int, tuple[float, float]] = "-"
    if line.style != "-":
        style = (0, (4, 2.5) if line.style == "--" else (1, 1.6))
    axes.plot(xs, ys, color=tint, linewidth=2.2 if line.spans else 1.6, linestyle=style, zorder=3)
    spans = [(x, y, low, high) for x, y, (low, high) in zip(xs, ys, line.spans, strict=False) if high > low]
    if spans:
        x, y, low, high = zip(*spans, strict=True)
        reach = [[max(0.0, b - a) for a, b in zip(*pair, strict=True)] for pair in ((low, y), (y, high))]
        axes.errorbar(x, y, reach, fmt="none", color=tint, elinewidth=1.4, capsize=4, capthick=1.4, zorder=4)
    if line.mark:
        faces = [colour("surface") if x in line.hollow else tint for x in line.x]
        size = 26 if line.mark == "o" else 13
        axes.scatter(xs, ys, s=size, marker=line.mark, c=faces, edgecolors=tint, linewidths=1.4, zorder=5)
    if line.ringed in line.x:
        at = line.x.index(line.ringed)
        axes.scatter(xs[at], ys[at], s=140, marker="o", c="none", edgecolors=tint, linewidths=1.4, zorder=5)


def _name_mark(axes: Axes, panel: Panel, place: Place, mark: float, name: str) -> None:
    """The name of the vertical line, at the end of it that no curve comes near."""
    left, right = axes.get_xlim()
    at = (place(mark) - left) / (right - left)
    side = 1 if at < 0.65 else -1
    to_axes = axes.transData + axes.transAxes.inverted()
    drawn = [(x, y) for line in panel.lines if line.role != "ideal" for x, y in zip(line.x, line.y, strict=True)]
    near = [to_axes.transform((place(x), y)) for x, y in drawn if y is not None]
    top = not any(y > 0.8 for x, y in near if -0.05 < (x - at) * side < 0.4)
    note(
        axes, name, (place(mark), 1 if top else 0), (5 * side, -1 if top else 4), "cores",
        xycoords=("data", "axes fraction"), va="top" if top else "bottom", ha="left" if side > 0 else "right",
    )  # fmt: skip


def _near_end(axes: Axes, line: Line, end: float, curve: Line | None, place: Place) -> None:
    """The name of a line that ends before the published one, on the side away from it; of the ideal on its left."""
    if line.role == "ideal":
        note(axes, line.label, (place(line.x[-1]), end), (-6, 5), line.role, ha="right", va="bottom")
        return
    beyond = [y for x, y in zip(curve.x, curve.y, strict=True) if x >= line.x[-1] and y is not None] if curve else []
    above = not beyond or beyond[-1] < end
    note(axes, _wrapped(line.label), (place(line.x[-1]), end), (7, 10 if above else -10), line.role)


def _end_labels(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """A name at the end of every line (value, label, role), moved apart where lines end together."""
    if not ends:
        return
    height = axes.get_window_extent().height / axes.figure.dpi * 72
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = [float(to_axes.transform((axes.get_xlim()[1], value))[1]) * height for value, _, _ in ends]
    rows = [_wrapped(label) for _, label, _ in ends]
    gap = 12.0 * max(row.count("\n") + 1 for row in rows)
    for (_, _, role), row, y in zip(ends, rows, apart(wanted, gap, 4, height - 2), strict=True):
        near = {"xycoords": "axes fraction", "linespacing": 1.05, "annotation_clip": False}
        note(axes, row, (1, y / height), (5, 0), role, **near)


def _wrapped(label: str) -> str:
    lines = textwrap.wrap(label, 13) or [label]
    return "\n".join(lines if len(lines) <= 2 else [lines[0], lines[1][:11] + "…"])


def _stack(axes: Axes, panel: Panel, place: Place) -> None:
    """Areas on one another; each that is thick enough at its end has its name there."""
    columns = [[v or 0.0 for v in line.y] for line in panel.lines]
    axes.stackplot(
        [place(x) for x in panel.lines[0].x], *columns, colors=[colour(line.role) for line in panel.lines],
        linewidth=0.6, edgecolor=colour("surface"),
    )  # fmt: skip
    axes.set_ylim(0, panel.top or max(map(sum, zip(*columns, strict=True)), default=1.0) * 1.02 or 1.0)
    linear(axes.yaxis, 4)
    ends, floor = [], 0.0
    for line, values in zip(panel.lines, columns, strict=True):
        if line.label:
            ends.append((floor + values[-1] / 2, line.label, "muted"))  # the areas' colours are too pale for text
        floor += values[-1]
    _end_labels(axes, ends[: int(panel.height / 13)])


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A row: the median, the 95th and the 99th percentile of one kind of operation."""

    role: str
    at: tuple[float, float, float]
    intended: bool = False


def percentiles(
    title: str,
    subtitle: str,
    unit: str,
    names: Sequence[tuple[str, str]],
    groups: Sequence[tuple[str, Sequence[Percentiles]]],
) -> tuple[Figure, float]:
    """Percentiles of latencies by point on a logarithmic scale: a stroke at the median, dots at p95 and p99.

    `names`: role of the colour and name of every kind of operation; `groups`: label and rows of every point.
    """
    labels = [shortened(label, 19) for label, _ in groups]
    pitch = [sum(SMALL_ROW if row.intended else ROW for row in rows) + 12 for _, rows in groups]
    figure, heading = new_figure(title, subtitle, 74.0 + sum(pitch))
    left = min(130.0, 16 + max(map(len, labels)) * 6.4)
    axes = add_axes(figure, heading, left=left, right=18, top=36, bottom=36, grid="x", name=unit)
    values = [value for _, rows in groups for row in rows for value in row.at]
    low, high = min(values) / 1.25, max(values) * 1.25
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(sum(pitch), 0)
    axes.set_xticks(ticks := _decades(low, high, 7), [tick_text(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    tops = [sum(pitch[:n]) for n in range(len(pitch))]
    for (_, rows), top in zip(groups, tops, strict=True):
        y = top + 6.0
        for row in rows:
            step = SMALL_ROW if row.intended else ROW
            _percentile_row(axes, row, y + step / 2)
            y += step
    axes.set_yticks([top + high / 2 for top, high in zip(tops, pitch, strict=True)], labels, color=colour("ink"))
    # What the marks are, and above it what the colours are.
    height = figure.get_size_inches()[1] * 72
    y, x = axes.get_position().y1 * height + 8, 10.0
    intended = any(row.intended for _, rows in groups for row in rows)
    marks = "│ p50   ● p95   ◆ p99" + ("   ○ ◇ from the intended start" if intended else "")
    figure.text(x / WIDTH, y / height, marks, fontsize=9, color=colour("muted"), va="baseline")
    for role, name in names:
        figure.text(x / WIDTH, (y + 15) / height, name, fontsize=9.5, color=colour(role), va="baseline", weight="bold")
        x += len(name) * 7.4 + 14
    return figure, heading


def _percentile_row(axes: Axes, row: Percentiles, y: float) -> None:
    tint = colour(row.role)
    face = colour("surface") if row.intended else tint
    p50, p95, p99 = row.at
    axes.plot([p50, p99], [y, y], color=tint, linewidth=1.6, linestyle=(0, (1.5, 1.2)) if row.intended else "-")
    for x, mark, size, edge in ((p50, "|", 8, 2), (p95, "o", 5, 1.3), (p99, "D", 4.6, 1.3)):
        axes.plot(x, y, marker=mark, markersize=size, markeredgewidth=edge, color=tint, markerfacecolor=face)
