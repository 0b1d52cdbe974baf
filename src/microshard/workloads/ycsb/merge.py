"""A phase of several client hosts as one: rates and counters add up, histograms are merged, windows are added second
by second, rungs are judged together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hdrh.histogram import HdrHistogram

from microshard.workloads.base import PhaseError
from microshard.workloads.ycsb.evidence import limited_by
from microshard.workloads.ycsb.ladder import climb
from microshard.workloads.ycsb.logs import ALL, as_latency, decode, empty, latencies, over_all, put_in

Result = dict[str, Any]


def merge_phases(named: Mapping[str, Result]) -> Result:
    """One phase of those of all client hosts, by their names, in their order.

    A part that failed makes the whole fail; its error names the host. Raises PhaseError (PartsDiffer).
    """
    parts = list(named.values())
    merged: Result = {**parts[0]}
    errors = [(who, part["error"]) for who, part in named.items() if part.get("error")]
    if errors:
        who, error = errors[0]
        more = f" (and {len(errors) - 1} more hosts failed)" if len(errors) > 1 else ""
        merged["error"] = {**error, "message": f"{who}: {error['message']}{more}"}
    measured = [part for part in parts if part.get("metric")]
    merged["client_cpu_seconds"] = math.fsum(part["client_cpu_seconds"] for part in parts)
    merged["seconds"] = max(part["seconds"] for part in parts)
    merged["counters"] = _sums([part["counters"] for part in parts])
    if len(measured) < len(parts):
        return merged
    merged["started"] = min(part["started"] for part in parts)
    merged["ended"] = max(part["ended"] for part in parts)
    if all(part.get("rungs") for part in parts):
        return _judged(merged, named)
    value = math.fsum(part["metric"]["value"] for part in parts)
    if merged["kind"] == "load":
        # Hosts that end earlier than others wait: the load is over with the last of them.
        value = merged["counters"]["documents"] / (merged["ended"] - merged["started"])
    _set(merged, value, [_decoded(part.get("latency") or {}) for part in parts])
    merged["windows"] = merge_windows([part["windows"] for part in parts if part.get("windows")])
    merged["details"] = _details([part.get("details") or {} for part in parts])
    merged["notes"] = _notes(merged, named)
    return merged


def _judged(merged: Result, named: Mapping[str, Result]) -> Result:
    """A ladder: every rung is the sum of the hosts' ones, and the knee is that of the sums."""
    parts = list(named.values())
    steps = min(len(part["rungs"]) for part in parts)
    rungs, histograms = [], []
    for number in range(steps):
        mine = [part["rungs"][number] for part in parts]
        if len({rung["threads"] for rung in mine}) > 1:
            threads = [rung["threads"] for rung in mine]
            raise PhaseError("PartsDiffer", f"rung {number + 1} has different threads: {threads}")
        every = _add(
            [{name: decode(text) for name, text in part["details"]["rungs"][number].items()} for part in parts]
        )
        cpu = _cpu([rung["cpu"] for rung in mine])
        latency = latencies(every, with_histograms=False)
        latency[ALL] = as_latency(over_all(every), with_histogram=False)
        limits = [rung["limited"] for rung in mine if rung["limited"]]
        rungs.append(
            {
                "threads": mine[0]["threads"],
                "value": math.fsum(rung["value"] for rung in mine),
                "seconds": max(rung["seconds"] for rung in mine),
                "started": min(rung["started"] for rung in mine),
                "ended": max(rung["ended"] for rung in mine),
                "latency": latency,
                "cpu": cpu,
                "limited": limits[0] if limits else limited_by(cpu),
            }
        )
        histograms.append(every)
    verdict = climb(rungs, merged["details"]["rule"])
    # Where the ladder would have ended had it been known then; what comes after is not part of it.
    end = next((n for n in range(1, steps + 1) if climb(rungs[:n], merged["details"]["rule"]).stop), steps)
    knee = rungs[verdict.knee]
    merged |= {"rungs": rungs[:end], "started": knee["started"], "ended": knee["ended"], "windows": None}
    _set(merged, knee["value"], [histograms[verdict.knee]])
    details = _details([part["details"] for part in parts])
    packed = [{name: h.encode().decode("ascii") for name, h in every.items()} for every in histograms]
    merged["details"] = details | {"threads": knee["threads"], "rungs": packed[:end], "rule": merged["details"]["rule"]}
    merged["figures"] = [{**merged["figures"][0], "value": knee["threads"]}]
    merged["notes"] = _notes(merged, named)
    merged["notes"]["ladder"] = f"best of {end} rungs: {knee['threads']} threads; end: {verdict.why}"
    return merged


def _set(merged: Result, value: float, histograms: Sequence[Mapping[str, HdrHistogram]]) -> None:
    merged["metric"] = {**merged["metric"], "value": value}
    merged["samples"] = [value]
    merged["latency"] = latencies(_add(histograms))


def _decoded(latency: Mapping[str, Any]) -> dict[str, HdrHistogram]:
    return {name: decode(entry["histogram"]) for name, entry in latency.items()}


def _add(every: Sequence[Mapping[str, HdrHistogram]]) -> dict[str, HdrHistogram]:
    merged: dict[str, HdrHistogram] = {}
    for histograms in every:
        for name, histogram in histograms.items():
            put_in(merged.setdefault(name, empty()), histogram)
    return merged


def merge_windows(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Windows of all hosts added by time: those of the second host are shared out over the first one's seconds.

    Only seconds that all hosts cover are kept, so that none looks slow because a host was not there.
    """
    start = max(part["start"] for part in parts)
    end = min(part["start"] + part["seconds"] * len(part["values"]) for part in parts)
    values = []
    for window in range(max(0, math.floor(end - start + 0.001))):
        total = 0.0
        for part in parts:
            position = start + window - part["start"]
            index, share = math.floor(position + 1e-9), position - math.floor(position + 1e-9)
            total += part["values"][index] * (1 - share)
            if share > 1e-6 and index + 1 < len(part["values"]):
                total += part["values"][index + 1] * share
        values.append(round(total, 2))
    return {"start": start, "seconds": 1.0, "values": values}


def _sums(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            found[name] = found.get(name, 0) + value
    return found


def _cpu(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Evidence of several hosts: what each client host did itself adds up; the busiest host decides how busy."""
    found: dict[str, Any] = {
        "client": math.fsum(part["client"] for part in parts),
        "servers": math.fsum(part["servers"] for part in parts),
        "cores": sum(part["cores"] for part in parts),
        "busy": max(part["busy"] for part in parts),
        "routers": {},
        "by_server": {},
    }
    for part in parts:
        found["routers"].update(part["routers"])
        found["by_server"].update(part["by_server"])
    return found


def _details(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {**parts[0], "clients": sum(part["clients"] for part in parts)}
    merged["cpu"] = _cpu([part["cpu"] for part in parts])
    merged["threads"] = sum(part["threads"] for part in parts)
    limits = [part["limited"] for part in parts if part["limited"]]
    # One host that is held up by its own CPU makes the sum too small.
    merged["limited"] = limits[0] if limits else limited_by(merged["cpu"])
    merged["failures"] = [failure for part in parts for failure in part.get("failures", [])]
    return merged


def _notes(merged: Result, named: Mapping[str, Result]) -> dict[str, str]:
    details = merged["details"]
    found = {k: v for k, v in merged["notes"].items() if k not in {"load", "cpu", "limited"}}
    found["load"] = f"{details['threads']} threads, {details['clients']} client(s) on {len(named)} hosts"
    for who, part in named.items():
        found |= {f"{key} of {who}": part["notes"][key] for key in ("cpu", "limited") if key in part["notes"]}
    return found
