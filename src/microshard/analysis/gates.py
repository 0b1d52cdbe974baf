"""Gates: which measurements count. A gate that was asked for is answered, never passed over for want of data."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

FEWEST_WINDOWS = 3  # below that a coefficient of variation says nothing


@dataclass(frozen=True, slots=True)
class Check:
    """One gate of one phase."""

    gate: str
    phase: str
    value: float | None  # None: it could not be told
    limit: float
    held: bool
    sentence: str  # what was found, for people
    repeatable: bool  # the same measurement taken again may come out otherwise

    def as_json(self) -> dict[str, Any]:
        """As it stands in a result file."""
        return asdict(self)


def checks(
    result: Mapping[str, Any],
    limits: Mapping[str, Any],
    *,
    deploys: bool,
    median: Mapping[str, float] | None = None,
    environment: Sequence[str] = (),
    documents: Mapping[str, float] | None = None,
) -> list[Check]:
    """All gates of a result. `limits` are the point's gates, None where one is not checked.

    `deploys` says whether a repetition loads the data anew; `median` holds the median by phase that a drift
    measurement is compared with; `environment` in what the environment differs from the first one; `documents` the
    counts by shard of an earlier step that loaded the same deployment.
    """
    found = [
        Check("environment", "", None, 0, held=False, sentence=f"another environment: {text}", repeatable=False)
        for text in environment
    ]
    for phase in result.get("phases", []):
        found += _errors(phase, deploys=deploys)
        if phase.get("kind") == "measure" and not phase.get("error"):
            found += _of_phase(phase, result, limits, deploys=deploys, documents=documents or {})
            found += _drift(phase, limits.get("max_drift"), median or {})
    return found


def _errors(phase: Mapping[str, Any], *, deploys: bool) -> Iterator[Check]:
    count = (phase.get("counters") or {}).get("errors")
    errors = float(count) if isinstance(count, int | float) else 0.0
    if errors and not phase.get("error"):  # an engine that gave up has said so itself
        sentence = f"{phase['name']}: {errors:,.0f} operations ended in an error"
        again = deploys or phase.get("kind") != "load"
        yield Check("errors", str(phase["name"]), errors, 0, held=False, sentence=sentence, repeatable=again)


def _of_phase(
    phase: Mapping[str, Any],
    result: Mapping[str, Any],
    limits: Mapping[str, Any],
    *,
    deploys: bool,
    documents: Mapping[str, float],
) -> Iterator[Check]:
    name = str(phase["name"])
    telemetry: Mapping[str, Any] = phase.get("telemetry") or {}

    def check(gate: str, value: float | None, what: str, why: str, *, repeatable: bool = True) -> Iterator[Check]:
        limit = limits.get(gate)
        if limit is None or (value is None and gate in limits.get("decided", ())):
            return
        held = value is not None and value <= limit
        found = f"{what} {value:.3g}" if value is not None else f"no answer, {why}"
        sentence = f"{name}: {found} (gates.{gate}: {limit:g})"
        yield Check(gate, name, value, float(limit), held, sentence, repeatable)

    skew = _skew(documents_by_shard(result, phase) or documents)
    yield from check("max_shard_skew", skew, "documents of the fullest shard over the mean are", "no counts by shard",
                     repeatable=deploys)  # fmt: skip
    yield from check("max_client_cpu", _client(telemetry), "the client's share of its host's cores is", "no telemetry")
    yield from check(
        "max_variation", variation(phase), "the coefficient of variation of the throughput is",
        f"fewer than {FEWEST_WINDOWS} windows or samples; measure longer",
    )  # fmt: skip
    yield from check("max_migrations", _migrations(telemetry), "chunk migrations during it:", "no telemetry")
    yield from check("max_checkpoint_share", _checkpoint(telemetry), "share of it with a checkpoint:", "no telemetry")
    away = _not_serving(telemetry)
    # A cold cache is made by restarting the mongods within the phase, before anything is measured.
    ours = "mongods restarted" in str((phase.get("notes") or {}).get("cache", ""))
    if limits.get("initial_sync") == "refuse" and away and not ours:
        sentence = f"{name}: {', '.join(away)} neither led nor followed its replica set for a time (gates.initial_sync)"
        yield Check("initial_sync", name, float(len(away)), 0, held=False, sentence=sentence, repeatable=True)


def _drift(phase: Mapping[str, Any], limit: float | None, median: Mapping[str, float]) -> Iterator[Check]:
    before, value = median.get(str(phase["name"])), (phase.get("metric") or {}).get("value")
    if limit is None or not before or not isinstance(value, int | float):
        return
    change = abs(float(value) / before - 1)
    sentence = f"{phase['name']}: {change:.1%} from the median of the first measurements (gates.max_drift: {limit:g})"
    yield Check("max_drift", str(phase["name"]), change, limit, change <= limit, sentence, repeatable=True)


def documents_by_shard(result: Mapping[str, Any], phase: Mapping[str, Any] | None = None) -> dict[str, float]:
    """Documents by shard as `phase` counted them, else the last phase of the result that did; empty if none did."""
    for each in [*([phase] if phase is not None else []), *reversed(result.get("phases", []))]:
        by_shard = (each.get("storage") or {}).get("by_shard") or {}
        counts = {name: float(shard["documents"]) for name, shard in by_shard.items() if "documents" in shard}
        if sum(counts.values()) > 0:
            return counts
    return {}


def _skew(documents: Mapping[str, float]) -> float | None:
    """The fullest shard over the mean of all; 1 for a single one."""
    return max(documents.values()) * len(documents) / sum(documents.values()) if documents else None


def _client(telemetry: Mapping[str, Any]) -> float | None:
    """The share of its host's cores that the client used; of several the largest."""
    shares = [
        float(used) / float(host["cores"])
        for host in telemetry.get("hosts", {}).values()
        for name in host.get("processes", [])
        if name.split("/")[0] == "client" and host.get("cores")
        if (used := telemetry.get("processes", {}).get(name, {}).get("cpu_mean")) is not None
    ]
    return max(shares, default=None)


def variation(phase: Mapping[str, Any]) -> float | None:
    """Standard deviation over mean of the throughput of the windows, or of the samples; None with too few of them."""
    windows = (phase.get("windows") or {}).get("values")
    values = [float(v) for v in (windows or phase.get("samples") or [])]
    mean = statistics.fmean(values) if values else 0.0
    return statistics.stdev(values) / mean if len(values) >= FEWEST_WINDOWS and mean > 0 else None


def _mongods(telemetry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [server for server in telemetry.get("servers", {}).values() if "operations" in server]


def _migrations(telemetry: Mapping[str, Any]) -> float | None:
    """Donor and recipient count the same one: the larger of both sides is not known, so half of the sum, rounded up."""
    mongods = _mongods(telemetry)
    return float((sum(m.get("migrations", 0) for m in mongods) + 1) // 2) if mongods else None


def _checkpoint(telemetry: Mapping[str, Any]) -> float | None:
    return max((float(m.get("checkpoint_running_share", 0.0)) for m in _mongods(telemetry)), default=None)


def _not_serving(telemetry: Mapping[str, Any]) -> list[str]:
    servers = telemetry.get("servers", {})
    return [name for name, server in servers.items() if "other" in server.get("states", [])]
