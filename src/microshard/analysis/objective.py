"""What a search takes from a result: the figure it searches, and what its limits are compared with."""

import dataclasses

from microshard.model.advice import COST, LOAD_TIME, P99, SearchRequest
from microshard.model.result import INTENDED, Metric, PhaseResult, StepResult

_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
_MILLION = 1e6


@dataclasses.dataclass(frozen=True, slots=True)
class Needs:
    """What a measurement used at most on one host, and its latency; None: not known."""

    ram_gib: float | None
    disk_gib: float | None
    p99_ms: float | None


def figure_of(result: StepResult, request: SearchRequest, hourly_usd: float | None) -> Metric | None:
    """The figure that is searched; None where the result does not have it. `hourly_usd`: of the point's hosts."""
    if request.objective == LOAD_TIME:
        intervals = [p.interval for p in result.phases if p.kind == "load" and p.error is None]
        seconds = sum(end - start for start, end in filter(None, intervals))
        return Metric(LOAD_TIME, "s", seconds) if seconds > 0 else None
    phase = _phase(result, request)
    if phase is None or phase.metric is None:
        return None
    if request.objective == COST:
        return _cost(phase.metric, hourly_usd)
    figures = {figure.name: figure for figure in (*phase.figures, phase.metric)}
    if request.objective == P99 and P99 not in figures:
        tail = _p99_ms(phase)
        return None if tail is None else Metric(P99, "ms", tail)
    return figures.get(request.objective) if request.objective else phase.metric


def needs_of(result: StepResult, request: SearchRequest) -> Needs:
    """RAM and disk of the servers of the fullest host over all phases, and the p99 of the searched phase."""
    ram, disk = [], []
    for telemetry in (phase.telemetry for phase in result.phases if phase.telemetry is not None):
        resident = {name: use.rss_max for name, use in telemetry.processes.items() if name.split("/")[0] != "client"}
        for host in telemetry.hosts.values():
            ram.append(sum(resident.get(name, 0.0) for name in host.processes))
            disk.append(sum(telemetry.db_path_bytes.get(name, 0.0) for name in host.processes))
    phase = _phase(result, request)
    gib = 1024**3
    return Needs(max(ram) / gib if ram else None, max(disk) / gib if disk else None, _p99_ms(phase) if phase else None)


def _phase(result: StepResult, request: SearchRequest) -> PhaseResult | None:
    return next((p for p in result.phases if p.name == request.phase and p.error is None), None)


def _p99_ms(phase: PhaseResult) -> float | None:
    """Of the slowest kind of operation, from the intended time where there is one."""
    intended = [one for name, one in phase.latency.items() if name.startswith(INTENDED)]
    tails = [one.percentiles["99"] / 1000 for one in intended or phase.latency.values() if "99" in one.percentiles]
    return max(tails, default=None)


def _cost(metric: Metric, hourly_usd: float | None) -> Metric | None:
    """US dollars of a million operations, from the time of one or from their rate."""
    if hourly_usd is None or metric.value <= 0:
        return None
    if metric.unit in _SECONDS:
        seconds = metric.value * _SECONDS[metric.unit]
    elif metric.unit.endswith("/s"):
        seconds = 1 / metric.value
    else:
        return None
    return Metric(COST, "USD/million", seconds * _MILLION * hourly_usd / 3600)
