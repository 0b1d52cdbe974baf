"""Pictures of a metric over the points: lines or bars, a title, a caption and a table of the numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.contrasts import Cell, cells, contrasts
from microshard.analysis.phase_details import PhaseDetails
from microshard.analysis.report_model import PhaseFigures, PointReport, PublishedValues, ReportModel
from microshard.experiment.question import SHARDS_AXIS
from microshard.report import format as fmt
from microshard.report import headline, takeaways
from microshard.report.figures import bars, lines
from microshard.report.format import PageTable, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TIMES = 50  # between the longest and the shortest bar on a linear scale
MOST_SPOKEN = 24  # points in the words for those who cannot see a picture
PhaseRows = list[tuple[PointReport, PhaseDetails]]


@dataclass(frozen=True, slots=True)
class Content:
    """A picture that is not drawn yet."""

    title: str  # one sentence: what the picture says
    caption: str  # what is drawn and how
    alt: str  # the picture in words
    table: PageTable  # the same figures as numbers
    draw: Callable[[str], tuple[Figure, float]]  # of the title the picture and the height of its heading in points


def in_words(kind: str, title: str, parts: Iterable[str] = ()) -> str:
    """A picture in words: its kind, its title and the first of its parts."""
    return f"{kind}. {title}. {'; '.join(islice(parts, MOST_SPOKEN))}".rstrip()


def subtitle_of(model: ReportModel, what: str) -> str:
    """The line below a title: what is drawn, and on how many cores."""
    cores = f", {fmt.count(model.cores, 'core')}" if model.cores else ""
    return f"{what}{cores}"


def phase_rows(model: ReportModel, phase: str) -> PhaseRows:
    """The points that have details of a phase, series by series, the smallest first."""
    return [(p, more) for p in model.ordered if (more := p.figures(phase).details).representative]


def phase_title(model: ReportModel, phase: str, sentence: str) -> str:
    """A title, with the phase's name where there are several."""
    if len(model.measure_phases) < 2:
        return sentence
    return f"{phase}: {sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]}"


def slug(name: str) -> str:
    """A name for files and ids."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "phase"


def _repetitions(model: ReportModel, phase: str | None, marks: str = "Dots") -> tuple[str, str]:
    """What subtitle and caption say of the repetitions."""
    counts = {e.n for _, _, e in model.measured(phase)}
    if max(counts) == 1:
        return "one value a point", "One value a point, no interval."
    span = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    caption = f"{marks} are medians of {span} repetitions"
    wide = any(e.interval and e.interval.low < e.interval.high for _, _, e in model.measured(phase))
    caption += ", whiskers their bootstrap intervals." if wide else "."
    return f"median of {max(counts)} repetitions", caption


def other_phases(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """The metric of the measured phases after the main one along the axis."""
    for phase in model.measure_phases:
        if phase not in {model.main, model.load} and len(model.measured(phase)) > 1:
            title = takeaways.value(model, phase)
            content = _along(model, phase, f"{phase}: {title[:1].lower()}{title[1:]}")
            if content is not None:
                yield f"time-{phase}", content


def query_time(model: ReportModel) -> Content | None:
    """The main metric along the axis, the published curve scaled to the same start."""
    if model.axis is None and len(found := cells(model)) > 1:
        return _answer(model, found)
    title = headline.answer(model) if model.definition.question and model.axis != SHARDS_AXIS else None
    return _along(model, model.main, title or takeaways.value(model))


def _answer(model: ReportModel, found: list[Cell]) -> Content | None:
    """What the question compares, a bar each; where several groups are kept apart, in per cent of each baseline."""
    figures = model.figures(found[0].point)
    figure = model.definition.question.figure if model.definition.question else figures.metric
    if min(cell.estimate.value for cell in found) <= 0:
        return None
    groups = [*dict.fromkeys(cell.group for cell in found)]
    against = {contrast.cell: contrast for contrast in contrasts(model, found)}
    bases = {contrast.base for contrast in against.values()}
    shares = len(groups) > 1 and bool(bases)
    shown = [cell for cell in found if not shares or cell in against or cell in bases]
    rows = []
    for cell in shown:
        of = cell.estimate if not shares else cell.estimate.scaled(100 / _base(cell, bases).estimate.value)
        label = ", ".join(filter(None, (cell.name, cell.where)))
        span = (of.interval.low, of.interval.high) if of.interval else None
        value = cell.estimate.value
        end = f"{of.value:.0f} %" if shares else fmt.size(value) if figures.unit == "bytes" else fmt.number(value)
        rows.append(bars.Bar(label, (of.value,), end, (), span))
    ends = [bar.parts[0] for bar in rows]
    log = max(ends) > MOST_TIMES * min(ends)
    base = fmt.listed([*dict.fromkeys(cell.name for cell in shown if cell in bases)])
    unit = f"% of {base}" if shares else fmt.of_unit(figure, figures.unit)
    data = bars.Bars(
        unit=f"{unit} ({figures.better} is better)", parts=(("measured", figure),), bars=tuple(rows), log=log
    )
    counts = {cell.estimate.n for cell in shown}
    subtitle = f"median of {max(counts)} repetitions" if max(counts) > 1 else "one value a point"
    columns: dict[str, Callable[..., str]] = {
        "": lambda cell: cell.name,
        "at": lambda cell: cell.where,
        fmt.of_unit(figure, figures.unit): lambda cell: fmt.spread(cell.estimate),
        "against the baseline, times": lambda cell: fmt.spread(against[cell].ratio) if cell in against else fmt.NONE,
    }
    if len(groups) == 1:
        del columns["at"]
    title = headline.answer(model)
    caption = fmt.of_unit(figure.capitalize(), figures.unit, " in ")
    caption += "; bars in per cent of each baseline." if shares else "."
    spans = any(bar.span for bar in rows)
    caption += " Lines at the ends are bootstrap intervals." if spans else " One value each, no interval."
    caption += " The scale is logarithmic: equal distances are equal factors." if log else ""
    spoken = (f"{bar.label}: {bar.end}" for bar in rows)
    return Content(
        title, caption, in_words("Bar chart", title, spoken),
        table(((cell,) for cell in shown), columns),
        partial(bars.draw, subtitle=subtitle_of(model, subtitle), data=data),
    )  # fmt: skip


def _base(cell: Cell, bases: set[Cell]) -> Cell:
    return next(base for base in bases if base.group == cell.group)


def load_rate(model: ReportModel) -> Content | None:
    """How fast the documents went in."""
    if model.load is None or model.load == model.main:
        return None
    return _along(model, model.load, takeaways.value(model, model.load), published=False)


def _along(model: ReportModel, phase: str | None, title: str, *, published: bool = True) -> Content | None:
    if model.axis is None:
        return _side_by_side(model, phase, title)
    rows = [(p, f, e) for p, f, e in model.measured(phase) if p.x is not None]
    if not rows:
        return None
    figures = rows[0][1]
    reference = model.published(phase) if published and len(model.series) == 1 else None
    curve = _scaled(reference, rows) if reference else {}
    unit = f"{figures.metric}, {figures.unit}"
    columns: dict[str, Callable[..., str]] = {
        model.axis_label: lambda p, *_: p.label,
        unit: lambda _p, _f, e: fmt.spread(e),
        "repetitions": lambda _p, f, _e: fmt.count(len(f.values), "value"),
    }
    compared = ""
    if curve and reference:
        columns["published, scaled"] = lambda p, *_: fmt.number(curve.get(p.x))
        compared = (
            f" Dashed: the published curve ({reference.name}), scaled to the first point, because the machines differ."
        )
    places = [p.x for p, *_ in rows if p.x is not None]
    core = " The vertical line is where every core has a shard of its own." if _core_line(model, places) else ""
    subtitle, caption = _repetitions(model, phase)
    shown = _panel(
        model, phase, f"{unit} ({figures.better} is better)", lambda f: f.estimate, curve, "published, scaled"
    )
    return Content(
        title,
        f"{fmt.of_unit(figures.metric.capitalize(), figures.unit, ' in ')}. {caption}{compared}{core}",
        in_words("Line chart", title, (f"{p.label}: {fmt.spread(e)} {f.unit}" for p, f, e in rows)),
        table(rows, columns),
        _drawing(model, subtitle, shown),
    )


def _scaled(
    reference: PublishedValues, rows: Sequence[tuple[PointReport, PhaseFigures, Estimate]]
) -> dict[float, float]:
    """The published curve from where the measured one starts; one point is none, it is there anyway."""
    curve = reference.curve("speed_up")
    base = next((e.value for _, f, e in rows if f.speed_up and f.speed_up.value == 1), None)
    if base is None or len(curve) < 2:
        return {}
    return {x: base / y if rows[0][1].better == "lower" else base * y for x, y in curve.items()}


def _panel(
    model: ReportModel,
    phase: str | None,
    unit: str,
    pick: Callable[[PhaseFigures], Estimate | None],
    published: dict[float, float],
    name: str,
    *,
    log: bool = False,
    ideal: bool = False,
) -> lines.Panel:
    """A line for each series with its intervals, the published curve and the ideal."""
    known = {
        series: [
            (p.x, e) for p, f, _ in model.measured(phase) if p.series == series and p.x is not None and (e := pick(f))
        ]
        for series in model.series
    }
    known = {series: found for series, found in known.items() if found}
    names = _series_names(model)
    roles = lines.line_roles([found[-1][1].value for found in known.values()])
    drawn = [
        lines.Line(
            names[series] if named else "",
            role,
            tuple(x for x, _ in found),
            tuple(e.value for _, e in found),
            tuple((e.interval.low, e.interval.high) if e.interval else (e.value, e.value) for _, e in found),
            mark="o" if len(known) <= lines.MOST_LINES else "",
        )
        for (series, found), (role, named) in zip(known.items(), roles, strict=True)
    ]
    if published:
        drawn.append(lines.Line(name, "published", tuple(published), tuple(published.values()), style="--", mark="D"))
    xs = sorted({x for line in drawn for x in line.x})
    last = min(xs[-1], float(model.cores or xs[-1]))
    if ideal and last > xs[0]:
        steps = [xs[0] * (last / xs[0]) ** (n / 24) for n in range(25)]
        drawn.append(lines.Line("ideal", "ideal", tuple(steps), tuple(x / xs[0] for x in steps), style=":"))
    return lines.Panel(unit, tuple(drawn), log="powers of two" if log else "", height=138)


def _drawing(model: ReportModel, subtitle: str, panel: lines.Panel) -> Callable[[str], tuple[Figure, float]]:
    xs = [x for line in panel.lines for x in line.x]
    full = model.cores if _core_line(model, xs) else None
    mark, name = (float(full), f"{fmt.count(full, 'core')} full") if full else (None, "")
    return partial(
        lines.draw,
        subtitle=subtitle_of(model, subtitle),
        axis=model.axis_label,
        panels=[panel],
        mark=mark,
        mark_name=name,
    )


def _side_by_side(model: ReportModel, phase: str | None, title: str) -> Content | None:
    """Points without an order, such as compressors: a bar each."""
    rows = model.measured(phase)
    if len(rows) < 2 or min(e.value for _, _, e in rows) < 0:
        return None  # a single figure needs no picture
    figures = rows[0][1]
    labels = row_labels(model)
    unit = fmt.of_unit(figures.metric, figures.unit)
    spans = [(e.interval.low, e.interval.high) if e.interval else None for _, _, e in rows]
    data = bars.Bars(
        unit=f"{unit} ({figures.better} is better)",
        parts=(("measured", figures.metric),),
        bars=tuple(
            bars.Bar(labels[p.id], (e.value,), fmt.number(e.value), (), span)
            for (p, _, e), span in zip(rows, spans, strict=True)
        ),
    )
    subtitle, caption = _repetitions(model, phase, "Bars")
    columns: dict[str, Callable[..., str]] = {
        "point": lambda p, *_: p.label,
        unit: lambda _p, _f, e: fmt.spread(e),
        "repetitions": lambda _p, f, _e: fmt.count(len(f.values), "value"),
    }
    return Content(
        title,
        f"{fmt.of_unit(figures.metric.capitalize(), figures.unit, ' in ')}, by point. {caption}",
        in_words("Bar chart", title, (f"{p.label}: {fmt.spread(e)} {figures.unit}" for p, _, e in rows)),
        table(rows, columns),
        partial(bars.draw, subtitle=subtitle_of(model, subtitle), data=data),
    )


def speed_up(model: ReportModel) -> Content | None:
    """Speed-up along the axis compared the published one and the ideal."""
    rows = [(p, f, f.speed_up) for p, f, _ in model.measured() if p.x is not None and f.speed_up is not None]
    if len(rows) < 2 or model.axis != SHARDS_AXIS:
        return None
    title = headline.answer(model)
    reference = model.published()
    curve = reference.curve("speed_up") if reference else {}
    curve = curve if len(curve) > 1 else {}
    unit = "speed-up, times the smallest point"
    sizes = [p.x for p, *_ in rows if p.x is not None]
    ideal = min(max(sizes), float(model.cores or max(sizes))) > min(sizes)  # else its line would have no length
    shown = _panel(model, None, unit, lambda f: f.speed_up, curve, "published", log=True, ideal=True)
    columns: dict[str, Callable[..., str]] = {
        model.axis_label: lambda p, *_: p.label,
        "speed-up": lambda _p, f, _e: fmt.spread(f.speed_up),
        "efficiency, %": lambda _p, f, _e: fmt.spread(f.efficiency, 100, 2),
        "of the cores, %": lambda _p, f, _e: fmt.spread(f.efficiency_of_cores, 100, 2),
        "published speed-up": lambda p, *_: fmt.factor(p.published_speed_up),
    }
    base = rows[0][0].label if len(model.series) == 1 else f"the smallest number of {model.axis_label} of each line"
    return Content(
        title,
        f"How many times as fast as {base}, on logarithmic scales: equal distances are equal factors. "
        f"{_repetitions(model, model.main)[1]}"
        + (f" Dashed: published ({reference.name})." if curve and reference else "")
        + (" Dotted: one times faster per shard, up to the cores." if ideal else ""),
        in_words("Line chart", title, (f"{p.label}: {fmt.factor(e.value)} times" for p, _, e in rows)),
        table(rows, columns),
        _drawing(model, f"{model.metric}, against {base}; logarithmic", shown),
    )


def _series_names(model: ReportModel) -> dict[str, str]:
    """What tells the lines apart: "block size 4 KiB" and "block size 8 KiB" are "4 KiB" and "8 KiB"."""
    if len(model.series) < 2:
        return dict.fromkeys(model.series, "measured")
    return dict(zip(model.series, fmt.distinguishing_labels(list(model.series)), strict=True))


def row_labels(model: ReportModel) -> dict[str, str]:
    """Label of every point's bar, by id: what tells it apart, in as few words as that takes."""
    if model.axis is None:
        names = fmt.distinguishing_labels([point.label for point in model.points])
        return dict(zip((point.id for point in model.points), names, strict=True))
    series = _series_names(model)
    return {
        point.id: point.label if len(series) < 2 or point.x is None else f"{point.x:g} · {series[point.series]}"
        for point in model.points
    }


def _core_line(model: ReportModel, places: Sequence[float]) -> bool:
    """Whether the line where the cores are full lies within the picture."""
    return model.axis == SHARDS_AXIS and bool(model.cores) and min(places) <= (model.cores or 0) < max(places)
