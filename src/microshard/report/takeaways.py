"""The one sentence each picture is about, computed from its data."""

from __future__ import annotations

from collections.abc import Sequence

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.report_model import PhaseFigures, PointReport, ReportModel
from microshard.report import format as fmt
from microshard.report.checks import DRIFT, OTHERS, disturbed, drift

SAME = 0.10  # relative difference below which a curve is called flat

Measured = list[tuple[PointReport, PhaseFigures]]


def headline(model: ReportModel) -> str:
    """What the run found, in one sentence."""
    rows = measured(model)
    if not rows:
        return "No valid measurement yet"
    if len(rows) == 1:
        point, figures = rows[0]
        value = figures.estimate.value if figures.estimate else None
        return f"{figures.metric.capitalize()} {fmt.number(value)} {figures.unit} with {point.label}"
    return speed(model) if model.axis else compared(model)


def compared(model: ReportModel, phase: str | None = None) -> str:
    """The best and the worst of points without an order; no difference where their intervals overlap."""
    rows = [(p, f, f.estimate) for p, f in measured(model, phase) if f.estimate is not None]
    if len(rows) < 2:
        return "Nothing to compare with yet"
    names = fmt.distinguishing_labels([point.label for point, _, _ in rows])
    ranked = sorted(((name, e) for name, (_, _, e) in zip(names, rows, strict=True)), key=lambda row: row[1].value)
    (low, least), (high, most) = ranked[0], ranked[-1]
    best, worst = (low, high) if rows[0][1].better == "lower" else (high, low)
    if _touch(least, most) or least.value <= 0:
        return f"No clear difference between the {len(rows)} points"
    figures = rows[0][1]
    if not is_speed(figures.unit):
        good, bad = (least, most) if figures.better == "lower" else (most, least)
        shown = [fmt.with_unit(e.value, figures.unit) for e in (good, bad)]
        return f"{figures.metric.capitalize()} {shown[0]} at {best}, {shown[1]} at {worst}"
    return f"{best} is {fmt.factor(most.value / least.value)} {fmt.TIMES} as fast as {worst}"


def _touch(less: Estimate, more: Estimate) -> bool:
    """Whether the intervals, where there are any, do not tell the two apart."""
    return less.interval is not None and more.interval is not None and less.interval.high >= more.interval.low


def is_speed(unit: str) -> bool:
    """Whether figures in this unit say how fast something is: times and rates."""
    return unit in {"s", "ms", "us"} or unit.endswith("/s")


def measured(model: ReportModel, phase: str | None = None, series: str | None = None) -> Measured:
    """Points with valid values of a phase, the smallest first; of all series unless one is named."""
    names = model.series if series is None else (series,)
    return [
        (point, figures)
        for name in names
        for point in model.of(name)
        if (figures := model.figures(point, phase)) is not None and figures.estimate is not None
    ]


def speed(model: ReportModel) -> str:
    """The largest speed-up, and the shape of the curve beyond the number of cores."""
    rows = [(p, f.speed_up, f.speed_up.value) for p, f in measured(model) if f.speed_up is not None]
    if len(rows) < 2:
        return "Nothing to compare with yet"
    best, estimate, top = max(rows, key=lambda row: row[2])
    span = estimate.interval
    if span is not None and best is not rows[0][0] and span.low <= 1 <= span.high:
        return f"No clear gain: {fmt.factor(top)} {fmt.TIMES} at {best.label}, but the repetitions scatter as much"
    if best is rows[0][0] or top <= 1 + SAME / 2:
        last, _, value = rows[-1]
        base = next(point for point, _, _ in rows if point.series == last.series)
        sentence = f"No gain from {base.label} to {last.label}"
        if value < 1 - SAME:
            sentence = f"No gain: {last.label} reach {fmt.factor(value)} {fmt.TIMES} the speed of {base.label}"
        return sentence + _doubt(model, base, last)
    base = next(point for point, _, _ in rows if point.series == best.series)
    sentence, doubt = f"{fmt.factor(top)} {fmt.TIMES} at {best.label}", _doubt(model, base, best)
    if doubt or len(model.series) > 1:
        return sentence + doubt
    return sentence + _beyond(model, [(p, speed_up) for p, speed_up, _ in rows], best, estimate)


def _doubt(model: ReportModel, *points: PointReport) -> str:
    """A warning where one of two compared points had background CPU load: their ratio says nothing then."""
    disturbed_labels = [point.label for point in points if disturbed(model, point)]
    return f"; unreliable: background CPU load at {' and '.join(disturbed_labels)}" if disturbed_labels else ""


def _beyond(model: ReportModel, rows: Sequence[tuple[PointReport, Estimate]], best: PointReport, top: Estimate) -> str:
    cores = model.cores if model.axis_label == "shards" else None
    (first, _), (last, end) = rows[0], rows[-1]
    full = [estimate for p, estimate in rows if cores and p.size <= cores]
    over = [estimate for p, estimate in rows if cores and p.size > cores]
    if last is not best and end.value < top.value * (1 - 2 * SAME):
        return f"; down to {fmt.factor(end.value)} {fmt.TIMES} at {last.label}"
    if cores and full and over:
        sentence = fmt.count(cores, "core")
        if top.value > cores / first.size * (1 + SAME):
            return f"; more than the {sentence} alone explain"
        risen = top.value > full[-1].value * (1 + SAME) and not _touch(full[-1], top)
        return f"; still rising after the {sentence} are full" if risen else f"; flat after the {sentence} are full"
    if last is best:
        return "; still rising at the last point"
    return ""


def value(model: ReportModel, phase: str | None = None) -> str:
    """From the smallest point's value to the best one."""
    rows = measured(model, phase)
    if not rows:
        return "No valid measurement yet"
    if model.axis is None and len(rows) > 1:
        return compared(model, phase)
    first, base = rows[0]
    choose = min if base.better == "lower" else max
    best, figures = choose(rows, key=lambda row: row[1].estimate.value if row[1].estimate else 0.0)
    start = base.estimate.value if base.estimate else None
    end = figures.estimate.value if figures.estimate else None
    name = f"{base.metric.capitalize()}"
    if best is first:
        return f"{name} is best at {first.label}: {fmt.with_unit(start, base.unit)}"
    if base.unit == "bytes":
        return f"{name} from {fmt.size(start)} to {fmt.size(end)}, best at {best.label}"
    return f"{name} from {fmt.number(start)} to {fmt.with_unit(end, base.unit)}, best at {best.label}"


def cpu(model: ReportModel) -> str:
    """How busy the CPU was."""
    rows = [(p, f.cpu) for p, f in measured(model) if f.cpu is not None]
    if not rows:
        return "No telemetry"
    first, start = rows[0]
    waiting = [(p, split) for p, split in rows if split.iowait > 0.2]
    if waiting:
        point, split = max(waiting, key=lambda row: row[1].iowait)
        return f"{point.label.capitalize()} waits for the disk {fmt.percent(split.iowait)} % of the time"
    full = next(((p, split) for p, split in rows if split.busy > 0.9), None)
    if full is None:
        point, split = max(rows, key=lambda row: row[1].busy)
        return f"The CPU is never full: at most {fmt.percent(split.busy)} % busy, at {point.label}"
    if full[0] is first:
        return f"The CPU is full at every point ({fmt.percent(start.busy)} % busy at {first.label})"
    share = fmt.per_cent(full[1].busy)
    return f"{fmt.per_cent(start.busy)} of the CPU busy at {first.label}, {share} at {full[0].label}"


def roles(model: ReportModel) -> str:
    """Which processes used the processor."""
    rows = [(p, f.roles) for p, f in measured(model) if f.roles]
    if not rows:
        return "No telemetry"
    total = sum(sum(use.values()) for _, use in rows)
    shards = sum(use.get("shards", 0.0) for _, use in rows)
    router = max(use.get("router", 0.0) for _, use in rows)
    client = max(use.get("client", 0.0) for _, use in rows)
    if total <= 0:
        return "No process used the CPU"
    others = max(use.get("others", 0.0) for _, use in rows)
    if model.cores and others > OTHERS * model.cores:
        return f"Background CPU load: up to {others:.1f} of the {model.cores} cores"
    return (
        f"{fmt.percent(shards / total)} % of the CPU used is the shards'; "
        f"router at most {router:.2f}, client {client:.2f} cores"
    )


def disk(model: ReportModel) -> str:
    """Whether the documents take more room on more shards, and what the processes add."""
    rows = [(p, p.storage) for name in model.series for p in model.of(name) if p.storage is not None]
    if not rows:
        return "No disk use reported"
    totals = [storage.total for _, storage in rows]
    low, high = min(totals), max(totals)
    even = low > 0 and high / low < 1 + SAME
    sentence = "Documents and indexes take "
    sentence += fmt.size(high) if even else f"{fmt.size(low)} to {fmt.size(high)}"
    if even:
        sentence += " at every point" if len(rows) > 1 else ""
    folders = [storage.db_path for _, storage in rows if storage.db_path is not None]
    if len(folders) > 1 and max(folders) > min(folders) * (1 + SAME):
        sentence += f"; the folders grow to {fmt.size(max(folders))}"
    return sentence


def order(model: ReportModel) -> str:
    """Whether the machine changed while the run went."""
    for point in model.points:
        change = drift(model, point)
        if change is not None:
            what = "higher" if change > 0 else "lower"
            if abs(change) > DRIFT:
                return f"Drift: {point.label} was {fmt.per_cent(abs(change))} {what} at the end than its median"
            return f"No drift: {point.label} at the end within {fmt.per_cent(max(abs(change), 0.01))} of its median"
    return "Repetitions in the order they were taken"
