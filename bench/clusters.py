"""What benchmarks on small clusters share: the pre-split collection of inspections, and who used the CPU."""

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.embedded.lab import SmallCluster, children, cpu_seconds

from bench.alone import ROOT
from microshard.embedded.sharded_cluster import MongosProcess
from microshard.model.phases.insert import InsertPhase
from microshard.workloads.streams import RANGE_BITS

PIPELINE = ROOT / "experiments" / "pipelines" / "mot_greenness.json"
NAMESPACE = "vosa.mot_results"
SEED = 1
BATCH = 1000  # documents an insert command
LIMIT = 300  # s, for one engine


def log_entries(path: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """The entries of a mongod's log, each with its moment (epoch, s)."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("{"):
                entry = json.loads(line)
                yield datetime.datetime.fromisoformat(entry["t"]["$date"]).timestamp(), entry


def presplit(cluster: SmallCluster, namespace: str = NAMESPACE, compressor: str = "zlib") -> list[dict[str, Any]]:
    """Shard a collection by ranges of `_id`, an empty chunk on each shard; the chunks as a job has them."""
    admin, names = cluster.client.admin, list(cluster.shards)
    database, _, collection = namespace.partition(".")
    admin.command("balancerStop")
    admin.command("enableSharding", database, primaryShard=names[0])
    options = {"wiredTiger": {"configString": f"block_compressor={compressor}"}}
    cluster.client[database].create_collection(collection, storageEngine=options)
    admin.command("shardCollection", namespace, key={"_id": 1})
    chunks = []
    for number, owner in enumerate(names):
        lower, upper = number << RANGE_BITS, (number + 1) << RANGE_BITS
        if number:
            admin.command("split", namespace, middle={"_id": lower})
            admin.command("moveChunk", namespace, find={"_id": lower}, to=owner)
        last = number + 1 == len(names)
        chunks.append({"shard": owner, "lower": lower if number else None, "upper": None if last else upper})
    return chunks


def job(
    cluster: SmallCluster, chunks: list[dict[str, Any]], phase: dict[str, Any], namespace: str = NAMESPACE
) -> dict[str, Any]:
    """A job of one phase, as an engine takes it."""
    processes = [
        {
            "name": name,
            "role": "shard",
            "endpoint": f"127.0.0.1:{port}",
            "db_path": str(cluster.folder / name),
            "pid_path": str(cluster.folder / name / "pid"),
            "host": "local",
        }
        for name, port in cluster.shards.items()
    ]
    return {
        "connection_string": f"mongodb://127.0.0.1:{cluster.mongos.port}/",
        "point": {
            "id": "bench",
            "shards": len(cluster.shards),
            "topology": "sharded",
            "cores": 0,
            "processes": processes,
            "collections": [{"namespace": namespace, "shard_key": {}, "unique": False, "chunks": chunks}],
        },
        "phases": [phase],
    }


def insert_phase(documents: int, processes: int, namespace: str = NAMESPACE) -> dict[str, Any]:
    """A load of inspections."""
    keys = {"documents": documents, "seed": SEED, "batch_size": BATCH, "processes": processes, "namespace": namespace}
    given = InsertPhase.model_validate({"engine": "insert", **keys})
    parameters = given.model_dump(exclude={"engine"})
    return {"name": "load", "kind": "load", "engine": "insert", "parameters": parameters}


def run_engine(folder: Path, work: dict[str, Any]) -> dict[str, Any]:
    """The result of a job's one phase."""
    (folder / "job.json").write_text(json.dumps(work), encoding="utf-8")
    files = ["--job", str(folder / "job.json"), "--out", str(folder / "out.json")]
    subprocess.run([sys.executable, "-m", "microshard.workloads", *files], check=True, timeout=LIMIT)
    phases: list[dict[str, Any]] = json.loads((folder / "out.json").read_text(encoding="utf-8"))["phases"]
    return phases[0]


def load(cluster: SmallCluster, documents: int, chunks: list[dict[str, Any]]) -> None:
    """Load inspections by the engine into the chunks `presplit` has made. SystemExit where a shard got none."""
    done = run_engine(cluster.folder, job(cluster, chunks, insert_phase(documents, min(2, len(chunks)))))
    shares = {name: shard["documents"] for name, shard in done["storage"]["by_shard"].items()}
    if len(shares) != len(chunks) or min(shares.values()) < documents // len(chunks) // 2:
        raise SystemExit(f"the documents are not spread over all shards: {shares}")


def cpu_by_role(cluster: SmallCluster, mongos: MongosProcess | None = None) -> dict[str, float]:
    """CPU seconds used so far: front and router mongod of a mongos (None: the cluster's), shards, config server."""
    config, *shards = cluster.processes
    front = (mongos or cluster.mongos).pid
    return {
        "front": cpu_seconds(front),
        "router mongod": sum(cpu_seconds(child) for child in children(front)),
        "shards": sum(cpu_seconds(process.pid) for process in shards),
        "config": cpu_seconds(config.pid),
    }
