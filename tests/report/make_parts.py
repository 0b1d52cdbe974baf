"""Fabricates the optional parts of results, one set for each kind of experiment (docs/contracts.md)."""

import dataclasses
import math
import random
from functools import lru_cache
from typing import Any

from microshard.workloads import recording

LADDER = (1, 2, 4, 8, 16, 32)
KNEE = 8
STAGES = {
    "join the set": 0.4, "list collections": 1.1, "clone": 42.0, "finish indexes": 9.5, "apply oplog": 3.0,
    "catch up": 1.2, "lost attempt 1": 12.0,
}  # fmt: skip
PLAN = "FETCH ← IXSCAN of first_1 ← a plan with a name that has to wrap"
TABLE_COLUMNS = [
    ("form", ""),
    ("time", "s"),
    ("keys examined", "keys"),
    ("plan", ""),
    ("sorted", ""),
    ("index", "bytes"),
]


@lru_cache(maxsize=4096)
def latency(median_us: int, count: int = 400, seed: int = 1) -> dict[str, Any]:
    """Log-normal latencies with this median, as an engine reports them."""
    rng = random.Random(seed * 1_000_003 + median_us)
    found = recording.new_histogram()
    for _ in range(count):
        found.record_value(max(1, round(median_us * math.exp(rng.gauss(0, 0.6)))))
    return dataclasses.asdict(recording.latency(found))


def _columns(*columns: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "unit": unit} for name, unit in columns]


def ladder(shards: int, rng: random.Random, started: float) -> dict[str, Any]:
    """A thread ladder of so many shards: it saturates at the knee; the client is the limit on the last rung."""
    rungs = []
    for threads in LADDER:
        value = 3000.0 * shards * min(threads, KNEE) ** 0.8 * (0.97 if threads > KNEE else 1) * rng.gauss(1, 0.02)
        slow = round(400 * max(1.0, threads / KNEE) ** 1.5)
        entry = {key: v for key, v in latency(slow).items() if key != "histogram"}
        limited = "client" if threads == LADDER[-1] else None
        rungs.append(
            {
                "threads": threads,
                "value": value,
                "seconds": 10.0,
                "latency": {"READ": entry, "ALL": entry},
                "limited": limited,
            }
        )
    best = next(rung for rung in rungs if rung["threads"] == KNEE)
    return {
        "metric": {"name": "throughput", "unit": "operations/s", "value": best["value"], "better": "higher"},
        "rungs": rungs,
        "latency": _latencies(400, rng),
        "windows": _windows(best["value"], rng, started, 0.03),
        "figures": [{"name": "threads at the knee", "unit": "threads", "value": KNEE, "better": "lower"}],
    }


def _latencies(median_us: int, rng: random.Random) -> dict[str, Any]:
    seed = rng.randrange(5)
    return {
        "READ": latency(median_us, seed=seed),
        "UPDATE": latency(median_us * 2, seed=seed),
        "Intended-READ": latency(median_us * 3, seed=seed),
        "Intended-UPDATE": latency(median_us * 6, seed=seed),
    }


def _windows(mean: float, rng: random.Random, started: float, spread: float, number: int = 30) -> dict[str, Any]:
    return {"start": started, "seconds": 1.0, "values": [round(mean * rng.gauss(1, spread), 1) for _ in range(number)]}


def balance(shards: int, rng: random.Random, started: float) -> dict[str, Any]:
    """A new shard is filled: chunks and documents by shard over time, a load beside it."""
    names = [f"shard{n:02d}" for n in range(1, shards + 2)]
    t = [round(n * 1.02, 3) for n in range(60)]
    share = [min(1.0, max(0.0, (at - 10) / 30)) for at in t]

    def lines(each: int) -> dict[str, list[int]]:
        even = each * shards / (shards + 1)
        return {
            name: [round(even * s) if name == names[-1] else round(each - (each - even) * s) for s in share]
            for name in names
        }

    return {
        "metric": {"name": "time to balanced", "unit": "s", "value": 40 * rng.gauss(1, 0.05), "better": "lower"},
        "series": [
            {"name": "chunks by shard", "unit": "chunks", "stacked": True, "t": t, "lines": lines(24)},
            {"name": "documents by shard", "unit": "documents", "stacked": True, "t": t, "lines": lines(150_000)},
            {"name": "bytes by shard", "unit": "bytes", "stacked": True, "t": t, "lines": lines(150_000_000)},
            {"name": "load", "unit": "documents/s", "stacked": False, "t": t,
             "lines": {"inserted": [round(500 * (1 - 0.3 * (0 < s < 1)) * rng.gauss(1, 0.05)) for s in share]}},
            {"name": "latency", "unit": "ms", "stacked": False, "t": t,
             "lines": {"insert p95": [3 + 9 * (0 < s < 1) for s in share], "read p95": [None, *(2.0 for _ in t[1:])]}},
        ],
        "latency": {"INSERT": latency(2400), "READ": latency(900)},
        "windows": _windows(500, rng, started, 0.1),
        "figures": [
            {"name": "bytes moved", "unit": "MB/s", "value": 1.5 * rng.gauss(1, 0.1), "better": "higher"},
            {"name": "fullest shard over the mean, at the end", "unit": "", "value": 1.01, "better": "lower"},
        ],
        "table": {
            "columns": _columns(("period", ""), ("time", "s"), ("insert p99", "ms")),
            "rows": [["before", 10.0, 3.1], ["during", 30.2, 14.9], ["after", 10.1, None]],
        },
    }  # fmt: skip


def sync(shards: int, rng: random.Random, started: float) -> dict[str, Any]:
    """A new member: stages one after the other, of which one was lost; `shards` is how many times the data."""
    del started
    stages: list[dict[str, Any]] = [
        {"name": name, "seconds": seconds * shards * rng.gauss(1, 0.03)} for name, seconds in STAGES.items()
    ]
    stages[2] |= {"bytes": 4_000_000_000 * shards, "documents": 4_000_000 * shards}
    total = sum(stage["seconds"] for stage in stages)
    t = [float(n) for n in range(1, 61)]
    return {
        "metric": {"name": "time to SECONDARY", "unit": "s", "value": total, "better": "lower"},
        "stages": stages,
        "series": [
            {"name": "documents of the new member", "unit": "documents", "stacked": False, "t": t,
             "lines": {"copied": [at * 66_000 for at in t]}},
            {"name": "oplog of the new member", "unit": "operations", "stacked": False, "t": t,
             "lines": {"applied": [0 for _ in t]}},
        ],
        "figures": [
            {"name": "time to SECONDARY", "unit": "s", "value": total, "better": "lower"},
            {"name": "data", "unit": "bytes", "value": 4 * 2**30, "better": "lower"},
        ],
    }  # fmt: skip


def forms(shards: int, rng: random.Random, started: float) -> dict[str, Any]:
    """Forms of a query with their plans, and a second latency without histograms."""
    del started
    seconds = 0.4 * shards * rng.gauss(1, 0.05)
    bare = {key: v for key, v in latency(900 * shards).items() if key != "histogram"}
    return {
        "metric": {"name": "query time", "unit": "s", "value": seconds, "better": "lower"},
        "table": {
            "columns": _columns(*TABLE_COLUMNS),
            "rows": [
                ["plain", seconds, 0, "COLLSCAN", False, None],
                ["index", seconds / 50, 1180, PLAN, True, 2**20],
            ],
        },
        "figures": [{"name": "documents examined", "unit": "documents", "value": 600_000, "better": "lower"}],
        "latency": {"FIND": bare},
        "windows": _windows(40, rng, rng.random(), 0.2, 8),
    }  # fmt: skip


KINDS = {"ladder": ladder, "balance": balance, "sync": sync, "forms": forms}
