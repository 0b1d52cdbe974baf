"""How much faster an aggregation over all documents is at as many shards as cores (row 7), beside perfect scaling.

Two clusters stand side by side, one with one shard and one with as many as there are cores, with the same documents and
the same cache in all. Both answer the greenness query in turns; the cluster that is not asked does nothing. The full
form adds half and twice as many shards as cores, for the growth.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tests.cluster.embedded.lab import SmallCluster, small_cluster

from bench.alone import alone, available_mib, rounds, say, scratch
from bench.clusters import NAMESPACE, PIPELINE, load, presplit
from bench.findings import Findings, Row, Target, growth
from microshard.stats import ratio_estimate

MOST_SHARDS = 16  # of the larger cluster: RAM


def ask(cluster: SmallCluster, pipeline: list[dict[str, Any]]) -> tuple[float, list[Any]]:
    """Seconds of one query, and its answer."""
    database, _, collection = NAMESPACE.partition(".")
    began = time.perf_counter()
    answer = list(cluster.client[database][collection].aggregate(pipeline, maxTimeMS=120_000))
    return time.perf_counter() - began, answer


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
        for _ in rounds(3, 5 if quick else 15, 45):
            for size, cluster in clusters.items():
                taken[size].append(ask(cluster, pipeline)[0])
        say(", ".join(f"{size} shards {statistics.median(values):.3f} s" for size, values in taken.items()))
    estimate = ratio_estimate(taken[1], taken[most]).scaled(1 / cores)
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
    found.growths.append(growth("query time", "shards", "s", taken))
    return found


if __name__ == "__main__":
    sys.exit(alone(measure))
