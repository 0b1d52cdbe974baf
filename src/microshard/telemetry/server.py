"""`python -m microshard.telemetry.server --job JOB.json --out FILE [--interval 1]`: samples every mongod of a point.

A thread for each mongod asks for serverStatus once an interval and writes a JSON line with rates since the last
answer. One that does not answer in time is recorded as {"t", "process", "error"} and asked again; the others go on
as before. JOB.json is an engine's job or a point's vars.json. Ends on SIGTERM at once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import PyMongoError

TIMEOUT_MS = 1500  # for connecting, selecting and answering alike
HEARTBEAT_MS = 60_000  # the driver's own monitoring is of no use here
# Sections that are large and not read; leaving them out is half of the cost.
LEFT_OUT = dict.fromkeys(
    (
        *("metrics", "tcmalloc", "locks", "transactions", "sharding", "repl", "security", "asserts", "network"),
        *("logicalSessionRecordCache", "shardingStatistics", "electionMetrics", "opLatencies", "flowControl"),
        *("indexStats", "indexBulkBuilder", "scramCache", "catalogStats", "featureCompatibilityVersion"),
        *("twoPhaseCommitCoordinator", "transportSecurity", "hedgingMetrics", "batchedDeletes", "tenantMigrations"),
        *("readConcernCounters", "queryAnalyzers"),
    ),
    0,
)

Status = Mapping[str, Any]


def counters(status: Status) -> dict[str, float]:
    """The counters of a serverStatus that only grow."""
    found = {f"opcounters.{name}": float(count) for name, count in status["opcounters"].items() if _is_number(count)}
    found["page_faults"] = float(status.get("extra_info", {}).get("page_faults", 0))
    cache = status.get("wiredTiger", {}).get("cache", {})
    found["read_into_bytes"] = float(cache.get("bytes read into cache", 0))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def record(process: str, when: float, status: Status, rates: Mapping[str, float]) -> dict[str, Any]:
    """The record of docs/contracts.md; rates are per second, sizes bytes."""
    line: dict[str, Any] = {
        "t": when,
        "process": process,
        "opcounters": {
            name.partition(".")[2]: round(rate, 2) for name, rate in rates.items() if name.startswith("opcounters.")
        },
        "connections": int(status["connections"]["current"]),
        "page_faults": round(rates["page_faults"], 2),
    }
    engine = status.get("wiredTiger")
    if engine is not None:
        cache = engine["cache"]
        tickets = engine.get("concurrentTransactions", {})
        line["wt"] = {
            "cache_bytes": int(cache["bytes currently in the cache"]),
            "cache_max": int(cache["maximum bytes configured"]),
            "dirty_bytes": int(cache["tracked dirty bytes in the cache"]),
            "read_into_bytes": round(rates["read_into_bytes"], 1),
            "tickets_read_out": int(tickets.get("read", {}).get("out", 0)),
            "tickets_write_out": int(tickets.get("write", {}).get("out", 0)),
        }
    return line


class Watch:
    """One mongod and the counters of its last answer."""

    def __init__(self, process: str, endpoint: str) -> None:
        self.process = process
        self._client: MongoClient[Any] = MongoClient(
            f"mongodb://{endpoint}/",
            directConnection=True,
            appname="microshard telemetry",
            connectTimeoutMS=TIMEOUT_MS,
            serverSelectionTimeoutMS=TIMEOUT_MS,
            socketTimeoutMS=TIMEOUT_MS,
            heartbeatFrequencyMS=HEARTBEAT_MS,
            serverMonitoringMode="poll",
            retryReads=False,
            document_class=RawBSONDocument,  # decodes the few fields that are read, not the hundreds that are not
        )
        self._last: tuple[float, float, dict[str, float]] | None = None  # monotonic, uptime, counters

    def sample(self) -> dict[str, Any] | None:
        """The record since the last answer; None for the first one, which is the baseline."""
        try:
            status = self._client.admin.command({"serverStatus": 1, **LEFT_OUT})
        except PyMongoError as error:
            # What is lost between two answers cannot be told apart from a restart.
            self._last = None
            return {"t": time.time(), "process": self.process, "error": f"{type(error).__name__}: {error}"[:300]}
        now, uptime, values = time.monotonic(), float(status["uptime"]), counters(status)
        last, self._last = self._last, (now, uptime, values)
        if last is None or uptime < last[1]:
            return None
        seconds = max(now - last[0], 1e-6)
        rates = {name: max(value - last[2].get(name, value), 0.0) / seconds for name, value in values.items()}
        return record(self.process, time.time(), status, rates)


def watch(target: Watch, out: int, interval: float) -> None:
    """Sample one mongod for ever."""
    due = time.monotonic()
    while True:
        line = target.sample()
        if line is not None:
            os.write(out, json.dumps(line, separators=(",", ":")).encode() + b"\n")  # one call: lines stay whole
        late = time.monotonic() - due
        due += interval * (1 + int(max(late, 0) / interval))
        time.sleep(max(due - time.monotonic(), 0))


def mongods(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and endpoint of each mongod of a job or of a point's variables."""
    point = job.get("point") or job["microshard_point"]
    return [
        (process["name"], process.get("endpoint") or f"{process['address']}:{process['port']}")
        for process in point["processes"]
        if process["role"] != "mongos"
    ]


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code (2: the job cannot be read)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--job", type=Path, required=True, help="an engine's job or a point's vars.json")
    parser.add_argument("--out", required=True, help="JSON lines are appended here")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between samples of a mongod")
    given = parser.parse_args(arguments)
    if given.interval <= 0:
        parser.error("--interval must be above 0")
    try:
        targets = mongods(json.loads(given.job.read_text(encoding="utf-8")))
        out = os.open(given.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"microshard.telemetry.server: {given.job}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    # Blocked before any thread is there, so that all inherit it and only sigwait takes the signal.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    for name, endpoint in targets:
        threading.Thread(target=watch, args=(Watch(name, endpoint), out, given.interval), daemon=True).start()
    signal.sigwait(ends)
    sys.stdout.flush()
    os._exit(0)  # threads may be in the middle of a time-out, nothing else is to be finished


if __name__ == "__main__":
    sys.exit(main())
