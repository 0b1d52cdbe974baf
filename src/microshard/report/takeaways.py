"""The one sentence each picture is about, computed from its data."""

from __future__ import annotations

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.report_model import PointReport, ReportModel
from microshard.report import format as fmt
from microshard.report.checks import DRIFT, OTHERS, disturbed, drift

SAME = 0.10  # relative difference below which a curve is called flat


def headline(model: ReportModel) -> str:
    """What the run found, in one sentence."""
    rows = model.measured()
    if not rows:
        return "No valid measurement yet"
    if len(rows) == 1:
        point, figures, estimate = rows[0]
        return f"{figures.metric.capitalize()} {fmt.number(estimate.value)} {figures.unit} with {point.label}"
    return speed(model) if model.axis else compared(model)


def compared(model: ReportModel, phase: str | None = None) -> str:
    """The best and the worst of points without an order; no difference where their intervals overlap."""
    rows = model.measured(phase)
    if len(rows) < 2:
        return "Nothing to compare with yet"
    names = fmt.distinguishing_labels([point.label for point, _, _ in rows])
    ranked = sorted(
        ((name, e, point) for name, (point, _, e) in zip(names, rows, strict=True)), key=lambda row: row[1].value
    )
    least, most = ranked[0][1], ranked[-1][1]
    if _touch(least, most) or least.value <= 0:
        return f"No clear difference between the {len(rows)} points"
    figures = rows[0][1]
    low, high = ranked[0], ranked[-1]
    (best, good, first), (worst, bad, last) = (low, high) if figures.better == "lower" else (high, low)
    if not _is_speed(figures.unit):
        shown = [fmt.with_unit(e.value, figures.unit) for e in (good, bad)]
        return f"{figures.metric.capitalize()} {shown[0]} at {best}, {shown[1]} at {worst}"
    return (
        f"{best} is {fmt.factor(most.value / least.value)} {fmt.TIMES} as fast as {worst}{_doubt(model, first, last)}"
    )


def _touch(less: Estimate, more: Estimate) -> bool:
    """Whether the intervals, where there are any, do not tell the two apart."""
    return less.interval is not None and more.interval is not None and less.interval.high >= more.interval.low


def _is_speed(unit: str) -> bool:
    """Whether figures in this unit say how fast something is: times and rates."""
    return unit in {"s", "ms", "us"} or unit.endswith("/s")


def speed(model: ReportModel) -> str:
    """The largest speed-up, and the shape of the curve beyond the number of cores."""
    rows = [(p, f.speed_up) for p, f, _ in model.measured() if f.speed_up is not None]
    if len(rows) < 2:
        return "Nothing to compare with yet"
    best, estimate = max(rows, key=lambda row: row[1].value)
    top, span = estimate.value, estimate.interval
    if span is not None and best is not rows[0][0] and span.low <= 1 <= span.high:
        return f"No clear gain: {fmt.factor(top)} {fmt.TIMES} at {best.label}, but the repetitions scatter as much"
    if best is rows[0][0] or top <= 1 + SAME / 2:
        last, end = rows[-1]
        base = next(point for point, _ in rows if point.series == last.series)
        sentence = f"No gain from {base.label} to {last.label}"
        if end.value < 1 - SAME:
            sentence = f"No gain: {last.label} reach {fmt.factor(end.value)} {fmt.TIMES} the speed of {base.label}"
        return sentence + _doubt(model, base, last)
    base = next(point for point, _ in rows if point.series == best.series)
    doubt = _doubt(model, base, best)
    shape = "" if doubt or len(model.series) > 1 else _beyond(model, rows, best, estimate)
    return f"{fmt.factor(top)} {fmt.TIMES} at {best.label}{doubt}{shape}"


def _doubt(model: ReportModel, *points: PointReport) -> str:
    """A warning where one of two compared points had background CPU load: their ratio says nothing then."""
    disturbed_labels = [point.label for point in points if disturbed(model, point)]
    return f"; unreliable: background CPU load at {' and '.join(disturbed_labels)}" if disturbed_labels else ""


def _beyond(model: ReportModel, rows: list[tuple[PointReport, Estimate]], best: PointReport, top: Estimate) -> str:
    cores = model.cores if model.axis_label == "shards" else None
    (first, _), (last, end) = rows[0], rows[-1]
    if last is not best and end.value < top.value * (1 - 2 * SAME):
        return f"; down to {fmt.factor(end.value)} {fmt.TIMES} at {last.label}"
    full = [estimate for p, estimate in rows if cores and p.size <= cores]
    if cores and full and last.size > cores:
        sentence = fmt.count(cores, "core")
        if top.value > cores / first.size * (1 + SAME):
            return f"; more than the {sentence} alone explain"
        risen = top.value > full[-1].value * (1 + SAME) and not _touch(full[-1], top)
        return f"; still rising after the {sentence} are full" if risen else f"; flat after the {sentence} are full"
    return "; still rising at the last point" if last is best else ""


def value(model: ReportModel, phase: str | None = None) -> str:
    """From the smallest point's value to the best one."""
    rows = model.measured(phase)
    if not rows:
        return "No valid measurement yet"
    if model.axis is None and len(rows) > 1:
        return compared(model, phase)
    first, base, start = rows[0]
    best, _, end = (min if base.better == "lower" else max)(rows, key=lambda row: row[2].value)
    name = base.metric.capitalize()
    if best is first:
        return f"{name} is best at {first.label}: {fmt.with_unit(start.value, base.unit)}"
    begin = fmt.size(start.value) if base.unit == "bytes" else fmt.number(start.value)
    return f"{name} from {begin} to {fmt.with_unit(end.value, base.unit)}, best at {best.label}"


def cpu(model: ReportModel) -> str:
    """How busy the CPU was."""
    rows = [(p, f.cpu) for p, f, _ in model.measured() if f.cpu is not None]
    if not rows:
        return "No telemetry"
    first, start = rows[0]
    point, split = max(rows, key=lambda row: row[1].iowait)
    if split.iowait > 0.2:
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
    rows = [f.roles for _, f, _ in model.measured() if f.roles]
    if not rows:
        return "No telemetry"
    total = sum(sum(use.values()) for use in rows)
    if total <= 0:
        return "No process used the CPU"
    router, client, others = (max(use.get(role, 0.0) for use in rows) for role in ("router", "client", "others"))
    if model.cores and others > OTHERS * model.cores:
        return f"Background CPU load: up to {others:.1f} of the {model.cores} cores"
    return (
        f"{fmt.percent(sum(use.get('shards', 0.0) for use in rows) / total)} % of the CPU used is the shards'; "
        f"router at most {router:.2f}, client {client:.2f} cores"
    )


def disk(model: ReportModel) -> str:
    """Whether the documents take more room on more shards, and what the processes add."""
    storages = [point.storage for point in model.ordered if point.storage is not None]
    if not storages:
        return "No disk use reported"
    low, high = min(s.total for s in storages), max(s.total for s in storages)
    if low > 0 and high / low < 1 + SAME:
        taken = fmt.size(high) + (" at every point" if len(storages) > 1 else "")
    else:
        taken = f"{fmt.size(low)} to {fmt.size(high)}"
    folders = [storage.db_path for storage in storages if storage.db_path is not None]
    grown = len(folders) > 1 and max(folders) > min(folders) * (1 + SAME)
    growth = f"; the folders grow to {fmt.size(max(folders))}" if grown else ""
    return f"Documents and indexes take {taken}{growth}"


def order(model: ReportModel) -> str:
    """Whether the machine changed while the run went."""
    for point in model.points:
        change = drift(model, point)
        if change is not None and abs(change) > DRIFT:
            what = "higher" if change > 0 else "lower"
            return f"Drift: {point.label} was {fmt.per_cent(abs(change))} {what} at the end than its median"
        if change is not None:
            return f"No drift: {point.label} at the end within {fmt.per_cent(max(abs(change), 0.01))} of its median"
    return "Repetitions in the order they were taken"
