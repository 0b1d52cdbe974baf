"""A slice of the clients' logs as the parts of a result (docs/contracts.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from microshard.workloads.base import Metric, PhaseResult
from microshard.workloads.ycsb.evidence import limited_by
from microshard.workloads.ycsb.logs import ALL, INTENDED, Slice, as_latency, latencies, over_all

LIMITS = {"client": "the client", "router": "the router", "host": "other work on the client's host"}


def fill(outcome: PhaseResult, found: Slice, cpu: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Put throughput, latencies, windows, counters and the CPU's evidence of a slice into a result."""
    outcome.started, outcome.ended = found.started, found.ended
    outcome.metric = Metric("throughput", "operations/s", found.rate, "higher")
    outcome.samples = [found.rate]
    outcome.windows = {"start": found.started, "seconds": 1.0, "values": found.windows}
    outcome.latency = latencies(found.histograms)
    outcome.counters["operations"] = found.operations
    for name, histogram in found.histograms.items():
        if not name.startswith(INTENDED):
            outcome.counters[name.lower()] = histogram.get_total_count()
    outcome.client_cpu_seconds = cpu["client"] * (found.ended - found.started)
    limited = limited_by(cpu)
    outcome.details = {"cpu": dict(cpu), "limited": limited, **facts}
    outcome.notes["load"] = f"{facts['threads']} threads, {facts['clients']} client(s)"
    outcome.notes["cpu"] = cpu_note(cpu)
    if limited is not None:
        outcome.notes["limited"] = f"by {LIMITS[limited]}, not by the servers: {cpu_note(cpu)}"


def cpu_note(cpu: Mapping[str, Any]) -> str:
    """The evidence in words."""
    parts = [f"client {cpu['client']:.2f}"]
    if cpu["routers"]:
        parts.append(f"mongos {sum(cpu['routers'].values()):.2f}")
    if cpu["by_server"]:
        parts.append(f"servers {cpu['servers']:.2f}")
    return f"{', '.join(parts)} of {cpu['cores']} cores; the client's host was {cpu['busy']:.0%} busy"


def rung_of(threads: int, found: Slice, cpu: Mapping[str, Any]) -> dict[str, Any]:
    """A rung: what was measured with so many threads; `latency.ALL` is over all operations."""
    latency = latencies(found.histograms, with_histograms=False)
    latency[ALL] = as_latency(over_all(found.histograms), with_histogram=False)
    return {
        "threads": threads,
        "value": found.rate,
        "seconds": found.ended - found.started,
        "started": found.started,
        "ended": found.ended,
        "latency": latency,
        "cpu": dict(cpu),
        "limited": limited_by(cpu),
    }
