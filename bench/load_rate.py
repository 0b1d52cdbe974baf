"""Loading the inspection data (row 5): the engine `insert` against what one would write, and what the mongods can take.

In turns, into new pre-split collections of the same cluster: the engine; one process that reads JSON lines and inserts
what it has parsed, as mongoimport with one worker does; one process that calls `insert_many` with documents it holds
already; and, as the ceiling, insert commands that were encoded beforehand, sent straight to the router mongod over as
many connections as there are cores: what router mongod and shards can take from a client that does nothing else.

On one machine they all share its cores, and the ceiling is then what is left of them: a loader that has work of its own
takes from it whatever it does. So engine and ceiling are also measured with all mongods on one core and client and
mongos on the others, as on hosts of their own: does the loader keep the mongods' core as busy as the ceiling does? Its
use is read every 10 ms, so that what the engine does besides loading, counting and a checkpoint, is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import bson
import numpy as np
import uvloop
from bson.raw_bson import RawBSONDocument
from tests.cluster.embedded.lab import SmallCluster, children, cpu_seconds, small_cluster

from bench.alone import alone, available_mib, rounds, say, scratch
from bench.clusters import BATCH, SEED, cpu_by_role, insert_phase, job, presplit, run_engine
from bench.findings import Findings, Target, compared, growth
from microshard.embedded import wire
from microshard.embedded.mongod_connections import MongodPool
from microshard.workloads.datasets import mot
from microshard.workloads.streams import RANGE_BITS

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
        wire.build(bson.encode({"clusterInsert": collection, "documents": batch, "ordered": False, "$db": database}))
        for batch in blocks(documents, shards)
    ]


async def _send(address: tuple[str, int], series: list[bytes], connections: int) -> None:
    pool = MongodPool(address)
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


@dataclass(frozen=True)
class Load:
    """One load: when it began and ended (epoch, s), and the client's CPU, s."""

    documents: int
    began: float
    ended: float
    client: float

    @property
    def rate(self) -> float:
        """Documents/s."""
        return self.documents / (self.ended - self.began)


class Watch:
    """Reads the CPU that processes have used every 10 ms while it is open."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self.seen: list[tuple[float, float]] = []  # epoch, CPU seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._over.wait(0.01):
            self.seen.append((time.time(), sum(map(cpu_seconds, self.pids))))

    def cores(self, load: Load) -> float:
        """How many cores they kept busy during a load."""
        moments, used = zip(*self.seen, strict=True)
        return float(np.diff(np.interp([load.began, load.ended], moments, used))[0]) / (load.ended - load.began)


class Bench:
    """A cluster and the ways to load it."""

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

    def measure(self, way: str) -> tuple[Load, dict[str, float]]:
        """Load a new collection one way; the load, CPU seconds of each role for a document."""
        self.number += 1
        namespace = f"vosa{self.number}.inspections"
        chunks = presplit(self.cluster, namespace)
        ways: dict[str, Callable[[str, list[dict[str, Any]]], Load]] = {
            "engine": self.engine,
            "mongoimport-like": self.imported,
            "insert_many": self.insert_many,
            "ceiling": self.ceiling,
        }
        before = cpu_by_role(self.cluster)
        load = ways[way](namespace, chunks)
        after = cpu_by_role(self.cluster)
        database, _, collection = namespace.partition(".")
        found = self.cluster.client[database][collection].count_documents({})
        if found != self.documents:
            raise SystemExit(f"{way}: {found} of {self.documents} documents are there")
        self.cluster.client.drop_database(database)
        used = {role: after[role] - before[role] for role in after}
        return load, {role: seconds / self.documents for role, seconds in {**used, "client": load.client}.items()}

    def apart(self, way: str) -> tuple[float, float]:
        """As `measure`, all mongods on one core, client and mongos on the others; documents/s, its busy share."""
        theirs, ours = two_parts()
        front = self.cluster.mongos.pid
        mongods = [*(process.pid for process in self.cluster.processes), *children(front)]
        try:
            for pid in mongods:
                on_cores(pid, theirs)
            for pid in (front, os.getpid()):  # the engine's processes inherit it
                on_cores(pid, ours)
            with Watch(mongods) as watch:
                load, _ = self.measure(way)
        finally:
            for pid in (*mongods, front, os.getpid()):
                on_cores(pid, theirs | ours)
        return load.rate, watch.cores(load)

    def engine(self, namespace: str, chunks: list[dict[str, Any]]) -> Load:
        """The engine, as many processes as `auto` gives; counting and checkpoint are not in the load."""
        processes = min(os.cpu_count() or 1, self.shards)
        phase = insert_phase(self.documents, processes, namespace)
        loaded = run_engine(self.folder, job(self.cluster, chunks, phase, namespace))
        return Load(self.documents, loaded["started"], loaded["ended"], loaded["client_cpu_seconds"])

    def imported(self, namespace: str, _chunks: list[dict[str, Any]]) -> Load:
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

    def insert_many(self, namespace: str, _chunks: list[dict[str, Any]]) -> Load:
        """One process: insert_many of documents it holds."""
        held = [[bson.decode(one.raw) for one in batch] for batch in blocks(self.documents, self.shards)]
        return self._insert(namespace, iter(held))

    def _insert(self, namespace: str, batches: Iterator[list[dict[str, Any]]]) -> Load:
        database, _, collection = namespace.partition(".")
        target = self.cluster.client[database][collection]
        began, cpu = time.time(), time.process_time()
        for batch in batches:
            target.insert_many(batch, ordered=False)
        return Load(self.documents, began, time.time(), time.process_time() - cpu)

    def ceiling(self, namespace: str, _chunks: list[dict[str, Any]]) -> Load:
        """Encoded beforehand, straight to the router mongod."""
        series = preencoded(self.documents, self.shards, namespace)
        began, cpu = time.time(), time.process_time()
        uvloop.run(_send(self.router, series, max(2, os.cpu_count() or 1)))
        return Load(self.documents, began, time.time(), time.process_time() - cpu)


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
        with scratch() as folder, small_cluster(folder, shards) as cluster:
            bench = Bench(cluster, folder, documents)
            together, cpu = _together(bench, quick)
            apart, busy = _apart(bench, quick) if two_parts()[1] else ({}, {})
        _rows(found, shards, together, cpu)
        if apart:
            _apart_rows(found, shards, apart, busy)
        for way, series in together.items():
            rates[way][shards] = series
        for way, series in apart.items():
            rates[f"{way}, mongods apart"][shards] = series
    for way, by_shards in rates.items():
        found.growths.append(growth(f"loading, {way}", "shards", "documents/s", by_shards))
    return found


def _together(bench: Bench, quick: bool) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """All ways on the same cores: documents/s of each way; the engine's CPU of a document by role, µs."""
    rates: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    for _ in range(1 if quick else 3):
        for way in ("engine", "mongoimport-like", "insert_many", "ceiling"):
            load, used = bench.measure(way)
            rates[way].append(load.rate)
            if way == "engine":
                for role, seconds in used.items():
                    cpu[role].append(seconds * 1e6)
            say(f"{bench.shards} shards, {way}: {load.rate:,.0f} documents/s")
    return rates, cpu


def _apart(bench: Bench, quick: bool) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The mongods on a core of their own, each way: documents/s; which share of that core is busy meanwhile, %."""
    rates: dict[str, list[float]] = defaultdict(list)
    busy: dict[str, list[float]] = defaultdict(list)
    for number in rounds(1 if quick else 5, 1 if quick else 9, 50):
        for way in WAYS[:: -1 if number % 2 else 1]:
            rate, share = bench.apart(way)
            rates[way].append(rate)
            busy[way].append(share * 100)
            say(f"{bench.shards} shards, {way}, mongods apart: {rate:,.0f} documents/s, {share:.0%} busy")
    return rates, busy


def _rows(found: Findings, shards: int, rates: dict[str, list[float]], cpu: dict[str, list[float]]) -> None:
    used = ", ".join(f"{role} {statistics.median(values):.1f}" for role, values in cpu.items())
    note = f"{shards} shards: CPU of a document, µs, with counting and checkpoint: {used}"
    baselines = {
        "ceiling": "what the mongods take of the same cores",
        "mongoimport-like": "JSON lines, one process",
        "insert_many": "insert_many, one process",
    }
    for way, name in baselines.items():
        what = f"load rate, {shards} shard{'' if shards == 1 else 's'}"
        row_note = note if way == "ceiling" else ""
        found.rows.append(compared(5, what, rates["engine"], name, rates[way], "/s", note=row_note))


def _apart_rows(found: Findings, shards: int, rates: dict[str, list[float]], busy: dict[str, list[float]]) -> None:
    what = f"{shards} shard{'' if shards == 1 else 's'}"
    note = (
        "what the mongods can take is measured by their CPU: the rate in documents/s also depends on what each load "
        "finds in cache and on storage, and on a machine that others use"
    )
    name = f"CPU of the mongods while loading, {what}, on a core of their own"
    ceiling = "while they take what was encoded before"
    target = Target(0.9, most=False)
    found.rows.append(compared(5, name, busy["engine"], ceiling, busy["ceiling"], "%", target, note))
    name = f"load rate, {what}, mongods on a core of their own"
    found.rows.append(compared(5, name, rates["engine"], "what the mongods take of it", rates["ceiling"], "/s"))


if __name__ == "__main__":
    sys.exit(alone(measure))
