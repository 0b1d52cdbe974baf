"""Pictures with bars: what a total is made of, a bar a point, and the order of the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microshard.report.figures.style import PLOT, TEXT, WIDTH, add_axes, colour, new_figure, shortened, unit_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BARS = 24  # beyond, bars become an area over the points in their order
FEW_DOTS = 80  # that have a stem
LEGEND_LINE = 14.0  # points
MOST_LETTERS = 44  # that stand side by side below the axis
_ON = {
    "others": "on-pale",
    "idle": "on-pale",
    "folders": "on-pale",
    "sys": "on-light",
    "router": "on-light",
    "indexes": "on-light",
}


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
    limit: float  # length of the axis
    ticks: tuple[tuple[float, str], ...]
    mark: float | None = None  # a line across; `unit` says what it is
    inside: str = ""  # format of the numbers inside the parts: "%" for shares, "" for none


def draw(title: str, subtitle: str, data: Bars) -> tuple[Figure, float]:
    """The picture and the height of its heading in points."""
    many = len(data.bars) > MOST_BARS
    pitch = 40.0 if any(bar.published for bar in data.bars) else 29.0
    extra = LEGEND_LINE * (len(_legend_lines(data)) - 1)
    margins = (66.0 if len(data.parts) > 1 else 44.0) + extra
    plot = PLOT + extra if many else margins + pitch * max(len(data.bars), 2)
    figure, heading = new_figure(title, subtitle, plot)
    if many:
        axes = add_axes(figure, heading, left=44, right=14, top=30 + extra, bottom=38)
        _area(axes, data)
    else:
        widest = max(len(bar.label) for bar in data.bars)
        left = min(130.0, 16 + widest * 6.4)
        right = 16 + max(len(bar.end) for bar in data.bars) * 6.2
        axes = add_axes(
            figure, heading, left=left, right=right, top=30 + extra if len(data.parts) > 1 else 8, bottom=36
        )
        _rows(axes, data)
    if len(data.parts) > 1:
        _legend(axes, data)
    return figure, heading


def _rows(axes: Axes, data: Bars) -> None:
    axes.grid(axis="x", color=colour("grid"), linewidth=0.8)
    axes.set_xlim(0, data.limit)
    axes.set_ylim(len(data.bars) - 0.5, -0.5)
    axes.set_yticks(range(len(data.bars)), [shortened(bar.label, 19) for bar in data.bars], color=colour("ink"))
    axes.set_xticks([at for at, _ in data.ticks], [name for _, name in data.ticks])
    axes.set_xlabel(data.unit, color=colour("muted"), fontsize=TEXT, labelpad=3)
    axes.spines["bottom"].set_visible(False)
    points_wide = axes.get_position().width * WIDTH
    for row, bar in enumerate(data.bars):
        paired = any(other.published for other in data.bars)
        _stack(axes, data, bar.parts, row - (0.12 if paired else 0), 0.46 if paired else 0.62, points_wide)
        if bar.published:
            _stack(axes, data, bar.published, row + 0.26, 0.16, 0)
        end = sum(bar.parts)
        if bar.span:
            axes.errorbar(
                end, row, xerr=[[max(0.0, end - bar.span[0])], [max(0.0, bar.span[1] - end)]], color=colour("ink"),
                linewidth=1.4, capsize=4, capthick=1.4,
            )  # fmt: skip
            end = max(end, bar.span[1])
        if bar.end:
            axes.annotate(
                bar.end, (data.limit if data.mark else end, row), xytext=(5, 0),
                textcoords="offset points", va="center_baseline", ha="left",
                color=colour("ink"), fontsize=9.5, annotation_clip=False,
            )  # fmt: skip
    if data.mark:
        axes.axvline(data.mark, color=colour("cores"), linewidth=1.2, linestyle=(0, (1.5, 2)))


def _stack(axes: Axes, data: Bars, parts: Sequence[float], y: float, height: float, points_wide: float) -> None:
    """One stacked bar; numbers stand in the parts that have room for them (`points_wide` 0: none)."""
    start = 0.0
    for (role, _), part in zip(data.parts, parts, strict=True):
        axes.barh(y, part, left=start, height=height, color=colour(role), linewidth=0)
        if data.inside and points_wide and part / data.limit * points_wide > 24:
            axes.text(
                start + part / 2, y, f"{part * 100:.0f}" if data.inside == "%" else f"{part:{data.inside}}",
                ha="center", va="center_baseline", fontsize=9.5, color=colour(_ON.get(role, "on-dark")),
            )  # fmt: skip
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
    axes.set_yticks([at for at, _ in data.ticks], [name for _, name in data.ticks])
    axes.set_xlabel(
        f"the {count:,} points in the order of the matrix", color=colour("muted"), fontsize=TEXT, labelpad=4
    )
    if data.mark:
        axes.axhline(data.mark, color=colour("cores"), linewidth=1.2, linestyle=(0, (1.5, 2)))


def _legend(axes: Axes, data: Bars) -> None:
    """Names of the parts above the bars, in their order."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415

    box = axes.get_position()
    figure = axes.get_figure(root=True)
    if figure is None:
        return
    height = figure.get_size_inches()[1] * 72
    lines = _legend_lines(data)
    for number, line in enumerate(lines):
        x, y = 10.0, box.y1 * height + 12 + LEGEND_LINE * (len(lines) - 1 - number)
        for role, name in line:
            figure.add_artist(
                Rectangle((x / WIDTH, (y - 1) / height), 9 / WIDTH, 9 / height, facecolor=colour(role), linewidth=0)
            )
            figure.text((x + 13) / WIDTH, y / height, name, fontsize=9.5, color=colour("muted"), va="baseline")
            x += _key_width(name)


def _key_width(name: str) -> float:
    return 13 + len(name) * 6.1 + 13


def _legend_lines(data: Bars) -> list[list[tuple[str, str]]]:
    """The names of the parts in lines that fit the picture."""
    lines: list[list[tuple[str, str]]] = [[]]
    x = 10.0
    for role, name in data.parts:
        if lines[-1] and x + _key_width(name) - 13 > WIDTH:
            lines.append([])
            x = 10.0
        lines[-1].append((role, name))
        x += _key_width(name)
    return lines


@dataclass(frozen=True, slots=True)
class Dot:
    """A repetition in the timeline."""

    deviation: float  # value / median of its point - 1
    label: str
    drift: bool


def timeline(title: str, subtitle: str, axis: str, dots: Sequence[Dot], band: float) -> tuple[Figure, float]:
    """Every repetition in the order it was taken, as deviation from the median of its point."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    figure, heading = new_figure(title, subtitle)
    axes = add_axes(figure, heading, left=48, right=16, top=25, bottom=38)
    axes.grid(axis="y", color=colour("grid"), linewidth=0.8)
    most = max([band * 1.15, *(abs(dot.deviation) * 1.2 for dot in dots)])
    axes.set_ylim(-most, most)
    axes.set_xlim(-0.7, len(dots) - 0.3)
    axes.axhspan(-band, band, color=colour("grid"), alpha=0.45, linewidth=0)
    axes.axhline(0, color=colour("ideal"), linewidth=1)
    named = len(dots) * max(len(dot.label) for dot in dots) <= MOST_LETTERS
    plain = [(place, dot.deviation) for place, dot in enumerate(dots) if not dot.drift]
    few = len(dots) <= FEW_DOTS
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
            axes.annotate(
                f"{dot.label}, again", (place, dot.deviation), xytext=(4, -8 if dot.deviation < 0 else 8),
                textcoords="offset points", ha="right", va="top" if dot.deviation < 0 else "bottom", fontsize=9.5,
                color=colour("published"),
            )  # fmt: skip
    axes.yaxis.set_major_locator(MaxNLocator(5, symmetric=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick * 100:+.0f} %" if abs(tick) > 1e-9 else "0"))
    if named:
        axes.set_xticks(range(len(dots)), [dot.label for dot in dots])
        axes.set_xlabel(f"{axis}, in the order of execution", color=colour("muted"), fontsize=TEXT, labelpad=4)
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:,.0f}"))
        axes.set_xlabel("place in the order of execution", color=colour("muted"), fontsize=TEXT, labelpad=4)
    unit_label(axes, "difference from the point's median")
    return figure, heading
