"""Pictures with a line: a figure along the axis, with intervals and the published reference."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microshard.analysis.bootstrap import Estimate
from microshard.report import format as fmt
from microshard.report.figures.style import SERIES, TEXT, add_axes, apart, colour, new_figure, unit_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT, RIGHT, TOP, BOTTOM = 42.0, 66.0, 25.0, 38.0  # margins in points; the labels of the lines stand on the right
MOST_SERIES = 6  # beyond, single lines cannot be distinguished
MOST_TICKS = 10
MOST_POWERS = 7  # of two on the vertical axis


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the picture: places on the axis and estimates there."""

    label: str
    x: tuple[float, ...]
    y: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True)
class Curves:
    """What a curve picture shows."""

    unit: str  # name and unit of the vertical axis
    axis: str  # name of the horizontal axis
    lines: tuple[Line, ...]
    published: tuple[tuple[float, float], ...] = ()
    published_label: str = "published"
    cores: int | None = None  # a line where the cores are full
    ideal: bool = False  # speed-up equal to growth, up to the cores
    log_y: bool = False


def draw(title: str, subtitle: str, data: Curves) -> tuple[Figure, float]:
    """The picture and the height of its heading in points."""
    figure, heading = new_figure(title, subtitle)
    right = RIGHT if len(data.lines) == 1 else RIGHT + 16
    axes = add_axes(figure, heading, left=LEFT, right=right, top=TOP, bottom=BOTTOM)
    axes.grid(axis="y", color=colour("grid"), linewidth=0.8)
    xs = sorted({x for line in data.lines for x in line.x} | {x for x, _ in data.published})
    place = places(axes, xs, data.axis)
    _vertical(axes, data)
    ends: list[tuple[float, str, str]] = []
    if data.cores and xs and xs[0] <= data.cores < xs[-1]:
        _cores_line(axes, data, data.cores, place)
    if data.ideal and xs:
        _ideal(axes, data, xs, place)
    if data.published:
        axes.plot(
            [place(x) for x, _ in data.published], [y for _, y in data.published], color=colour("published"),
            linestyle=(0, (4, 2.5)), linewidth=1.6, marker="D", markersize=3.6, zorder=3,
        )  # fmt: skip
        ends.append((data.published[-1][1], data.published_label, "published"))
    if len(data.lines) > MOST_SERIES:
        ends += _many(axes, data.lines, place)
    else:
        for number, line in enumerate(data.lines):
            role = "measured" if len(data.lines) == 1 else SERIES[number]
            _line(axes, line, place, colour(role))
            if data.published and line.x[-1] < xs[-1]:
                _near_end(axes, line, data, place, colour(role))
            else:
                ends.append((line.y[-1].value, line.label, role))
    unit_label(axes, data.unit)
    end_labels(axes, ends, place(xs[-1]) if xs else 1.0)
    return figure, heading


def places(axes: Axes, xs: Sequence[float], name: str) -> Callable[[float], float]:
    """The horizontal axis: logarithmic when the numbers span a factor of four, with the real numbers as ticks."""
    logarithmic = bool(xs) and xs[0] > 0 and xs[-1] / xs[0] >= 4

    def place(x: float) -> float:
        return math.log2(x) if logarithmic else x

    positions = [place(x) for x in xs]
    span = (positions[-1] - positions[0]) if len(positions) > 1 else 1.0
    if positions:
        axes.set_xlim(positions[0] - span * 0.05, positions[-1] + span * 0.05)
    ticks = _roomy(xs, place, span)
    axes.set_xticks([place(x) for x in ticks], [f"{x:g}" for x in ticks])
    axes.set_xlabel(name, color=colour("muted"), fontsize=TEXT, labelpad=4)
    return place


def _roomy(xs: Sequence[float], place: Callable[[float], float], span: float) -> list[float]:
    """The places that get a number: the ends, then powers of two, then others, where there is room between them."""

    def rank(x: float) -> tuple[bool, bool, float]:
        return x not in {xs[0], xs[-1]}, not (x > 0 and math.log2(x).is_integer()), x

    chosen: list[float] = []
    for x in sorted(xs, key=rank):
        if all(abs(place(x) - place(other)) >= span / MOST_TICKS for other in chosen):
            chosen.append(x)
    return sorted(chosen)


def _vertical(axes: Axes, data: Curves) -> None:
    """Limits and ticks of the vertical axis."""
    highs = [e.interval.high if e.interval else e.value for line in data.lines for e in line.y]
    lows = [e.interval.low if e.interval else e.value for line in data.lines for e in line.y]
    values = highs + lows + [y for _, y in data.published]
    if data.ideal and data.cores:
        values.append(float(data.cores))
    if not values:
        return
    if data.log_y and min(values) > 0:
        bottom, top = min(values) / 1.15, max(values) * 1.25
        axes.set_yscale("log", base=2)
        first, last = math.floor(math.log2(bottom)), math.ceil(math.log2(top))
        powers = range(first, last + 1, max(1, (last - first) // MOST_POWERS + 1))
        ticks = [2.0**n for n in powers if bottom <= 2.0**n <= top]
        axes.set_yticks(ticks, [power_text(tick) for tick in ticks])
        axes.set_yticks([], minor=True)
    else:
        bottom, top = min(0.0, *values), max(values) * 1.08 or 1.0
        from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: tick_text(float(tick))))
    axes.set_ylim(bottom, top)


def power_text(value: float) -> str:
    """A power of two as a factor, short enough for its margin: 4 ×, 1/16 ×."""
    return f"{value:g} {fmt.TIMES}" if value >= 1 else f"1/{1 / value:g} {fmt.TIMES}"


def tick_text(value: float) -> str:
    """A tick short enough for its margin: 40,000 as 40 k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):g} {unit}"
    return f"{value:g}"


def _line(axes: Axes, line: Line, place: Callable[[float], float], tint: str) -> None:
    positions = [place(x) for x in line.x]
    axes.plot(positions, [e.value for e in line.y], color=tint, linewidth=2.2, marker="o", markersize=5, zorder=5)
    for position, estimate in zip(positions, line.y, strict=True):
        if estimate.interval is not None and estimate.interval.high > estimate.interval.low:
            axes.errorbar(
                position, estimate.value,
                [[estimate.value - estimate.interval.low], [estimate.interval.high - estimate.value]],
                color=tint, linewidth=1.4, capsize=4, capthick=1.4, zorder=4,
            )  # fmt: skip


def _many(axes: Axes, lines: Sequence[Line], place: Callable[[float], float]) -> list[tuple[float, str, str]]:
    """More lines than can be distinguished: all of them thin, the highest and the lowest named."""
    for line in lines:
        axes.plot(
            [place(x) for x in line.x], [e.value for e in line.y], color=colour("ideal"), linewidth=0.5, alpha=0.4
        )
    ends = []
    ranked = sorted(lines, key=lambda line: line.y[-1].value)
    for line, role in ((ranked[0], "series-3"), (ranked[-1], "series-1")):
        axes.plot([place(x) for x in line.x], [e.value for e in line.y], color=colour(role), linewidth=2, zorder=5)
        ends.append((line.y[-1].value, line.label, role))
    return ends


def _cores_line(axes: Axes, data: Curves, cores: int, place: Callable[[float], float]) -> None:
    """A vertical line with its name, at the end of the line that no curve comes near."""
    position = place(float(cores))
    axes.axvline(position, color=colour("cores"), linewidth=1.1, linestyle=(0, (1.5, 2)), zorder=1)
    left, right = axes.get_xlim()
    inside = (position - left) / (right - left) < 0.65
    to_axes = axes.transData + axes.transAxes.inverted()
    ends = [(x, e.value) for line in data.lines for x, e in zip(line.x, line.y, strict=True)] + list(data.published)
    near = [to_axes.transform((place(x), y)) for x, y in ends]
    nearby = [
        float(y) for x, y in near if -0.05 < (x - (position - left) / (right - left)) * (1 if inside else -1) < 0.4
    ]
    top = not any(y > 0.8 for y in nearby)
    axes.annotate(
        f"{fmt.count(cores, 'core')} full", (position, 1 if top else 0), xytext=(5 if inside else -5, -1 if top else 4),
        xycoords=("data", "axes fraction"), textcoords="offset points", color=colour("cores"), fontsize=9.5,
        va="top" if top else "bottom", ha="left" if inside else "right",
    )  # fmt: skip


def _ideal(axes: Axes, data: Curves, xs: Sequence[float], place: Callable[[float], float]) -> None:
    """Speed-up equal to growth from the smallest point to the cores, as many positions as a curve needs."""
    first, last = xs[0], min(xs[-1], float(data.cores or xs[-1]))
    if last <= first:
        return
    steps = [first * (last / first) ** (n / 24) for n in range(25)]
    axes.plot(
        [place(x) for x in steps], [x / first for x in steps], color=colour("ideal"), linewidth=1.3,
        linestyle=(0, (1, 1.6)), zorder=2,
    )  # fmt: skip
    axes.annotate(
        "ideal", (place(last), last / first), xytext=(-6, 5), textcoords="offset points", color=colour("ideal"),
        fontsize=9.5, ha="right", va="bottom",
    )  # fmt: skip


def _near_end(axes: Axes, line: Line, data: Curves, place: Callable[[float], float], tint: str) -> None:
    """The name of a line that ends before the published one, on the side away from it."""
    nearby = [y for x, y in data.published if x >= line.x[-1]]
    above = not nearby or nearby[-1] < line.y[-1].value
    axes.annotate(
        _wrapped(line.label), (place(line.x[-1]), line.y[-1].value), xytext=(7, 10 if above else -10),
        textcoords="offset points", color=tint, fontsize=9.5, va="center", ha="left",
    )  # fmt: skip


def end_labels(axes: Axes, ends: Sequence[tuple[float, str, str]], last: float) -> None:
    """A name at the end of every line, moved apart where lines end together."""
    if not ends:
        return
    figure = axes.figure
    height = axes.get_position().height * figure.get_figure(root=True).get_size_inches()[1] * 72
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = [float(to_axes.transform((last, value))[1]) * height for value, _, _ in ends]
    rows = [_wrapped(label) for _, label, _ in ends]
    gap = 12.0 * max(row.count("\n") + 1 for row in rows)
    for (_, _, role), row, y in zip(ends, rows, apart(wanted, gap, 4, height - 2), strict=True):
        axes.annotate(
            row, (1, y / height), xytext=(5, 0), xycoords="axes fraction", textcoords="offset points",
            color=colour(role), fontsize=9.5, va="center", ha="left", linespacing=1.05, annotation_clip=False,
        )  # fmt: skip


def _wrapped(label: str) -> str:
    lines = textwrap.wrap(label, 13) or [label]
    return "\n".join(lines if len(lines) <= 2 else [lines[0], lines[1][:11] + "…"])
