"""From result files to measurements, and from the measurements of a point to the figures of its phases."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from microshard.analysis.bootstrap import median_estimate
from microshard.analysis.evidence import ROLES, cores_by_role
from microshard.analysis.phase_details import phase_details
from microshard.analysis.report_model import (
    CpuSplit,
    Measurement,
    PhaseFigures,
    PointStorage,
    PointVerdict,
    ReportedQuestion,
)
from microshard.analysis.verdict import most_frequent
from microshard.model.plan import Point
from microshard.model.result import PhaseResult, StepResult
from microshard.model.telemetry import TelemetrySummary

LEAST_SECONDS = 0.05  # a twentieth of a telemetry record; the kernel counts CPU in hundredths of a second


def measurements(
    point: Point | None,
    point_id: str,
    step: str,
    order: int,
    result: StepResult,
    question: ReportedQuestion | None = None,
) -> list[Measurement]:
    """All phases of one result file. `point` is that of the plan, where the plan can be read.

    Of the phase that a question is about, the figure it asks for takes the place of the engine's metric.
    """
    roles = {p.name: ROLES[p.role] for p in point.processes} if point else {}
    found = []
    for phase in [_with_figure_of(phase, question) for phase in result.phases]:
        value = phase.metric.value if phase.metric is not None else None
        problems = [*result.problems]
        if phase.error is not None:
            problems.append(f"{phase.name}: {phase.error.message or phase.error.type}")
        telemetry = phase.telemetry or TelemetrySummary()
        cpu = _cpu(telemetry)
        found.append(
            Measurement(
                point=point_id,
                step=step,
                purpose=result.purpose or ("drift" if step.startswith("drift") else "measure"),
                order=order,
                result=phase,
                value=value if value is not None and math.isfinite(value) and phase.error is None else None,
                valid=result.valid and phase.error is None,
                problems=tuple(dict.fromkeys(problems)),
                question=point.question(phase.name) if point else phase.name,
                cpu=cpu,
                roles=cores_by_role(telemetry.processes, roles) | _background_load(phase, cpu, telemetry),
                storage=_storage(phase, telemetry),
                data=result.data or "",
            )
        )
    return found


def _with_figure_of(phase: PhaseResult, question: ReportedQuestion | None) -> PhaseResult:
    """A result with the figure of the question as its metric, and the engine's metric among its figures."""
    if question is None or phase.kind != "measure" or question.phase not in {None, phase.name} or phase.metric is None:
        return phase
    found = next((figure for figure in phase.figures if figure.name == question.figure), None)
    if found is None or found.name == phase.metric.name:
        return phase
    others = [phase.metric, *(figure for figure in phase.figures if figure is not found)]
    return replace(phase, metric=found, figures=others, samples=[found.value])


def _cpu(telemetry: TelemetrySummary) -> CpuSplit | None:
    """Shares 0 to 1; None unless all four are known."""
    cpu = telemetry.cpu
    if not {"user", "sys", "iowait", "idle"} <= cpu.keys():
        return None
    return CpuSplit(cpu["user"], cpu["sys"], cpu["iowait"], cpu["idle"], cpu.get("steal", 0.0))


def _background_load(phase: PhaseResult, cpu: CpuSplit | None, telemetry: TelemetrySummary) -> dict[str, float]:
    """Mean cores that none of the run's processes used: other programs, and the kernel's work.

    Unknown for a phase of some milliseconds: nearly all of the telemetry record's second is not the phase's, and a
    client that ended in it is missing among its processes.
    """
    cores = sum(host.cores for host in telemetry.hosts.values())
    if cpu is None or not cores or not telemetry.processes or phase.ended - phase.started < LEAST_SECONDS:
        return {}
    return {"others": max(0.0, cpu.busy * cores - sum(use.cpu_mean for use in telemetry.processes.values()))}


def _storage(phase: PhaseResult, telemetry: TelemetrySummary) -> PointStorage | None:
    size = phase.storage
    if size is None or size.data_bytes is None:
        return None  # telemetry alone knows the folders' size, not what is in them
    db_path = size.db_path_bytes
    if db_path is None and telemetry.db_path_bytes:
        db_path = sum(telemetry.db_path_bytes.values())
    return PointStorage(size.data_bytes, size.index_bytes or 0.0, db_path, size.documents())


def _common_verdict(found: Sequence[Measurement]) -> PointVerdict | None:
    """The verdict of most measurements, with the sentence of the representative one of them."""
    judged = [m.result.verdict for m in found if m.result.verdict is not None]
    name = most_frequent([verdict.name for verdict in judged])
    same = [verdict for verdict in judged if verdict.name == name]
    if not same:
        return None
    chosen = same[(len(same) - 1) // 2]
    second = chosen.runner_up
    return PointVerdict(
        name=name,
        sentence=chosen.sentence,
        figures=chosen.figures,
        runner_up=second.name if second else "",
        runner_up_sentence=second.sentence if second else "",
        runner_up_holds=second is not None and second.holds,
        votes=len(same),
        of=len(judged),
    )


def phase_figures(found: Sequence[Measurement]) -> PhaseFigures:
    """One phase of one point over its measurements, of which there is at least one."""
    # Measurements that something else than the servers limited are left out where others of the point were not.
    unlimited = any(m.counts and not m.result.limited for m in found)
    ordered = tuple(
        replace(m, left_out=unlimited and bool(m.result.limited)) for m in sorted(found, key=lambda m: m.order)
    )
    good = [m for m in ordered if m.counts]
    named = good[0] if good else ordered[0]
    values = [m.value for m in good if m.value is not None]
    return PhaseFigures(
        phase=named.result.name,
        kind=named.result.kind,
        metric=named.metric,
        unit=named.unit,
        better=named.better,
        measurements=ordered,
        estimate=median_estimate(values) if values else None,
        seconds=_median(m.seconds for m in good),
        cpu=median_cpu(m.cpu for m in good),
        roles={
            role: cores
            for role in ("client", "router", "shards", "config", "others")
            if (cores := _median(m.roles.get(role) for m in good)) is not None
        },
        client_cores=_median(m.client_cores for m in good),
        verdict=_common_verdict(good),
        details=phase_details([(m.step, m.result) for m in good]),
    )


def median_cpu(splits: Iterable[CpuSplit | None]) -> CpuSplit | None:
    """The median of each share, scaled so that the shares add up to what they did (medians alone need not)."""
    known = [split for split in splits if split is not None]
    if not known:
        return None
    names = ("user", "sys", "iowait", "idle", "steal")
    columns = [statistics.median(getattr(split, name) for split in known) for name in names]
    total = statistics.median(sum(getattr(split, name) for name in names) for split in known)
    factor = total / sum(columns) if sum(columns) > 0 else 1.0
    return CpuSplit(*(column * factor for column in columns))


def median_storage(storages: Iterable[PointStorage | None]) -> PointStorage | None:
    """The storage with the median of documents and indexes; a real one, not a mixture of several."""
    known = sorted((s for s in storages if s is not None), key=lambda s: s.total)
    return known[(len(known) - 1) // 2] if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
