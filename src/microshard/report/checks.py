"""What the reader must know before the figures. The rules and limits are stated in docs/report.md."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product

from microshard.analysis.contrasts import disturbed
from microshard.analysis.read_run import RunFiles
from microshard.analysis.report_model import Level, Measurement, Notice, PhaseFigures, PointReport, ReportModel
from microshard.model.run_records import STANDS_STILL, JournalEvent
from microshard.report import format as fmt

DRIFT = 0.10  # change of the first point at the end of the run
SPREAD = 0.25  # range of the repetitions over their median
CLIENT_CPU = 0.8  # share of the host's cores; the definition's gates.max_client_cpu overrides it
SKEW = 1.2  # most documents of a shard over the mean; gates.max_shard_skew overrides it
NAMED = 2  # notices of one kind about single points before the other points are only named
_RANK = {"error": 0, "warning": 1, "note": 2}
_OTHER_ANSWER = "another answer"

Sentences = Iterator[tuple[Level, str]]


def notices(model: ReportModel, run: RunFiles) -> tuple[Notice, ...]:
    """All notices of a run, errors first, those of the whole run before those of points; a few of each kind."""
    found = [Notice(level, text) for level, text in _of_run(model, run)]
    labels = {point.id: point.label for point in model.points}
    for check in _POINT_CHECKS:
        kinds: dict[str, list[Notice]] = {}  # by what they say without point and figures
        for point in model.points:
            for level, text in check(model, point, model.figures(point)):
                said = re.sub(r"\d[\d.,]*", "", text.replace(point.label, ""))
                kinds.setdefault(said, []).append(Notice(level, text, point.id))
        for kind in kinds.values():
            if len(kind) > NAMED + 1:
                rest = dict.fromkeys(labels[str(notice.point)] for notice in kind[NAMED:])
                kind[NAMED:] = [Notice(kind[NAMED].level, f"and the same, with other figures, of {', '.join(rest)}")]
            found += kind
    return tuple(sorted(dict.fromkeys(found), key=lambda notice: _RANK[notice.level]))


def _of_run(model: ReportModel, run: RunFiles) -> Sentences:
    """What concerns the whole run: files, measurements that are missing, the base, caches, lock and plan."""
    for line in run.unreadable:
        yield "error", f"{line}; the report does without it"
    if model.steps_planned and not model.complete:
        events = {event.event for event in run.events}
        why = next((why for event, why in _WHY_MISSING.items() if event in events), _GOING)
        yield "warning", f"{model.steps_done:,} of {model.steps_planned:,} measurements are there: {why}"
    for series in model.series:
        first, *_ = points = model.of(series)
        measured = next((p for p in points if model.figures(p).values), first)
        if measured is not first:
            yield (
                "warning",
                f"speed-up and efficiency are against {measured.label}, because {first.label} has no valid measurement",
            )
    ways = sorted({m.result.notes.get("cache", "") for p in model.points for m in _valid(model.figures(p))} - {""})
    if len(ways) > 1:
        yield "warning", "caches were prepared differently: " + "; ".join(ways)
    if changed := run.lock.differs_from_lock:
        yield "warning", f"differs from the lock file this run was started with: {'; '.join(changed)}"
    again = sum(entry.outcome.endswith(": valid") for point in model.points for entry in point.invalid)
    if again:
        yield "note", f"{fmt.count(again, 'measurement')} broke a gate and counted when taken again; listed below"
    yield from (("note", warning) for warning in (run.plan.warnings if run.plan else ()))
    yield from (("note", cost) for cost in hosts_cost(run.events))
    fewest = min((estimate.n for _, _, estimate in model.measured()), default=0)
    if fewest == 1:
        yield "note", "one repetition has no interval: its variation is unknown"
    elif 1 < fewest < 6:  # from six on the range covers 97 %
        yield (
            "note",
            f"with {fmt.count(fewest, 'repetition')} an interval is the range of the values and covers the true median "
            f"in {fmt.per_cent(1 - 2.0 ** (1 - fewest))} of such runs, not in 95 %",
        )


def hosts_cost(events: Iterable[JournalEvent]) -> Iterator[str]:
    """A sentence for each session on EC2: hours and cost of its hosts, and what was estimated."""

    def usd(value: float | None) -> str:
        return "an unknown price" if value is None else f"{value:.2f} USD"

    for event in events:
        if event.event == "hosts ended" and event.hours is not None and event.estimated_hours is not None:
            yield (
                f"hosts on EC2: {event.hours:.2f} h and {usd(event.usd)} at on-demand prices; "
                f"estimated: {event.estimated_hours:.2f} h and {usd(event.estimated_usd)}"
            )


_GOING = "the run is still going, or it was killed"
_WHY_MISSING = {  # by event of the journal, the first that is there
    "stopped": "the run was stopped",
    "budget reached": "the time budget was used up",
    "run ended": "the rest belongs to points that failed",
}


def _answers(_model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    if point.answers == "differs":
        steps = dict.fromkeys(m.step for m in _all(point) if any(_OTHER_ANSWER in problem for problem in m.problems))
        where = ", ".join(steps)
        yield (
            "error",
            f"{point.label} gave another answer than most measurements ({where}); these values are not counted",
        )


def _failed(_model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    problems = [problem.strip().partition("\n")[0] for problem in point.problems if _OTHER_ANSWER not in problem]
    if point.state == "failed":
        yield "error", f"no valid measurement of {point.label}{f': {problems[0]}' if problems else ''}"
    elif point.state == "partial" and problems:
        yield "warning", f"{point.label}: {problems[0]}; not counted in its median"


def _drift(model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    change = drift(model, point)
    if change is not None and abs(change) > DRIFT:
        what = "higher" if change > 0 else "lower"
        yield (
            "warning",
            f"drift: {point.label}, repeated at the end, was {fmt.per_cent(abs(change))} {what} than its median; "
            "figures early and late in the run do not compare",
        )


def drift(model: ReportModel, point: PointReport) -> float | None:
    """(value at the end / median) - 1 of the point that was repeated; None for all others."""
    figures = model.figures(point)
    last = [m.value for m in _valid(figures) if m.purpose == "drift" and m.value is not None]
    return last[-1] / figures.estimate.value - 1 if last and figures.estimate and figures.estimate.value else None


def _verdict(_model: ReportModel, point: PointReport, figures: PhaseFigures) -> Sentences:
    """What was measured at this point was not the database."""
    if figures.verdict is not None and figures.verdict.name == "client":
        yield "warning", f"{point.label}: the client was the bottleneck, not the servers: {figures.verdict.sentence}"


def _rate(_model: ReportModel, point: PointReport, figures: PhaseFigures) -> Sentences:
    """Operations did not go out at the rate that the experiment asks for."""
    loops = [loop for m in _valid(figures) for loop in m.result.open_loop.values()]
    missed = [loop for loop in loops if not loop.reached]
    if missed:
        yield "warning", f"{point.label}: in {len(missed)} of {len(loops)} measurements: {missed[0].sentence}"


def _limit(gate: float | str | None, default: float) -> float:
    return gate if isinstance(gate, int | float) and gate else default


def _client(model: ReportModel, point: PointReport, figures: PhaseFigures) -> Sentences:
    limit = _limit(model.definition.gates.max_client_cpu, CLIENT_CPU)
    if model.cores and figures.client_cores and figures.client_cores > limit * model.cores:
        yield (
            "warning",
            f"{point.label}: the client itself used {figures.client_cores:.1f} of {model.cores} cores while "
            f"measuring (limit {fmt.per_cent(limit)}); the servers may have waited for it",
        )


def _others(model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    if cores := disturbed(model, point):
        text = f"background CPU load of {cores:.1f} of {model.cores} cores while it was measured"
        yield "warning", f"{point.label}: {text}"


def _skew(model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    limit = _limit(model.definition.gates.max_shard_skew, SKEW)
    skew = (point.storage.skew if point.storage else None) or 0.0
    if skew > limit:
        yield "warning", f"{point.label}: the fullest shard holds {skew:.2f} times the mean (limit {limit:g})"


def _spread(_model: ReportModel, point: PointReport, figures: PhaseFigures) -> Sentences:
    if figures.estimate is not None and figures.estimate.value > 0 and len(figures.values) > 1:
        width = (max(figures.values) - min(figures.values)) / figures.estimate.value
        if width > SPREAD:
            yield "warning", f"{point.label}: spread {fmt.per_cent(width)} of the median"


def _errors(_model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    if errors := sum(m.errors for m in _all(point)):
        yield "warning", f"{point.label}: {fmt.count(round(errors), 'operation')} ended in an error"


def limited_phases(_model: ReportModel, point: PointReport, main: PhaseFigures) -> Sentences:
    """Figures that client, router or background CPU load limited; a ladder has them at its rungs."""
    for figures in point.phases.values():
        slow = [m for m in _valid(figures) if m.result.limited and m.purpose == "measure"]
        if not slow or (figures.details.rungs and not slow[0].left_out):
            continue
        who = " and ".join(dict.fromkeys(_who(m.result.limited) for m in slow))
        where = f"{point.label}, {figures.phase}"
        if slow[0].left_out:
            steps = ", ".join(m.step for m in slow)
            yield "warning", f"{where}: {who} was the bottleneck in {steps}; left out of the median"
        elif figures.verdict is None or figures.verdict.name != "client" or figures is not main:
            yield "warning", f"{where}: {who} was the bottleneck, not the servers"


def _who(limited: str) -> str:
    return "background CPU load on the client's host" if limited == "host" else f"the {limited}"


def _ladders(_model: ReportModel, point: PointReport, _figures: PhaseFigures) -> Sentences:
    """A knee that something else than the servers made, and ladders that ended before one."""
    for figures in point.phases.values():
        rungs = figures.details.rungs
        knee = next((rung for rung in rungs if rung.threads == figures.details.knee), None)
        where = f"{point.label}, {figures.phase}"
        if knee is not None and knee.limited:
            who = _who(knee.limited)
            yield "warning", f"{where}: at the ladder's knee {who} was the bottleneck, not the servers"
        elif knee is not None and knee is rungs[-1] and len(rungs) > 1:
            yield "note", f"{where}: the best rung is the last one; more threads may reach more"


def _stood_still(model: ReportModel, point: PointReport, figures: PhaseFigures) -> Sentences:  # noqa: ARG001
    """A process that noted nothing of itself for a while, by its FTDC, while it was measured.

    Only what lies in the measurement counts: before it a point is paused while others are measured.
    """
    for name, counts in point.logs.items():
        if (seen := counts.diagnostics) is None:
            continue
        for m, gap in product(_valid(figures), seen.standstills):
            still = min(gap.began + gap.seconds, m.result.ended) - max(gap.began, m.result.started)
            if still >= STANDS_STILL:
                text = f"{point.label}: {name} noted nothing of itself for {still:.1f} s in {m.step} (FTDC)"
                yield "warning", f"{text}: it, or its disk, stood still"


_POINT_CHECKS: tuple[Callable[[ReportModel, PointReport, PhaseFigures], Sentences], ...] = (
    _answers, _failed, _drift, _verdict, _rate, _client, _others, _skew, _spread, _errors, _stood_still, limited_phases,
    _ladders,
)  # fmt: skip


def _all(point: PointReport) -> list[Measurement]:
    return [m for figures in point.phases.values() for m in figures.measurements]


def _valid(figures: PhaseFigures) -> list[Measurement]:
    return [m for m in figures.measurements if m.valid]
