"""The engines against a sharded cluster: ranges land on their shards, and a shard that dies is an error."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from microshard.workloads.answers import canonical
from tests.cluster.embedded.lab import SmallCluster, small_cluster
from tests.cluster.engines.mongods import load, query
from tests.mot_documents import expected_greenness

pytestmark = pytest.mark.cluster


@dataclass
class Prepared:
    """A cluster whose collection `vosa.mot_results` has a range of `_id` on each of two shards."""

    cluster: SmallCluster
    folder: Path

    def start(self, *phases: dict[str, Any]) -> tuple[subprocess.Popen[str], Path]:
        job, out = self.folder / "job.json", self.folder / "result.json"
        processes = [
            {
                "name": name,
                "role": "shard",
                "endpoint": f"127.0.0.1:{port}",
                "db_path": str(self.cluster.folder / name),
                "pid_path": str(self.folder / f"{name}.pid"),
                "host": "local",
            }
            for name, port in self.cluster.shards.items()
        ]
        chunks = [
            {"shard": "shard0", "lower": None, "upper": 1 << 32},
            {"shard": "shard1", "lower": 1 << 32, "upper": None},
        ]
        collection = {"namespace": "vosa.mot_results", "shard_key": {"_id": 1}, "unique": False, "chunks": chunks}
        point = {"id": "p02", "shards": 2, "topology": "sharded", "cores": 2}
        point |= {"processes": processes, "collections": [collection]}
        uri = f"mongodb://127.0.0.1:{self.cluster.mongos.port}/"
        job.write_text(json.dumps({"connection_string": uri, "point": point, "phases": phases}))
        command = [sys.executable, "-m", "microshard.workloads", "--job", str(job), "--out", str(out)]
        command += ["--progress", str(self.folder / "progress")]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True), out


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    with small_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        admin = cluster.client.admin
        admin.command("balancerStop")
        admin.command("enableSharding", "vosa", primaryShard="shard0")
        admin.command("shardCollection", "vosa.mot_results", key={"_id": 1})
        admin.command("split", "vosa.mot_results", middle={"_id": 1 << 32})
        admin.command("moveChunk", "vosa.mot_results", find={"_id": 1 << 32}, to="shard1")
        yield Prepared(cluster, tmp_path_factory.mktemp("job"))


def test_each_range_is_on_its_shard_and_the_answer_is_that_of_one_server(prepared: Prepared) -> None:
    process, out = prepared.start(load(documents=10_001), query(iterations=1))
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    loaded, measured = json.loads(out.read_text())["phases"]
    by_shard = loaded["storage"]["by_shard"]
    assert {name: shard["documents"] for name, shard in by_shard.items()} == {"shard0": 5000, "shard1": 5001}
    assert loaded["storage"]["data_bytes"] == sum(shard["data_bytes"] for shard in by_shard.values())
    assert measured["answer"] == canonical(expected_greenness(10_001, 3))


def test_a_shard_that_dies_during_the_load_fails_it(prepared: Prepared) -> None:
    """The last test of the module: it leaves the cluster broken."""
    cluster = prepared.cluster
    cluster.client.vosa.mot_results.delete_many({})
    (prepared.folder / "progress").unlink()
    process, out = prepared.start(load(documents=20_000_000), query())
    deadline = time.monotonic() + 60
    while not (prepared.folder / "progress").exists() or not (prepared.folder / "progress").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    cluster.processes[2].kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3
    (phase,) = json.loads(out.read_text())["phases"]
    assert phase["error"]["type"] in {"WriteError", "OperationFailure", "AutoReconnect"}
    assert "shard1" in phase["error"]["message"] or str(cluster.shards["shard1"]) in phase["error"]["message"]
    assert errors.startswith("microshard.workloads: load: ")
