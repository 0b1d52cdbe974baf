"""The engines against a sharded cluster: ranges land on their shards, and a shard that dies is an error."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from microshard.workloads.answers import canonical
from tests.cluster.embedded.lab import SmallCluster, small_cluster, wait_until
from tests.cluster.workloads.mongods import Started, execute, load, query, shard_infos
from tests.mot_documents import expected_greenness

pytestmark = pytest.mark.cluster


@dataclass
class Prepared:
    """A cluster whose collection `vosa.mot_results` has a range of `_id` on each of two shards."""

    cluster: SmallCluster
    folder: Path

    def start(self, *phases: dict[str, Any]) -> Started:
        chunks = [
            {"shard": "shard0", "lower": None, "upper": 1 << 32},
            {"shard": "shard1", "lower": 1 << 32, "upper": None},
        ]
        collection = {"namespace": "vosa.mot_results", "shard_key": {"_id": 1}, "unique": False, "chunks": chunks}
        processes = shard_infos(self.cluster.shards, self.cluster.folder, "{name}.pid")
        point = {"id": "p02", "shards": 2, "topology": "sharded", "cores": 2}
        point |= {"processes": processes, "collections": [collection]}
        uri = f"mongodb://127.0.0.1:{self.cluster.mongos.port}/"
        return execute(self.folder, {"connection_string": uri, "point": point, "phases": phases})


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
    code, result, errors = prepared.start(load(documents=10_001), query(iterations=1)).finish()
    assert (code, errors) == (0, "")
    loaded, measured = result["phases"]
    by_shard = loaded["storage"]["by_shard"]
    assert {name: shard["documents"] for name, shard in by_shard.items()} == {"shard0": 5000, "shard1": 5001}
    assert loaded["storage"]["data_bytes"] == sum(shard["data_bytes"] for shard in by_shard.values())
    assert measured["answer"] == canonical(expected_greenness(10_001, 3))


def test_a_shard_that_dies_during_the_load_fails_it(prepared: Prepared) -> None:
    """The last test of the module: it leaves the cluster broken."""
    cluster = prepared.cluster
    cluster.client.vosa.mot_results.delete_many({})
    started = prepared.start(load(documents=20_000_000), query())
    wait_until(lambda: started.progress.exists() and started.progress.read_text(), what="the first progress")
    cluster.processes[2].kill()
    code, result, errors = started.finish()
    assert code == 3
    (phase,) = result["phases"]
    assert phase["error"]["type"] in {"WriteError", "OperationFailure", "AutoReconnect"}
    assert "shard1" in phase["error"]["message"] or str(cluster.shards["shard1"]) in phase["error"]["message"]
    assert errors.startswith("microshard.workloads: load: ")
