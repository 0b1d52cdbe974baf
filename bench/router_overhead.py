"""What the embedded mongos's front costs by itself: µs of its own CPU per point read.

The same `find` by _id goes, in alternating rounds, through the front and straight to its router mongod (clusterFind).
The front's CPU is read from /proc/PID/stat of the front process alone; the elapsed time of both ways stands beside it.
A JSON line for programs comes first, a line for people last.

    .venv/bin/python bench/router_overhead.py [--rounds 9] [--reads 20000] [--connections 8]
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.embedded.lab import SmallCluster, cpu_seconds, small_cluster

from microshard.embedded import wire
from microshard.embedded.nodes import Pool

DOCUMENTS = 10_000
TARGET = 50.0  # µs of the front's own CPU per point read


def _messages(command: str, reads: int, seed: int) -> list[bytes]:
    """Point reads as a driver sends them."""
    numbers = random.Random(seed)
    return [
        wire.build(wire.encode({
            command: "points", "filter": {"_id": numbers.randrange(DOCUMENTS)}, "limit": 1, "singleBatch": True,
            "$db": "bench",
        }))
        for _ in range(reads)
    ]  # fmt: skip


async def _drive(address: tuple[str, int], messages: list[bytes], connections: int) -> float:
    """Send every message, each connection one at a time; seconds it took. RuntimeError for a wrong answer."""
    pool = Pool(address)
    waiting = iter(messages)

    async def one() -> None:
        for message in waiting:
            reply = await pool.exchange(message)
            if b"\x02p\x00" not in reply:
                raise RuntimeError(f"a point read found nothing: {wire.decode(wire.parse(reply).body)}")

    await asyncio.gather(*(pool.exchange(messages[0]) for _ in range(connections)))
    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    elapsed = time.perf_counter() - started
    pool.close()
    return elapsed


def measure(cluster: SmallCluster, rounds: int, reads: int, connections: int) -> dict[str, Any]:
    """Alternate both ways; figures in µs per point read."""
    status = cluster.client.admin.command("serverStatus")
    listening = Path(f"/proc/{status['microshard']['routerMongod']['pid']}/cmdline").read_bytes().split(b"\0")
    router = ("127.0.0.1", int(listening[listening.index(b"--port") + 1]))
    front = ("127.0.0.1", cluster.mongos.port)
    cluster.client.admin.command("shardCollection", "bench.points", key={"_id": "hashed"}, numInitialChunks=4)
    cluster.client.bench.points.insert_many([{"_id": number, "p": "x" * 100} for number in range(DOCUMENTS)])
    cpu: list[float] = []
    elapsed: dict[str, list[float]] = {"front": [], "straight": []}
    for number in range(rounds + 1):
        before = cpu_seconds(cluster.mongos.pid)
        through = uvloop.run(_drive(front, _messages("find", reads, number), connections))
        used = cpu_seconds(cluster.mongos.pid) - before
        straight = uvloop.run(_drive(router, _messages("clusterFind", reads, number), connections))
        if number == 0:
            continue  # warms caches and connections
        cpu.append(used / reads * 1e6)
        elapsed["front"].append(through / reads * 1e6)
        elapsed["straight"].append(straight / reads * 1e6)
    return {
        "benchmark": "router_overhead",
        "unit": "µs per point read",
        "reads": reads,
        "rounds": rounds,
        "connections": connections,
        "cores": os.cpu_count(),
        "front_cpu": _summary(cpu),
        "elapsed_through_front": _summary(elapsed["front"]),
        "elapsed_straight": _summary(elapsed["straight"]),
        "target_front_cpu": TARGET,
    }


def _summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    # Ranks of the binomial 95 % interval for the median of nine; for other counts close enough to it.
    cut = max(0, round((len(ordered) - 1.96 * len(ordered) ** 0.5) / 2) - 1)
    return {
        "median": round(statistics.median(ordered), 2),
        "low": round(ordered[cut], 2),
        "high": round(ordered[-1 - cut], 2),
    }


def main() -> int:
    """Start a cluster of two shards in a temporary folder, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--reads", type=int, default=20_000, help="point reads a round")
    parser.add_argument("--connections", type=int, default=8)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="microshard-bench-") as folder, small_cluster(Path(folder)) as cluster:
        figures = measure(cluster, chosen.rounds, chosen.reads, chosen.connections)
    print(json.dumps(figures))
    cpu = figures["front_cpu"]
    through, straight = figures["elapsed_through_front"]["median"], figures["elapsed_straight"]["median"]
    print(f"front {cpu['median']} µs of its own CPU per point read [{cpu['low']}, {cpu['high']}], target {TARGET:g}")
    print(f"elapsed {through} µs through it, {straight} µs straight to the router mongod")
    return 0 if cpu["median"] <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
