"""Pictures with bars: what a total is made of, a bar a point, and the order of the measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microshard.report.figures.style import (
    PLOT,
    WIDTH,
    add_axes,
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

MOST_BARS = 24  # beyond, bars of several parts become an area over the points in their order
MOST_ROWS = 48  # of bars of one part, with names
FEW_DOTS = 80  # that have a stem
LEGEND_LINE = 14.0  # points
MOST_LETTERS = 44  # that stand side by side below the axis
_ON = {"idle": "on-pale", "sys": "on-light"}  # colours of text on parts that are not dark


@dataclass(frozen=True, slots=True)
class Bar:
    """A point's bar: the parts in the order of the legend, and what stands behind it."""

    label: str
    parts: tuple[float, ...]
    end: str = ""
    published: tuple[float, ...] = ()  # a thin second bar below
    span: tuple[float, float] | None = None  # interval of the end of the bar


@dataclass(frozen=True, slots=True)
class Bars:
    """What a bar picture shows."""

    unit: str
    parts: tuple[tuple[str, str], ...]  # role of the colour, name in the legend
    bars: tuple[Bar, ...]
    mark: float | None = None  # a line across; `unit` says what it is
    shares: bool = False  # parts in per cent of a whole, which get their numbers
    log: bool = False  # one part each, on a logarithmic scale

    @property
    def limit(self) -> float:
        """Length of the axis."""
        ends = [max(sum(bar.parts), bar.span[1] if bar.span else 0.0) for bar in self.bars]
        return 100.0 if self.shares else max([*ends, self.mark or 0.0]) * 1.02 or 1.0


def draw(title: str, subtitle: str, data: Bars) -> tuple[Figure, float]:
    """The picture and the height of its heading in points."""
    several = len(data.parts) > 1
    many = len(data.bars) > (MOST_BARS if several else MOST_ROWS)
    pitch = 40.0 if any(bar.published for bar in data.bars) else 29.0 if len(data.bars) <= MOST_BARS / 2 else 19.0
    legend = _legend_lines(data) if several else []
    extra = LEGEND_LINE * max(len(legend) - 1, 0)
    plot = PLOT + extra if many else (66.0 if several else 44.0) + extra + pitch * max(len(data.bars), 2)
    figure, heading = new_figure(title, subtitle, plot)
    top = 30 + extra if several or many else 8
    if many:
        name = f"the {len(data.bars):,} points in the order of the matrix"
        axes = add_axes(figure, heading, left=44, right=14, top=top, bottom=38, grid="", name=name)
        _area(axes, data)
    else:
        left = min(160.0, 16 + max(len(bar.label) for bar in data.bars) * 6.4)
        right = 16 + max(len(bar.end) for bar in data.bars) * 6.2
        axes = add_axes(figure, heading, left=left, right=right, top=top, bottom=36, grid="x", name=data.unit)
        _rows(axes, data)
    _legend(figure, axes, legend)
    return figure, heading


def _rows(axes: Axes, data: Bars) -> None:
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415

    axes.set_xlim(0, data.limit)
    if data.log:
        axes.set_xscale("log")
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: tick_text(float(tick))))
        axes.set_xlim(10 ** math.floor(math.log10(min(sum(bar.parts) for bar in data.bars)) - 0.3), data.limit)
    axes.set_ylim(len(data.bars) - 0.5, -0.5)
    axes.set_yticks(range(len(data.bars)), [shortened(bar.label, 24) for bar in data.bars], color=colour("ink"))
    if not data.log:
        linear(axes.xaxis, 5)
    paired = any(bar.published for bar in data.bars)
    for row, bar in enumerate(data.bars):
        _stack(axes, data, bar.parts, row - (0.12 if paired else 0), 0.46 if paired else 0.62, numbers=data.shares)
        if bar.published:
            _stack(axes, data, bar.published, row + 0.26, 0.16, numbers=False)
        end = sum(bar.parts)
        if bar.span:
            reach = [[max(0.0, end - bar.span[0])], [max(0.0, bar.span[1] - end)]]
            axes.errorbar(end, row, xerr=reach, color=colour("ink"), linewidth=1.4, capsize=4, capthick=1.4)
            end = max(end, bar.span[1])
        at = (data.limit if data.mark else end, row)
        note(axes, bar.end, at, (5, 0), "ink", va="center_baseline", annotation_clip=False)
    if data.mark:
        axes.axvline(data.mark, color=colour("cores"), linewidth=1.2, linestyle=(0, (1.5, 2)))


def _stack(axes: Axes, data: Bars, parts: Sequence[float], y: float, height: float, *, numbers: bool) -> None:
    """One stacked bar; with `numbers` they stand in the parts that have room for them."""
    start, points_wide = 0.0, axes.get_position().width * WIDTH
    for (role, _), part in zip(data.parts, parts, strict=True):
        axes.barh(y, part, left=start, height=height, color=colour(role), linewidth=0)
        if numbers and part / data.limit * points_wide > 24:
            tint = colour(_ON.get(role, "on-dark"))
            axes.text(start + part / 2, y, f"{part:.0f}", ha="center", va="center_baseline", fontsize=9.5, color=tint)
        start += part


def _area(axes: Axes, data: Bars) -> None:
    """Many points: the parts stacked over the points in the order of the matrix."""
    import numpy as np  # noqa: PLC0415

    count = len(data.bars)
    edges = np.repeat(np.arange(count + 1), 2)[1:-1]
    columns = [np.repeat([bar.parts[i] for bar in data.bars], 2) for i in range(len(data.parts))]
    axes.stackplot(edges, *columns, colors=[colour(role) for role, _ in data.parts], linewidth=0)
    axes.set_xlim(0, count)
    axes.set_ylim(0, data.limit)
    linear(axes.yaxis, 5)
    if len(data.parts) == 1:
        unit_label(axes, data.unit)
    if data.mark:
        axes.axhline(data.mark, color=colour("cores"), linewidth=1.2, linestyle=(0, (1.5, 2)))


def _legend(figure: Figure, axes: Axes, lines: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Names of the parts above the bars, in their order."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    height = figure.get_size_inches()[1] * 72
    for number, line in enumerate(reversed(lines)):
        x, y = 10.0, axes.get_position().y1 * height + 12 + LEGEND_LINE * number
        for role, name in line:
            patch = Rectangle((x / WIDTH, (y - 1) / height), 9 / WIDTH, 9 / height, facecolor=colour(role), linewidth=0)
            figure.add_artist(patch)
            figure.text((x + 13) / WIDTH, y / height, name, fontsize=9.5, color=colour("muted"), va="baseline")
            x += _key_width(name)


def _key_width(name: str) -> float:
    return 26 + len(name) * 6.1


def _legend_lines(data: Bars) -> list[list[tuple[str, str]]]:
    """The names of the parts in lines that fit the picture."""
    lines: list[list[tuple[str, str]]] = [[]]
    for role, name in data.parts:
        if lines[-1] and 10 + sum(_key_width(n) for _, n in lines[-1]) + _key_width(name) - 13 > WIDTH:
            lines.append([])
        lines[-1].append((role, name))
    return lines


@dataclass(frozen=True, slots=True)
class Dot:
    """A repetition in the timeline."""

    deviation: float  # value / median of its point - 1
    label: str
    drift: bool


def timeline(title: str, subtitle: str, axis: str, dots: Sequence[Dot], band: float) -> tuple[Figure, float]:
    """Every repetition in the order it was taken, as deviation from the median of its point."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    named = len(dots) * max(len(dot.label) for dot in dots) <= MOST_LETTERS
    few = len(dots) <= FEW_DOTS
    figure, heading = new_figure(title, subtitle)
    name = f"{axis}, in the order of execution" if named else "place in the order of execution"
    axes = add_axes(figure, heading, left=48, right=16, top=25, bottom=38, grid="y", name=name)
    most = max([band * 1.15, *(abs(dot.deviation) * 1.2 for dot in dots)])
    axes.set_ylim(-most, most)
    axes.set_xlim(-0.7, len(dots) - 0.3)
    axes.axhspan(-band, band, color=colour("grid"), alpha=0.45, linewidth=0)
    axes.axhline(0, color=colour("ideal"), linewidth=1)
    plain = [(place, dot.deviation) for place, dot in enumerate(dots) if not dot.drift]
    if few:
        axes.vlines([x for x, _ in plain], 0, [y for _, y in plain], color=colour("measured"), linewidth=1.2)
    axes.plot(
        [x for x, _ in plain], [y for _, y in plain], linestyle="none", marker="o",
        markersize=5.5 if named else 3.5 if few else 2, color=colour("measured"), alpha=1 if few else 0.5,
        markeredgewidth=0,
    )  # fmt: skip
    for place, dot in enumerate(dots):
        if dot.drift:
            axes.vlines(place, 0, dot.deviation, color=colour("published"), linewidth=1.2)
            axes.plot(place, dot.deviation, marker="D", markersize=6.5, color=colour("published"))
            below = dot.deviation < 0
            at, offset = (place, dot.deviation), (4, -8 if below else 8)
            note(axes, f"{dot.label}, again", at, offset, "published", ha="right", va="top" if below else "bottom")
    linear(axes.yaxis, 5, lambda tick: f"{tick * 100:+.0f} %" if tick else "0")
    axes.yaxis.set_major_locator(MaxNLocator(5, symmetric=True))
    if named:
        axes.set_xticks(range(len(dots)), [dot.label for dot in dots])
    else:
        linear(axes.xaxis, 6, lambda tick: f"{tick:,.0f}")
    unit_label(axes, "difference from the point's median")
    return figure, heading
