"""Requests to the servers of a point: their memory and storage traffic, the size of a collection, replication lag."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pymongo.errors import OperationFailure, PyMongoError

from microshard.hostlib import proc
from microshard.hostlib.host_counters import allocated_bytes, read_pid
from microshard.hostlib.replica_set import member_document
from microshard.model.job import JobPoint, ProcessInfo, ReplicaSetInfo
from microshard.model.result import Latency, Metric, ShardSize, StorageSize
from microshard.workloads.base import PhaseError, collection_of
from microshard.workloads.connections import Client, connect

Value = TypeVar("Value")
MIB = 1 << 20
CHECKPOINT_MS = 600_000  # a checkpoint writes the whole cache: minutes on a slow disk
LAG_INTERVAL_SECONDS = 1.0
STATUS_MS = 2_000
ROUTING_WAYS = frozenset({"toShards", "toRouterMongod"})  # as the embedded mongos counts operations
PRIMARY, SECONDARY = 1, 2  # myState and members[].state of replSetGetStatus


# --- several servers at the same time


def run_in_threads(calls: Sequence[Callable[[], Value]]) -> list[Value]:
    """The values of all calls, made at the same time; the first error is raised as soon as it happens.

    The others are not waited for then: SIGTERM would have to wait for the slowest query or checkpoint. The engines'
    program ends without them (hostlib.proc.leave). A single call stays on this thread.
    """
    if len(calls) == 1:
        return [calls[0]()]
    pool = ThreadPoolExecutor(max(len(calls), 1))
    try:
        futures = [pool.submit(call) for call in calls]
        for future in as_completed(futures):
            future.result()
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=False)


def direct(process: ProcessInfo, **options: Any) -> Client:
    """A client of this process alone; options as in connect."""
    return connect(process.uri or f"mongodb://{process.endpoint}/", directConnection=True, **options)


def on_all(processes: Sequence[ProcessInfo], request: Callable[[Client], Value]) -> dict[str, Value]:
    """What `request` returns for each process, by name; all at the same time. Raises PhaseError naming the process."""

    def one(process: ProcessInfo) -> Value:
        try:
            with direct(process) as client:
                return request(client)
        except PyMongoError as error:
            raise PhaseError(type(error).__name__, f"{process.name} ({process.endpoint}): {error}") from error

    values = run_in_threads([partial(one, process) for process in processes])
    return {process.name: value for process, value in zip(processes, values, strict=True)}


def operations_by_way(processes: Sequence[ProcessInfo]) -> dict[str, int]:
    """How many operations the embedded mongos have sent which way since their start; empty where there is none."""
    counted: dict[str, int] = {}
    for process in processes:
        if process.role == "mongos":
            with contextlib.suppress(PyMongoError), direct(process) as client:
                ways = client.admin.command("serverStatus").get("microshard", {}).get("targeting", {})
                for name in ROUTING_WAYS & ways.keys():
                    counted[name] = counted.get(name, 0) + int(ways[name])
    return counted


def process_of(info: ProcessInfo) -> proc.LiveProcess | None:
    """The process of this machine behind a pid file; None when it has ended or is another program by now.

    One of its arguments (PATH or --option=PATH) must name the folder of the pid file or something in it.
    """
    folder, process = Path(info.pid_path).parent, proc.find(read_pid(info.pid_path) or 0)
    words = process.command if process else ()
    paths = (word.partition("=")[2] if word.startswith("-") else word for word in words)
    return process if any(f"{path}/".startswith(f"{folder}/") for path in paths) else None


def with_data(processes: Sequence[ProcessInfo]) -> list[ProcessInfo]:
    """The processes that can hold documents of the experiment."""
    return [process for process in processes if process.bears_data]


# --- time of operations in the servers

OWN_QUESTION_US = 1024  # a $collStats counts itself among the reads, and is faster than this

# process → reads, writes, commands, transactions → total µs (key -1) and operations by lower bound of a bucket in µs
OperationTimes = dict[str, dict[str, dict[int, int]]]


def operation_times(processes: Sequence[ProcessInfo], namespaces: Sequence[str]) -> OperationTimes:
    """$collStats latencyStats of the data-bearing processes, over the namespaces; without those that do not answer."""

    def one(process: ProcessInfo) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        # One that is paused or gone must not hold up a measurement.
        waits = dict.fromkeys(("serverSelectionTimeoutMS", "connectTimeoutMS", "socketTimeoutMS"), STATUS_MS)
        with contextlib.suppress(PyMongoError), direct(process, **waits) as client:
            for namespace in namespaces:
                stats = [{"$collStats": {"latencyStats": {"histograms": True}}}]
                for answer in collection_of(client, namespace).aggregate(stats):
                    for kind, seen in answer["latencyStats"].items():
                        times = found.setdefault(kind, {})
                        times[-1] = times.get(-1, 0) + int(seen["latency"])
                        for bucket in seen.get("histogram", []):
                            times[int(bucket["micros"])] = times.get(int(bucket["micros"]), 0) + int(bucket["count"])
            return found
        return {}

    bearing = with_data(processes) if namespaces else []
    values = run_in_threads([partial(one, process) for process in bearing])
    return {process.name: value for process, value in zip(bearing, values, strict=True) if value}


def latencies_between(before: OperationTimes, after: OperationTimes, questions: int = 1) -> dict[str, Latency]:
    """Latency in the servers of the operations between two readings, by kind, in µs; percentiles are upper bounds.

    Empty where a server did not answer or counted anew (it was restarted, or the collection dropped). `questions`:
    namespaces of the later reading.
    """
    if before.keys() != after.keys():
        return {}
    grown: dict[str, dict[int, int]] = {}
    for process, kinds in after.items():
        for kind, times in kinds.items():
            earlier = before[process].get(kind, {})
            changes = {bound: count - earlier.get(bound, 0) for bound, count in times.items()}
            if min(changes.values(), default=0) < 0 or earlier.keys() - times.keys():
                return {}
            own = questions if kind == "reads" else 0
            for bound in sorted(bound for bound in changes if 0 <= bound < OWN_QUESTION_US):
                mine = min(own, changes[bound])
                own -= mine
                changes[bound] -= mine
                changes[-1] -= mine * bound
            into = grown.setdefault(kind, {})
            for bound, count in changes.items():
                into[bound] = into.get(bound, 0) + count
    return {kind: _latency(counts) for kind, counts in grown.items() if sum(counts.values()) > counts.get(-1, 0)}


def _latency(counts: Mapping[int, int]) -> Latency:
    buckets = sorted((bound, count) for bound, count in counts.items() if bound >= 0 and count)
    whole = sum(count for _, count in buckets)
    percentiles, passed = {}, 0
    for bound, count in buckets:
        passed += count
        for percentile in ("50", "95", "99"):
            if percentile not in percentiles and passed >= whole * float(percentile) / 100:
                percentiles[percentile] = _upper_bound(bound)
    return Latency(whole, max(counts.get(-1, 0), 0) / whole, percentiles=percentiles)


def _upper_bound(lower: int) -> float:
    """Of a bucket of latencyStats: powers of two, with a step half-way between 2,048 µs and 1.6 s (mongod's
    operation_latency_histogram.cpp, read 2026-11)."""
    if lower < 2:
        return 2.0
    if lower & (lower - 1):
        return lower * 4 / 3
    return lower * (1.5 if 2048 <= lower <= 1 << 20 else 2.0)


# --- memory and storage traffic


def server_counters(processes: Sequence[ProcessInfo]) -> dict[str, int]:
    """Sums of serverStatus over the data-bearing processes. Raises PhaseError naming one that does not answer.

    `resident` memory, bytes; and since their start, where every storage engine counts them: `reads` and `read` bytes of
    the block manager (blocks of collection and index files, after WiredTiger's cache: the operating system's page cache
    may still serve them), and the bytes `written` by block manager and journal together.
    """
    # The whole serverStatus: without `metrics` there is no `mem`.
    statuses = list(on_all(with_data(processes), lambda c: c.admin.command("serverStatus")).values())
    found = {"resident": sum(int(s.get("mem", {}).get("resident", 0)) * MIB for s in statuses)}
    blocks = [s.get("wiredTiger", {}).get("block-manager") for s in statuses]
    if not statuses or not all(blocks):
        return found
    for name, counter in (("reads", "blocks read"), ("read", "bytes read"), ("written", "bytes written")):
        found[name] = sum(int(b[counter]) for b in blocks)
    found["written"] += sum(int(s["wiredTiger"].get("log", {}).get("log bytes written", 0)) for s in statuses)
    return found


def storage_traffic(before: Mapping[str, int], after: Mapping[str, int], inserts: int) -> list[Metric]:
    """Figures of the storage traffic per insert between two readings; none where it is not counted."""
    units = {"reads": "reads", "read": "bytes", "written": "bytes"}
    return [
        Metric(f"storage {name} per insert", unit, (after[name] - before[name]) / inserts, "lower")
        for name, unit in units.items()
        if name in before and name in after and inserts
    ]


# --- size of a collection


def checkpoint(processes: Sequence[ProcessInfo]) -> None:
    """Have every data-bearing mongod write a checkpoint, so that sizes on disk no longer move. Raises PhaseError."""
    on_all(with_data(processes), lambda client: client.admin.command({"fsync": 1, "maxTimeMS": CHECKPOINT_MS}))


def db_path_bytes(processes: Sequence[ProcessInfo]) -> int | None:
    """Bytes of all dbPaths; None when one is not on this machine."""
    paths = [p.db_path for p in processes if p.db_path is not None]
    return sum(map(allocated_bytes, paths)) if all(map(os.path.isdir, paths)) else None


def storage_size(client: Client, namespace: str, processes: Sequence[ProcessInfo]) -> StorageSize:
    """The `storage` of a result, after a checkpoint."""
    checkpoint(processes)
    by_shard: dict[str, ShardSize] = {}
    data_bytes = index_bytes = 0
    for stats in collection_of(client, namespace).aggregate([{"$collStats": {"storageStats": {}}}]):
        storage = stats["storageStats"]
        size = ShardSize(int(storage.get("count", 0)), int(storage["storageSize"]))
        by_shard[_shard_name(stats, processes)] = size
        data_bytes += int(storage["storageSize"])
        index_bytes += int(storage["totalIndexSize"])
    return StorageSize(data_bytes, index_bytes, db_path_bytes(processes), dict(sorted(by_shard.items())))


def _shard_name(stats: Mapping[str, Any], processes: Sequence[ProcessInfo]) -> str:
    """The shard an answer of $collStats comes from; without shards, the process that listens on its port."""
    if "shard" in stats:
        return str(stats["shard"])
    port = str(stats["host"]).rpartition(":")[2]
    return next((p.name for p in processes if p.endpoint.rpartition(":")[2] == port), str(stats["host"]))


# --- replica set members


def members_to_add(point: JobPoint, name: str | None = None) -> tuple[ReplicaSetInfo, list[ProcessInfo]]:
    """The replica set (of this name) with members to add, and these. Raises PhaseError unless they are up and empty."""
    sets = [rs for rs in point.replica_sets if rs.later and name in {None, rs.name}]
    if len(sets) != 1:
        found = ", ".join(rs.name for rs in sets) or "none"
        raise PhaseError("NoMember", f"one replica set with members to add is needed, found {found}")
    by_name = {p.name: p for p in point.processes}
    members = [by_name[member.process] for member in sets[0].later]
    set_names = on_all(members, lambda client: client.admin.command("isMaster").get("setName"))
    for process in members:
        if set_name := set_names[process.name]:
            raise PhaseError("NotEmpty", f"{process.name} ({process.endpoint}) belongs to {set_name} already")
    return sets[0], members


def add_members(client: Client, replica_set: ReplicaSetInfo) -> float:
    """Reconfigure a replica set, so that its later members join it; when (epoch seconds). Raises PhaseError."""
    admin = client.admin
    config = admin.command("replSetGetConfig")["config"]
    wire_version, first = admin.command("isMaster")["maxWireVersion"], max(m["_id"] for m in config["members"]) + 1
    later = enumerate(map(asdict, replica_set.later), first)
    config["members"] += [member_document(number, member, wire_version) for number, member in later]
    config["version"] += 1
    now = time.time()
    try:
        admin.command("replSetReconfig", config)
    except OperationFailure as error:
        names = ", ".join(m.process for m in replica_set.later)
        raise PhaseError("CannotAdd", f"{names} cannot be added: code {error.code}: {error}") from error
    return now


def queries_answered(processes: Sequence[ProcessInfo]) -> dict[str, int]:
    """Queries each data-bearing process has answered since its start (opcounters.query). Raises PhaseError."""
    return on_all(with_data(processes), lambda c: int(c.admin.command("serverStatus")["opcounters"]["query"]))


def replication_lag(status: Mapping[str, Any]) -> dict[str, float]:
    """Seconds each secondary is behind, by endpoint, in a primary's replSetGetStatus; empty in any other's.

    By the wall clock of the last applied operation (MongoDB 4.4 on, milliseconds), else by its optime (seconds).
    """
    if status.get("myState") != PRIMARY:
        return {}
    members = status["members"]
    clock = "lastAppliedWallTime" if all("lastAppliedWallTime" in m for m in members) else "optimeDate"
    ahead: datetime = next(m[clock] for m in members if m["state"] == PRIMARY)
    return {m["name"]: max(0.0, (ahead - m[clock]).total_seconds()) for m in members if m["state"] == SECONDARY}


class LagMonitor:
    """Reads the replication lag of every member once a second, in a thread."""

    def __init__(self, processes: Sequence[ProcessInfo]) -> None:
        self._names = {p.endpoint: p.name for p in processes}
        self._members = [p for p in processes if p.role in {"member", "shard"}]
        self._rows: list[tuple[float, dict[str, float]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start reading."""
        if self._members:
            self._thread.start()

    def stop(self) -> None:
        """Stop reading; safe to call again or without start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * STATUS_MS / 1000)

    def _run(self) -> None:
        options = {"serverSelectionTimeoutMS": STATUS_MS, "socketTimeoutMS": STATUS_MS}
        clients: list[Client] = [direct(process, **options) for process in self._members]
        try:
            while not self._stop.wait(LAG_INTERVAL_SECONDS):
                row: dict[str, float] = {}
                for client in clients:
                    try:
                        row |= replication_lag(client.admin.command("replSetGetStatus"))
                    except PyMongoError:
                        continue  # a member that does not answer has no point in the curve
                self._rows.append((time.time(), row))
        finally:
            for client in clients:
                client.close()

    def between(self, started: float, ended: float) -> list[tuple[float, dict[str, float]]]:
        """(epoch seconds, lag by process) of an interval."""
        rows = [(t, row) for t, row in list(self._rows) if started <= t <= ended]
        return [(t, {self._names.get(name, name): lag for name, lag in row.items()}) for t, row in rows]
