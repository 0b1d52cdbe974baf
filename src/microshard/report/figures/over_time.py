"""Pictures over the time of a phase: chunks moved by the balancer, data copied by a new member, the rate of a load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from microshard.analysis.phase_details import PhaseDetails
from microshard.analysis.report_model import PointReport, ReportModel
from microshard.model.result import Series
from microshard.report import format as fmt
from microshard.report.figures import bars, panels
from microshard.report.figures.content import Content, DataTable, nice, row_labels
from microshard.report.figures.kinds import PhaseRows, line_roles, phase_rows, phase_title, slug
from microshard.report.figures.style import SERIES, STACK

MOST_POINTS = 6  # pictures of single points of a phase
MOST_LINES_SHOWN = 24  # lines of windows in one picture
MOST_DRAWN = 400  # places of a line; more than the picture has
MOST_TABLED = 13  # of the numbers below
STEADY = 0.05  # coefficient of variation up to which a load is called steady


def series(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """Each point over time: shares by shard as areas, the throughput and latency of the load below."""
    for phase in model.measure_phases:
        rows = [(point, more) for point, more in phase_rows(model, phase) if more.series]
        for point, more in rows[:MOST_POINTS]:
            yield f"series-{slug(phase)}-{slug(point.id)}", _point(model, phase, point, more, len(rows))


def _point(model: ReportModel, phase: str, point: PointReport, more: PhaseDetails, points: int) -> Content:
    chosen = _chosen(more.series)
    shown = [_panel(one) for one in chosen]
    title = phase_title(model, phase, f"{point.label}: {_sentence(chosen)}")
    single = len(point.phases[phase].values) < 2
    which = "" if single else f" Of {more.representative}, the repetition with the median result."
    left_out = f" Of {points:,} points the first {MOST_POINTS} are shown." if points > MOST_POINTS else ""
    stacked = any(one.stacked for one in chosen)
    areas = " Areas from below: " + ", ".join(_lines(chosen)) + "." if stacked else ""
    columns, cells = _table(more.series)
    return Content(
        title,
        f"{'; '.join(one.name for one in chosen).capitalize()}, from the start of the phase.{areas}{which}{left_out}",
        f"Chart over time. {title}.",
        DataTable(columns, cells),
        lambda: panels.draw(title, f"{point.label}, over time", "seconds", shown, as_written=False),
    )


def _lines(chosen: Sequence[Series]) -> list[str]:
    return list(next(one for one in chosen if one.stacked).lines)


def _chosen(given: Sequence[Series]) -> list[Series]:
    """What is drawn: without lines that are zero throughout, and without bytes, which look like documents."""
    names = {one.name for one in given}
    kept = [one for one in given if any(value for line in one.lines.values() for value in line)] or list(given[:1])
    return [
        one for one in kept if not (one.name.startswith("bytes") and one.name.replace("bytes", "documents", 1) in names)
    ]


def _panel(one: Series) -> panels.Panel:
    every = max(1, -(-len(one.t) // MOST_DRAWN))
    t = one.t[::every]
    names = list(one.lines)
    columns = [tuple(one.lines[name][::every]) for name in names]
    if one.stacked:
        tints = [STACK[n % len(STACK)] for n in range(len(names))]
        unit, top = (one.name if one.unit in one.name else f"{one.name}, {one.unit}"), None
        if one.name.startswith("documents"):
            columns, unit, top = _shares(columns), f"share of the {one.name}, %", 100.0
        lines = (panels.Line(n, r, tuple(t), tuple(c)) for n, r, c in zip(names, tints, columns, strict=True))
        return panels.Panel(unit, tuple(lines), stacked=True, top=top, height=112)
    roles = line_roles([max((v or 0.0) for v in c) for c in columns])
    if len(names) > 1 and len(names) <= len(SERIES):
        roles = [(SERIES[n], True) for n in range(len(names))]
    lines = (
        panels.Line(name if named else "", role, tuple(t), column)
        for name, column, (role, named) in zip(names, columns, roles, strict=True)
    )
    return panels.Panel(f"{one.name}, {one.unit}", tuple(lines), height=78)


def _shares(columns: Sequence[Sequence[float | None]]) -> list[tuple[float | None, ...]]:
    sums = [sum(v or 0.0 for v in values) for values in zip(*columns, strict=True)]
    return [tuple((v or 0.0) / s * 100 if s else 0.0 for v, s in zip(c, sums, strict=True)) for c in columns]


def _sentence(chosen: Sequence[Series]) -> str:
    """The one sentence: how even the shards became, else what the first line went up to."""
    spread = [one for one in chosen if one.stacked and len(one.lines) > 1]
    even = next((one for one in spread if one.name.startswith("documents")), spread[0] if spread else None)
    if even is not None:
        there = [full for at in range(len(even.t)) if (full := _fullest(even, at)) is not None]
        if there:
            first, last = there[0], there[-1]
            what = even.name.partition(" ")[0]
            if abs(first - last) < 0.01:
                return f"the fullest shard holds {fmt.factor(last)} times the mean of {what} throughout"
            return f"the fullest shard goes from {fmt.factor(first)} to {fmt.factor(last)} times the mean of {what}"
    one = chosen[0]
    values = [v for line in one.lines.values() for v in line if v is not None]
    if not values:
        return f"{one.name} over time"
    most = max(values)
    return f"{one.name} up to {f'{most:,.0f}' if most == int(most) else fmt.number(most)} {one.unit}"


def _fullest(one: Series, at: int) -> float | None:
    per_shard = [line[at] or 0.0 for line in one.lines.values()]
    return max(per_shard) * len(per_shard) / sum(per_shard) if sum(per_shard) > 0 else None


def _table(given: Sequence[Series]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Every line at a few times; lines that were looked at at other times have a value at the time before."""
    times = given[0].t
    every = max(1, -(-(len(times) - 1) // (MOST_TABLED - 1)))
    picked = sorted({*times[::every], times[-1]})
    columns = ["seconds"]
    lines: list[tuple[Series, Sequence[float | None]]] = []
    for one in given:
        for name, values in one.lines.items():
            columns.append(f"{one.name}: {name}, {one.unit}")
            lines.append((one, values))
    cells = [(f"{t:.1f}", *(fmt.number(_at(one, values, t), 4) for one, values in lines)) for t in picked]
    return tuple(columns), tuple(cells)


def _at(one: Series, values: Sequence[float | None], t: float) -> float | None:
    before = [v for at, v in zip(one.t, values, strict=True) if at <= t + 1e-6]
    return before[-1] if before else None


def windows(model: ReportModel) -> Iterator[tuple[str, Content]]:
    """Throughput over the windows of each measured phase; not where the load is drawn below the shares already."""
    for phase in model.measure_phases:
        rows = [
            (point, more)
            for point, more in phase_rows(model, phase)
            if more.windows is not None
            and len(more.windows.rates) > 2
            and not any(one.name == "load" for one in more.series)
        ]
        if rows:
            yield f"windows-{slug(phase)}", _windows(model, phase, rows)


def _windows(model: ReportModel, phase: str, rows: PhaseRows) -> Content:
    known = [(point, more.windows, more.windows.variation or 0.0) for point, more in rows if more.windows]
    worst, _, most = max(known, key=lambda row: row[2])
    length = f"{known[0][1].seconds:g}"
    at = f" at {worst.label}" if len(known) > 1 else ""
    sentence = (
        f"Steady: throughput varies by at most {fmt.per_cent(most)} between windows of {length} s"
        if most <= STEADY
        else f"Throughput varies by {fmt.per_cent(most)} between windows of {length} s{at}"
    )
    title = phase_title(model, phase, sentence)
    labels = row_labels(model)
    single = max(len(point.phases[phase].values) for point, _, _ in known) < 2
    which = "" if single else " Each line is the repetition with the median result."
    table = DataTable(
        ("point", "windows", "mean, 1/s", "least, 1/s", "most, 1/s", "coefficient of variation, %"),
        tuple(
            (p.label, f"{len(w.rates):,}", fmt.number(sum(w.rates) / len(w.rates)), fmt.number(min(w.rates)),
             fmt.number(max(w.rates)), fmt.number(cv * 100))
            for p, w, cv in known
        ),
    )  # fmt: skip
    alt = f"Chart over time. {title}. " + "; ".join(f"{p.label}: {fmt.percent(cv)} %" for p, _, cv in known[:24])
    if len(known) > MOST_LINES_SHOWN:
        return _variations(title, alt, table, [(labels[p.id], cv) for p, _, cv in known])
    roles = line_roles([sum(w.rates) / len(w.rates) for _, w, _ in known])
    lines = tuple(
        _window_line(labels[p.id] if named else "", role, w.seconds, w.rates)
        for (p, w, _), (role, named) in zip(known, roles, strict=True)
    )
    panel = panels.Panel("operations/s", lines, height=140)
    caption = f"Operations a second in windows of {length} s, over the interval of the metric.{which}"
    return Content(
        title, caption, alt, table,
        lambda: panels.draw(title, "throughput over time", "seconds", [panel], as_written=False),
    )  # fmt: skip


def _window_line(label: str, role: str, seconds: float, rates: Sequence[float]) -> panels.Line:
    every = max(1, -(-len(rates) // MOST_DRAWN))
    return panels.Line(
        label, role, tuple((n + 0.5) * seconds for n in range(0, len(rates), every)), tuple(rates[::every])
    )


def _variations(title: str, alt: str, table: DataTable, known: Sequence[tuple[str, float]]) -> Content:
    """Of many points only how much the throughput of each varied."""
    limit = max(cv for _, cv in known) * 102 or 1.0
    step = nice(limit / 4)
    data = bars.Bars(
        unit="coefficient of variation, %",
        parts=(("measured", "variation"),),
        bars=tuple(bars.Bar(label, (cv * 100,)) for label, cv in known),
        limit=limit,
        ticks=tuple((n * step, f"{n * step:g} %") for n in range(int(limit / step) + 1)),
    )
    return Content(
        title,
        "Standard deviation over mean of the operations in the windows, of the repetition with the median result.",
        alt,
        table,
        lambda: bars.draw(title, "coefficient of variation of throughput", data),
    )
