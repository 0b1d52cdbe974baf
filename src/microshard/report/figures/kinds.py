"""Pictures of what only some experiments have: thread ladders, latencies, stages, one for each measured phase."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from microshard.analysis.phase_details import INTENDED, LatencySummary, PhaseDetails, RungSummary
from microshard.analysis.report_model import PointReport, Reference, ReportModel
from microshard.report import format as fmt
from microshard.report.figures import bars, panels
from microshard.report.figures.content import Content, DataTable, nice, row_labels, subtitle_of
from microshard.report.figures.style import SERIES, STACK

MOST_LINES = 6  # beyond, single lines cannot be distinguished
MOST_ROWS = 24  # rows of percentiles
LIMITS = {"client": "the client", "router": "the router", "host": "background CPU load on the client's host"}
MILLI = 1000.0  # µs

PhaseRows = list[tuple[PointReport, PhaseDetails]]


def slug(name: str) -> str:
    """A name for files and ids."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "phase"


def phase_rows(model: ReportModel, phase: str) -> PhaseRows:
    """The points that have details of a phase, series by series, the smallest first."""
    return [
        (point, figures.details)
        for name in model.series
        for point in model.of(name)
        if (figures := point.phases.get(phase)) is not None and figures.details is not None
    ]


def phase_name(model: ReportModel, phase: str) -> str:
    """The prefix of a title where there are several phases."""
    return f"{phase}: " if len(model.measure_phases) > 1 else ""


def lower_first(sentence: str) -> str:
    """The sentence with a small first letter, to follow a colon."""
    return sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def phase_title(model: ReportModel, phase: str, sentence: str) -> str:
    """A title, with the phase's name where there are several."""
    prefix = phase_name(model, phase)
    return f"{prefix}{lower_first(sentence)}" if prefix else sentence


# thread ladder


def ladders(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """Throughput and latencies against threads, for each phase that climbed a ladder."""
    for phase in model.measure_phases:
        rows = [(point, more) for point, more in phase_rows(model, phase) if len(more.rungs) > 1]
        if rows:
            yield f"ladder-{slug(phase)}", _ladder(model, phase, rows)


def _ladder(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    figures = rows[0][0].phases[phase]
    title = phase_title(model, phase, _ladder_title(rows, figures.unit))
    reference = model.references.get(phase)
    published: tuple[tuple[float, float], ...] = ()
    if reference is not None and reference.axis.endswith(".threads"):
        published = tuple((float(r.at), r.value) for r in reference.points if not isinstance(r.at, str) and r.value)
        known = {float(rung.threads) for _, more in rows for rung in more.rungs}
        published = tuple(spot for spot in published if spot[0] in known)
    labels = row_labels(model)
    above = tuple(_rung_lines(labels, rows, lambda rung: rung.range.value, spans=True))
    shown = [panels.Panel(f"{figures.metric}, {figures.unit}", above, published=published, height=130)]
    if len(rows) == 1:
        p95 = _rung_lines({rows[0][0].id: "p95"}, rows, lambda rung: _ms(rung.p95))
        p99 = _rung_lines({rows[0][0].id: "p99"}, rows, lambda rung: _ms(rung.p99), role="series-3", dashed=True)
        shown.append(panels.Panel("latency of all operations, ms", (*p95, *p99), log_y=True))
    else:
        for name, pick in (("p95", lambda rung: _ms(rung.p95)), ("p99", lambda rung: _ms(rung.p99))):
            lines = tuple(_rung_lines(labels, rows, pick))
            shown.append(panels.Panel(f"{name} latency of all operations, ms", lines, log_y=True))
    shown = [panel for panel in shown if any(v is not None for line in panel.lines for v in line.y)]
    limited = any(rung.limited for _, more in rows for rung in more.rungs)
    n = max(rung.range.n for _, more in rows for rung in more.rungs)
    caption = (
        f"Each rung is measured with so many threads. The ring is the knee: the best rung before one that is no faster "
        f"and whose p95 or p99 rises. {'Medians of the repetitions, whiskers their range. ' if n > 1 else ''}"
        + ("An empty mark is a rung that the client, the router or background CPU load limited: it says "
           "nothing about the servers. " if limited else "")
        + (f"Diamonds: published ({_source(reference)})." if published and reference else "")
    )  # fmt: skip
    columns = ("point", "threads", f"{figures.metric}, {figures.unit}", "p95, ms", "p99, ms", "limited by", "knee")
    cells = tuple(
        (
            point.label,
            f"{rung.threads}",
            spread(rung.range.value, rung.range.low, rung.range.high),
            fmt.number(_ms(rung.p95)),
            fmt.number(_ms(rung.p99)),
            rung.limited or fmt.NONE,
            "knee" if rung.threads == more.knee else "",
        )
        for point, more in rows
        for rung in more.rungs
    )
    alt = f"Line chart. {title}. " + "; ".join(
        f"{point.label}, {rung.threads} threads: {fmt.number(rung.range.value)} {figures.unit}"
        for point, more in rows[:3]
        for rung in more.rungs
    )
    subtitle = subtitle_of(model, "against the number of threads")
    mark = float(rows[0][1].knee) if len(rows) == 1 and rows[0][1].knee is not None else None
    return Content(
        title,
        caption,
        alt,
        DataTable(columns, cells),
        lambda: panels.draw(title, subtitle, "threads", shown, mark=mark),
    )


def _source(reference: Reference) -> str:
    return reference.host or reference.title or reference.source


def _ladder_title(rows: PhaseRows, unit: str) -> str:
    best = max(rows, key=lambda row: max(rung.range.value for rung in row[1].rungs))
    point, more = best
    knee = next((rung for rung in more.rungs if rung.threads == more.knee), None)
    top = knee or max(more.rungs, key=lambda rung: rung.range.value)
    value = f"{fmt.number(top.range.value)} {unit}"
    if len(rows) > 1:
        knees = sorted({m.knee for _, m in rows if m.knee is not None})
        where = f"; the knee lies at {_span([str(k) for k in knees])} threads" if knees else ""
        sentence = f"Up to {value}, with {point.label} and {top.threads} threads{where}"
    elif top is more.rungs[-1]:
        sentence = f"{value} with {top.threads} threads, the last rung: no knee was reached"
    else:
        tail = f", p99 {fmt.number(_ms(top.p99))} ms" if top.p99 is not None else ""
        sentence = f"The knee is at {top.threads} threads: {value}{tail}"
    return f"{sentence}; {LIMITS[top.limited]} was the limit" if top.limited in LIMITS else sentence


def _span(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _rung_lines(
    labels: dict[str, str],
    rows: PhaseRows,
    pick: Callable[[RungSummary], float | None],
    *,
    role: str = "",
    spans: bool = False,
    dashed: bool = False,
) -> Iterator[panels.Line]:
    """A line a point; of more than can be distinguished all are thin but the highest and the lowest."""
    roles = line_roles([max((pick(r) or 0.0) for r in more.rungs) for _, more in rows])
    for (point, more), (tint, named) in zip(rows, roles, strict=True):
        yield panels.Line(
            labels[point.id] if named else "",
            role or tint,
            tuple(float(rung.threads) for rung in more.rungs),
            tuple(pick(rung) for rung in more.rungs),
            tuple((rung.range.low, rung.range.high) for rung in more.rungs) if spans and named else (),
            frozenset(float(rung.threads) for rung in more.rungs if rung.limited),
            None if more.knee is None else float(more.knee),
            dashed,
            named,
        )


def line_roles(ranks: list[float]) -> list[tuple[str, bool]]:
    """Colour of each line and whether it is named: all of a few, of many the highest and the lowest."""
    if len(ranks) == 1:
        return [("measured", True)]
    if len(ranks) <= MOST_LINES:
        return [(SERIES[n], True) for n in range(len(ranks))]
    low, high = ranks.index(min(ranks)), len(ranks) - 1 - ranks[::-1].index(max(ranks))
    return [
        ("series-1", True) if n == high else ("series-3", True) if n == low else ("ideal", False)
        for n in range(len(ranks))
    ]


def _ms(micros: float | None) -> float | None:
    return None if micros is None else micros / MILLI


def spread(value: float, low: float, high: float) -> str:
    """`median [low-high]` of a range."""
    places = fmt.decimals(value)
    if low == high:
        return f"{value:,.{places}f}"
    return f"{value:,.{places}f} [{low:,.{places}f}{fmt.DASH}{high:,.{places}f}]"


# latencies


def latencies(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """Percentiles of the latencies of each measured phase by point."""
    for phase in model.measure_phases:
        rows = [(point, more) for point, more in phase_rows(model, phase) if _operations(more)]
        if rows:
            yield f"latency-{slug(phase)}", _latency(model, phase, rows)


def _operations(more: PhaseDetails) -> dict[str, LatencySummary]:
    """Kinds of operations with all the percentiles that are drawn."""
    return {name: one for name, one in more.latency.items() if {"50", "95", "99"} <= set(one.percentiles)}


def _latency(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    names = list(dict.fromkeys(n.removeprefix(INTENDED) for _, more in rows for n in _operations(more)))
    title = phase_title(model, phase, _latency_title(rows))
    every = [one for _, more in rows for one in _operations(more).values()]
    intended = any(name.startswith(INTENDED) for _, more in rows for name in _operations(more))
    way = (
        "Percentiles of the histograms of all repetitions, merged."
        if all(one.merged for one in every)
        else "Percentiles of merged histograms; where a repetition has none, medians of the repetitions' percentiles."
    )
    rungs = " Of a ladder, at its knee." if any(more.rungs for _, more in rows) else ""
    late = (
        " Filled: from when an operation was sent (service time). Empty: from when it was to be sent, which includes "
        "waiting behind others."
        if intended
        else ""
    )
    columns = (
        "point",
        "operation",
        "operations",
        *(f"p{p}, ms" for p in ("50", "90", "95", "99", "99.9")),
        "longest, ms",
    )
    cells = tuple(
        (
            point.label,
            name.replace(INTENDED, "intended "),
            f"{one.count:,}",
            *(fmt.number(_ms(one.percentiles.get(p))) for p in ("50", "90", "95", "99", "99.9")),
            fmt.number(_ms(one.highest)),
        )
        for point, more in rows
        for name, one in more.latency.items()
    )
    alt = f"Chart of percentiles. {title}. " + "; ".join(
        f"{point.label}, {name}: p99 {fmt.number(_ms(one.percentiles['99']))} ms"
        for point, more in rows[:12]
        for name, one in _operations(more).items()
    )
    subtitle = subtitle_of(model, "latency of operations, logarithmic")
    labels = row_labels(model)
    if sum(len(_operations(more)) for _, more in rows) > MOST_ROWS:
        shown = [_over_points(rows, p) for p in ("50", "95", "99")]
        axis = f"the {len(rows):,} points in the order of the matrix"
        return Content(
            title, f"{way}{rungs} Of {_busiest(rows)}, the most frequent operation.", alt, DataTable(columns, cells),
            lambda: panels.draw(title, subtitle, axis, shown, as_written=False),
        )  # fmt: skip
    roles = {name: SERIES[n % len(SERIES)] for n, name in enumerate(names)}
    groups = [panels.Group(labels[point.id], tuple(_rows(more, roles))) for point, more in rows]
    keys = [(roles[name], name) for name in names]
    return Content(
        title, f"{way}{rungs}{late}", alt, DataTable(columns, cells),
        lambda: panels.percentiles(title, subtitle, "ms", keys, groups),
    )  # fmt: skip


def _rows(more: PhaseDetails, roles: dict[str, str]) -> Iterator[panels.Percentiles]:
    for name, one in _operations(more).items():
        p50, p95, p99 = (max(one.percentiles[p], 1.0) / MILLI for p in ("50", "95", "99"))
        yield panels.Percentiles(roles[name.removeprefix(INTENDED)], (p50, p95, p99), name.startswith(INTENDED))


def _busiest(rows: PhaseRows) -> str:
    counts: dict[str, int] = {}
    for _, more in rows:
        for name, one in _operations(more).items():
            if not name.startswith(INTENDED):
                counts[name] = counts.get(name, 0) + one.count
    return max(counts, key=lambda name: counts[name]) if counts else next(iter(_operations(rows[0][1])))


def _over_points(rows: PhaseRows, percentile: str) -> panels.Panel:
    name = _busiest(rows)
    line = panels.Line(
        f"p{percentile}",
        "measured",
        tuple(float(n) for n in range(1, len(rows) + 1)),
        tuple(
            _ms(one.percentiles.get(percentile)) if (one := more.latency.get(name)) is not None else None
            for _, more in rows
        ),
    )
    return panels.Panel(f"p{percentile} of {name}, ms", (line,), height=76)


def _latency_title(rows: PhaseRows) -> str:
    name = _busiest(rows)
    of = [(p, one) for p, more in rows if (one := _operations(more).get(name)) is not None]
    if not of:
        return "Latencies"
    worst, most = max(of, key=lambda row: row[1].percentiles["99"])
    best, least = min(of, key=lambda row: row[1].percentiles["99"])
    if len(of) == 1:
        half = fmt.number(_ms(most.percentiles["50"]))
        return f"{name}: half within {half} ms, 99 % within {fmt.number(_ms(most.percentiles['99']))} ms"
    low, high = (fmt.number(_ms(one.percentiles["99"])) for one in (least, most))
    if low == high:
        return f"99 % of {name} within {high} ms at every point"
    return f"99 % of {name} within {low} ms at {best.label}, {high} ms at {worst.label}"


# stages


def stages(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """What a thing that goes on in stages spends its time on, by point."""
    for phase in model.measure_phases:
        rows = [(point, more) for point, more in phase_rows(model, phase) if more.stages]
        if rows:
            yield f"stages-{slug(phase)}", _stages(model, phase, rows)


def _stages(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    names = list(dict.fromkeys(stage.name for _, more in rows for stage in more.stages))
    shown = names if len(names) <= len(STACK) else [*names[: len(STACK) - 1], "others"]
    seconds = [{stage.name: stage.seconds.value for stage in more.stages} for _, more in rows]
    sums = [sum(one.values()) for one in seconds]
    slow = max(range(len(rows)), key=lambda n: sums[n])
    longest = max(seconds[slow], key=lambda name: seconds[slow][name])
    share = fmt.per_cent(seconds[slow][longest] / sums[slow]) if sums[slow] > 0 else fmt.NONE
    at = f", at {rows[slow][0].label}" if len(rows) > 1 else ""
    title = phase_title(model, phase, f"{longest.capitalize()} takes {share} of the {fmt.duration(sums[slow])}{at}")
    limit = max(sums) * 1.02 or 1.0
    step = nice(limit / 4)
    labels = row_labels(model)

    def parts(one: dict[str, float]) -> tuple[float, ...]:
        known = tuple(one.get(name, 0.0) for name in shown)
        return known if "others" not in shown else (*known[:-1], sum(one.values()) - sum(known[:-1]))

    data = bars.Bars(
        unit="s",
        parts=tuple(zip(STACK, shown, strict=False)),
        bars=tuple(
            bars.Bar(labels[p.id], parts(one), f"{fmt.number(total)} s")
            for (p, _), one, total in zip(rows, seconds, sums, strict=True)
        ),
        limit=limit,
        ticks=tuple((n * step, f"{n * step:,g}") for n in range(int(limit / step) + 1)),
    )
    n = max(stage.seconds.n for _, more in rows for stage in more.stages)
    every = [f"{point.label}: {fmt.duration(total)}" for (point, _), total in zip(rows, sums, strict=True)]
    cells = tuple(
        (
            point.label,
            stage.name,
            spread(stage.seconds.value, stage.seconds.low, stage.seconds.high),
            fmt.size(stage.size),
            fmt.NONE if stage.documents is None else f"{stage.documents:,.0f}",
            _rate(stage.size, stage.seconds.value),
        )
        for point, more in rows
        for stage in more.stages
    )
    return Content(
        title,
        "The stages one after the other" + (", medians of the repetitions." if n > 1 else "."),
        f"Stacked bars. {title}. " + "; ".join(every[:24]),
        DataTable(("point", "stage", "time, s", "size", "documents", "MB/s"), cells),
        lambda: bars.draw(title, subtitle_of(model, "time by stage, s"), data),
    )  # fmt: skip


def _rate(size: float | None, seconds: float) -> str:
    return fmt.number(size / seconds / 1e6) if size and seconds > 0 else fmt.NONE
