"""Pictures of a metric over the points: lines or bars, a title, a caption and a table of the numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.report_model import PhaseFigures, ReportModel
from microshard.report import format as fmt
from microshard.report import takeaways
from microshard.report.figures import bars, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class DataTable:
    """The numbers of a picture."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Content:
    """A picture that is not drawn yet."""

    title: str
    caption: str
    alt: str
    table: DataTable
    draw: Callable[[], tuple[Figure, float]]


def subtitle_of(model: ReportModel, what: str) -> str:
    """The line below a title: what is drawn, and on how many cores."""
    cores = f", {fmt.count(model.cores, 'core')}" if model.cores else ""
    return f"{what}{cores}"


def _intervals(model: ReportModel, phase: str | None, marks: str = "Dots") -> str:
    counts = {f.estimate.n for _, f in takeaways.measured(model, phase) if f.estimate}
    if not counts:
        return ""
    if max(counts) == 1:
        return "One value a point, no interval."
    span = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"{marks} are medians of {span} repetitions, whiskers their bootstrap intervals."


def other_phases(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """The metric of the measured phases after the main one along the axis."""
    for phase in model.measure_phases:
        if phase in {model.main, model.load} or len(takeaways.measured(model, phase)) < 2:
            continue
        title = takeaways.value(model, phase)
        content = _along(model, phase, f"{phase}: {title[:1].lower()}{title[1:]}", scaled_reference=True)
        if content is not None:
            yield f"time-{phase}", content


def query_time(model: ReportModel) -> Content | None:
    """The main metric along the axis, the published curve scaled to the same start."""
    return _along(model, model.main, takeaways.value(model), scaled_reference=True)


def load_rate(model: ReportModel) -> Content | None:
    """How fast the documents went in."""
    if model.load is None or model.load == model.main:
        return None
    return _along(model, model.load, takeaways.value(model, model.load), scaled_reference=False)


def _along(model: ReportModel, phase: str | None, title: str, *, scaled_reference: bool) -> Content | None:
    if model.axis is None:
        return _side_by_side(model, phase, title)
    rows = [(p, f) for p, f in takeaways.measured(model, phase) if p.x is not None]
    if not rows:
        return None
    figures = rows[0][1]
    published: tuple[tuple[float, float], ...] = ()
    reference = model.reference if phase in {None, model.main} else model.references.get(phase or "")
    if reference is not None and reference.axis not in {model.axis, ""}:
        reference = None
    base = next((f.estimate.value for p, f in rows if f.estimate and f.speed_up and f.speed_up.value == 1), None)
    if scaled_reference and reference is not None and base is not None and len(model.series) == 1:
        published = tuple(
            (float(r.at), base / r.speed_up if figures.better == "lower" else base * r.speed_up)
            for r in sorted((r for r in reference.points if not isinstance(r.at, str)), key=lambda r: float(r.at))
            if r.speed_up
        )
    published = _curve(published)
    lines = _lines(model, phase, lambda f: f.estimate)
    unit = f"{figures.metric}, {figures.unit} ({figures.better} is better)"
    scaled = dict(published)
    columns = [model.axis_label, f"{figures.metric}, {figures.unit}", "repetitions"]
    cells = [[p.label, fmt.spread(f.estimate), fmt.count(len(f.values), "value")] for p, f in rows]
    if published:
        columns.append("published, scaled")
        cells = [[*row, fmt.number(scaled.get(p.x or 0.0))] for row, (p, _) in zip(cells, rows, strict=True)]
    compared = (
        f" Dashed: the published curve ({reference.host or reference.title}), scaled to the first point, because the "
        "machines differ."
        if published and reference is not None
        else ""
    )
    core = " The vertical line is where every core has a shard of its own." if _core_line(model) else ""
    data = curves.Curves(
        unit, model.axis_label, lines, published, "published, scaled", model.cores if _core_line(model) else None
    )
    most = max(len(f.values) for _, f in rows)
    subtitle = subtitle_of(model, f"median of {most} repetitions" if most > 1 else "one value a point")
    return Content(
        title,
        f"{fmt.of_unit(figures.metric.capitalize(), figures.unit, ' in ')}. {_intervals(model, phase)}{compared}{core}",
        f"Line chart. {title}. " + "; ".join(f"{p.label}: {fmt.spread(f.estimate)} {f.unit}" for p, f in rows[:24]),
        DataTable(tuple(columns), tuple(map(tuple, cells))),
        lambda: curves.draw(title, subtitle, data),
    )


def _side_by_side(model: ReportModel, phase: str | None, title: str) -> Content | None:
    """Points without an order, such as compressors: a bar each."""
    rows = [(p, f, f.estimate) for p, f in takeaways.measured(model, phase) if f.estimate is not None]
    if len(rows) < 2 or min(e.value for _, _, e in rows) < 0:
        return None  # a single figure needs no picture
    figures = rows[0][1]
    limit = max(e.interval.high if e.interval else e.value for _, _, e in rows) * 1.02 or 1.0
    step = nice(limit / 4)
    labels = row_labels(model)
    data = bars.Bars(
        unit=f"{fmt.of_unit(figures.metric, figures.unit)} ({figures.better} is better)",
        parts=(("measured", figures.metric),),
        bars=tuple(
            bars.Bar(
                labels[p.id],
                (e.value,),
                fmt.number(e.value),
                (),
                (e.interval.low, e.interval.high) if e.interval else None,
            )
            for p, _, e in rows
        ),
        limit=limit,
        ticks=tuple((n * step, f"{n * step:,g}") for n in range(int(limit / step) + 1)),
    )
    most = max(len(f.values) for _, f, _ in rows)
    subtitle = subtitle_of(model, f"median of {most} repetitions" if most > 1 else "one value a point")
    name = fmt.of_unit(figures.metric.capitalize(), figures.unit, " in ")
    return Content(
        title,
        f"{name}, by point. {_intervals(model, phase, 'Bars')}",
        f"Bar chart. {title}. " + "; ".join(f"{p.label}: {fmt.spread(e)} {figures.unit}" for p, _, e in rows[:24]),
        DataTable(
            ("point", fmt.of_unit(figures.metric, figures.unit), "repetitions"),
            tuple((p.label, fmt.spread(e), fmt.count(len(f.values), "value")) for p, f, e in rows),
        ),
        lambda: bars.draw(title, subtitle, data),
    )


def nice(step: float) -> float:
    """The next of 1, 2, 5, 10 … times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(power * n for n in (1, 2, 5, 10) if step <= power * n * (1 + 1e-9))


def _curve(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points of a published curve; one point is none, it is where the measured one begins anyway."""
    return tuple(points) if len(points) > 1 else ()


def speed_up(model: ReportModel) -> Content | None:
    """Speed-up along the axis compared the published one and the ideal."""
    rows = [(p, f) for p, f in takeaways.measured(model) if p.x is not None and f.speed_up is not None]
    if len(rows) < 2 or model.axis is None:
        return None
    title = takeaways.speed(model)
    reference = model.reference
    published: tuple[tuple[float, float], ...] = ()
    if reference is not None:
        known = sorted((float(r.at), r.speed_up) for r in reference.points if r.speed_up and not isinstance(r.at, str))
        published = _curve(known)
    sharded = model.axis_label == "shards"
    lines = _lines(model, model.main, lambda f: f.speed_up)
    data = curves.Curves(
        unit="speed-up, times the smallest point",
        axis=model.axis_label,
        lines=lines,
        published=published,
        cores=model.cores if _core_line(model) else None,
        ideal=sharded,
        log_y=True,
    )
    compared = (
        f" Dashed: published ({reference.host or reference.title})." if reference is not None and published else ""
    )
    columns = (model.axis_label, "speed-up", "efficiency, %", "of the cores, %", "published speed-up")
    cells = tuple(
        (
            p.label,
            fmt.spread(f.speed_up),
            fmt.spread(f.efficiency, 100, 2),
            fmt.spread(f.efficiency_of_cores, 100, 2),
            fmt.factor(p.published_speed_up),
        )
        for p, f in rows
    )
    base = rows[0][0].label if len(model.series) == 1 else f"the smallest number of {model.axis_label} of each line"
    subtitle = subtitle_of(model, f"{model.metric}, against {base}; logarithmic")
    return Content(
        title,
        f"How many times as fast as {base}, on logarithmic scales: equal distances are equal factors. "
        f"{_intervals(model, model.main)}{compared}"
        + (" Dotted: one times faster per shard, up to the cores." if sharded else ""),
        f"Line chart. {title}. "
        + "; ".join(f"{p.label}: {fmt.factor(f.speed_up.value)} times" for p, f in rows[:24] if f.speed_up),
        DataTable(columns, cells),
        lambda: curves.draw(title, subtitle, data),
    )


def _lines(
    model: ReportModel, phase: str | None, pick: Callable[[PhaseFigures], Estimate | None]
) -> tuple[curves.Line, ...]:
    lines = []
    names = _series_names(model)
    for series in model.series:
        found = [
            (p.x, estimate)
            for p, f in takeaways.measured(model, phase, series)
            if p.x is not None and (estimate := pick(f)) is not None
        ]
        if found:
            lines.append(curves.Line(names[series], tuple(x for x, _ in found), tuple(e for _, e in found)))
    return tuple(lines)


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


def _core_line(model: ReportModel) -> bool:
    return model.axis_label == "shards" and bool(model.cores)
