"""How much faster an aggregation over all documents is at as many shards as cores (row 7), against perfect scaling.

Two clusters stand side by side, one with one shard and one with as many as there are cores, with the same documents and
the same cache in all. Both answer the greenness query in turns; the other cluster is idle. The full
form adds half and twice as many shards as cores, for the growth.

What the machine itself allows is measured too: the shards of the larger cluster are queried directly, one after the
other and all at once. They share nothing but the machine, so what is missing to perfect scaling is its memory,
caches and hypervisor, not the cluster.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.cluster.embedded.lab import SmallCluster, small_cluster

from bench.alone import alone, available_mib, rounds, say, scratch
from bench.clusters import NAMESPACE, PIPELINE, load, presplit
from bench.findings import Findings, Row, Target, absolute, growth, in_turns
from microshard.embedded.sharded_cluster import Client

MOST_SHARDS = 16  # of the larger cluster: RAM


def ask(cluster: SmallCluster, pipeline: list[dict[str, Any]]) -> tuple[float, list[Any]]:
    """Seconds of one query, and its answer."""
    database, _, collection = NAMESPACE.partition(".")
    began = time.perf_counter()
    answer = list(cluster.client[database][collection].aggregate(pipeline, maxTimeMS=120_000))
    return time.perf_counter() - began, answer


class Shards:
    """The shards of a cluster, queried directly."""

    def __init__(self, cluster: SmallCluster, pipeline: list[dict[str, Any]], stack: contextlib.ExitStack) -> None:
        self.pipeline = pipeline
        self.clients = [stack.enter_context(cluster.shard(name)) for name in cluster.shards]
        self.together = stack.enter_context(ThreadPoolExecutor(len(self.clients)))
        self.alone: list[float] = []  # s of one shard while the others do nothing

    def per_core(self) -> float:
        """Seconds of all one after the other over those of all at once, by the number of shards: 1 is perfect."""
        began = time.perf_counter()
        for client in self.clients:
            self._ask(client)
        between = time.perf_counter()
        self.alone.append((between - began) / len(self.clients))
        list(self.together.map(self._ask, self.clients))
        return (between - began) / (time.perf_counter() - between) / len(self.clients)

    def _ask(self, client: Client) -> None:
        database, _, collection = NAMESPACE.partition(".")
        list(client[database][collection].aggregate(self.pipeline, maxTimeMS=120_000))


def measure(quick: bool) -> Findings:
    """Row 7; growth with shards."""
    cores = len(os.sched_getaffinity(0))
    most = min(cores, MOST_SHARDS)
    sizes = sorted({1, most} if quick else {1, 2, most, min(2 * most, MOST_SHARDS)})
    documents = 60_000 if quick else 400_000
    found = Findings()
    if most < 2:
        found.missing.append("7: one core has nothing to scale to")
        return found
    if available_mib() < 500 * sum(sizes):
        found.missing.append(f"7: clusters of {sizes} shards need about {500 * sum(sizes):,} MiB of RAM")
        return found
    pipeline = json.loads(PIPELINE.read_text(encoding="utf-8"))
    taken: dict[int, list[float]] = {size: [] for size in sizes}
    with scratch() as folder, contextlib.ExitStack() as stack:
        clusters = {}
        for size in sizes:
            (folder / str(size)).mkdir()
            clusters[size] = stack.enter_context(small_cluster(Path(folder / str(size)), size))
            load(clusters[size], documents, presplit(clusters[size]))
            say(f"{size} shards with {documents:,} documents")
        answers = [ask(cluster, pipeline)[1] for cluster in clusters.values()]  # warms the caches
        if any(answer != answers[0] for answer in answers):
            raise SystemExit("the clusters answer differently")
        shards = Shards(clusters[most], pipeline, stack)
        directly = []
        for _ in rounds(5, 5 if quick else 25, 150):
            for size, cluster in clusters.items():
                taken[size].append(ask(cluster, pipeline)[0])
            directly.append(shards.per_core())
        say(", ".join(f"{size} shards {statistics.median(values):.3f} s" for size, values in taken.items()))
    estimate = in_turns(taken[1], taken[most]).scaled(1 / cores)
    span = estimate.interval
    found.rows.append(
        Row(
            7,
            f"speed-up of an aggregation at {most} shards, per core",
            f"perfect scaling on {cores} cores",
            estimate.value,
            None if span is None else (span.low, span.high),
            Target(0.85, most=False),
            ours=f"{statistics.median(taken[most]):.3g} s",
            other=f"{statistics.median(taken[1]):.3g} s / {cores}",
            repetitions=estimate.n,
        )
    )
    name = f"speed-up of {most} shards that are queried directly, per core"
    alone, whole = statistics.median(shards.alone), statistics.median(taken[1])
    gain = statistics.median(directly)
    note = (
        f"{most} processes that share nothing but the machine get {gain:.2f} of perfect scaling; one of {most} shards, "
        f"queried alone, takes {alone / whole:.2f} of the time of a shard with all documents"
    )
    found.rows.append(absolute(7, name, directly, "×", note=note))
    found.growths.append(growth("query time", "shards", "s", taken))
    return found


if __name__ == "__main__":
    sys.exit(alone(measure))
