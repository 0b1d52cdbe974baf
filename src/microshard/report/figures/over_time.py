"""Pictures over the time of a phase: chunks moved by the balancer, data copied by a new member, the rate of a load."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean

from microshard.analysis.phase_details import PhaseDetails
from microshard.analysis.report_model import PointReport, ReportModel
from microshard.model.result import Series
from microshard.report import format as fmt
from microshard.report.figures import bars, lines
from microshard.report.figures.content import Content, PhaseRows, in_words, phase_rows, phase_title, row_labels, slug
from microshard.report.figures.style import STACK
from microshard.report.format import PageTable, table

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
    stacked = next((one for one in chosen if one.stacked), None)
    areas = f" Areas from below: {', '.join(stacked.lines)}." if stacked else ""
    caption = (
        f"{'; '.join(one.name for one in chosen).capitalize()}, from the start of the phase.{areas}{which}{left_out}"
    )
    subtitle = f"{point.label}, over time"
    draw = partial(lines.draw, subtitle=subtitle, axis="seconds", panels=shown, as_written=False)
    return Content(title, caption, in_words("Chart over time", title), _table(more.series), draw)


def _chosen(given: Sequence[Series]) -> list[Series]:
    """What is drawn: without lines that are zero throughout, and without bytes, which look like documents."""
    names = {one.name for one in given}
    kept = [one for one in given if any(value for line in one.lines.values() for value in line)] or list(given[:1])
    return [
        one for one in kept if not (one.name.startswith("bytes") and one.name.replace("bytes", "documents", 1) in names)
    ]


def _panel(one: Series) -> lines.Panel:
    every = max(1, -(-len(one.t) // MOST_DRAWN))
    t, names = tuple(one.t[::every]), list(one.lines)
    columns = [tuple(one.lines[name][::every]) for name in names]
    if one.stacked:
        unit, top = (one.name if one.unit in one.name else f"{one.name}, {one.unit}"), None
        if one.name.startswith("documents"):
            columns, unit, top = _shares(columns), f"share of the {one.name}, %", 100.0
        tints = [STACK[n % len(STACK)] for n in range(len(names))]
        drawn = tuple(lines.Line(n, tint, t, c) for n, tint, c in zip(names, tints, columns, strict=True))
        return lines.Panel(unit, drawn, stacked=True, top=top, height=112)
    roles = lines.line_roles([max((v or 0.0) for v in c) for c in columns])
    drawn = tuple(
        lines.Line(name if named else "", role, t, column)
        for name, column, (role, named) in zip(names, columns, roles, strict=True)
    )
    return lines.Panel(f"{one.name}, {one.unit}", drawn, height=78)


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


def _table(given: Sequence[Series]) -> PageTable:
    """Every line at a few times; lines that were looked at at other times have a value at the time before."""
    times = given[0].t
    every = max(1, -(-(len(times) - 1) // (MOST_TABLED - 1)))
    picked = sorted({*times[::every], times[-1]})
    known = {f"{one.name}: {name}, {one.unit}": (one, v) for one in given for name, v in one.lines.items()}
    cells = ((f"{t:.1f}", *(fmt.number(_at(one, values, t), 4) for one, values in known.values())) for t in picked)
    return PageTable(("seconds", *known), tuple(cells))


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
    columns: dict[str, Callable[..., str]] = {
        "point": lambda p, *_: p.label,
        "windows": lambda _, w, _cv: f"{len(w.rates):,}",
        "mean, 1/s": lambda _, w, _cv: fmt.number(fmean(w.rates)),
        "least, 1/s": lambda _, w, _cv: fmt.number(min(w.rates)),
        "most, 1/s": lambda _, w, _cv: fmt.number(max(w.rates)),
        "coefficient of variation, %": lambda _p, _w, cv: fmt.number(cv * 100),
    }
    cells = table(known, columns)
    alt = in_words("Chart over time", title, (f"{p.label}: {fmt.percent(cv)} %" for p, _, cv in known))
    if len(known) > MOST_LINES_SHOWN:  # of many points only how much the throughput of each varied
        data = bars.Bars(
            unit="coefficient of variation, %",
            parts=(("measured", "variation"),),
            bars=tuple(bars.Bar(labels[p.id], (cv * 100,)) for p, _, cv in known),
        )
        caption = (
            "Standard deviation over mean of the operations in the windows, of the repetition with the median result."
        )
        draw = partial(bars.draw, subtitle="coefficient of variation of throughput", data=data)
        return Content(title, caption, alt, cells, draw)
    roles = lines.line_roles([fmean(w.rates) for _, w, _ in known])
    drawn = tuple(
        _window_line(labels[p.id] if named else "", role, w.seconds, w.rates)
        for (p, w, _), (role, named) in zip(known, roles, strict=True)
    )
    caption = f"Operations a second in windows of {length} s, over the interval of the metric.{which}"
    panels = [lines.Panel("operations/s", drawn, height=140)]
    draw = partial(lines.draw, subtitle="throughput over time", axis="seconds", panels=panels, as_written=False)
    return Content(title, caption, alt, cells, draw)


def _window_line(label: str, role: str, seconds: float, rates: Sequence[float]) -> lines.Line:
    every = max(1, -(-len(rates) // MOST_DRAWN))
    places = tuple((n + 0.5) * seconds for n in range(0, len(rates), every))
    return lines.Line(label, role, places, tuple(rates[::every]))
