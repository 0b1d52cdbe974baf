"""What the reader must know before the figures. The rules and limits are stated in docs/report.md."""

from __future__ import annotations

from collections.abc import Iterator

from microshard.analysis.read_run import RunFiles
from microshard.analysis.report_model import Measurement, Notice, PhaseFigures, PointReport, ReportModel
from microshard.report import format as fmt

DRIFT = 0.10  # change of the first point at the end of the run
SPREAD = 0.25  # range of the repetitions over their median
CLIENT_CPU = 0.8  # share of the host's cores; the definition's gates.max_client_cpu overrides it
OTHERS = 0.25  # share of the host's cores used by what does not belong to the run
SKEW = 1.2  # most documents of a shard over the mean; gates.max_shard_skew overrides it
NAMED = 5  # notices of one kind about single points before they are summed up
_RANK = {"error": 0, "warning": 1, "note": 2}


def notices(model: ReportModel, run: RunFiles) -> tuple[Notice, ...]:
    """All notices of a run, errors first; of each kind at most a few points are named."""
    found: list[Notice] = []
    for kind in (
        _answers(model),
        _failed(model),
        _invalid(model),
        _files(run),
        _missing(model, run),
        _base(model),
        _drift(model),
        _verdicts(model),
        _client(model),
        _others(model),
        _skew(model),
        _spread(model),
        _caches(model),
        _errors(model),
        limited_phases(model),
        _ladders(model),
        _plan(run),
        _lock(run),
        _repetitions(model),
    ):
        found += _short(list(kind))
    return tuple(sorted(dict.fromkeys(found), key=lambda notice: _RANK[notice.level]))


def _short(found: list[Notice]) -> list[Notice]:
    if len(found) <= NAMED + 1:
        return found
    return [*found[:NAMED], Notice(found[NAMED].level, f"… and the same of {len(found) - NAMED:,} more points")]


def _lock(run: RunFiles) -> Iterator[Notice]:
    if run.lock.differs_from_lock:
        changed = "; ".join(run.lock.differs_from_lock)
        yield Notice("warning", f"differs from the lock file this run was started with: {changed}")


def _answers(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        if point.answers == "differs":
            steps = [m.step for m in _all(point) if any("another answer" in problem for problem in m.problems)]
            where = ", ".join(dict.fromkeys(steps))
            yield Notice(
                "error",
                f"{point.label} gave another answer than most measurements ({where}); these values are not counted",
                point.id,
            )


def _failed(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        if point.state == "failed":
            why = f": {_first_line(_own_problems(point)[0])}" if _own_problems(point) else ""
            yield Notice("error", f"no valid measurement of {point.label}{why}", point.id)


def _invalid(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        problems = _own_problems(point)
        if point.state == "partial" and problems:
            yield Notice("warning", f"{point.label}: {_first_line(problems[0])}; not counted in its median", point.id)
    again = [entry for point in model.points for entry in point.invalid if entry.outcome.endswith(": valid")]
    if again:
        yield Notice(
            "note", f"{fmt.count(len(again), 'measurement')} broke a gate and counted when taken again; listed below"
        )


def _verdicts(model: ReportModel) -> Iterator[Notice]:
    """What was measured at these points was not the database."""
    for point in model.points:
        figures = model.figures(point)
        verdict = figures.verdict if figures else None
        if verdict is not None and verdict.name == "client":
            yield Notice(
                "warning",
                f"{point.label}: the client was the bottleneck, not the servers: {verdict.sentence}",
                point.id,
            )


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else text


def _own_problems(point: PointReport) -> list[str]:
    return [problem for problem in point.problems if "another answer" not in problem]


def _files(run: RunFiles) -> Iterator[Notice]:
    for line in run.unreadable:
        yield Notice("error", f"{line}; the report does without it")


def _missing(model: ReportModel, run: RunFiles) -> Iterator[Notice]:
    if not model.steps_planned or model.complete:
        return
    events = {event.event for event in run.events}
    if "stopped" in events:
        why = "the run was stopped"
    elif "budget reached" in events:
        why = "the time budget was used up"
    elif "run ended" in events:
        why = "the rest belongs to points that failed"
    else:
        why = "the run is still going, or it was killed"
    yield Notice("warning", f"{model.steps_done:,} of {model.steps_planned:,} measurements are there: {why}")


def _base(model: ReportModel) -> Iterator[Notice]:
    for series in model.series:
        points = model.of(series)
        measured = next((p for p in points if (f := model.figures(p)) and f.values), None)
        if measured is not None and measured is not points[0]:
            yield Notice(
                "warning",
                f"speed-up and efficiency are against {measured.label}, because {points[0].label} has "
                "no valid measurement",
            )


def _drift(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        change = drift(model, point)
        if change is not None and abs(change) > DRIFT:
            yield Notice(
                "warning",
                f"drift: {point.label}, repeated at the end, was {fmt.per_cent(abs(change))} "
                f"{'higher' if change > 0 else 'lower'} than its median; "
                "figures early and late in the run do not compare",
                point.id,
            )


def drift(model: ReportModel, point: PointReport) -> float | None:
    """(value at the end / median) - 1 of the point that was repeated; None for all others."""
    figures = model.figures(point)
    if figures is None or figures.estimate is None or figures.estimate.value == 0:
        return None
    last = [m.value for m in figures.measurements if m.purpose == "drift" and m.valid and m.value is not None]
    return last[-1] / figures.estimate.value - 1 if last else None


def _limit(gate: float | str | None, default: float) -> float:
    return gate if isinstance(gate, int | float) and gate else default


def _client(model: ReportModel) -> Iterator[Notice]:
    limit = _limit(model.definition.gates.max_client_cpu, CLIENT_CPU)
    for point in model.points:
        figures = model.figures(point)
        if figures and model.cores and figures.client_cores and figures.client_cores > limit * model.cores:
            yield Notice(
                "warning",
                f"{point.label}: the client itself used {figures.client_cores:.1f} of {model.cores} cores while "
                f"measuring (limit {fmt.per_cent(limit)}); the servers may have waited for it",
                point.id,
            )


def _others(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        cores = disturbed(model, point)
        if cores:
            yield Notice(
                "warning",
                f"{point.label}: background CPU load of {cores:.1f} of {model.cores} cores while it was measured",
                point.id,
            )


def disturbed(model: ReportModel, point: PointReport) -> float:
    """Background CPU load in cores while a point was measured, where it is too high; else 0."""
    figures = model.figures(point)
    others = figures.roles.get("others", 0.0) if figures else 0.0
    return others if model.cores and others > OTHERS * model.cores else 0.0


def _skew(model: ReportModel) -> Iterator[Notice]:
    limit = _limit(model.definition.gates.max_shard_skew, SKEW)
    for point in model.points:
        skew = point.storage.skew if point.storage else None
        if skew is not None and skew > limit:
            yield Notice(
                "warning",
                f"{point.label}: the fullest shard holds {skew:.2f} times the mean (limit {limit:g})",
                point.id,
            )


def _spread(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        figures = model.figures(point)
        if figures is None or figures.estimate is None or figures.estimate.value <= 0 or len(figures.values) < 2:
            continue
        width = (max(figures.values) - min(figures.values)) / figures.estimate.value
        if width > SPREAD:
            yield Notice("warning", f"{point.label}: spread {fmt.per_cent(width)} of the median", point.id)


def _caches(model: ReportModel) -> Iterator[Notice]:
    if model.main is None:
        return
    ways = {
        m.result.notes["cache"]
        for point in model.points
        if (figures := model.figures(point))
        for m in figures.measurements
        if m.valid and m.result.notes.get("cache")
    }
    if len(ways) > 1:
        yield Notice("warning", "caches were prepared differently: " + "; ".join(sorted(ways)))


def _errors(model: ReportModel) -> Iterator[Notice]:
    for point in model.points:
        errors = sum(m.errors for m in _all(point))
        if errors:
            yield Notice("warning", f"{point.label}: {errors:,.0f} operations ended in an error", point.id)


def limited_phases(model: ReportModel) -> Iterator[Notice]:
    """Figures that client, router or background CPU load limited; a ladder has them at its rungs."""
    for point in model.points:
        for figures in point.phases.values():
            slow = [m for m in figures.measurements if m.limited and m.valid and m.purpose == "measure"]
            if not slow or (figures.details is not None and figures.details.rungs and not slow[0].left_out):
                continue
            who = " and ".join(dict.fromkeys(_who(m.limited) for m in slow))
            where = f"{point.label}, {figures.phase}"
            if slow[0].left_out:
                steps = ", ".join(m.step for m in slow)
                yield Notice(
                    "warning", f"{where}: {who} was the bottleneck in {steps}; left out of the median", point.id
                )
            elif figures.verdict is None or figures.verdict.name != "client" or figures is not model.figures(point):
                yield Notice("warning", f"{where}: {who} was the bottleneck, not the servers", point.id)


def _who(limited: str) -> str:
    return "background CPU load on the client's host" if limited == "host" else f"the {limited}"


def _ladders(model: ReportModel) -> Iterator[Notice]:
    """A knee that something else than the servers made, and ladders that ended before one."""
    for point in model.points:
        for figures in point.phases.values():
            more = figures.details
            knee = next((r for r in more.rungs if r.threads == more.knee), None) if more else None
            if more is None or knee is None:
                continue
            where = f"{point.label}, {figures.phase}"
            if knee.limited:
                yield Notice(
                    "warning",
                    f"{where}: at the ladder's knee {_who(knee.limited)} was the bottleneck, not the servers",
                    point.id,
                )
            elif knee is more.rungs[-1] and len(more.rungs) > 1:
                yield Notice("note", f"{where}: the best rung is the last one; more threads may reach more", point.id)


def _plan(run: RunFiles) -> Iterator[Notice]:
    for warning in run.plan.warnings if run.plan else ():
        yield Notice("note", warning)


def _repetitions(model: ReportModel) -> Iterator[Notice]:
    all_figures: list[PhaseFigures] = [f for p in model.points if (f := model.figures(p)) and f.estimate]
    fewest = min((figures.estimate.n for figures in all_figures if figures.estimate), default=0)
    if fewest == 1:
        yield Notice("note", "one repetition has no interval: its variation is unknown")
    elif 1 < fewest < 6:  # from six on the range covers 97 %
        yield Notice(
            "note",
            f"with {fmt.count(fewest, 'repetition')} an interval is the range of the values and covers the true median "
            f"in {fmt.per_cent(1 - 2.0 ** (1 - fewest))} of such runs, not in 95 %",
        )


def _all(point: PointReport) -> list[Measurement]:
    return [m for figures in point.phases.values() for m in figures.measurements]
