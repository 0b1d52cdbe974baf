"""From the files of a run to a report model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from microshard.analysis.measurements import measurements, median_storage, phase_figures
from microshard.analysis.read_run import RawRun, items, mapping, number, read_run, text
from microshard.analysis.reference import distance_to, read_reference
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
from microshard.analysis.statistics import Refused, UslFit, efficiency, fit_usl, speed_up, usable_cores
from microshard.plan.render import value_text
from microshard.report.checks import notices

_KIND = ("topology.kind", "topology.collections", "topology.mongos.count", "topology.mongos.shards_each")


def build(run_folder: Path) -> ReportModel:
    """The report of a run as it is now: complete, partly failed, or still going.

    Raises RunFolderError when the folder is not a run of ours; nothing else that is missing or broken raises.
    """
    return assemble(read_run(run_folder))


def assemble(raw: RawRun) -> ReportModel:
    """The model of a run that has been read."""
    definition = mapping(raw.lock.get("definition"))
    plans = _points(raw)
    axis = _axis(plans, text(mapping(definition.get("reference")).get("axis")))
    orders = _orders(raw)
    records = _records(raw, plans)
    found = {record.id: _collect(record, orders) for record in records}
    main, load = _phases([m for ms in found.values() for m in ms])
    sizes = [x for p in plans if (x := _x(p, axis)) is not None]
    reference = read_reference(definition, main, sizes)
    phases = dict.fromkeys(m.phase for ms in found.values() for m in ms if m.kind == "measure")
    references = {name: r for name in phases if (r := read_reference(definition, name, sizes, main=name == main))}
    if reference is not None and axis is not None and reference.axis not in {axis, ""}:
        reference = None  # published along another axis than the one drawn
    answers = _answers(found)
    cores = _cores(raw)
    by_series: dict[str, list[PointReport]] = {}
    for record in records:
        point = _point(record, axis, found[record.id], answers, main)
        by_series.setdefault(point.series, []).append(point)
    series = tuple(by_series)
    compared = {p.id: p for members in by_series.values() for p in _compared(members, axis, cores)}
    points = [replace(compared[record.id], logs=mapping(raw.logs.get(record.id))) for record in records]
    if reference is not None:
        published = {row.at: row.speed_up for row in reversed(reference.points)}
        points = [replace(p, published_speed_up=published.get(p.x) if p.x is not None else None) for p in points]
    first = [point for point in points if point.series == series[0]] if series else []
    times = [
        t
        for ms in found.values()
        for m in ms
        if m.started is not None and m.ended is not None
        for t in (m.started, m.ended)
    ]
    model = ReportModel(
        run_id=text(raw.marker.get("run_id")),
        experiment=text(raw.marker.get("experiment")) or text(raw.plan.get("name")),
        title=text(raw.plan.get("title")) or text(definition.get("title")) or text(raw.marker.get("experiment")),
        version=text(raw.marker.get("microshard")),
        created=number(raw.marker.get("created")),
        started=min(times, default=None),
        ended=max(times, default=None),
        backend=text(raw.plan.get("backend")),
        steps_planned=len(items(raw.plan.get("steps"))),
        steps_done=len({(point, first_attempt(step)) for point, step in raw.results}),
        repetitions=int(number(raw.plan.get("repetitions")) or 0),
        axis=axis,
        axis_label=axis_label(axis),
        cores=cores,
        embedded=_embedded(raw),
        points=tuple(points),
        series=series,
        main=main,
        load=load,
        reference=reference,
        distance=distance_to(reference, first, main),
        usl=_usl(first, axis, main),
        notices=(),
        host=mapping(raw.lock.get("host")),
        versions=_versions(raw),
        hashes=_hashes(raw),
        definition=definition,
        plan=raw.plan,
        references=references,
    )
    return replace(model, notices=notices(model, raw))


def first_attempt(step: str) -> str:
    """The name of the step that this one is an attempt at: r1 of r1-2."""
    return step.partition("-")[0]


def axis_label(axis: str | None) -> str:
    """What the axis counts, in words: "shards", "threads", "block compressor"."""
    if axis is None:
        return "point"
    parts = axis.split(".")
    name = parts[-2] if parts[-1] in {"count", "value"} and len(parts) > 1 else parts[-1]
    return name.replace("_", " ")


def _points(raw: RawRun) -> list[dict[str, Any]]:
    """The plan's points; where the plan cannot be read, the points of the result files."""
    planned = [p for p in items(raw.plan.get("points")) if isinstance(p, dict) and p.get("id")]
    if planned:
        return planned
    known: dict[str, dict[str, Any]] = {}
    for (point, _), result in raw.results.items():
        axes = mapping(result.get("axes"))
        label = ", ".join(f"{axis_label(key)} {value_text(value)}" for key, value in axes.items()) or point
        known.setdefault(point, {"id": point, "label": label, "axes": axes, "shards": axes.get(SHARDS_AXIS, 0)})
    return list(known.values())


def _axis(points: Sequence[Mapping[str, Any]], preferred: str) -> str | None:
    """The axis drawn horizontally: the reference's, else the number of shards, else the first with two numbers."""
    values: dict[str, set[float]] = {}
    for point in points:
        for key, value in mapping(point.get("axes")).items():
            if (x := number(value)) is not None:
                values.setdefault(key, set()).add(x)
    wide = [key for key, xs in values.items() if len(xs) > 1]
    return next((key for key in (preferred, SHARDS_AXIS, *wide) if key in wide), None)


def _x(point: Mapping[str, Any], axis: str | None) -> float | None:
    return number(mapping(point.get("axes")).get(axis)) if axis else None


def _orders(raw: RawRun) -> dict[tuple[str, str], int]:
    """Place of every step in the order of execution: as it was where times are known, else as planned."""
    planned: dict[tuple[str, str], int] = {}
    for place, step in enumerate(mapping(step) for step in items(raw.plan.get("steps"))):
        name = "drift" if step.get("purpose") == "drift" else f"r{step.get('repetition')}"
        planned[text(step.get("point")), name] = place  # a later attempt is placed by its time
    times = {
        key: min(starts)
        for key, result in raw.results.items()
        if (starts := [s for p in items(result.get("phases")) if (s := number(mapping(p).get("started"))) is not None])
    }
    keys = sorted(raw.results, key=lambda key: (times.get(key, float("inf")), planned.get(key, len(planned)), key))
    return {key: place for place, key in enumerate(keys)}


@dataclass(frozen=True, slots=True)
class _Record:
    """What the files say of one point."""

    id: str
    plan: Mapping[str, Any]
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # step → result file
    failures: list[str] = field(default_factory=list)  # from the journal
    planned: list[int] = field(default_factory=list)  # repetitions, drift not counted


def _records(raw: RawRun, plans: Sequence[Mapping[str, Any]]) -> list[_Record]:
    records = {text(plan["id"]): _Record(text(plan["id"]), plan) for plan in plans}
    for (point, step), result in raw.results.items():
        if point in records:
            records[point].results[step] = result
    for line in raw.journal:
        error = text(line.get("error") or (line.get("message") if text(line.get("event")).endswith("failed") else ""))
        if error and text(line.get("point")) in records:
            records[text(line.get("point"))].failures.append(error)
    for take in map(mapping, items(raw.plan.get("steps"))):
        if take.get("purpose") != "drift" and text(take.get("point")) in records:
            records[text(take.get("point"))].planned.append(int(number(take.get("repetition")) or 0))
    return list(records.values())


def _collect(record: _Record, orders: Mapping[tuple[str, str], int]) -> list[Measurement]:
    phases = [p for p in items(record.plan.get("phases")) if isinstance(p, dict)]
    return [
        m
        for step, result in record.results.items()
        for m in measurements(record.plan, step, orders[record.id, step], result, phases)
    ]


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
    record: _Record, axis: str | None, found: Sequence[Measurement], right: Mapping[str, str], main: str | None
) -> PointReport:
    plan = record.plan
    axes = mapping(plan.get("axes"))
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
        label=text(plan.get("label")) or record.id,
        series=", ".join(f"{axis_label(key)} {value_text(value)}" for key, value in others.items()),
        x=_x(plan, axis),
        axes=axes,
        topology=text(plan.get("topology")) or "sharded",
        shards=int(number(plan.get("shards")) or 0),
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


def _invalid(record: _Record, found: Sequence[Measurement]) -> Iterator[Invalid]:
    """Every step that does not count, in the order they were taken."""
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
        label = text(record.plan.get("label")) or record.id
        yield Invalid(record.id, label, step, reasons or ("no reason given",), outcome)


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


def _cores(raw: RawRun) -> int | None:
    facts = mapping(raw.plan.get("facts"))
    cores = number(facts.get("cores")) or number(mapping(raw.lock.get("host")).get("cores"))
    return int(cores) if cores else None


def _binaries(raw: RawRun) -> list[dict[str, Any]]:
    return [binary for binary in mapping(raw.lock.get("binaries")).values() if isinstance(binary, dict)]


def _embedded(raw: RawRun) -> bool | None:
    """Whether the router is microshard's own; what was found says it, else what was asked for."""
    found = {binary["embedded"] for binary in _binaries(raw) if isinstance(binary.get("embedded"), bool)}
    if found:
        return found == {True}
    sources = {text(mapping(mapping(p).get("mongodb")).get("source")) for p in items(raw.plan.get("points"))}
    return sources == {"embedded"} if sources - {""} else None


def _versions(raw: RawRun) -> dict[str, Any]:
    servers = {text(binary.get("version")) for binary in _binaries(raw)} - {""}
    own = {"MongoDB": ", ".join(sorted(servers))} if servers else {}
    return {**own, "microshard": text(raw.marker.get("microshard")), **mapping(raw.lock.get("packages"))}


def _hashes(raw: RawRun) -> dict[str, Any]:
    found = {"experiment.yml": text(raw.lock.get("definition_sha256"))}
    for binary in _binaries(raw):
        found[f"mongod {text(binary.get('version'))}"] = text(binary.get("mongod_sha256"))
    return {name: digest for name, digest in found.items() if digest}
