"""The rule of the thread ladder: pure, so that it can be read, tested and used on merged rungs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Climb:
    """What the rungs measured so far say."""

    knee: int  # index of the best rung
    stop: bool  # further rungs are not worth their time
    why: str  # in words, when it stops


def climb(rungs: Sequence[Mapping[str, Any]], rule: Mapping[str, Any]) -> Climb:
    """Judge rungs (docs/contracts.md; `latency.ALL` is over all operations) by the rule (keys of Ladder).

    A rung is better than the best so far when its throughput is higher by more than `min_gain`. One that is not, and
    whose p95 or p99 exceeds that of the best by more than `latency_rise`, is a miss; `patience` misses in a row end
    the ladder. A rung that its client or router limited says nothing about the servers: it is never the best while
    there is one that is not limited, though it may be a miss.
    """
    best, misses = 0, 0
    for index, rung in enumerate(rungs[1:], start=1):
        top = rungs[best]
        better = rung["value"] > top["value"] * (1 + rule["min_gain"])
        freed = top.get("limited") and not rung.get("limited")
        held = rung.get("limited") and not top.get("limited")
        if freed or (better and not held):
            best, misses = index, 0
        elif not better and latency_rose(top, rung, rule["latency_rise"]):
            misses += 1
            if misses >= rule["patience"]:
                why = (
                    f"{rung['threads']} threads: {rung['value']:,.0f}/s after {top['value']:,.0f}/s with "
                    f"{top['threads']}, and p95 or p99 rose by more than {rule['latency_rise']:.0%}"
                )
                return Climb(best, stop=True, why=why)
        else:
            misses = 0
    return Climb(best, stop=False, why="the last rung was reached")


def latency_rose(before: Mapping[str, Any], after: Mapping[str, Any], rise: float) -> bool:
    """Whether p95 or p99 over all operations is higher by more than this share."""
    old, new = (rung["latency"]["ALL"]["percentiles"] for rung in (before, after))
    return any(new[p] > old[p] * (1 + rise) for p in ("95", "99"))
