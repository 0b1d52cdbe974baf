"""Pictures of what only some experiments have: thread ladders, latencies, stages, one for each measured phase."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from microshard.analysis.phase_details import LatencySummary, PhaseDetails, RungSummary
from microshard.analysis.report_model import PointReport, ReportModel
from microshard.model.result import INTENDED
from microshard.report import format as fmt
from microshard.report import headline
from microshard.report.figures import bars, lines
from microshard.report.figures.content import (
    Content,
    PhaseRows,
    in_words,
    phase_rows,
    phase_title,
    row_labels,
    slug,
    subtitle_of,
)
from microshard.report.figures.style import SERIES, STACK
from microshard.report.format import table

MOST_ROWS = 24  # rows of percentiles
MILLI = 1000.0  # µs


def of_phases(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """The pictures of every measured phase for which there is data, kind by kind."""
    kinds: tuple[tuple[str, Callable[[PhaseDetails], bool], Callable[[ReportModel, str, PhaseRows], Content]], ...] = (
        ("ladder", lambda more: len(more.rungs) > 1, _ladder),
        ("stages", lambda more: bool(more.stages), _stages),
        ("latency", lambda more: bool(_operations(more)), _latency),
    )
    for name, has, make in kinds:
        for phase in model.measure_phases:
            rows = [(point, more) for point, more in phase_rows(model, phase) if has(more)]
            if rows:
                yield f"{name}-{slug(phase)}", make(model, phase, rows)


# thread ladder


def _ladder(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    """Throughput and latencies against threads."""
    figures = rows[0][0].phases[phase]
    rungs = [(point, more, rung) for point, more in rows for rung in more.rungs]
    title = phase_title(model, phase, headline.ladder(rows, figures.unit))
    reference = model.references.get(phase)
    curve = reference.curve("value") if reference is not None and reference.axis.endswith(".threads") else {}
    published = tuple(spot for spot in curve.items() if spot[0] in {float(rung.threads) for _, _, rung in rungs})
    labels = row_labels(model)
    unit = f"{figures.metric}, {figures.unit}"
    above = _rung_lines(labels, rows, lambda rung: rung.range.value, spans=True)
    shown = [lines.Panel(unit, above, published=published, height=130)]
    percentiles: dict[str, Callable[[RungSummary], float | None]] = {
        "p95": lambda rung: _ms(rung.p95),
        "p99": lambda rung: _ms(rung.p99),
    }
    below = "latency of all operations, ms"
    if len(rows) == 1:
        p95, p99 = (_rung_lines({rows[0][0].id: name}, rows, pick) for name, pick in percentiles.items())
        p99 = tuple(lines.Line(n.label, "series-3", n.x, n.y, style="--", mark="o", hollow=n.hollow) for n in p99)
        shown.append(lines.Panel(below, (*p95, *p99), log="decades"))
    else:
        for name, pick in percentiles.items():
            shown.append(lines.Panel(f"{name} {below}", _rung_lines(labels, rows, pick), log="decades"))
    shown = [panel for panel in shown if any(v is not None for line in panel.lines for v in line.y)]
    caption = (
        "Each rung is measured with so many threads. The ring is the knee: the best rung before one that is no faster "
        "and whose p95 or p99 rises. "
    )
    if any(rung.range.n > 1 for _, _, rung in rungs):
        caption += "Medians of the repetitions, whiskers their range. "
    if any(rung.limited for _, _, rung in rungs):
        caption += (
            "An empty mark is a rung that the client, the router or background CPU load limited: it says nothing about "
            "the servers. "
        )
    if published and reference:
        caption += f"Diamonds: published ({reference.name})."
    columns: dict[str, Callable[..., str]] = {
        "point": lambda point, *_: point.label,
        "threads": lambda _p, _more, rung: f"{rung.threads}",
        unit: lambda _p, _more, rung: fmt.span(rung.range.value, rung.range.low, rung.range.high),
        "p95, ms": lambda _p, _more, rung: fmt.number(_ms(rung.p95)),
        "p99, ms": lambda _p, _more, rung: fmt.number(_ms(rung.p99)),
        "limited by": lambda _p, _more, rung: rung.limited or fmt.NONE,
        "knee": lambda _p, more, rung: "knee" if rung.threads == more.knee else "",
    }
    spoken = (f"{p.label}, {r.threads} threads: {fmt.number(r.range.value)} {figures.unit}" for p, _, r in rungs)
    mark = float(rows[0][1].knee) if len(rows) == 1 and rows[0][1].knee is not None else None
    subtitle = subtitle_of(model, "against the number of threads")
    return Content(
        title, caption, in_words("Line chart", title, spoken), table(rungs, columns),
        partial(lines.draw, subtitle=subtitle, axis="threads", panels=shown, mark=mark),
    )  # fmt: skip


def _rung_lines(
    labels: dict[str, str], rows: PhaseRows, pick: Callable[[RungSummary], float | None], *, spans: bool = False
) -> tuple[lines.Line, ...]:
    """A line a point; of more than can be distinguished all are thin but the highest and the lowest."""
    roles = lines.line_roles([max((pick(r) or 0.0) for r in more.rungs) for _, more in rows])
    return tuple(
        lines.Line(
            labels[point.id] if named else "",
            role,
            tuple(float(rung.threads) for rung in more.rungs),
            tuple(pick(rung) for rung in more.rungs),
            tuple((rung.range.low, rung.range.high) for rung in more.rungs) if spans and named else (),
            frozenset(float(rung.threads) for rung in more.rungs if rung.limited),
            None if more.knee is None else float(more.knee),
            mark="o",
        )
        for (point, more), (role, named) in zip(rows, roles, strict=True)
    )


def _ms(micros: float | None) -> float | None:
    return None if micros is None else micros / MILLI


# latencies


def _operations(more: PhaseDetails) -> dict[str, LatencySummary]:
    """Kinds of operations with all the percentiles that are drawn."""
    return {name: one for name, one in more.latency.items() if {"50", "95", "99"} <= set(one.percentiles)}


def _latency(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    """Percentiles of the latencies by point."""
    every = [(point, name, one) for point, more in rows for name, one in _operations(more).items()]
    names = list(dict.fromkeys(name.removeprefix(INTENDED) for _, name, _ in every))
    busiest = _busiest(rows)
    title = phase_title(model, phase, _latency_title(rows, busiest))
    caption = (
        "Percentiles of the histograms of all repetitions, merged."
        if all(one.merged for _, _, one in every)
        else "Percentiles of merged histograms; where a repetition has none, medians of the repetitions' percentiles."
    ) + (" Of a ladder, at its knee." if any(more.rungs for _, more in rows) else "")
    columns: dict[str, Callable[..., str]] = {
        "point": lambda point, *_: point.label,
        "operation": lambda _, name, _one: name.replace(INTENDED, "intended "),
        "loop, counted from": lambda point, name, _one: _counted_from(rows, point, name),
        "operations": lambda _, _name, one: f"{one.count:,}",
    }
    for p in ("50", "90", "95", "99", "99.9"):
        columns[f"p{p}, ms"] = lambda _, _name, one, p=p: fmt.number(_ms(one.percentiles.get(p)))
    columns["longest, ms"] = lambda _, _name, one: fmt.number(_ms(one.highest))
    cells = table(((point, name, one) for point, more in rows for name, one in more.latency.items()), columns)
    spoken = (f"{point.label}, {name}: p99 {fmt.number(_ms(one.percentiles['99']))} ms" for point, name, one in every)
    alt = in_words("Chart of percentiles", title, spoken)
    subtitle = subtitle_of(model, "latency of operations, logarithmic")
    if len(every) > MOST_ROWS:
        shown = [_over_points(rows, busiest, p) for p in ("50", "95", "99")]
        axis = f"the {len(rows):,} points in the order of the matrix"
        caption += f" Of {busiest}, the most frequent operation."
        return Content(
            title, caption, alt, cells,
            partial(lines.draw, subtitle=subtitle, axis=axis, panels=shown, as_written=False),
        )  # fmt: skip
    if any(name.startswith(INTENDED) for _, name, _ in every):
        caption += (
            " Filled: from when an operation was sent (service time). Empty: from when it was to be sent, which "
            "includes waiting behind others."
        )
    roles = {name: SERIES[n % len(SERIES)] for n, name in enumerate(names)}
    labels = row_labels(model)
    groups = [(labels[point.id], list(_rows(more, roles))) for point, more in rows]
    keys = [(role, name) for name, role in roles.items()]
    draw = partial(lines.percentiles, subtitle=subtitle, unit="ms", names=keys, groups=groups)
    return Content(title, caption, alt, cells, draw)


def _counted_from(rows: PhaseRows, point: PointReport, name: str) -> str:
    """Whether operations were sent at a rate or after the last answer, and what their latency counts from."""
    if name.startswith(INTENDED):
        return "open, intended time"
    paced = any(INTENDED + name in more.latency for other, more in rows if other is point)
    return "open, sending" if paced else "closed, sending"


def _rows(more: PhaseDetails, roles: dict[str, str]) -> Iterator[lines.Percentiles]:
    for name, one in _operations(more).items():
        p50, p95, p99 = (max(one.percentiles[p], 1.0) / MILLI for p in ("50", "95", "99"))
        yield lines.Percentiles(roles[name.removeprefix(INTENDED)], (p50, p95, p99), name.startswith(INTENDED))


def _busiest(rows: PhaseRows) -> str:
    """The most frequent operation."""
    counts: Counter[str] = Counter()
    for _, more in rows:
        counts.update({n: one.count for n, one in _operations(more).items() if not n.startswith(INTENDED)})
    return counts.most_common(1)[0][0] if counts else next(iter(_operations(rows[0][1])))


def _over_points(rows: PhaseRows, name: str, percentile: str) -> lines.Panel:
    found = [more.latency[name].percentiles.get(percentile) if name in more.latency else None for _, more in rows]
    places = tuple(float(n) for n in range(1, len(rows) + 1))
    line = lines.Line(f"p{percentile}", "measured", places, tuple(map(_ms, found)))
    return lines.Panel(f"p{percentile} of {name}, ms", (line,), height=76)


def _latency_title(rows: PhaseRows, name: str) -> str:
    of = [(p, one) for p, more in rows if (one := _operations(more).get(name)) is not None]
    if not of:
        return "Latencies"
    ranked = sorted(of, key=lambda row: row[1].percentiles["99"])
    (best, least), (worst, most) = ranked[0], ranked[-1]
    low, high = (fmt.number(_ms(one.percentiles["99"])) for one in (least, most))
    if len(of) == 1:
        return f"{name}: half within {fmt.number(_ms(most.percentiles['50']))} ms, 99 % within {high} ms"
    if low == high:
        return f"99 % of {name} within {low} ms at every point"
    return f"99 % of {name} within {low} ms at {best.label}, {high} ms at {worst.label}"


# stages


def _stages(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    """What a thing that goes on in stages spends its time on."""
    every = [(point, stage) for point, more in rows for stage in more.stages]
    names = list(dict.fromkeys(stage.name for _, stage in every))
    shown = names if len(names) <= len(STACK) else [*names[: len(STACK) - 1], "others"]
    seconds = [{stage.name: stage.seconds.value for stage in more.stages} for _, more in rows]
    sums = [sum(one.values()) for one in seconds]
    slow = max(range(len(rows)), key=lambda n: sums[n])
    longest = max(seconds[slow], key=lambda name: seconds[slow][name])
    share = fmt.per_cent(seconds[slow][longest] / sums[slow]) if sums[slow] > 0 else fmt.NONE
    at = f", at {rows[slow][0].label}" if len(rows) > 1 else ""
    title = phase_title(model, phase, f"{longest.capitalize()} takes {share} of the {fmt.duration(sums[slow])}{at}")
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
    )
    columns: dict[str, Callable[..., str]] = {
        "point": lambda point, _: point.label,
        "stage": lambda _, stage: stage.name,
        "time, s": lambda _, stage: fmt.span(stage.seconds.value, stage.seconds.low, stage.seconds.high),
        "size": lambda _, stage: fmt.size(stage.size),
        "documents": lambda _, stage: fmt.NONE if stage.documents is None else f"{stage.documents:,.0f}",
        "MB/s": lambda _, stage: _rate(stage.size, stage.seconds.value),
    }
    several = any(stage.seconds.n > 1 for _, stage in every)
    spoken = (f"{point.label}: {fmt.duration(total)}" for (point, _), total in zip(rows, sums, strict=True))
    return Content(
        title,
        "The stages one after the other" + (", medians of the repetitions." if several else "."),
        in_words("Stacked bars", title, spoken),
        table(every, columns),
        partial(bars.draw, subtitle=subtitle_of(model, "time by stage, s"), data=data),
    )


def _rate(size: float | None, seconds: float) -> str:
    return fmt.number(size / seconds / 1e6) if size and seconds > 0 else fmt.NONE
