"""Gates: which measurements are valid. A gate that cannot be determined does not pass."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.model.plan import Point
from microshard.model.result import GateCheck, PhaseResult, StepResult
from microshard.model.telemetry import ServerUse, TelemetrySummary
from microshard.plan.render import count

FEWEST_WINDOWS = 3  # with fewer a coefficient of variation says nothing

# Points along these axes are meant to differ in their environment; they are compared among equals only.
_ENVIRONMENT_AXES = ("infrastructure", "topology.mongodb")


def checks(
    result: StepResult,
    limits: Mapping[str, Any],
    *,
    deploys: bool,
    median: Mapping[str, float] | None = None,
    environment: Sequence[str] = (),
    documents: Mapping[str, float] | None = None,
) -> list[GateCheck]:
    """All gates of a result. `limits` are the point's gates, None where one is not checked.

    `deploys`: a repetition loads the data anew. `median`: by phase, what a drift measurement is compared with.
    `environment`: differences from the first environment. `documents`: counts by shard of an earlier step that loaded
    the same deployment.
    """
    found = [
        GateCheck("environment", "", None, 0, held=False, sentence=f"another environment: {text}", repeatable=False)
        for text in environment
    ]
    for phase in result.phases:
        found += _errors(phase, deploys=deploys)
        if phase.kind == "measure" and phase.error is None:
            counts = documents_by_shard(result, phase) or documents or {}
            found += _of_phase(phase, counts, limits, deploys=deploys)
            found += _drift(phase, limits.get("max_drift"), median or {})
    return found


def _errors(phase: PhaseResult, *, deploys: bool) -> Iterator[GateCheck]:
    errors = float(phase.counters.get("errors", 0))
    if errors and phase.error is None:  # an engine that gave up has reported that itself
        sentence = f"{phase.name}: {count(round(errors), 'operation')} ended in an error"
        again = deploys or phase.kind != "load"
        yield GateCheck("errors", phase.name, errors, 0, held=False, sentence=sentence, repeatable=again)


def _of_phase(
    phase: PhaseResult, documents: Mapping[str, float], limits: Mapping[str, Any], *, deploys: bool
) -> Iterator[GateCheck]:
    telemetry = phase.telemetry or TelemetrySummary()
    few = f"fewer than {FEWEST_WINDOWS} windows or samples; measure longer"
    mongods = [server for server in telemetry.servers.values() if server.is_mongod]
    checkpoints = [m.checkpoint_running_share for m in mongods]
    unknown_because = "the server does not report checkpoints" if mongods else "no telemetry"
    for gate, value, what, why, repeatable in (
        ("max_shard_skew", _skew(documents), "documents of the fullest shard over the mean are", "no counts by shard",
         deploys),
        ("max_client_cpu", _client(phase, telemetry), "the client's share of its host's cores is", "no telemetry",
         True),
        ("max_variation", variation(phase), "the coefficient of variation of the throughput is", few, True),
        ("max_migrations", _migrations(mongods), "chunk migrations during it:", "no telemetry", True),
        ("max_checkpoint_share", max((share for share in checkpoints if share is not None), default=None),
         "share of it with a checkpoint:", unknown_because, True),
    ):  # fmt: skip
        limit = limits.get(gate)
        if limit is None or (value is None and gate in limits.get("decided", ())):
            continue
        held = value is not None and value <= limit
        found = f"{what} {value:.3g}" if value is not None else f"unknown, {why}"
        sentence = f"{phase.name}: {found} (gates.{gate}: {limit:g})"
        yield GateCheck(gate, phase.name, value, float(limit), held, sentence, repeatable)
    absent = [name for name, server in telemetry.servers.items() if "other" in server.states]
    # A cold cache is made by restarting the mongods within the phase, before anything is measured.
    restarted = "mongods restarted" in phase.notes.get("cache", "")
    if limits.get("initial_sync") == "refuse" and absent and not restarted:
        sentence = (
            f"{phase.name}: {', '.join(absent)} was neither primary nor secondary for a time (gates.initial_sync)"
        )
        yield GateCheck(
            "initial_sync", phase.name, float(len(absent)), 0, held=False, sentence=sentence, repeatable=True
        )


def _drift(phase: PhaseResult, limit: float | None, median: Mapping[str, float]) -> Iterator[GateCheck]:
    before = median.get(phase.name)
    if limit is None or not before or phase.metric is None:
        return
    change = abs(phase.metric.value / before - 1)
    sentence = f"{phase.name}: {change:.1%} from the median of the first measurements (gates.max_drift: {limit:g})"
    yield GateCheck("max_drift", phase.name, change, limit, change <= limit, sentence, repeatable=True)


def documents_by_shard(result: StepResult, phase: PhaseResult | None = None) -> dict[str, float]:
    """Documents by shard as `phase` counted them, else the last phase of the result that did; empty if none did."""
    for each in [*([phase] if phase is not None else []), *reversed(result.phases)]:
        counts = each.storage.documents() if each.storage is not None else {}
        if sum(counts.values()) > 0:
            return counts
    return {}


def _skew(documents: Mapping[str, float]) -> float | None:
    """The fullest shard over the mean of all; 1 for a single one."""
    return max(documents.values()) * len(documents) / sum(documents.values()) if documents else None


def _client(phase: PhaseResult, telemetry: TelemetrySummary) -> float | None:
    """The share of its host's cores that the client used; of several clients the largest.

    A phase shorter than the sampling interval has only the client's CPU time: an upper limit of its share.
    """
    shares = [
        telemetry.processes[name].cpu_mean / host.cores
        for host in telemetry.hosts.values()
        for name in host.processes
        if name.split("/")[0] == "client" and host.cores and name in telemetry.processes
    ]
    if not shares and phase.client_cpu_seconds is not None and phase.ended > phase.started:
        cores = min((host.cores for host in telemetry.hosts.values() if host.cores), default=1.0)
        return phase.client_cpu_seconds / (phase.ended - phase.started) / cores
    return max(shares, default=None)


def variation(phase: PhaseResult) -> float | None:
    """Standard deviation over mean of the throughput of the windows, or of the samples; None with too few of them."""
    windows = phase.windows.values if phase.windows is not None else []
    values = [float(v) for v in windows or phase.samples]
    mean = statistics.fmean(values) if values else 0.0
    return statistics.stdev(values) / mean if len(values) >= FEWEST_WINDOWS and mean > 0 else None


def _migrations(mongods: Sequence[ServerUse]) -> float | None:
    """Half of the sum, rounded up: donor and recipient both count a migration, and only one of them may be seen."""
    return float((sum(m.migrations for m in mongods) + 1) // 2) if mongods else None


@dataclass(slots=True)
class EnvironmentBook:
    """Remembers the first environment of every kind of host and compares all later ones with it."""

    first: dict[tuple[Any, ...], tuple[str, dict[str, str]]] = field(default_factory=dict)  # kind → step, settings

    def differs(self, result: StepResult, point: Point) -> list[str]:
        """One sentence for each setting that has changed; none for a result without telemetry."""
        axes = tuple(sorted((k, str(v)) for k, v in point.axes.items() if k.startswith(_ENVIRONMENT_AXES)))
        groups = {host.name: host.groups for host in point.hosts}
        found = list(_unplanned(result, point))
        for host, environment in result.environment.items():
            kind = (groups.get(host, (host,)), axes)
            found += self._changes(kind, f"{result.point} {result.step}", _settings(environment), f"{host}: ")
        if result.versions:
            versions = {"MongoDB": " ".join(result.versions)}
            found += self._changes(("versions", axes), result.point, versions)
        return found

    def _changes(self, kind: tuple[Any, ...], step: str, now: dict[str, str], prefix: str = "") -> Iterator[str]:
        where, known = self.first.setdefault(kind, (step, now))
        for name in dict.fromkeys((*known, *now)):
            before, here = known.get(name, "unknown"), now.get(name, "unknown")
            if before != here:
                yield f"{prefix}{name}: {before} at first, {here} here (first: {where})"


# Name in the telemetry's environment → setting of `infrastructure.GROUP.kernel`.
_PLANNED_SETTINGS = {
    "transparent_huge_pages": "transparent_huge_pages",
    "governor": "cpu_governor",
    "swappiness": "swappiness",
    "zone_reclaim_mode": "zone_reclaim_mode",
}


def _unplanned(result: StepResult, point: Point) -> Iterator[str]:
    """One sentence for each setting that is not the one planned for the point."""
    groups = {host.name: [point.machines[g] for g in host.groups if g in point.machines] for host in point.hosts}
    for host, environment in result.environment.items():
        for machine in groups.get(host, [])[:1]:
            kernel = machine["kernel"]
            wanted = {name: kernel[setting] for name, setting in _PLANNED_SETTINGS.items()}
            for name, value in wanted.items():
                if value is not None and str(value) != str(environment.get(name)):
                    yield f"{host}: {name} is {environment.get(name)}, planned for this point: {value}"
            sectors, devices = kernel["readahead_sectors"], environment.get("readahead_kib") or {}
            if sectors is not None and machine["volumes"].get("data") and str(sectors // 2) not in devices.values():
                shown = ", ".join(f"{device} {kib} KiB" for device, kib in devices.items()) or "unknown"
                yield f"{host}: readahead is {shown}, planned for this point: {sectors // 2} KiB"
    wanted_version = point.mongodb.get("version")
    for version in result.versions if wanted_version else ():
        if not f"{version}.".startswith(f"{wanted_version}."):
            yield f"MongoDB {version} answered, planned for this point: {wanted_version}"


def _settings(environment: Mapping[str, Any]) -> dict[str, str]:
    """Setting → value as text, without device names: the same volume has another name on another host."""
    return {
        name: " ".join(sorted(set(map(str, value.values())))) if isinstance(value, Mapping) else str(value)
        for name, value in environment.items()
    }
