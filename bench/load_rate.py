"""How fast the engine `insert` loads a real cluster, and who uses the CPU meanwhile.

`python bench/load_rate.py [--shards 1 2 4] [--documents 300000] [--processes 2] [--batch 1000] …` starts a config
server, shards and the embedded mongos for each number of shards, loads pre-split inspections, checks the answer of
the greenness query against the generator and prints documents/s and µs of CPU per document by process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cluster.embedded.lab import SmallCluster, children, cpu_seconds, small_cluster

from microshard.engines import mot
from microshard.engines.answer import canonical
from microshard.engines.streams import RANGE_BITS

PIPELINE = Path(__file__).resolve().parents[1] / "experiments" / "pipelines" / "mot_greenness.json"
NAMESPACE = "vosa.mot_results"


@dataclass(frozen=True)
class Load:
    """What is loaded and how."""

    documents: int
    processes: int
    batch: int
    ranges_per_shard: int  # 0: hashed shard key
    write_concern: dict[str, Any]
    compressor: str


def shard(cluster: SmallCluster, load: Load) -> list[dict[str, Any]]:
    """Shard the collection as the planner would, empty chunks in their places; the chunks as a job has them."""
    admin, names = cluster.client.admin, list(cluster.shards)
    database, _, collection = NAMESPACE.partition(".")
    admin.command("enableSharding", database, primaryShard=names[0])
    options = {"wiredTiger": {"configString": f"block_compressor={load.compressor}"}}
    cluster.client[database].create_collection(collection, storageEngine=options)
    if not load.ranges_per_shard:
        admin.command("shardCollection", NAMESPACE, key={"_id": "hashed"})
        return []
    admin.command("shardCollection", NAMESPACE, key={"_id": 1})
    total = load.ranges_per_shard * len(names)
    chunks = []
    for number in range(total):
        lower, upper = number << RANGE_BITS, (number + 1) << RANGE_BITS
        owner = names[number // load.ranges_per_shard]
        if number:
            admin.command("split", NAMESPACE, middle={"_id": lower})
            if owner != names[0]:
                admin.command("moveChunk", NAMESPACE, find={"_id": lower}, to=owner)
        chunks.append(
            {"shard": owner, "lower": lower if number else None, "upper": upper if number + 1 < total else None}
        )
    return chunks


def phases(load: Load) -> list[dict[str, Any]]:
    """A load and three warm queries."""
    insert = {
        "dataset": "mot",
        "namespace": NAMESPACE,
        "documents": load.documents,
        "seed": 1,
        "batch_size": load.batch,
        "processes": load.processes,
        "write_concern": load.write_concern,
        "ordered": False,
    }
    aggregate = {
        "namespace": NAMESPACE,
        "pipeline": json.loads(PIPELINE.read_text(encoding="utf-8")),
        "pipeline_name": "mot_greenness",
        "allow_disk_use": False,
        "iterations": 3,
        "warm_up_iterations": 1,
        "cache": "warm",
        "connections": 1,
    }
    return [
        {"name": "load", "kind": "load", "engine": "insert", "parameters": insert},
        {"name": "measure", "kind": "measure", "engine": "aggregate", "parameters": aggregate},
    ]


def run_engine(folder: Path, job: dict[str, Any]) -> list[dict[str, Any]]:
    """The phases' results of a job."""
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    files = ["--job", str(folder / "job.json"), "--out", str(folder / "out.json")]
    command = [sys.executable, "-m", "microshard.engines", *files]
    subprocess.run(command, check=True)
    found: list[dict[str, Any]] = json.loads((folder / "out.json").read_text(encoding="utf-8"))["phases"]
    return found


def cpu_by_role(cluster: SmallCluster) -> dict[str, float]:
    """CPU seconds used so far."""
    config, *shards = cluster.processes
    return {
        "mongos": cpu_seconds(cluster.mongos.pid),
        "router mongod": sum(cpu_seconds(child) for child in children(cluster.mongos.pid)),
        "shards": sum(cpu_seconds(process.pid) for process in shards),
        "config": cpu_seconds(config.pid),
    }


def measure(shards: int, load: Load) -> None:
    """Load one cluster and print what it took."""
    with tempfile.TemporaryDirectory(prefix="microshard-bench-") as name:
        folder = Path(name)
        with small_cluster(folder, shards) as cluster:
            cluster.client.admin.command("balancerStop")
            chunks = shard(cluster, load)
            roles = [("shard", n, p) for n, p in cluster.shards.items()]
            processes = [
                {
                    "name": n,
                    "role": role,
                    "endpoint": f"127.0.0.1:{port}",
                    "db_path": str(folder / n),
                    "pid_path": str(folder / n / "pid"),
                    "host": "local",
                }
                for role, n, port in roles
            ]
            job: dict[str, Any] = {
                "connection_string": f"mongodb://127.0.0.1:{cluster.mongos.port}/",
                "point": {
                    "id": "bench",
                    "shards": shards,
                    "topology": "sharded",
                    "cores": 0,
                    "processes": processes,
                    "collections": [{"namespace": NAMESPACE, "shard_key": {}, "unique": False, "chunks": chunks}],
                },
            }
            loading, measuring = phases(load)
            before = cpu_by_role(cluster)
            (loaded,) = run_engine(folder, job | {"phases": [loading]})
            used = {role: seconds - before[role] for role, seconds in cpu_by_role(cluster).items()}
            (measured,) = run_engine(folder, job | {"phases": [measuring]})
    expected: list[Any] = mot.expected_greenness(load.documents, 1)
    if measured["answer"] != canonical(expected):
        raise SystemExit(f"{shards} shards: wrong answer")
    used = {"client": loaded["client_cpu_seconds"], **used}
    each = ", ".join(f"{role} {seconds / load.documents * 1e6:.1f}" for role, seconds in used.items())
    total = sum(used.values()) / load.documents * 1e6
    print(
        f"{shards:2d} shards: {loaded['metric']['value']:8,.0f} documents/s; "
        f"query {measured['metric']['value']:.3f} s; "
        f"CPU per document (with counting and checkpoint): {total:.1f} µs: {each}",
        flush=True,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--documents", type=int, default=300_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--ranges-per-shard", type=int, default=1, help="0: hashed shard key")
    parser.add_argument("--write-concern", type=json.loads, default={"w": 1}, help="JSON")
    parser.add_argument("--compressor", default="zlib")
    given = parser.parse_args()
    load = Load(
        given.documents,
        given.processes,
        given.batch,
        given.ranges_per_shard,
        given.write_concern,
        given.compressor,
    )
    for shards in given.shards:
        measure(shards, load)


if __name__ == "__main__":
    main()
