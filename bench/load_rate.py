"""Loading the inspection data (row 5): the engine `insert` beside what one would write, and what the mongods can take.

In turns, into new pre-split collections of the same cluster: the engine; one process that reads JSON lines and inserts
what it has parsed, as mongoimport with one worker does; one process that calls `insert_many` with documents it holds
already; and, as the ceiling, insert commands that were encoded beforehand, sent straight to the router mongod over as
many connections as there are cores: what router mongod and shards can take from a client that does nothing else.

On one machine they all share its cores, and the ceiling is then what is left of them: a loader that has work of its own
takes from it whatever it does. So engine and ceiling are also measured with all mongods on one core and client and
mongos on the others, as on hosts of their own: does the loader keep the mongods' core as busy as the ceiling does?
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import bson
import numpy as np
import uvloop
from bson.raw_bson import RawBSONDocument
from tests.cluster.embedded.lab import SmallCluster, children, small_cluster

from bench.alone import alone, available_mib, rounds, say, scratch
from bench.clusters import BATCH, SEED, cpu_by_role, insert_phase, job, presplit, run_engine
from bench.findings import Findings, Target, compared, growth
from microshard.embedded import wire
from microshard.embedded.nodes import Pool
from microshard.engines import mot
from microshard.engines.streams import RANGE_BITS

LIMIT = 120.0  # s, for one load
WAYS = ("engine", "ceiling")  # that are measured with the mongods on a core of their own too
MIB_EACH = 260  # RAM of a shard with this much data, and the client's


def blocks(documents: int, shards: int) -> Iterator[list[RawBSONDocument]]:
    """The documents in batches, one of each shard's key range in turn."""
    each = documents // shards
    for offset in range(0, each, BATCH):
        for shard in range(shards):
            count = min(BATCH, each - offset)
            first = (shard << RANGE_BITS) + offset
            ids = np.arange(first, first + count, dtype=np.int64)
            encoded, starts = mot.encode(mot.columns(shard * each + offset, count, SEED), ids)
            edges = starts.tolist()
            yield [RawBSONDocument(encoded[a:b]) for a, b in pairwise(edges)]


def preencoded(documents: int, shards: int, namespace: str) -> list[bytes]:
    """Insert commands for the router mongod, ready to be sent."""
    database, _, collection = namespace.partition(".")
    return [
        wire.build(wire.encode({"clusterInsert": collection, "documents": batch, "ordered": False, "$db": database}))
        for batch in blocks(documents, shards)
    ]


async def _send(address: tuple[str, int], series: list[bytes], connections: int) -> None:
    pool = Pool(address)
    waiting = iter(series)

    async def one() -> None:
        for message in waiting:
            reply = wire.decode(wire.parse(await pool.exchange(message)).body)
            if reply.get("ok") != 1 or reply.get("writeErrors"):
                raise RuntimeError(f"an insert failed: {reply}")

    try:
        async with asyncio.timeout(LIMIT):
            await asyncio.gather(*(one() for _ in range(connections)))
    finally:
        pool.close()


class Bench:
    """A cluster and the ways to load it; each gives documents/s and CPU seconds by role."""

    def __init__(self, cluster: SmallCluster, folder: Path, documents: int) -> None:
        self.cluster = cluster
        self.folder = folder
        self.shards = len(cluster.shards)
        self.documents = documents // (self.shards * BATCH) * self.shards * BATCH
        self.number = 0
        status = cluster.client.admin.command("serverStatus")
        words = Path(f"/proc/{status['microshard']['routerMongod']['pid']}/cmdline").read_bytes().split(b"\0")
        self.router = ("127.0.0.1", int(words[words.index(b"--port") + 1]))
        self.lines = folder / "inspections.json"
        with self.lines.open("w", encoding="utf-8") as file:
            for batch in blocks(self.documents, self.shards):
                file.writelines(json.dumps(bson.decode(one.raw), default=str) + "\n" for one in batch)

    def measure(self, way: str) -> tuple[float, dict[str, float]]:
        """Load a new collection one way; documents/s, CPU seconds of each role for a document."""
        self.number += 1
        namespace = f"vosa{self.number}.inspections"
        chunks = presplit(self.cluster, namespace)
        ways: dict[str, Callable[[str, list[dict[str, Any]]], tuple[float, float]]] = {
            "engine": self.engine,
            "mongoimport-like": self.imported,
            "insert_many": self.insert_many,
            "ceiling": self.ceiling,
        }
        before = cpu_by_role(self.cluster)
        rate, client = ways[way](namespace, chunks)
        after = cpu_by_role(self.cluster)
        database, _, collection = namespace.partition(".")
        found = self.cluster.client[database][collection].count_documents({})
        if found != self.documents:
            raise SystemExit(f"{way}: {found} of {self.documents} documents are there")
        self.cluster.client.drop_database(database)
        used = {role: after[role] - before[role] for role in after}
        return rate, {role: seconds / self.documents for role, seconds in {**used, "client": client}.items()}

    def apart(self, way: str) -> tuple[float, float]:
        """As `measure`, all mongods on one core, client and mongos on the others; documents/s, share of that core."""
        theirs, ours = two_parts()
        front = self.cluster.mongos.pid
        mongods = [*(process.pid for process in self.cluster.processes), *children(front)]
        try:
            for pid in mongods:
                on_cores(pid, theirs)
            for pid in (front, os.getpid()):  # the engine's processes inherit it
                on_cores(pid, ours)
            rate, used = self.measure(way)
        finally:
            for pid in (*mongods, front, os.getpid()):
                on_cores(pid, theirs | ours)
        # CPU seconds of a document by documents in a second.
        return rate, (used["shards"] + used["router mongod"]) * rate

    def engine(self, namespace: str, chunks: list[dict[str, Any]]) -> tuple[float, float]:
        """The engine, as many processes as `auto` gives; counting and checkpoint are not in the rate."""
        processes = min(os.cpu_count() or 1, self.shards)
        phase = insert_phase(self.documents, processes, namespace)
        loaded = run_engine(self.folder, job(self.cluster, chunks, phase, namespace))
        return float(loaded["metric"]["value"]), float(loaded["client_cpu_seconds"])

    def imported(self, namespace: str, _chunks: list[dict[str, Any]]) -> tuple[float, float]:
        """One process: read lines, parse, insert."""

        def batches() -> Iterator[list[dict[str, Any]]]:
            with self.lines.open(encoding="utf-8") as file:
                batch = []
                for line in file:
                    batch.append(json.loads(line))
                    if len(batch) == BATCH:
                        yield batch
                        batch = []

        return self._insert(namespace, batches())

    def insert_many(self, namespace: str, _chunks: list[dict[str, Any]]) -> tuple[float, float]:
        """One process: insert_many of documents it holds."""
        held = [[bson.decode(one.raw) for one in batch] for batch in blocks(self.documents, self.shards)]
        return self._insert(namespace, iter(held))

    def _insert(self, namespace: str, batches: Iterator[list[dict[str, Any]]]) -> tuple[float, float]:
        database, _, collection = namespace.partition(".")
        target = self.cluster.client[database][collection]
        began, cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            target.insert_many(batch, ordered=False)
        return self.documents / (time.perf_counter() - began), time.process_time() - cpu

    def ceiling(self, namespace: str, _chunks: list[dict[str, Any]]) -> tuple[float, float]:
        """Encoded beforehand, straight to the router mongod."""
        series = preencoded(self.documents, self.shards, namespace)
        began, cpu = time.perf_counter(), time.process_time()
        uvloop.run(_send(self.router, series, max(2, os.cpu_count() or 1)))
        return self.documents / (time.perf_counter() - began), time.process_time() - cpu


def two_parts() -> tuple[set[int], set[int]]:
    """One core, and all others this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    return set(cores[-1:]), set(cores[:-1])


def on_cores(pid: int, cores: set[int]) -> None:
    """Bind every thread of a process."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)


def measure(quick: bool) -> Findings:
    """Row 5; growth with shards."""
    found = Findings()
    sizes = (2,) if quick else (1, 2, 16)
    documents = 48_000 if quick else 128_000
    rates: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for shards in sizes:
        if available_mib() < MIB_EACH * (shards + 3):
            found.missing.append(f"5: {shards} shards need about {MIB_EACH * (shards + 3):,} MiB of RAM")
            continue
        cpu: dict[str, list[float]] = defaultdict(list)
        busy: dict[str, list[float]] = defaultdict(list)
        with scratch() as folder, small_cluster(folder, shards) as cluster:
            bench = Bench(cluster, folder, documents)
            for _ in rounds(1 if quick else 3, 2 if quick else 5, 10 if quick else 25):
                for way in ("engine", "mongoimport-like", "insert_many", "ceiling"):
                    rate, used = bench.measure(way)
                    rates[way].setdefault(shards, []).append(rate)
                    if way == "engine":
                        for role, seconds in used.items():
                            cpu[role].append(seconds * 1e6)
                    say(f"{shards} shards, {way}: {rate:,.0f} documents/s")
                for way in WAYS if two_parts()[1] else ():
                    rate, share = bench.apart(way)
                    rates[f"{way}, mongods apart"].setdefault(shards, []).append(rate)
                    busy[way].append(share * 100)
                    say(f"{shards} shards, {way}, mongods on a core of their own: {rate:,.0f} documents/s")
        _rows(found, shards, {way: series[shards] for way, series in rates.items()}, cpu)
        if busy:
            _apart_row(found, shards, [rates[f"{way}, mongods apart"][shards] for way in WAYS], busy["ceiling"])
    for way, series in rates.items():
        found.growths.append(growth(f"loading, {way}", "shards", "documents/s", series))
    return found


def _rows(found: Findings, shards: int, rates: dict[str, list[float]], cpu: dict[str, list[float]]) -> None:
    used = ", ".join(f"{role} {statistics.median(values):.1f}" for role, values in cpu.items())
    note = f"{shards} shards: CPU of a document, µs, with counting and checkpoint: {used}"
    beside = {
        "ceiling": "what the mongods take of the same cores",
        "mongoimport-like": "JSON lines, one process",
        "insert_many": "insert_many, one process",
    }
    for way, name in beside.items():
        what = f"load rate, {shards} shard{'' if shards == 1 else 's'}"
        row_note = note if way == "ceiling" else ""
        found.rows.append(compared(5, what, rates["engine"], name, rates[way], "/s", note=row_note))


def _apart_row(found: Findings, shards: int, rates: list[list[float]], busy: list[float]) -> None:
    name = f"load rate, {shards} shard{'' if shards == 1 else 's'}, mongods on a core of their own"
    note = f"{shards} shards: the ceiling keeps {statistics.median(busy):.0f} % of the mongods' core busy"
    target = Target(0.9, most=False)
    engine, ceiling = rates
    found.rows.append(compared(5, name, engine, "what the mongods take of it", ceiling, "/s", target, note))


if __name__ == "__main__":
    sys.exit(alone(measure))
