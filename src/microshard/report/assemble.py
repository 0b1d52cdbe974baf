"""From the files of a run to a report model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from microshard.analysis.bootstrap import efficiency, speed_up, usable_cores
from microshard.analysis.measurements import measurements, median_storage, phase_figures
from microshard.analysis.read_run import RunFiles, read_run
from microshard.analysis.reference import distance_to, read_reference, reported
from microshard.analysis.report_model import (
    SHARDS_AXIS,
    Answers,
    Invalid,
    Measurement,
    PhaseFigures,
    PointReport,
    PointState,
    ReportModel,
)
from microshard.analysis.scaling import Refused, UslFit, fit_usl
from microshard.model.plan import Point
from microshard.model.result import StepResult
from microshard.plan.render import value_text
from microshard.report.checks import notices

_KIND = ("topology.kind", "topology.collections", "topology.mongos.count", "topology.mongos.shards_each")


def build(run_folder: Path) -> ReportModel:
    """The report of a run as it is now: complete, partly failed, or still going.

    Raises RunFolderError when the folder is not a run of ours; nothing else that is missing or broken raises.
    """
    return assemble(read_run(run_folder))


def assemble(run: RunFiles) -> ReportModel:
    """The model of a run that has been read."""
    definition, plan, lock = reported(run.lock.definition), run.plan, run.lock
    records = _records(run)
    axis = _axis(records, definition.reference.axis if definition.reference else "")
    orders = _orders(run)
    found = {
        record.id: [
            measurement
            for step, result in record.results.items()
            for measurement in measurements(record.plan, record.id, step, orders[record.id, step], result)
        ]
        for record in records
    }
    main, load = _phases([m for ms in found.values() for m in ms])
    sizes = [x for record in records if (x := _x(record, axis)) is not None]
    reference = read_reference(definition, main, sizes)
    phases = dict.fromkeys(m.phase for ms in found.values() for m in ms if m.kind == "measure")
    references = {name: r for name in phases if (r := read_reference(definition, name, sizes, main=name == main))}
    if reference is not None and axis is not None and reference.axis not in {axis, ""}:
        reference = None  # published along another axis than the one drawn
    answers = _answers(found)
    cores = plan.facts.get("cores") if plan else None
    cores = int(cores or lock.host.get("cores") or 0) or None
    by_series: dict[str, list[PointReport]] = {}
    for record in records:
        point = _point(record, axis, found[record.id], answers, main)
        by_series.setdefault(point.series, []).append(point)
    series = tuple(by_series)
    compared = {p.id: p for members in by_series.values() for p in _compared(members, axis, cores)}
    points = [replace(compared[record.id], logs=run.logs.get(record.id, {})) for record in records]
    if reference is not None:
        published = {row.at: row.speed_up for row in reversed(reference.points)}
        points = [replace(p, published_speed_up=published.get(p.x) if p.x is not None else None) for p in points]
    first = [point for point in points if point.series == series[0]] if series else []
    intervals = [m.result.interval for ms in found.values() for m in ms if m.result.interval is not None]
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
        series=series,
        main=main,
        load=load,
        reference=reference,
        distance=distance_to(reference, first, main),
        usl=_usl(first, axis, main),
        notices=(),
        host=lock.host,
        versions=_versions(run),
        hashes=_hashes(run),
        definition=definition,
        plan=plan,
        references=references,
    )
    return replace(model, notices=notices(model, run))


def first_attempt(step: str) -> str:
    """The name of the step that this one is an attempt at: r1 of r1-2."""
    return step.partition("-")[0]


def axis_label(axis: str | None) -> str:
    """The last part of an axis that says what it counts: "shards", "threads", "block compressor"."""
    if axis is None:
        return "point"
    parts = axis.split(".")
    name = parts[-2] if parts[-1] in {"count", "value"} and len(parts) > 1 else parts[-1]
    return name.replace("_", " ")


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
            label = ", ".join(f"{axis_label(key)} {value_text(value)}" for key, value in result.axes.items()) or point
            records.setdefault(point, _PointRecord(point, label, result.axes, None))
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


def _axis(records: Sequence[_PointRecord], preferred: str) -> str | None:
    """The axis drawn horizontally: the reference's, else the number of shards, else the first with two numbers."""
    values: dict[str, set[float]] = {}
    for record in records:
        for key in record.axes:
            if (x := _x(record, key)) is not None:
                values.setdefault(key, set()).add(x)
    wide = [key for key, xs in values.items() if len(xs) > 1]
    return next((key for key in (preferred, SHARDS_AXIS, *wide) if key in wide), None)


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


def _phases(found: Sequence[Measurement]) -> tuple[str | None, str | None]:
    """Names of the measured phase the headline is about and of the load phase: the first of their kinds."""
    first: dict[str, str] = {}
    for m in found:
        first.setdefault(m.kind, m.phase)
    return first.get("measure"), first.get("load")


def _answers(found: Mapping[str, Sequence[Measurement]]) -> dict[str, str]:
    """The right answer to each question: the one most measurements gave; of two as frequent the earlier one."""
    votes: dict[str, Counter[str]] = {}
    for m in sorted((m for ms in found.values() for m in ms), key=lambda m: m.order):
        if m.answer:
            votes.setdefault(m.question, Counter())[m.answer] += 1
    return {question: count.most_common(1)[0][0] for question, count in votes.items()}


def _point(
    record: _PointRecord, axis: str | None, found: Sequence[Measurement], right: Mapping[str, str], main: str | None
) -> PointReport:
    plan, axes = record.plan, record.axes
    # A standalone beside sharded clusters is the first point of their curve, not a curve of its own.
    follows = _KIND if "topology.kind" in axes else ()
    others = {key: value for key, value in axes.items() if key != axis and key not in follows} if axis else {}
    marked = [
        replace(m, valid=False, problems=(*m.problems, "another answer than the other measurements"))
        if m.answer and m.answer != right.get(m.question)
        else m
        for m in found
    ]
    names = dict.fromkeys(m.phase for m in marked)
    phases = {name: phase_figures([m for m in marked if m.phase == name]) for name in names}
    done = len({first_attempt(step) for step in record.results} - {"drift"})
    planned = len(record.planned) or done
    taken = phases[main].measurements if main in phases else ()
    valid = sum(m.counts or (m.left_out and m.valid) for m in taken)
    return PointReport(
        id=record.id,
        label=record.label,
        series=", ".join(f"{axis_label(key)} {value_text(value)}" for key, value in others.items()),
        x=_x(record, axis),
        axes=axes,
        topology=plan.topology if plan else "sharded",
        shards=plan.shards if plan else int(axes.get(SHARDS_AXIS, 0)),
        state=_state(valid, done, planned, bool(record.failures)),
        planned=planned,
        done=done,
        phases=phases,
        storage=median_storage(m.storage for m in marked if m.valid),
        answers=_compare(marked, right),
        published_speed_up=None,
        problems=tuple(
            dict.fromkeys(
                [f"{m.step}: {problem}" for m in sorted(marked, key=lambda m: m.order) for problem in m.problems]
                + record.failures
            )
        ),
        plan=plan,
        invalid=tuple(_invalid(record, marked)),
    )


def _invalid(record: _PointRecord, found: Sequence[Measurement]) -> Iterator[Invalid]:
    """Every step that is not valid, in the order of execution."""
    steps = {m.step: [other for other in found if other.step == m.step] for m in sorted(found, key=lambda m: m.order)}
    for step, phases in steps.items():
        reasons = tuple(dict.fromkeys(problem for m in phases for problem in m.problems))
        if all(m.valid for m in phases):
            continue
        later = [
            s for s in steps if first_attempt(s) == first_attempt(step) and s != step and _attempt(s) > _attempt(step)
        ]
        if later:
            good = all(m.valid for m in steps[later[0]])
            outcome = f"measured again as {later[0]}: {'valid' if good else 'not valid either'}"
        else:
            outcome = "not measured again" if _attempt(step) == 1 else "given up"
        yield Invalid(record.id, record.label, step, reasons or ("no reason given",), outcome)


def _attempt(step: str) -> int:
    number_of = step.partition("-")[2]
    return int(number_of) if number_of.isdigit() else 1


def _state(valid: int, done: int, planned: int, failed: bool) -> PointState:
    if valid and valid >= planned:
        return "done"
    if valid:
        return "partial"
    return "failed" if done or failed else "waiting"


def _compare(found: Sequence[Measurement], right: Mapping[str, str]) -> Answers:
    given = [(m.question, m.answer) for m in found if m.answer]
    if not given:
        return "none"
    return "equal" if all(right.get(question) == answer for question, answer in given) else "differs"


def _compared(points: Sequence[PointReport], axis: str | None, cores: int | None) -> list[PointReport]:
    """The points of a series with speed-up and efficiency against the smallest one that has values."""
    ordered = sorted(points, key=lambda p: (p.x is None, p.x or 0.0))
    phases = dict.fromkeys(name for p in ordered for name in p.phases)
    result = {p.id: p for p in ordered}
    for name in phases:
        measured = [p for p in ordered if name in p.phases and p.phases[name].values]
        base = next((p for p in measured if min(p.phases[name].values) > 0), None)
        for point in measured:
            if base is not None and min(point.phases[name].values) > 0:
                figures = _against(point, base, name, axis, cores)
                result[point.id] = replace(result[point.id], phases={**result[point.id].phases, name: figures})
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
    of_cores = None
    if cores:
        of_cores = efficiency(speed, usable_cores(point.size, cores), usable_cores(base.size, cores))
    return replace(
        own, speed_up=speed, efficiency=efficiency(speed, point.size, base.size), efficiency_of_cores=of_cores
    )


def _usl(points: Sequence[PointReport], axis: str | None, phase: str | None) -> UslFit | Refused | None:
    """The law over the number of shards; None when the experiment does not vary it."""
    if axis != SHARDS_AXIS or phase is None:
        return None
    measured = [p for p in points if phase in p.phases and p.phases[phase].values and min(p.phases[phase].values) > 0]
    if not measured:
        return None
    return fit_usl(
        [p.size for p in measured], [p.phases[phase].values for p in measured], measured[0].phases[phase].better
    )


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
    return {**mongodb, "microshard": run.marker.microshard, **run.lock.packages}


def _hashes(run: RunFiles) -> dict[str, str]:
    found = {"experiment.yml": run.lock.definition_sha256}
    found |= {f"mongod {binary.version}": binary.mongod_sha256 or "" for binary in run.lock.binaries.values()}
    return {name: digest for name, digest in found.items() if digest}
