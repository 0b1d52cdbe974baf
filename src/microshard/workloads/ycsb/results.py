"""Results of YCSB phases: of one host's clients, of a thread ladder, and of several client hosts as one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hdrh.histogram import HdrHistogram

from microshard.model.result import INTENDED, Latency, Metric, OpenLoop, PhaseResult, Rung, Windows
from microshard.workloads.base import PhaseError
from microshard.workloads.recording import decode, encode, latencies, latency, merge_named
from microshard.workloads.several_hosts import merge_parts
from microshard.workloads.ycsb.cpu import client_side_limit
from microshard.workloads.ycsb.logs import OperationSummary, all_operations

REACHED_SHARE = 0.01  # of the rate that may be missing: a client counts whole seconds
ALL = "ALL"  # every operation, once
LIMITS = {"client": "the client", "router": "the router", "host": "other programs on the client's host"}


def fill_result(
    outcome: PhaseResult, found: OperationSummary, cpu: Mapping[str, Any], facts: Mapping[str, Any]
) -> None:
    """Put throughput, latencies, windows, counters and CPU use of the measured time into a result."""
    outcome.started, outcome.ended = found.started, found.ended
    outcome.metric = Metric("throughput", "operations/s", found.rate, "higher")
    outcome.samples = [found.rate]
    outcome.windows = Windows(found.started, 1.0, [*found.windows])
    outcome.latency = latencies(found.histograms)
    outcome.counters["operations"] = found.operations
    for name, histogram in found.histograms.items():
        if not name.startswith(INTENDED):
            outcome.counters[name.lower()] = histogram.get_total_count()
    outcome.client_cpu_seconds = cpu["client"] * (found.ended - found.started)
    limited = client_side_limit(cpu)
    if facts["target"]:
        outcome.open_loop = {ALL: _held(facts["target"], found.rate, found.ended - found.started, outcome.latency)}
    outcome.details |= {"cpu": dict(cpu), "limited": limited, **facts}
    clients = "1 client" if facts["clients"] == 1 else f"{facts['clients']} clients"
    outcome.notes["load"] = f"{facts['threads']} threads, {clients}"
    outcome.notes["cpu"] = cpu_note(cpu)
    if limited is not None:
        outcome.notes["limited"] = f"by {LIMITS[limited]}, not by the servers: {cpu_note(cpu)}"


def _held(rate: float, achieved: float, seconds: float, latency: Mapping[str, Latency]) -> OpenLoop:
    """How the rate of all clients was held. YCSB says no more of it than how many operations ended, and how late."""
    missed = max(0.0, rate - achieved)
    longest = max((one.max or 0.0 for name, one in latency.items() if name.startswith(INTENDED)), default=0.0)
    return OpenLoop(
        rate=rate,
        achieved=round(achieved, 3),
        # Each end of the measured time may lie between two operations.
        reached=missed * seconds <= max(REACHED_SHARE * rate * seconds, 2),
        operations=round(rate * seconds),
        backlog=round(missed * seconds),
        behind_ms=round(missed * seconds / rate * 1000, 3),
        longest_wait_ms=longest / 1000,
    )


def cpu_note(cpu: Mapping[str, Any]) -> str:
    """CPU use as a sentence."""
    parts = [f"client {cpu['client']:.2f}"]
    if cpu["routers"]:
        parts.append(f"mongos {sum(cpu['routers'].values()):.2f}")
    if cpu["by_server"]:
        parts.append(f"servers {cpu['servers']:.2f}")
    return f"{', '.join(parts)} of {cpu['cores']} cores; the client's host was {cpu['busy']:.0%} busy"


def rung_result(threads: int, found: OperationSummary, cpu: Mapping[str, Any]) -> Rung:
    """A rung: the measurement with so many threads."""
    return Rung(
        threads=threads,
        value=found.rate,
        seconds=found.ended - found.started,
        latency=_rung_latency(found.histograms),
        limited=client_side_limit(cpu),
        started=found.started,
        ended=found.ended,
        cpu=dict(cpu),
    )


def _rung_latency(histograms: Mapping[str, HdrHistogram]) -> dict[str, Latency]:
    """Latencies by operation; `ALL` is over all operations."""
    found = latencies(histograms, with_histograms=False)
    return found | {ALL: latency(all_operations(histograms), with_histogram=False)}


def encoded(histograms: Mapping[str, HdrHistogram]) -> dict[str, str]:
    """Histograms as text, without the empty ones."""
    return {name: encode(h) for name, h in sorted(histograms.items()) if h.get_total_count()}


@dataclass(frozen=True, slots=True)
class LadderVerdict:
    """The best rung so far, and whether the ladder ends."""

    knee: int  # index of the best rung
    stop: bool  # more rungs are not worth their time
    why: str  # the reason, for messages


def judge_ladder(rungs: Sequence[Rung], rule: Mapping[str, Any]) -> LadderVerdict:
    """Judge rungs by the rule (keys of Ladder).

    A rung is better than the best so far when its throughput is higher by more than `min_gain`. One that is not, and
    whose p95 or p99 exceeds that of the best by more than `latency_rise`, is a miss; `patience` misses in a row end
    the ladder. A rung that its client or router limited says nothing about the servers: it is never the best while
    another one is not limited, though it may be a miss.
    """
    best, misses = 0, 0
    for index, rung in enumerate(rungs[1:], start=1):
        top = rungs[best]
        value, top_value = rung.value or 0.0, top.value or 0.0
        better = value > top_value * (1 + rule["min_gain"])
        if (top.limited and not rung.limited) or (better and (top.limited or not rung.limited)):
            best, misses = index, 0
        elif not better and _latency_rose(top, rung, rule["latency_rise"]):
            misses += 1
            if misses >= rule["patience"]:
                why = (
                    f"{rung.threads} threads: {value:,.0f}/s after {top_value:,.0f}/s with {top.threads}, and p95 or "
                    f"p99 rose by more than {rule['latency_rise']:.0%}"
                )
                return LadderVerdict(best, stop=True, why=why)
        else:
            misses = 0
    return LadderVerdict(best, stop=False, why="the last rung was reached")


def _latency_rose(before: Rung, after: Rung, rise: float) -> bool:
    """Whether p95 or p99 over all operations is higher by more than this share."""
    old, new = (rung.latency[ALL].percentiles for rung in (before, after))
    return any(new[p] > old[p] * (1 + rise) for p in ("95", "99"))


def merge_phases(named: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
    """One phase of the phases of all client hosts, by the names of the hosts. Raises PhaseError (PartsDiffer)."""
    merged, parts = merge_parts(named, together), list(named.values())
    if not all(part.metric for part in parts):
        return merged
    merged.details = _details([part.details for part in parts])
    if all(part.rungs for part in parts):
        _merge_ladders(merged, parts)
    else:
        value = math.fsum(part.metric.value for part in parts if part.metric)
        if merged.kind == "load":
            # Hosts that end earlier than others wait: the load ends with the last of them.
            value = merged.counters["documents"] / (merged.ended - merged.started)
        _set_throughput(merged, value)
        # Each host knows the rate of all, and what it did itself.
        for name, loop in merged.open_loop.items():
            merged.open_loop[name] = _held(loop.rate, value, merged.ended - merged.started, merged.latency)
    clients = f"{merged.details['clients']} clients on {len(named)} hosts"
    merged.notes = {key: note for key, note in merged.notes.items() if not key.startswith("load of ")}
    merged.notes["load"] = f"{merged.details['threads']} threads, {clients}"
    return merged


def _merge_ladders(merged: PhaseResult, parts: Sequence[PhaseResult]) -> None:
    """A ladder: every rung is the sum of the hosts' rungs, and the knee is that of the sums."""
    rungs, histograms = [], []
    for number, mine in enumerate(zip(*(part.rungs for part in parts), strict=False)):
        if len({rung.threads for rung in mine}) > 1:
            threads = [rung.threads for rung in mine]
            raise PhaseError("PartsDiffer", f"rung {number + 1} has different threads: {threads}")
        every = merge_named(
            {name: decode(text) for name, text in part.details["rungs"][number].items()} for part in parts
        )
        total = OperationSummary(
            min(rung.started or 0.0 for rung in mine),
            max(rung.ended or 0.0 for rung in mine),
            math.fsum(rung.value or 0.0 for rung in mine),
            histograms=every,
        )
        rung = rung_result(mine[0].threads, total, _cpu([rung.cpu for rung in mine]))
        rung.seconds = max(one.seconds or 0.0 for one in mine)
        rung.limited = next((one.limited for one in mine if one.limited), rung.limited)
        rungs.append(rung)
        histograms.append(every)
    rule = parts[0].details["rule"]
    verdict = judge_ladder(rungs, rule)
    # Where the ladder would have ended; rungs after that are not part of it.
    end = next((n for n in range(1, len(rungs) + 1) if judge_ladder(rungs[:n], rule).stop), len(rungs))
    knee = rungs[verdict.knee]
    merged.rungs, merged.windows = rungs[:end], None
    merged.started, merged.ended = knee.started or 0.0, knee.ended or 0.0
    _set_throughput(merged, knee.value or 0.0)
    merged.latency = latencies(histograms[verdict.knee])
    merged.details |= {"threads": knee.threads, "rungs": [encoded(h) for h in histograms[:end]], "rule": rule}
    merged.figures = [replace(merged.figures[0], value=knee.threads)]
    merged.notes["ladder"] = f"best of {end} rungs: {knee.threads} threads; end: {verdict.why}"


def _set_throughput(merged: PhaseResult, value: float) -> None:
    merged.metric = replace(merged.metric, value=value) if merged.metric else None
    merged.samples = [value]


def _cpu(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """CPU use of several hosts: cores add up; `busy` is that of the busiest host."""
    return {
        "client": math.fsum(part["client"] for part in parts),
        "servers": math.fsum(part["servers"] for part in parts),
        "cores": sum(part["cores"] for part in parts),
        "busy": max(part["busy"] for part in parts),
        "routers": {name: cores for part in parts for name, cores in part["routers"].items()},
        "by_server": {name: cores for part in parts for name, cores in part["by_server"].items()},
    }


def _details(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {**parts[0], "clients": sum(part["clients"] for part in parts)}
    merged["cpu"] = _cpu([part["cpu"] for part in parts])
    merged["threads"] = sum(part["threads"] for part in parts)
    # One host that is limited by its CPU makes the sum too small.
    merged["limited"] = next((p["limited"] for p in parts if p["limited"]), client_side_limit(merged["cpu"]))
    merged["failures"] = [failure for part in parts for failure in part.get("failures", [])]
    return merged
