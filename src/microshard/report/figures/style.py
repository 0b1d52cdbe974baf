"""How the pictures look: sizes, colours by role, and a frame that all of them share.

A picture is drawn once, in the light palette. In the page's SVG every colour becomes a CSS variable of the same role,
so that the page decides between light and dark.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Role → light colour, dark colour. All light colours differ: the SVG tells roles apart by them. Blue against orange
# and yellow against violet stay apart in the common forms of colour blindness, and lightness differs within a stack.
COLOURS: Final[Mapping[str, tuple[str, str]]] = {
    "ink": ("#1b2430", "#e8edf2"),
    "muted": ("#566270", "#a7b2be"),
    "grid": ("#dce2e8", "#36414d"),
    "surface": ("#ffffff", "#171d24"),
    "measured": ("#0a5fb5", "#6bb3ff"),
    "published": ("#b04a00", "#ffab5e"),
    "ideal": ("#76828f", "#8794a2"),
    "cores": ("#8a5a9e", "#c9a0dc"),
    "user": ("#2a72b5", "#5ea8ea"),
    "sys": ("#efa41e", "#f2b84b"),
    "iowait": ("#b5305f", "#f07aa3"),
    "idle": ("#e3e8ed", "#2c3641"),
    "shards": ("#2b73b4", "#5fa9e9"),
    "router": ("#eea51d", "#f1b94a"),
    "client": ("#8d4fa8", "#c99be0"),
    "config": ("#5c9c84", "#8fccb4"),
    "others": ("#c2cbd4", "#495765"),
    "documents": ("#2c74b3", "#60aae8"),
    "indexes": ("#eda61c", "#f0ba49"),
    "folders": ("#c3ccd5", "#4a5866"),
    "on-dark": ("#fefefe", "#0d1218"),  # text on the strong colours
    "on-light": ("#1c2531", "#0e1319"),  # text on the yellow ones
    "on-pale": ("#1d2632", "#e7ecf1"),  # text on the pale ones
    "series-1": ("#0b60b4", "#6cb4fe"),
    "series-2": ("#2e7d5b", "#74cfa4"),
    "series-3": ("#8e3f97", "#d79be0"),
    "series-4": ("#a8324a", "#f08a9c"),
    "series-5": ("#8a6d00", "#e0c04a"),
    "series-6": ("#566371", "#a8b3bf"),
    "stack-1": ("#2d71b6", "#61a9ea"),
    "stack-2": ("#eea720", "#f1bb4c"),
    "stack-3": ("#5d9b85", "#90cbb5"),
    "stack-4": ("#8c50a7", "#c89ce1"),
    "stack-5": ("#b5325e", "#f07ba4"),
    "stack-6": ("#7a6a4f", "#cbb994"),
    "stack-7": ("#1f8fa3", "#6fd0e0"),
    "stack-8": ("#c1cad3", "#485664"),
}
SERIES: Final = tuple(f"series-{n}" for n in range(1, 7))
STACK: Final = tuple(f"stack-{n}" for n in range(1, 9))  # areas and bars on one another

WIDTH: Final = 340.0  # points; a phone shows them at about this width, so text keeps its size
PLOT: Final = 200.0  # height of the plot with its axis labels, points
TITLE: Final = 15.5  # height of a line of the title, points
SUBTITLE: Final = 15.0
TEXT: Final = 10.5  # font size of labels, points
HEADING: Final = "heading"  # group of the title in the SVG, left out there: the page has it as text

RC: Final[dict[Any, Any]] = {
    "svg.hashsalt": "microshard",  # the same picture has the same ids
    "text.parse_math": False,  # $where is no formula
    "svg.fonttype": "none",  # text stays text: it can be searched, selected and restyled
    "font.family": ["DejaVu Sans"],
    "font.size": TEXT,
    "axes.linewidth": 0.8,
    "lines.solid_capstyle": "round",
    "path.simplify": True,
    "hatch.linewidth": 0.8,
}


def colour(role: str) -> str:
    """The light colour of a role."""
    return COLOURS[role][0]


def new_figure(title: str, subtitle: str, plot_height: float = PLOT) -> tuple[Figure, float]:
    """An empty figure with its heading, and the height of that heading in points."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - matplotlib is slow to import, and the command line starts without it

    lines = textwrap.wrap(title, 44)
    heading = TITLE * len(lines) + SUBTITLE + 9
    height = heading + plot_height
    figure = Figure(figsize=(WIDTH / 72, height / 72), facecolor=colour("surface"))
    bold: dict[str, Any] = {"fontsize": 11.5, "fontweight": "bold", "color": colour("ink")}
    for number, line in enumerate(lines):
        y = 1 - (6 + TITLE * (number + 0.75)) / height
        figure.text(10 / WIDTH, y, line, gid=f"{HEADING}{number}", **bold)
    y = 1 - (6 + TITLE * len(lines) + SUBTITLE * 0.7) / height
    figure.text(10 / WIDTH, y, shortened(subtitle, 60), fontsize=9, color=colour("muted"), gid=f"{HEADING}-sub")
    return figure, heading


def add_axes(
    figure: Figure,
    heading: float,
    *,
    left: float,
    right: float,
    top: float,
    bottom: float,
    grid: Literal["x", "y", ""],
    name: str,
) -> Axes:
    """Axes with margins in points, `top` measured from the heading; `grid` is x or y, `name` is below them."""
    width, height = (72 * side for side in figure.get_size_inches())
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - heading - top - bottom) / height)
    )
    axes.set_facecolor("none")
    for side in ("top", "right", "left", *(["bottom"] if grid == "x" else [])):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(colour("ideal"))
    axes.tick_params(colors=colour("muted"), length=0, pad=5, labelsize=TEXT)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=colour("grid"), linewidth=0.8)
    axes.set_xlabel(name, color=colour("muted"), fontsize=TEXT, labelpad=4)
    return axes


def linear(axis: Axis, parts: int, text: Callable[[float], str] | None = None) -> None:
    """Round ticks that part an axis into at most so many parts."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415

    axis.set_major_locator(MaxNLocator(parts, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: (text or tick_text)(round(float(tick), 9))))


def tick_text(value: float) -> str:
    """A tick short enough for its margin: 40,000 as 40 k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):g} {unit}"
    return f"{value:g}"


def shortened(text: str, most: int) -> str:
    """`text`, cut to at most `most` letters."""
    return text if len(text) <= most else text[: most - 1].rstrip(" ,;") + "…"


def note(axes: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], role: str, **more: Any) -> None:
    """A text beside a place, `offset` points from it."""
    given: dict[str, Any] = {
        "textcoords": "offset points",
        "color": colour(role),
        "fontsize": 9.5,
        "va": "center",
        "ha": "left",
    } | more
    axes.annotate(text, at, xytext=offset, **given)


def unit_label(axes: Axes, text: str) -> None:
    """The vertical axis' name, written level above it where it is read first."""
    note(axes, text, (0, 1), (10 - axes.get_position().x0 * WIDTH, 8), "muted", xycoords="axes fraction", va="bottom")


def apart(positions: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as is needed to be `gap` apart and within `low` to `high`, in the same order."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    result = [0.0] * len(positions)
    floor = low
    for index in order:
        result[index] = max(min(max(positions[index], low), high), floor)
        floor = result[index] + gap
    ceiling = high
    for index in reversed(order):
        result[index] = min(result[index], ceiling)
        ceiling = result[index] - gap
    return result
