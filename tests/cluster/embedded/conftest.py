"""One small cluster for all tests of the embedded mongos, and a separate database for each."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.cluster.embedded.lab import SmallCluster, small_cluster

_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    folder: Path = tmp_path_factory.mktemp("embedded")
    with small_cluster(folder) as started:
        # What is moved is moved by the test that says so.
        started.client.admin.command("balancerStop")
        yield started


@pytest.fixture
def db(cluster: SmallCluster) -> Iterator[Database[dict[str, Any]]]:
    database = cluster.client[f"test{next(_numbers)}"]
    cluster.client.admin.command("enableSharding", database.name, primaryShard="shard0")
    yield database
    cluster.client.drop_database(database.name)


@pytest.fixture
def sharded(cluster: SmallCluster, db: Database[dict[str, Any]]) -> Any:
    """A collection sharded by k with 1,000 documents, k below 500 on shard0 and the others on shard1."""
    namespace = f"{db.name}.sharded"
    cluster.client.admin.command("shardCollection", namespace, key={"k": 1})
    cluster.client.admin.command("split", namespace, middle={"k": 500})
    cluster.client.admin.command("moveChunk", namespace, find={"k": 500}, to="shard1")
    db.sharded.insert_many([{"_id": number, "k": number, "even": number % 2 == 0} for number in range(1000)])
    assert cluster.owners(namespace) == {"shard0", "shard1"}
    return db.sharded
