"""The picture of docs/benchmarks.md: the share of its target that each row uses, and how figures grow."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.findings import Growth, Row
from bench.render import figure, target
from microshard.report.figures.style import RC, colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 11.0  # inches
_BAR = 0.3  # inches a row takes
_PANEL = 2.6  # inches a row of growth panels takes
_ACROSS = 3  # panels in a row
_LEAST, _MOST = 0.05, 20.0  # what is drawn of a share; beyond it the bar ends with an arrow's head
_LABEL = 78  # characters


def draw(path: Path, rows: Sequence[Row], growths: Sequence[Growth]) -> None:
    """Write an SVG."""
    targeted = [row for row in rows if row.target is not None]
    groups: dict[tuple[str, str], list[Growth]] = defaultdict(list)
    for growth in growths:
        if len(growth.sizes) > 1:
            groups[growth.along, growth.unit].append(growth)
    lines = math.ceil(len(groups) / _ACROSS)
    heights = [_BAR * max(len(targeted), 1) + 0.9, *[_PANEL] * lines]
    with mpl.rc_context({**RC, "font.size": 9.0}):
        drawing = Figure(figsize=(_WIDTH, sum(heights) + 0.3), layout="constrained")
        # Two parts, so that the long labels of the bars take no room from the panels.
        parts = drawing.add_gridspec(2, 1, height_ratios=[heights[0], max(sum(heights[1:]), 0.1)])
        above, below = drawing.add_subfigure(parts[0]), drawing.add_subfigure(parts[1])
        _shares(above.add_subplot(), targeted)
        grid = below.add_gridspec(max(lines, 1), _ACROSS)
        for number, ((along, unit), members) in enumerate(groups.items()):
            axes = below.add_subplot(grid[number // _ACROSS, number % _ACROSS])
            _grows(axes, along, unit, members)
        drawing.savefig(path, metadata={"Date": None})


def _shares(axes: Axes, rows: Sequence[Row]) -> None:
    """A bar a row: the share of the target, 1 is the limit."""
    for place, row in enumerate(rows):
        assert row.target is not None  # noqa: S101 - for the type checker: only such rows are given
        share = min(max(row.target.used(row.ratio), _LEAST), _MOST)
        axes.barh(place, share - _LEAST, left=_LEAST, height=0.62, color=colour("measured" if row.met else "published"))
        if row.interval:
            ends = sorted(min(max(row.target.used(end), _LEAST), _MOST) for end in row.interval)
            axes.plot(ends, [place, place], color=colour("ink"), linewidth=1.2)
        words = f"{figure(row)}, target {target(row.target, row.unit)}"
        right = max(share, *(ends if row.interval else (share,)))
        axes.annotate(
            words,
            (right, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            bbox={"facecolor": colour("surface"), "edgecolor": "none", "pad": 0.5},
        )
    labels = [f"{row.number or ''} {row.name}" + (f" / {row.baseline}" if row.baseline else "") for row in rows]
    axes.set_yticks(range(len(rows)), [textwrap.shorten(label.strip(), _LABEL, placeholder=" …") for label in labels])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xscale("log")
    # Room on the right for the text beside the longest bar.
    axes.set_xlim(_LEAST, _MOST * 3)
    axes.set_xticks([0.1, 0.25, 0.5, 1, 2, 5, 10], ["0.1", "0.25", "0.5", "1", "2", "5", "10"])
    axes.minorticks_off()
    axes.axvline(1, color=colour("ink"), linewidth=1.2)
    axes.set_title("Share of its target that each figure uses (1 is the limit; line: 95 %)", loc="left", fontsize=11)
    _plain(axes, "x")


def _grows(axes: Axes, along: str, unit: str, growths: Sequence[Growth]) -> None:
    """Figures by size on two logarithmic scales: a straight line is a power."""
    for number, growth in enumerate(growths[:6], start=1):
        name = growth.name if growth.exponent is None else f"{growth.name} (exponent {growth.exponent:.2f})"
        axes.plot(growth.sizes, growth.medians, "o-", color=colour(f"series-{number}"), label=name, markersize=3.5)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({size for growth in growths for size in growth.sizes})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
    axes.minorticks_off()
    values = [value for growth in growths for value in growth.medians if value > 0]
    if values:
        ticks = _ticks(min(values), max(values))
        axes.set_yticks(ticks, [f"{tick:,g}" for tick in ticks], fontsize=8)
        # Room above the lines for their names.
        low, high = math.log10(min(values)), math.log10(max(values))
        span = max(high - low, 0.3)
        axes.set_ylim(10 ** (low - 0.08 * span), 10 ** (high + span * (0.12 + 0.13 * len(growths[:6]))))
    axes.set_title(f"{unit} by {along}", loc="left", fontsize=10)
    axes.legend(fontsize=7, loc="upper left", frameon=False, handlelength=1.4, labelspacing=0.25)
    _plain(axes, "both")


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten around the values; at most about six."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        inside = [tick for tick in found if low * 0.7 <= tick <= high * 1.4]
        if 2 <= len(inside) <= 6:
            return inside
    return [10.0**power for power in range(first, last + 1)]


def _plain(axes: Axes, grid: Literal["x", "y", "both"]) -> None:
    axes.grid(visible=True, axis=grid, color=colour("grid"), linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
