"""Samples serverStatus of every mongod of a point.

    python -m microshard.workloads.server_telemetry --job JOB.json --out FILE [--interval 1]

A thread for each mongod reads serverStatus once an interval and writes a JSON line with rates since the last answer; of
a mongos the round trip is measured and its pool read (connPoolStats). One that does not answer in time is recorded as
{"t", "process", "error"} and sampled again; the others are not affected. JOB.json has an engine's "point" and
"secrets". Ends on SIGTERM at once.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from microshard.hostlib.proc import leave
from microshard.workloads.connections import SYSTEM, with_login

TIMEOUT_MS = 1500  # for connecting, selecting and answering alike
ROUND_TRIP_EVERY = 10  # samples
HEARTBEAT_MS = 60_000  # the driver's monitoring is of no use here
_POLLED: dict[str, Any] = {"serverMonitoringMode": "poll"} if pymongo.version_tuple >= (4, 5) else {}
# Sections that are large and not read; omitting them saves half of the cost.
OMITTED: dict[str, Any] = dict.fromkeys(
    (
        *("tcmalloc", "transactions", "sharding", "security", "asserts", "network"),
        *("logicalSessionRecordCache", "electionMetrics"),
        *("indexStats", "indexBulkBuilder", "scramCache", "catalogStats", "featureCompatibilityVersion"),
        *("twoPhaseCommitCoordinator", "transportSecurity", "hedgingMetrics", "batchedDeletes", "tenantMigrations"),
        *("readConcernCounters", "queryAnalyzers"),
    ),
    0,
)
# Of the metrics one is read, how long write concerns were waited for; a document here omits parts from 5.0 on.
OMITTED["metrics"] = dict.fromkeys(
    (
        *("apiVersions", "aggStageCounters", "changeStreams", "commands", "cursor", "diskSpill", "document"),
        *("dotsAndDollarsFields", "network", "numHosts", "operation", "operatorCounters", "query", "queryExecutor"),
        *("record", "repl", "storage", "ttl"),
    ),
    False,
)
LOCKS = ("Global", "Database", "Collection")  # those an operation of a client waits for

Status = Mapping[str, Any]


def _checkpoint(engine: Mapping[str, Any]) -> dict[str, float]:
    """Time spent on checkpoints in ms, and whether one is running (0, 1), as far as this version reports them.

    WiredTiger of MongoDB 8.0 has them in a section of their own; the progress state is 0 between checkpoints
    (WiredTiger, dist/stat_data.py, read 2026-11).
    """
    old, new = engine.get("transaction", {}), engine.get("checkpoint", {})
    spent = old.get("transaction checkpoint total time (msecs)", new.get("total time (msecs)"))
    state = old.get("transaction checkpoint currently running", new.get("progress state"))
    found = {"spent_ms": spent, "running": None if state is None else int(state != 0)}
    return {name: value for name, value in found.items() if value is not None}


def _tickets(status: Status, engine: Mapping[str, Any]) -> dict[str, int]:
    """Tickets in use and left, as far as this version reports them.

    Until 7.x in wiredTiger.concurrentTransactions, from 8.0 on in queues.execution (manual, "serverStatus").
    """
    section = engine.get("concurrentTransactions") or status.get("queues", {}).get("execution", {})
    named = {"out": "out", "left": "available"}
    return {
        f"tickets_{kind}_{name}": int(section[kind][theirs])
        for name, theirs in named.items()
        for kind in ("read", "write")
        if theirs in section.get(kind, {})
    }


def counters(status: Status) -> dict[str, float]:
    """The counters of a serverStatus."""
    engine, sharding = status.get("wiredTiger", {}), status.get("shardingStatistics", {})
    cache = engine.get("cache", {})
    stalls = (  # µs that operations spent on the cache instead of their work: reading and writing pages, waiting
        cache.get("application threads page read from disk to cache time (usecs)", 0),
        cache.get("application threads page write from cache to disk time (usecs)", 0),
        engine.get("thread-yield", {}).get("application thread time waiting for cache (usecs)", 0),
    )
    operations = status["opcounters"].items()
    found = {f"opcounters.{name}": count for name, count in operations if not isinstance(count, Mapping)}
    found |= {
        "page_faults": status.get("extra_info", {}).get("page_faults", 0),
        "read_into_bytes": cache.get("bytes read into cache", 0),
        "evicted_by_operations": cache.get("pages evicted by application threads", 0),
        "stall_us": sum(stalls),
        **{
            f"{what}.{kind}": numbers.get(theirs, 0)
            for kind, numbers in status.get("opLatencies", {}).items()
            for what, theirs in (("served", "ops"), ("serving_us", "latency"))
        },
        **{f"waits_us.{name}": spent for name, spent in _waits(status).items()},
        "migrations": sum(sharding.get(f"count{role}MoveChunkStarted", 0) for role in ("Donor", "Recipient")),
    }
    checkpoint = _checkpoint(engine)
    if "spent_ms" in checkpoint:
        found["checkpoint_ms"] = checkpoint["spent_ms"]
    return {name: float(value) for name, value in found.items()}


def _waits(status: Status) -> dict[str, float]:
    """µs that operations have waited for locks, for flow control to admit them, and for their write concern."""
    locks = status.get("locks", {})
    waited = (locks.get(name, {}).get("timeAcquiringMicros", {}) for name in LOCKS)
    concern = status.get("metrics", {}).get("getLastError", {}).get("wtime", {})
    return {
        "lock": sum(spent for modes in waited for spent in modes.values()),
        "flow_control": status.get("flowControl", {}).get("timeAcquiringMicros", 0),
        "write_concern": concern.get("totalMillis", 0) * 1000,
    }


def _part(rates: Mapping[str, float], section: str) -> dict[str, float]:
    """The rates of a section: name → rate."""
    return {name.partition(".")[2]: rate for name, rate in rates.items() if name.startswith(f"{section}.")}


def record(process: str, when: float, status: Status, rates: Mapping[str, float]) -> dict[str, Any]:
    """The record of docs/contracts.md; rates are per second, sizes bytes."""
    queue = status.get("globalLock", {}).get("currentQueue", {})
    serving = {kind: round(rate / 1e6, 6) for kind, rate in _part(rates, "serving_us").items()}
    line: dict[str, Any] = {
        "t": when,
        "process": process,
        "opcounters": {name: round(rate, 2) for name, rate in _part(rates, "opcounters").items()},
        "connections": int(status["connections"]["current"]),
        "page_faults": round(rates["page_faults"], 2),
        "operation_time": round(sum(serving.values()), 4),
        "served": {kind: round(rate, 2) for kind, rate in _part(rates, "served").items()},
        "serving": serving,
        "migrations": round(rates["migrations"], 4),
        "version": str(status.get("version", "")),
        "queue": {kind: int(queue[kind]) for kind in ("readers", "writers") if kind in queue},
        "waits": {kind: round(rate / 1e6, 4) for kind, rate in _part(rates, "waits_us").items()},
    }
    if "repl" in status:
        repl = status["repl"]
        primary = repl.get("isWritablePrimary", repl.get("ismaster"))
        secondary = repl.get("secondary") or repl.get("arbiterOnly")
        line["state"] = "primary" if primary else "secondary" if secondary else "other"
        if written := repl.get("lastWrite", {}).get("lastWriteDate"):
            line |= {"replica_set": str(repl["setName"]), "last_write": written.timestamp()}
    engine = status.get("wiredTiger")
    if engine is not None:
        cache, checkpoint = engine["cache"], _checkpoint(engine)
        line["wt"] = {
            "cache_bytes": int(cache["bytes currently in the cache"]),
            "cache_max": int(cache["maximum bytes configured"]),
            "dirty_bytes": int(cache["tracked dirty bytes in the cache"]),
            "read_into_bytes": round(rates["read_into_bytes"], 1),
            **_tickets(status, engine),
            "evicted_by_operations": round(rates["evicted_by_operations"], 1),
            "stall": round(rates["stall_us"] / 1e6, 4),
        }
        if "checkpoint_ms" in rates:
            line["wt"]["checkpoint"] = round(rates["checkpoint_ms"] / 1e3, 4)
        if "running" in checkpoint:
            line["wt"]["checkpoint_running"] = checkpoint["running"]
    return line


def pool_use(stats: Status, most: float, most_connecting: float) -> dict[str, float]:
    """What connPoolStats says of a mongos's connections to shards; `full`: 1 where one of them had none to give.

    A shard's pool has none when all it may have are in use, or none is left and as many as may be are being opened.
    """
    pools = [pool for name, pool in stats.get("pools", {}).items() if "TaskExecutorPool" in name]
    shards = [use for pool in pools for use in pool.values() if isinstance(use, Mapping)]
    found = {n: float(sum(s.get(k, 0) for s in shards)) for n, k in _POOL_FIGURES.items()}
    full = (
        s["inUse"] + s.get("refreshing", 0) >= most
        or (not s["available"] and s.get("refreshing", 0) >= most_connecting)
        for s in shards
    )
    return found | {"full": float(any(full))}


_POOL_FIGURES = {"in_use": "inUse", "available": "available", "refreshing": "refreshing"}
_POOL_LIMITS = ("ShardingTaskExecutorPoolMaxSize", "ShardingTaskExecutorPoolMaxConnecting")


def min_round_trip(endpoint: str) -> float | None:
    """The shortest round trip in s on this process's connections to an endpoint; None without a connection.

    tcpi_min_rtt of Linux's struct tcp_info is the network alone, without the time a busy server takes to answer.
    """
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only names are needed
        with contextlib.suppress(OSError, IndexError, ValueError, struct.error):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.type == socket.SOCK_STREAM and "{}:{}".format(*copy.getpeername()[:2]) == endpoint:
                    info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 152)
                    found.append(struct.unpack_from("=I", info, 148)[0] / 1e6)
    return min(found, default=None)


class ServerSampler:
    """Samples one mongod or mongos; keeps the counters of its last answer."""

    def __init__(self, process: str, endpoint: str, uri: str, *, is_mongos: bool = False) -> None:
        self.process = process
        self._endpoint = endpoint
        self._is_mongos = is_mongos
        self._client: MongoClient[Any] = MongoClient(
            uri,
            directConnection=True,
            appname="microshard telemetry",
            connectTimeoutMS=TIMEOUT_MS,
            serverSelectionTimeoutMS=TIMEOUT_MS,
            socketTimeoutMS=TIMEOUT_MS,
            heartbeatFrequencyMS=HEARTBEAT_MS,
            **_POLLED,
            retryReads=False,
            document_class=RawBSONDocument,  # decodes the few fields that are read, not the hundreds that are not
            tz_aware=True,
        )
        self._pool_limits: tuple[float, float] | None = None
        self._last: tuple[float, float, dict[str, float]] | None = None  # monotonic, uptime, counters
        self._samples = 0
        self._round_trip: float | None = None

    def sample(self) -> dict[str, Any] | None:
        """The record since the last answer; None for the first one, which is the baseline."""
        try:
            if self._is_mongos:
                line = {"t": time.time(), "process": self.process, "pool": self._pool()}
                seconds = self._measured_round_trip()
                return line if seconds is None else line | {"round_trip": seconds}
            status = self._client.admin.command({"serverStatus": 1, **OMITTED})
        except PyMongoError as error:
            # A growth that was missed cannot be distinguished from a restart.
            self._last = None
            return {"t": time.time(), "process": self.process, "error": f"{type(error).__name__}: {error}"[:300]}
        now, uptime, values = time.monotonic(), float(status["uptime"]), counters(status)
        last, self._last = self._last, (now, uptime, values)
        if last is None or uptime < last[1]:
            return None
        seconds = max(now - last[0], 1e-6)
        rates = {name: max(value - last[2].get(name, value), 0.0) / seconds for name, value in values.items()}
        line = record(self.process, time.time(), status, rates)
        round_trip = self._measured_round_trip()
        return line if round_trip is None else line | {"round_trip": round_trip}

    def _pool(self) -> dict[str, float]:
        if self._pool_limits is None:
            limits = self._client.admin.command({"getParameter": 1, **dict.fromkeys(_POOL_LIMITS, 1)})
            self._pool_limits = float(limits[_POOL_LIMITS[0]]), float(limits[_POOL_LIMITS[1]])
        return pool_use(self._client.admin.command("connPoolStats"), *self._pool_limits)

    def _measured_round_trip(self) -> float | None:
        """The shortest round trip in s; a minimum changes rarely, so it is read now and then."""
        if self._samples % ROUND_TRIP_EVERY == 0:
            self._round_trip = min_round_trip(self._endpoint)
        self._samples += 1
        return self._round_trip


def sample_forever(sampler: ServerSampler, out: int, interval: float) -> None:
    """Write a sample of one process each interval."""
    due = time.monotonic()
    while True:
        line = sampler.sample()
        if line is not None:
            os.write(out, json.dumps(line, separators=(",", ":")).encode() + b"\n")  # one call: lines stay whole
        late = time.monotonic() - due
        due += interval * (1 + int(max(late, 0) / interval))
        time.sleep(max(due - time.monotonic(), 0))


def targets(job: Mapping[str, Any]) -> list[tuple[str, str, str, bool]]:
    """Name, endpoint, URI with the login of the run and whether it is a mongos, of each process of a job."""
    point, secrets = job["point"], job.get("secrets")
    security = point.get("security") or {}
    access = {name: bool(security.get(name)) for name in ("authorization", "tls")}
    found = []
    for process in point["processes"]:
        endpoint = process.get("endpoint") or f"{process['address']}:{process['port']}"
        # The servers' user: arbiters and members that are not part of their set yet know no other.
        uri = with_login(f"mongodb://{endpoint}/", Path(secrets) if secrets else None, **access, user=SYSTEM)
        found.append((process["name"], endpoint, uri, process["role"] == "mongos"))
    return found


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code (2: the job cannot be read)."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--job", type=Path, required=True, help="point and secrets of an engine's job")
    parser.add_argument("--out", required=True, help="JSON lines are appended here")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between samples of a mongod")
    given = parser.parse_args(arguments)
    if given.interval <= 0:
        parser.error("--interval must be above 0")
    try:
        job = json.loads(given.job.read_text(encoding="utf-8"))
        found = targets(job)
        out = os.open(given.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"microshard.workloads.server_telemetry: {given.job}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    # Blocked before any thread starts, so that all inherit it and only sigwait receives the signal.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    for name, endpoint, uri, is_mongos in found:
        sampler = ServerSampler(name, endpoint, uri, is_mongos=is_mongos)
        threading.Thread(target=sample_forever, args=(sampler, out, given.interval), daemon=True).start()
    signal.sigwait(ends)
    return 0


if __name__ == "__main__":
    leave(main())  # threads may be waiting for a time-out, nothing else is to be finished
