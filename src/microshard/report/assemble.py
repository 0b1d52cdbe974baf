"""From the files of a run to a report model."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from microshard.analysis.bootstrap import efficiency, speed_up, usable_cores
from microshard.analysis.measurements import measurements, median_storage, phase_figures
from microshard.analysis.read_run import RunFiles, read_run
from microshard.analysis.reference import distance_to, read_reference, reported
from microshard.analysis.report_model import (
    Answers,
    Invalid,
    Measurement,
    PhaseFigures,
    PointReport,
    PointState,
    ReportedQuestion,
    ReportModel,
)
from microshard.analysis.scaling import Refused, UslFit, fit_usl
from microshard.experiment.question import SHARDS_AXIS, axis_label, kept_apart, kept_name, key_of, value_text
from microshard.model.plan import Point
from microshard.model.result import StepResult
from microshard.report.checks import notices

_KIND = ("topology.kind", "topology.collections", "topology.mongos.count", "topology.mongos.shards_each")


def build(run_folder: Path) -> ReportModel:
    """The report of a run as it is now: complete, partly failed, or still going.

    Raises RunFolderError when the folder is not a run of ours; nothing else that is missing or broken raises.
    """
    run = read_run(run_folder)
    definition, plan, lock = reported(run.lock.definition), run.plan, run.lock
    records = _records(run)
    question = definition.question
    if question is not None:
        question = replace(question, by=kept_apart(question, [record.axes for record in records]))
        definition = replace(definition, question=question)
    axis = _axis(records, definition.reference.axis if definition.reference else "", question)
    orders = _orders(run)
    found = {
        record.id: [
            measurement
            for step, result in record.results.items()
            for measurement in measurements(record.plan, record.id, step, orders[record.id, step], result, question)
        ]
        for record in records
    }
    every = [m for ms in found.values() for m in ms]
    first_of_kind = {m.result.kind: m.result.name for m in reversed(every)}
    main = question.phase if question and question.phase else first_of_kind.get("measure")
    sizes = [x for record in records if (x := _x(record, axis)) is not None]
    names = dict.fromkeys([main, *(m.result.name for m in every if m.result.kind == "measure")])
    references = {name: r for name in names if (r := read_reference(definition, name, sizes, main=name == main))}
    answers = _answers(every)
    cores = int((plan.facts.get("cores") if plan else None) or lock.host.get("cores") or 0) or None
    by_series: dict[str, list[PointReport]] = {}
    for record in records:
        point = _point(record, axis, found[record.id], answers, main, _series(record, axis, question))
        by_series.setdefault(key_of(question.by, point.axes) if question and not axis else point.series, []).append(
            point
        )
    compared = {p.id: p for members in by_series.values() for p in _compared(members, axis, cores, question)}
    deployed = _deployments(run)
    points = [replace(compared[r.id], logs=run.logs.get(r.id, {}), deploy_seconds=deployed.get(r.id)) for r in records]
    intervals = [m.result.interval for m in every if m.result.interval is not None]
    model = ReportModel(
        run_id=run.marker.run_id,
        experiment=run.marker.experiment or (plan.name if plan else ""),
        title=(plan.title if plan else "") or definition.title or run.marker.experiment,
        version=run.marker.microshard,
        created=run.marker.created,
        started=min((started for started, _ in intervals), default=None),
        ended=max((ended for _, ended in intervals), default=None),
        backend=plan.backend if plan else "",
        steps_planned=len(plan.steps) if plan else 0,
        steps_done=len({(point, first_attempt(step)) for point, step in run.results}),
        repetitions=plan.repetitions if plan else 0,
        axis=axis,
        axis_label=axis_label(axis),
        cores=cores,
        embedded=_embedded(run),
        points=tuple(points),
        series=tuple(dict.fromkeys(point.series for point in points)),
        main=main,
        load=first_of_kind.get("load"),
        distance=None,
        usl=None,
        notices=(),
        host=lock.host,
        versions=_versions(run),
        hashes=_hashes(run),
        definition=definition,
        plan=plan,
        references=references,
        advice=run.advice,
    )
    published = model.published()
    if published is not None:
        curve = published.curve("speed_up")
        points = [replace(p, published_speed_up=curve.get(p.x) if p.x is not None else None) for p in points]
    first = [point for point in points if point.series in model.series[:1]]
    model = replace(
        model, points=tuple(points), distance=distance_to(published, first, main), usl=_usl(first, axis, main)
    )
    return replace(model, notices=notices(model, run))


def first_attempt(step: str) -> str:
    """The name of the step that this one is an attempt at: r1 of r1-2."""
    return step.partition("-")[0]


def _labelled(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis_label(key)} {value_text(value)}" for key, value in axes.items())


@dataclass(frozen=True, slots=True)
class _PointRecord:
    """A point of the plan, or, where the plan cannot be read, of the result files."""

    id: str
    label: str
    axes: Mapping[str, Any]
    plan: Point | None
    results: dict[str, StepResult] = field(default_factory=dict)  # step → result file
    failures: list[str] = field(default_factory=list)  # from the journal
    planned: list[int] = field(default_factory=list)  # repetitions without the drift measurement


def _records(run: RunFiles) -> list[_PointRecord]:
    plan = run.plan
    records = {p.id: _PointRecord(p.id, p.label or p.id, p.axes, p) for p in (plan.points if plan else ())}
    for (point, step), result in run.results.items():
        if plan is None:
            records.setdefault(point, _PointRecord(point, _labelled(result.axes) or point, result.axes, None))
        if point in records:
            records[point].results[step] = result
    for event in run.events:
        message = event.error or (event.message if event.event.endswith("failed") else None)
        if message and event.point in records:
            records[event.point].failures.append(message)
    for planned in plan.steps if plan else ():
        if planned.purpose != "drift" and planned.point in records:
            records[planned.point].planned.append(planned.repetition)
    return list(records.values())


def _axis(records: Sequence[_PointRecord], preferred: str, question: ReportedQuestion | None) -> str | None:
    """The axis drawn horizontally: what the question varies where that has numbers and no names; without a question
    the reference's, else the number of shards, else the first with two numbers."""
    values: dict[str, set[float]] = {}
    for record in records:
        for key in record.axes:
            if (x := _x(record, key)) is not None:
                values.setdefault(key, set()).add(x)
    wide = [key for key, xs in values.items() if len(xs) > 1]
    if question is not None:
        named = any(key_of(question.vary, record.axes) in question.names for record in records)
        return question.vary[0] if len(question.vary) == 1 and question.vary[0] in wide and not named else None
    return next((key for key in (preferred, SHARDS_AXIS, *wide) if key in wide), None)


def _series(record: _PointRecord, axis: str | None, question: ReportedQuestion | None) -> str:
    """What a point shares with those it is drawn in a line with."""
    if axis is None:
        return ""
    if question is not None:
        return kept_name(question, record.axes)
    # A standalone beside sharded clusters is the first point of their curve, not a curve of its own.
    follows = _KIND if "topology.kind" in record.axes else ()
    return _labelled({key: value for key, value in record.axes.items() if key != axis and key not in follows})


def _x(record: _PointRecord, axis: str | None) -> float | None:
    value = record.axes.get(axis) if axis else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _orders(run: RunFiles) -> dict[tuple[str, str], int]:
    """The position of every step in the order of execution: by its time where that is known, else as planned."""
    planned = {(step.point, step.name): step.index for step in (run.plan.steps if run.plan else ())}
    times = {
        key: min(starts)
        for key, result in run.results.items()
        if (starts := [p.started for p in result.phases if p.started])
    }
    keys = sorted(run.results, key=lambda key: (times.get(key, float("inf")), planned.get(key, len(planned)), key))
    return {key: position for position, key in enumerate(keys)}


def _deployments(run: RunFiles) -> dict[str, float]:
    """Point → median seconds of its deployments, by the journal."""
    seconds: dict[str, list[float]] = {}
    steps = {step.index: step.point for step in run.plan.steps} if run.plan else {}
    for event in run.events:
        # Runs of older versions have the step alone, which is counted for each fleet on EC2.
        point = event.point or steps.get(-1 if event.step is None else event.step)
        if event.stage == "deploy" and point is not None and event.seconds is not None:
            seconds.setdefault(point, []).append(event.seconds)
    return {point: median(found) for point, found in seconds.items()}


def _answers(found: Sequence[Measurement]) -> dict[str, str]:
    """The right answer to each question: the one most measurements gave; of two as frequent the earlier one."""
    votes: dict[str, Counter[str]] = {}
    for m in sorted(found, key=lambda m: m.order):
        if m.result.answer_sha256:
            votes.setdefault(m.question, Counter())[m.result.answer_sha256] += 1
    return {question: count.most_common(1)[0][0] for question, count in votes.items()}


def _point(
    record: _PointRecord,
    axis: str | None,
    found: Sequence[Measurement],
    right: Mapping[str, str],
    main: str | None,
    series: str,
) -> PointReport:
    plan, axes = record.plan, record.axes
    answers: Answers = "equal" if any(m.result.answer_sha256 for m in found) else "none"
    marked = []
    for m in sorted(found, key=lambda m: m.order):
        if m.result.answer_sha256 and m.result.answer_sha256 != right.get(m.question):
            answers = "differs"
            m = replace(m, valid=False, problems=(*m.problems, "another answer than the other measurements"))  # noqa: PLW2901
        marked.append(m)
    names = dict.fromkeys(m.result.name for m in found)
    phases = {name: phase_figures([m for m in marked if m.result.name == name]) for name in names}
    done = len({first_attempt(step) for step in record.results} - {"drift"})
    planned = len(record.planned) or done
    valid = sum(m.counts or (m.left_out and m.valid) for m in phases[main].measurements) if main in phases else 0
    problems = [f"{m.step}: {problem}" for m in marked for problem in m.problems] + record.failures
    return PointReport(
        id=record.id,
        label=record.label,
        series=series,
        x=_x(record, axis),
        axes=axes,
        topology=plan.topology if plan else "sharded",
        shards=plan.shards if plan else int(axes.get(SHARDS_AXIS, 0)),
        state=_state(valid, done, planned, bool(record.failures)),
        planned=planned,
        done=done,
        phases=phases,
        storage=median_storage(m.storage for m in marked if m.valid),
        answers=answers,
        published_speed_up=None,
        problems=tuple(dict.fromkeys(problems)),
        plan=plan,
        invalid=tuple(_invalid(record, marked)),
    )


def _invalid(record: _PointRecord, found: Sequence[Measurement]) -> Iterator[Invalid]:
    """Every step that is not valid, in the order of execution."""
    steps = {m.step: [other for other in found if other.step == m.step] for m in found}
    for step, phases in steps.items():
        if all(m.valid for m in phases):
            continue
        reasons = tuple(dict.fromkeys(problem for m in phases for problem in m.problems))
        again = [s for s in steps if first_attempt(s) == first_attempt(step) and _attempt(s) > _attempt(step)]
        if again:
            good = all(m.valid for m in steps[again[0]])
            outcome = f"measured again as {again[0]}: {'valid' if good else 'not valid either'}"
        else:
            outcome = "not measured again" if _attempt(step) == 1 else "given up"
        yield Invalid(record.id, record.label, step, reasons or ("no reason given",), outcome)


def _attempt(step: str) -> int:
    number = step.partition("-")[2]
    return int(number) if number.isdigit() else 1


def _state(valid: int, done: int, planned: int, failed: bool) -> PointState:
    if valid:
        return "done" if valid >= planned else "partial"
    return "failed" if done or failed else "waiting"


def _compared(
    points: Sequence[PointReport], axis: str | None, cores: int | None, question: ReportedQuestion | None
) -> list[PointReport]:
    """The points of a series with speed-up and efficiency against the baseline, else the smallest that has values."""
    wanted = question.baseline if question else None

    def place(point: PointReport) -> tuple[bool, bool, float]:
        return not (question and wanted == key_of(question.vary, point.axes)), point.x is None, point.x or 0.0

    result = {p.id: p for p in sorted(points, key=place)}
    for name in dict.fromkeys(name for p in result.values() for name in p.phases):
        measured = [p for p in result.values() if min(p.figures(name).values, default=0.0) > 0]
        for point in measured:
            figures = _against(point, measured[0], name, axis, cores)
            result[point.id] = replace(point, phases={**point.phases, name: figures})
    return list(result.values())


def _against(point: PointReport, base: PointReport, phase: str, axis: str | None, cores: int | None) -> PhaseFigures:
    own = point.phases[phase]
    if point.id == base.id:
        # A point against itself is 1 by definition, not an estimate.
        speed = replace(speed_up([1.0, 1.0], [1.0, 1.0]), n=len(own.values))
    else:
        speed = speed_up(base.phases[phase].values, own.values, own.better)
    if axis != SHARDS_AXIS:
        return replace(own, speed_up=speed)
    of_cores = efficiency(speed, usable_cores(point.size, cores), usable_cores(base.size, cores)) if cores else None
    return replace(
        own, speed_up=speed, efficiency=efficiency(speed, point.size, base.size), efficiency_of_cores=of_cores
    )


def _usl(points: Sequence[PointReport], axis: str | None, phase: str | None) -> UslFit | Refused | None:
    """The law over the number of shards; None when the experiment does not vary it."""
    found = [(p.size, f.values, f.better) for p in points if min((f := p.figures(phase)).values, default=0.0) > 0]
    if axis != SHARDS_AXIS or not found:
        return None
    return fit_usl([size for size, _, _ in found], [values for _, values, _ in found], found[0][2])


def _embedded(run: RunFiles) -> bool | None:
    """Whether the router is microshard's embedded one: by the binaries found, else by those requested."""
    found = {binary.embedded for binary in run.lock.binaries.values() if binary.embedded is not None}
    if found:
        return found == {True}
    sources = {point.mongodb.get("source") for point in run.plan.points} if run.plan else set()
    return sources == {"embedded"} if sources - {None} else None


def _versions(run: RunFiles) -> dict[str, str]:
    servers = {binary.version for binary in run.lock.binaries.values()} - {""}
    mongodb = {"MongoDB": ", ".join(sorted(servers))} if servers else {}
    drivers = {point.driver for point in run.plan.points} - {None} if run.plan else set()
    named = {"client.driver": ", ".join(sorted(map(str, drivers)))} if drivers else {}
    return {**mongodb, "microshard": run.marker.microshard, **run.lock.packages, **named}


def _hashes(run: RunFiles) -> dict[str, str]:
    found = {"experiment.yml": run.lock.definition_sha256}
    found |= {f"mongod {binary.version}": binary.mongod_sha256 or "" for binary in run.lock.binaries.values()}
    return {name: digest for name, digest in found.items() if digest}
