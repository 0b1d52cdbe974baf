"""What the embedded mongos costs besides its router mongod (row 4): the same commands through it and straight to that.

Point reads, updates, inserts and an aggregation go, in turns, through the front and to the router mongod (clusterFind
and so on), by one client that speaks the wire protocol with one request at a time on each connection. The cluster's own
mongos sends point operations from its front straight to their shard; the one compared with the router mongod does not
(microshardTargeting=false). CPU per operation is that of front, router mongod and shards from /proc/PID/stat, the
client's apart. Full form: 1 to 64 connections, with throughput and the 99th percentile of each.

A mongos gives a write that names no write concern the cluster's default, and the router mongod does not: what goes
straight to it therefore carries that default, or one way would wait for the journal and the other not. What the default
itself costs is a third way, updates straight to the router mongod with w: 1.

A series takes about a second and the ways follow one another, each round in the reverse order of the last one: a
machine whose speed drifts meets all ways alike, and the result is the median of the rounds' ratios.
"""

import asyncio
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import bson
import uvloop
from tests.cluster.embedded.lab import SmallCluster, another_mongos, small_cluster

from bench.alone import alone, rounds, say, scratch
from bench.clusters import cpu_by_role
from bench.findings import Findings, Target, absolute, compared, growth
from microshard.embedded import wire
from microshard.embedded.mongod_connections import MongodPool
from microshard.embedded.sharded_cluster import MongosProcess

DOCUMENTS = 10_000
BATCH = 100
LIMIT = 60.0  # s, for one series of operations
FULL = 8  # connections from which on a series has all its operations
Series = dict[tuple[str, str, int], list[float]]  # figure, way, connections → repetitions


@dataclass(frozen=True)
class Kind:
    """A kind of operation: its public command, its name inside, and how many there are in a series."""

    name: str
    command: str
    inside: str
    operations: int
    document: Callable[[random.Random, Iterator[int]], dict[str, Any]]
    writes: bool = False
    targeted: bool = False  # may go from the front straight to its shard


@dataclass
class Seen:
    """What a series of one kind showed."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)


def _find(numbers: random.Random, _fresh: Iterator[int]) -> dict[str, Any]:
    return {"": "points", "filter": {"_id": numbers.randrange(DOCUMENTS)}, "limit": 1, "singleBatch": True}


def _update(numbers: random.Random, _fresh: Iterator[int]) -> dict[str, Any]:
    one = {"q": {"_id": numbers.randrange(DOCUMENTS)}, "u": {"$inc": {"n": 1}}}
    return {"": "points", "updates": [one]}


def _insert(_numbers: random.Random, fresh: Iterator[int]) -> dict[str, Any]:
    return {"": "inserted", "documents": [{"_id": next(fresh), "p": "x" * 100} for _ in range(BATCH)], "ordered": False}


def _insert_one(_numbers: random.Random, fresh: Iterator[int]) -> dict[str, Any]:
    return {"": "inserted", "documents": [{"_id": next(fresh), "p": "x" * 100}]}


def _aggregate(_numbers: random.Random, _fresh: Iterator[int]) -> dict[str, Any]:
    return {"": "points", "pipeline": [{"$group": {"_id": "$g", "n": {"$sum": 1}}}], "cursor": {}}


def kinds(scale: float) -> list[Kind]:
    """The kinds, with so many operations a series."""
    return [
        Kind("point read", "find", "clusterFind", int(3000 * scale), _find, targeted=True),
        Kind("update", "update", "clusterUpdate", int(1500 * scale), _update, writes=True, targeted=True),
        Kind("insert", "insert", "clusterInsert", int(1500 * scale), _insert_one, writes=True, targeted=True),
        Kind(f"insert of {BATCH}", "insert", "clusterInsert", int(400 * scale), _insert, writes=True),
        Kind("aggregation", "aggregate", "clusterAggregate", int(120 * scale), _aggregate),
    ]


def messages(
    kind: Kind, name: str, concern: dict[str, Any], numbers: random.Random, fresh: Iterator[int]
) -> list[bytes]:
    """A series as it goes over the wire, by its public or its inner name."""
    made = []
    for _ in range(kind.operations):
        document = kind.document(numbers, fresh)
        made.append(wire.build(bson.encode({name: document.pop(""), **document, **concern, "$db": "bench"})))
    return made


async def drive(address: tuple[str, int], series: list[bytes], connections: int) -> Seen:
    """Send a series, each connection one at a time. RuntimeError for an answer that is not ok."""
    pool = MongodPool(address)
    waiting = iter(series)
    seen = Seen()

    async def one() -> None:
        for message in waiting:
            began = time.perf_counter()
            reply = await pool.exchange(message)
            seen.latencies.append(time.perf_counter() - began)
            if b"ok\x00\x00\x00\x00\x00\x00\x00\xf0?" not in reply or b"writeErrors" in reply:
                raise RuntimeError(f"not ok: {wire.decode(wire.parse(reply).body)}")

    ping = wire.build(bson.encode({"ping": 1, "$db": "admin"}))
    await asyncio.gather(*(pool.exchange(ping) for _ in range(connections)))  # so many links are there now
    began = time.perf_counter()
    try:
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(one() for _ in range(connections)))
    finally:
        seen.seconds = time.perf_counter() - began
        pool.close()
    return seen


class Bench:
    """A cluster of two shards, and the ways to it."""

    def __init__(self, cluster: SmallCluster, forwarding: MongosProcess) -> None:
        self.cluster = cluster
        self.forwarding = forwarding
        words = Path(f"/proc/{forwarding.router_pid()}/cmdline").read_bytes().split(b"\0")
        self.addresses = {
            "front": ("127.0.0.1", forwarding.port),
            "targeted": ("127.0.0.1", cluster.mongos.port),
            "straight": ("127.0.0.1", int(words[words.index(b"--port") + 1])),
        }
        self.addresses["straight, w: 1"] = self.addresses["straight"]
        default = cluster.client.admin.command("getDefaultRWConcern")["defaultWriteConcern"]
        given = {name: default[name] for name in ("w", "j", "wtimeout") if name in default}
        self.concerns: dict[str, dict[str, Any]] = {
            "front": {},
            "targeted": {},
            "straight": {"writeConcern": given},
            "straight, w: 1": {"writeConcern": {"w": 1}},
        }
        for name in ("points", "inserted"):
            cluster.client.admin.command("shardCollection", f"bench.{name}", key={"_id": "hashed"}, numInitialChunks=4)
        points = [{"_id": number, "g": number % 10, "n": 0, "p": "x" * 100} for number in range(DOCUMENTS)]
        cluster.client.bench.points.insert_many(points)
        self.fresh = iter(range(1 << 40))
        self.numbers = random.Random(1)

    def ways(self, kind: Kind) -> list[str]:
        """Through the front and straight to the router mongod; a targeted operation and a write have one more each."""
        apart = {"targeted": kind.targeted, "straight, w: 1": kind.writes}
        return [way for way in self.addresses if apart.get(way, True)]

    def series(self, kind: Kind, way: str, connections: int) -> Seen:
        """One series of one kind one way."""
        # Fewer where few are in flight: a write waits for the journal, and thousands one by one would take minutes.
        kind = replace(kind, operations=int(kind.operations * min(1.0, connections / FULL)))
        name = kind.command if way in {"front", "targeted"} else kind.inside
        mongos = self.cluster.mongos if way == "targeted" else self.forwarding
        made = messages(kind, name, self.concerns[way] if kind.writes else {}, self.numbers, self.fresh)
        before = cpu_by_role(self.cluster, mongos)
        seen = uvloop.run(drive(self.addresses[way], made, connections))
        after = cpu_by_role(self.cluster, mongos)
        seen.cpu = {role: (after[role] - before[role]) / kind.operations for role in after}
        return seen


def measure(quick: bool) -> Findings:
    """Row 4; growth with connections."""
    found = Findings()
    every = kinds(0.25 if quick else 1)
    taken: dict[str, Series] = {kind.name: defaultdict(list) for kind in every}
    others = () if quick else (1, 4, 16, 64)
    off = ("--setParameter", "microshardTargeting=false")
    with (
        scratch() as folder,
        small_cluster(folder) as cluster,
        another_mongos(cluster, cluster.folder, *off) as forwarding,
    ):
        bench = Bench(cluster, forwarding)
        for kind in every:
            for way in bench.ways(kind):
                bench.series(kind, way, FULL)  # warms caches and connections
        # The target is for FULL connections; the others show how it grows.
        for many, least, most, seconds in (
            (FULL, 3, 3 if quick else 15, 15 if quick else 180),
            *((many, 3, 3, 0) for many in others),
        ):
            for number in rounds(least, most, seconds):
                for kind in every:
                    for way in bench.ways(kind)[:: -1 if number % 2 else 1]:
                        _take(taken[kind.name], way, many, bench.series(kind, way, many))
            say(f"{many} connections: {number + 1} rounds")
    for kind in every:
        _rows(found, kind, taken[kind.name], FULL)
        if others:
            _growths(found, kind, taken[kind.name], sorted((FULL, *others)))
    return found


def _take(series: Series, way: str, connections: int, seen: Seen) -> None:
    ordered = sorted(seen.latencies)
    figures = {
        "cpu": (seen.cpu["front"] + seen.cpu["router mongod"] + seen.cpu["shards"]) * 1e6,
        "front": seen.cpu["front"] * 1e6,
        "p99": ordered[int(len(ordered) * 0.99)] * 1e6,
        "rate": len(seen.latencies) / seen.seconds,
    }
    for name, value in figures.items():
        series[name, way, connections].append(value)


def _rows(found: Findings, kind: Kind, series: Series, connections: int) -> None:
    baseline = "the router mongod directly"
    for figure, what, target in (("cpu", "CPU an operation", Target(1.25)), ("p99", "99th percentile", Target(1.3))):
        ours, other = series[figure, "front", connections], series[figure, "straight", connections]
        name = f"{kind.name}, {what}, {connections} connections"
        found.rows.append(compared(4, name, ours, baseline, other, "µs", target))
    for figure, what, target in (("cpu", "CPU an operation", Target(0.6)), ("p99", "99th percentile", Target(1.0))):
        if kind.targeted:
            ours, other = series[figure, "targeted", connections], series[figure, "front", connections]
            name = f"{kind.name} straight to its shard, {what}, {connections} connections"
            found.rows.append(compared(4, name, ours, "through front and router mongod", other, "µs", target))
    if kind.writes:
        # For the reader: how much of a write is the cluster's default write concern, whoever adds it.
        ours, other = (series["cpu", way, connections] for way in ("straight", "straight, w: 1"))
        note = "a mongos adds the cluster's default write concern to writes; straight commands carry it here too"
        name = f"{kind.name}, CPU an operation, straight with the default write concern"
        found.rows.append(compared(4, name, ours, "straight with w: 1", other, "µs", note=note))
    for way in ("front", "targeted")[: 2 if kind.targeted else 1]:
        name = f"{kind.name}{', ' + way if way != 'front' else ''}, the front's own CPU"
        found.rows.append(absolute(4, name, series["front", way, connections], "µs"))
    # One front process must not be the limit while cores are free: throughput against that without it.
    ours, other = series["rate", "front", connections], series["rate", "straight", connections]
    cores = os.cpu_count() or 1
    note = f"front, router mongod, two shards and the client share {cores} cores"
    name = f"{kind.name}, throughput, {connections} connections"
    found.rows.append(compared(4, name, ours, baseline, other, "/s", note=note))


def _growths(found: Findings, kind: Kind, series: Series, connections: Sequence[int]) -> None:
    for way, name in (("front", "through the mongos"), ("straight", "directly")):
        for figure, what, unit in (("rate", "throughput", "operations/s"), ("p99", "99th percentile", "µs")):
            values = {many: series[figure, way, many] for many in connections}
            if kind.command in {"find", "aggregate"}:
                found.growths.append(growth(f"{kind.name} {name}, {what}", "connections", unit, values))


if __name__ == "__main__":
    sys.exit(alone(measure))
