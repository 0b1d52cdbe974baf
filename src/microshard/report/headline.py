"""The one sentence a run ends with: the answer to its question, from the points that count."""

import math
from collections import Counter
from collections.abc import Sequence

from microshard.analysis.bootstrap import Estimate, speed_up
from microshard.analysis.contrasts import Contrast, by_value, cells, contrasts, counted, not_counted
from microshard.analysis.phase_details import PhaseDetails
from microshard.analysis.report_model import PhaseFigures, PointReport, ReportModel
from microshard.experiment.question import SHARDS_AXIS
from microshard.report import format as fmt

SAME = 0.10  # relative difference below which a curve is called flat, and single values are called equal
FEW = 3  # values or points that a sentence names one by one
LIMITS = {"client": "the client", "router": "the router", "host": "background CPU load on the client's host"}


def headline(model: ReportModel) -> str:
    """What the run found, in one sentence, and what it does not rest on."""
    if not model.measured():
        return "No valid measurement yet"
    if model.advice is not None:
        return model.advice.sentence
    return answer(model) + _left_out(model)


def answer(model: ReportModel) -> str:
    """The sentence without what it does not rest on; the title of the first picture."""
    rows, question = counted(model), model.definition.question
    if not rows:
        return "No complete and undisturbed measurement to rest a headline on"
    ladders = [(point, figures.details) for point, figures, _ in rows if figures.details.rungs]
    if question and ladders and any(key.endswith(".threads") and key not in rows[0][0].axes for key in question.vary):
        return ladder(ladders, rows[0][1].unit)
    # One point may have measured several things that are compared.
    if question and model.axis != SHARDS_AXIS and cells(model) and (len(rows) > 1 or contrasts(model)):
        return answered(model)
    if len(rows) == 1:
        point, figures, estimate = rows[0]
        alone = "" if len(model.points) == 1 else ", and nothing to compare it with"
        value = fmt.with_unit(estimate.value, figures.unit)
        return f"{figures.metric.capitalize()} {value} with {point.label}{alone}"
    return speed(model) if model.axis == SHARDS_AXIS else compared(model)


def _left_out(model: ReportModel) -> str:
    """The points that the sentence does not rest on, and why."""
    reasons = {point.label: why for point in model.points if (why := not_counted(model, point))}
    if not reasons or not model.points:
        return ""
    if len(reasons) <= FEW:
        return "; not counted: " + ", ".join(f"{label} ({why})" for label, why in reasons.items())
    kinds = ", ".join(f"{count} {why}" for why, count in Counter(reasons.values()).items())
    return f"; {len(reasons)} of {len(model.points)} points are not counted ({kinds})"


# the answer to a question


def answered(model: ReportModel) -> str:
    """Each value against the baseline where there are few, else the one that changes the figure most."""
    found = contrasts(model)
    if not found:
        return "Nothing to compare with"
    clear = [contrast for contrast in found if is_clear(contrast)]
    figures = model.figures(found[0].cell.point)
    if not clear:
        names = [*dict.fromkeys([found[0].base.name, *(contrast.cell.name for contrast in found)])]
        listed = fmt.listed(names) if len(names) <= FEW + 1 else f"{len(names)} values"
        return f"No clear difference in {_figure(model, figures)} between {listed}"
    values = [(key, of) for key, of in by_value(found) if any(contrast in clear for contrast in of)]
    values.sort(key=lambda row: -abs(_mean_log(row[1])))
    chosen = values if len(values) < FEW and all(len(of) == 1 for _, of in values) else values[:1]
    alike = len({of[0].base for _, of in chosen}) == 1
    sentences = [_said(model, figures, of, short=alike and number > 0) for number, (_, of) in enumerate(chosen)]
    return "; ".join(sentences)


def is_clear(contrast: Contrast) -> bool:
    """Whether the repetitions distinguish the two; single values differ from ten per cent on."""
    span = contrast.ratio.interval
    if span is None:
        return abs(math.log(contrast.ratio.value)) > math.log1p(SAME)
    return not span.low <= 1 <= span.high


def _mean_log(of: Sequence[Contrast]) -> float:
    return sum(math.log(contrast.ratio.value) for contrast in of) / len(of)


def _figure(model: ReportModel, figures: PhaseFigures) -> str:
    return model.definition.question.figure if model.definition.question else figures.metric


def _said(model: ReportModel, figures: PhaseFigures, of: Sequence[Contrast], *, short: bool) -> str:
    """A value against its baseline, over all groups: the least and the most with their names."""
    name, base, figure = of[0].cell.name, of[0].base.name, _figure(model, figures)
    if not figures.unit:  # a figure without a unit is a ratio itself
        low, high = of[0].base.estimate, of[0].cell.estimate
        return f"{figure.capitalize()} {fmt.number(high.value)}: {name}, {fmt.number(low.value)}: {base}"
    ratios = sorted((contrast.ratio.value, contrast.cell.where) for contrast in of)
    less = _mean_log(of) < 0
    is_time = figures.unit in {"s", "ms", "us"}  # a latency, too
    if less and figures.better == "lower":
        ratios = sorted((1 / ratio, where) for ratio, where in ratios)
        timed = "" if figure == "query time" else f" ({figure})"  # what is as fast
        what = f"as fast as {base}{timed}" if is_time else f"{_fewer(figure)} than {base}"
    else:
        what = f"the {figure} of {base}"
    (least, where), (most, there) = ratios[0], ratios[-1]
    span, cases = f"{fmt.times(most)} {fmt.TIMES}", ""
    if most > least * (1 + SAME):
        span = f"{fmt.times(least)} {fmt.TIMES} ({where}) to {fmt.times(most)} {fmt.TIMES} ({there})"
    elif len(ratios) > 1:
        cases = f" in all {len(ratios)} cases"
    what = what.removesuffix(f" of {base}") if short else what
    return f"{name}: {span} {what}{cases}{_price(model, of)}"


def _fewer(figure: str) -> str:
    return f"fewer {figure}" if figure.startswith("bytes") else f"less {figure}"


def _price(model: ReportModel, of: Sequence[Contrast]) -> str:
    """What the gain costs, in the question's second figure; the median over the groups."""
    known = sorted(contrast.cost for contrast in of if contrast.cost is not None)
    question = model.definition.question
    if not known or question is None or question.cost is None:
        return ""
    ratio = known[(len(known) - 1) // 2]
    details = model.figures(of[0].cell.point).details.figures
    better = next((figure.better for figure in details if figure.name == question.cost), "higher")
    cost = question.cost.removesuffix(", during over before")
    if abs(ratio - 1) < SAME / 2:
        return f" at the same {cost}"
    if ratio < 1 and better == "higher":
        return f" at a cost of {fmt.per_cent(1 - ratio)} of the {cost}"
    return f" at {fmt.times(ratio)} {fmt.TIMES} the {cost}"


def ladder(rows: Sequence[tuple[PointReport, PhaseDetails]], unit: str) -> str:
    """Where the knees of thread ladders are."""
    point, more = max(rows, key=lambda row: max(rung.range.value for rung in row[1].rungs))
    knee = next((rung for rung in more.rungs if rung.threads == more.knee), None)
    top = knee or max(more.rungs, key=lambda rung: rung.range.value)
    value = f"{fmt.number(top.range.value)} {unit}"
    if len(rows) > 1:
        knees = sorted({m.knee for _, m in rows if m.knee is not None})
        lowest = f"{knees[0]} to " if knees and knees[0] != knees[-1] else ""
        where = f"; the knee lies at {lowest}{fmt.count(knees[-1], 'thread')}" if knees else ""
        sentence = f"Up to {value}, with {point.label} and {fmt.count(top.threads, 'thread')}{where}"
    elif top is more.rungs[-1]:
        sentence = f"{value} with {fmt.count(top.threads, 'thread')}, the last rung: no knee was reached"
    else:
        tail = f", p99 {fmt.number(top.p99 / 1000)} ms" if top.p99 is not None else ""
        sentence = f"The knee is at {fmt.count(top.threads, 'thread')}: {value}{tail}"
    return f"{sentence}; {LIMITS[top.limited]} was the limit" if top.limited in LIMITS else sentence


# without a question


def compared(model: ReportModel, phase: str | None = None) -> str:
    """The best and the worst of points without an order; no difference where their intervals overlap."""
    rows = counted(model, phase)
    if len(rows) < 2:
        return "Nothing to compare with"
    names = fmt.distinguishing_labels([point.label for point, _, _ in rows])
    ranked = sorted(((name, e) for name, (_, _, e) in zip(names, rows, strict=True)), key=lambda row: row[1].value)
    least, most = ranked[0][1], ranked[-1][1]
    if touch(least, most) or least.value <= 0:
        return f"No clear difference between the {len(rows)} points"
    figures = rows[0][1]
    (best, good), (worst, bad) = (ranked[0], ranked[-1]) if figures.better == "lower" else (ranked[-1], ranked[0])
    if not _is_speed(figures.unit):
        shown = [fmt.with_unit(e.value, figures.unit) for e in (good, bad)]
        return f"{figures.metric.capitalize()} {shown[0]} at {best}, {shown[1]} at {worst}"
    return f"{best} is {fmt.factor(most.value / least.value)} {fmt.TIMES} as fast as {worst}"


def touch(less: Estimate, more: Estimate) -> bool:
    """Whether the intervals, where there are any, do not tell the two apart."""
    return less.interval is not None and more.interval is not None and less.interval.high >= more.interval.low


def _is_speed(unit: str) -> bool:
    """Whether figures in this unit say how fast something is: times and rates."""
    return unit in {"s", "ms", "us"} or unit.endswith("/s")


def speed(model: ReportModel) -> str:
    """The largest speed-up over the numbers of shards, and the shape of the curve beyond the number of cores."""
    rows: list[tuple[PointReport, Estimate]] = []
    bases: dict[str, tuple[PointReport, PhaseFigures]] = {}
    for point, figures, _ in counted(model):
        if min(figures.values, default=0.0) > 0:
            base, of = bases.setdefault(point.series, (point, figures))
            # A point against itself is 1 by definition, not an estimate.
            itself = Estimate(1.0, None, len(figures.values))
            rows.append((point, itself if base is point else speed_up(of.values, figures.values, figures.better)))
    if len(rows) < 2:
        return "Nothing to compare with"
    best, estimate = max(rows, key=lambda row: row[1].value)
    top, span, base = estimate.value, estimate.interval, bases[best.series][0]
    if span is not None and best is not base and span.low <= 1 <= span.high:
        return f"No clear gain: {fmt.factor(top)} {fmt.TIMES} at {best.label}, but the repetitions scatter as much"
    if best is base or top <= 1 + SAME / 2:
        last, end = rows[-1]
        first = bases[last.series][0]
        if end.value < 1 - SAME:
            return f"No gain: {last.label} reach {fmt.factor(end.value)} {fmt.TIMES} the speed of {first.label}"
        return f"No gain from {first.label} to {last.label}"
    shape = "" if len(model.series) > 1 else _beyond(model, rows, best, estimate)
    return f"{fmt.factor(top)} {fmt.TIMES} at {best.label}{shape}"


def _beyond(model: ReportModel, rows: list[tuple[PointReport, Estimate]], best: PointReport, top: Estimate) -> str:
    cores = model.cores if model.axis == SHARDS_AXIS else None
    (first, _), (last, end) = rows[0], rows[-1]
    apart = end.interval is not None and not touch(end, top)  # then half of the difference is enough
    if last is not best and end.value < top.value * (1 - (SAME if apart else 2 * SAME)):
        return f"; down to {fmt.factor(end.value)} {fmt.TIMES} at {last.label}"
    full = [estimate for p, estimate in rows if cores and p.size <= cores]
    if cores and full and last.size > cores:
        sentence = fmt.count(cores, "core")
        if top.value > cores / first.size * (1 + SAME):
            return f"; more than the {sentence} alone explain"
        risen = top.value > full[-1].value * (1 + SAME) and not touch(full[-1], top)
        return f"; still rising after the {sentence} are full" if risen else f"; flat after the {sentence} are full"
    ended = last is best and best is model.ordered[-1]  # and not one before a point that does not count
    return "; still rising at the last point" if ended else ""
