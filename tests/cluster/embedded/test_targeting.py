"""Point operations go straight to their shard, and nobody can see a difference."""

import datetime
import random
from collections.abc import Callable, Iterator
from typing import Any

import bson
import pytest
from bson import Int64, MaxKey, MinKey
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure
from pymongo.read_concern import ReadConcern

from microshard.embedded.point_operation import ordered
from microshard.embedded.sharded_cluster import MongosProcess
from tests.cluster.embedded.lab import SmallCluster, another_mongos, direct, wait_until
from tests.faults.two_ways import scalar

pytestmark = pytest.mark.cluster
SEED = datetime.date.today().toordinal()


def _counted(mongos: MongosProcess) -> dict[str, int]:
    with mongos.client() as client:
        counted: dict[str, int] = client.admin.command("serverStatus")["microshard"]["targeting"]
        return counted


@pytest.fixture(scope="module")
def straight(cluster: SmallCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongosProcess]:
    """A mongos of the cluster that sends point operations straight to their shard."""
    folder = tmp_path_factory.mktemp("straight")
    with another_mongos(cluster, folder, "--setParameter", "microshardTargeting=true") as started:
        yield started


@pytest.fixture
def targeted(straight: MongosProcess, sharded: Any) -> Iterator[Any]:
    """The collection `sharded` through that mongos, once it has read its routing table, which the first read begins."""
    with straight.client() as client:
        collection = client[sharded.database.name][sharded.name]

        def is_straight() -> bool:
            before = _counted(straight)["toShards"]
            for key in (1, 700):  # one on each shard
                collection.find_one({"k": key})
            return _counted(straight)["toShards"] == before + 2

        wait_until(is_straight, 10, "a read straight from the shard")
        yield collection


def test_values_hash_and_sort_as_the_server_does_it(cluster: SmallCluster) -> None:
    chance = random.Random(SEED)
    values = [scalar(chance) for _ in range(500)]
    with direct(cluster.config_port) as client:
        stages = [
            {"$documents": [{"n": n, "v": {"$literal": value}} for n, value in enumerate(values)]},
            {"$sort": {"v": 1, "n": 1}},
            {"$project": {"n": 1, "hash": {"$toHashedIndexKey": "$v"}}},
        ]
        found = client.admin.command("aggregate", 1, pipeline=stages, cursor={"batchSize": 1000})["cursor"][
            "firstBatch"
        ]
    places = {n: ordered(bson.encode({"k": value}), 4, 1) for n, value in enumerate(values)}
    assert None not in places.values()
    assert [entry["n"] for entry in found] == sorted(places, key=lambda n: (places[n], n))
    hashes = {n: ordered(bson.encode({"k": value}), 4, 1, hashed=True) for n, value in enumerate(values)}
    different = [values[entry["n"]] for entry in found if hashes[entry["n"]] not in (None, (10, entry["hash"]))]
    assert different == []


def test_reads_and_writes_of_one_key_go_straight_to_the_shard(straight: MongosProcess, targeted: Any) -> None:
    before = _counted(straight)
    assert targeted.find_one({"k": 7})["_id"] == 7
    assert targeted.find_one({"k": Int64(700)})["_id"] == 700
    targeted.insert_one({"_id": 5000, "k": 5000})
    with pytest.raises(DuplicateKeyError):
        targeted.insert_one({"_id": 5000, "k": 5000})
    assert targeted.update_one({"k": 5000}, {"$set": {"x": 1}}).modified_count == 1
    assert targeted.delete_one({"k": 5000, "x": 1}).deleted_count == 1
    after = _counted(straight)
    assert (after["toShards"] - before["toShards"], after["toRouterMongod"] - before["toRouterMongod"]) == (6, 0)
    with pytest.raises((OperationFailure, BulkWriteError), match="shard key"):
        targeted.update_one({"k": 7}, {"$set": {"k": 700}})
    assert list(targeted.find({"k": {"$in": [6, 7, 8]}}).sort("k")) != []
    assert _counted(straight)["toRouterMongod"] == after["toRouterMongod"] + 1


def _on_shard(cluster: SmallCluster, collection: Any, command: str, operation: Callable[[], Any]) -> list[str]:
    """What the log of shard0 says of the commands of this name that the operation has sent there."""
    log = cluster.folder / "shard0" / "mongod.log"
    with cluster.shard("shard0") as shard:
        shard.admin.command("profile", 0, slowms=-1)  # logs every operation
        before = log.stat().st_size
        try:
            operation()
        finally:
            shard.admin.command("profile", 0, slowms=100)
    lines = log.read_bytes()[before:].decode().splitlines()
    sent, database = f'"command":{{"{command}":"{collection.name}"', f'"$db":"{collection.database.name}"'
    found = [line for line in lines if sent in line and database in line]
    assert found
    return found


def test_a_write_straight_to_a_shard_has_the_default_write_concern(cluster: SmallCluster, targeted: Any) -> None:
    logged = _on_shard(cluster, targeted, "update", lambda: targeted.update_one({"k": 3}, {"$set": {"x": 1}}))
    assert all('"shardVersion"' in line and '"writeConcern":{"w":"majority"' in line for line in logged)


@pytest.fixture
def majority(straight: MongosProcess) -> Iterator[None]:
    """The default read concern of the cluster is majority."""
    with straight.client() as client:
        client.admin.command("setDefaultRWConcern", 1, defaultReadConcern={"level": "majority"})
        yield
        client.admin.command("setDefaultRWConcern", 1, defaultReadConcern={"level": "local"})


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("find", lambda things: things.find_one({"k": 3})),
        ("find", lambda things: things.find_one({"k": {"$lt": 3}})),
        ("aggregate", lambda things: list(things.aggregate([{"$match": {"k": 3}}]))),
        ("aggregate", lambda things: things.count_documents({"k": 3})),
        ("aggregate", lambda things: things.database.command("count", things.name, query={"k": 3})),
        ("count", lambda things: things.database.command("count", things.name, query={"$where": "this.k == 3"})),
        ("aggregate", lambda things: things.distinct("k")),
    ],
    ids=["straight", "find", "aggregate", "countDocuments", "count", "count where", "distinct"],
)
@pytest.mark.usefixtures("majority")
def test_a_read_has_the_default_read_concern(cluster: SmallCluster, targeted: Any, command: str, read: Any) -> None:
    logged = _on_shard(cluster, targeted, command, lambda: read(targeted))
    assert all('"readConcern":{"level":"majority"' in line for line in logged)


@pytest.mark.usefixtures("majority")
def test_a_read_keeps_its_own_read_concern(cluster: SmallCluster, targeted: Any) -> None:
    own = targeted.with_options(read_concern=ReadConcern("local"))
    for read in (lambda: own.find_one({"k": 3}), lambda: own.find_one({"k": {"$lt": 3}})):
        assert all('"readConcern":{"level":"local"' in line for line in _on_shard(cluster, own, "find", read))


@pytest.mark.usefixtures("majority")
def test_stages_that_read_local_only_do_without_it(targeted: Any) -> None:
    assert len(list(targeted.aggregate([{"$collStats": {"count": {}}}]))) == 2
    assert list(targeted.aggregate([{"$unionWith": {"coll": "other", "pipeline": [{"$indexStats": {}}]}}])) != []
    assert targeted.estimated_document_count() == 1000
    assert list(targeted.aggregate([{"$match": {"k": 3}}, {"$out": "copy"}])) == []


def test_a_cursor_on_a_shard_is_continued_there(targeted: Any) -> None:
    targeted.insert_many([{"_id": 9000 + n, "k": 9000} for n in range(300)])
    assert len(list(targeted.find({"k": 9000}, batch_size=40))) == 300
    cursor = targeted.find({"k": 9000}, batch_size=40)
    next(cursor)
    killed = targeted.database.command("killCursors", targeted.name, cursors=[cursor.cursor_id])
    assert killed["cursorsKilled"] == [cursor.cursor_id]


def test_a_table_changed_by_somebody_else_is_read_anew(
    cluster: SmallCluster, straight: MongosProcess, targeted: Any
) -> None:
    before = _counted(straight)
    admin, namespace = cluster.client.admin, targeted.full_name  # of another mongos
    admin.command("moveRange", namespace, min={"k": 500}, max={"k": MaxKey()}, toShard="shard0")
    assert targeted.update_one({"k": 600}, {"$inc": {"n": 1}}).modified_count == 1
    admin.command("moveRange", namespace, min={"k": MinKey()}, max={"k": 500}, toShard="shard1")
    assert [targeted.find_one({"k": k})["_id"] for k in (3, 600)] == [3, 600]
    assert _counted(straight)["staleVersions"] > before["staleVersions"]
    cluster.client[targeted.database.name].drop_collection(targeted.name)
    assert targeted.find_one({"k": 600}) is None
    targeted.insert_one({"k": 600})  # which creates an unsharded one
    assert targeted.find_one({"k": 600}, {"_id": 0}) == {"k": 600}
