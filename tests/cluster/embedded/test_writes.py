"""Writes through the embedded mongos, as pymongo sends them."""

from typing import Any

import pytest
from pymongo import DeleteOne, InsertOne, ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure, WriteError
from pymongo.write_concern import WriteConcern

from tests.cluster.embedded.lab import SmallCluster, wait_until

pytestmark = pytest.mark.cluster


def test_a_batch_of_48_mb_is_inserted(db: Any) -> None:
    # 47 documents of 1,000,000 bytes: one OP_MSG just below the limit of 48,000,000 bytes.
    documents = [{"_id": number, "data": b"x" * 1_000_000} for number in range(47)]
    db.big.insert_many(documents)
    assert db.big.count_documents({}) == 47
    assert sum(len(document["data"]) for document in db.big.find()) == 47_000_000


def test_documents_land_on_the_shard_that_owns_their_key(cluster: SmallCluster, sharded: Any) -> None:
    counts = {}
    for name in ("shard0", "shard1"):
        with cluster.shard(name) as shard:
            counts[name] = shard[sharded.database.name].sharded.count_documents({})
    assert counts == {"shard0": 500, "shard1": 500}


def test_an_unordered_bulk_does_everything_but_the_duplicates(sharded: Any) -> None:
    operations = [InsertOne({"_id": 2000 + n, "k": n}) for n in range(10)]
    operations[3:3] = [InsertOne({"_id": 5, "k": 5}), InsertOne({"_id": 600, "k": 600})]
    with pytest.raises(BulkWriteError) as failed:
        sharded.bulk_write(operations, ordered=False)
    details = failed.value.details
    assert sorted(error["index"] for error in details["writeErrors"]) == [3, 4]
    assert {error["code"] for error in details["writeErrors"]} == {11000}
    assert details["nInserted"] == 10
    assert sharded.count_documents({"_id": {"$gte": 2000}}) == 10


def test_an_ordered_bulk_stops_at_the_first_error(sharded: Any) -> None:
    operations = [
        InsertOne({"_id": 3000, "k": 1}),
        UpdateOne({"k": 700}, {"$set": {"seen": True}}),
        InsertOne({"_id": 600, "k": 600}),
        DeleteOne({"k": 701}),
    ]
    with pytest.raises(BulkWriteError) as failed:
        sharded.bulk_write(operations)
    assert [error["index"] for error in failed.value.details["writeErrors"]] == [2]
    assert sharded.count_documents({"seen": True}) == 1
    assert sharded.count_documents({"k": 701}) == 1


def test_updates_by_shard_key_and_without_it(sharded: Any) -> None:
    assert sharded.update_one({"k": 700}, {"$set": {"a": 1}}).modified_count == 1
    assert sharded.update_many({"even": True}, {"$set": {"b": 1}}).modified_count == 500
    assert sharded.update_one({"_id": 700}, {"$set": {"c": 1}}).modified_count == 1
    with pytest.raises(WriteError, match="must contain an exact match on _id"):
        sharded.update_one({"even": True}, {"$set": {"d": 1}})
    assert sharded.delete_many({"k": {"$gte": 450, "$lt": 550}}).deleted_count == 100


def test_upserts_by_shard_key_and_without_it(sharded: Any) -> None:
    result = sharded.update_one({"_id": 5000, "k": 5000}, {"$set": {"a": 1}}, upsert=True)
    assert result.upserted_id == 5000
    with pytest.raises(WriteError, match="shard key"):
        sharded.update_one({"name": "nobody"}, {"$set": {"a": 1}}, upsert=True)


@pytest.mark.parametrize("key", [{"k": 1}, {"k": "hashed"}], ids=["ranged", "hashed"])
def test_find_and_modify_finds_the_owner_of_a_shard_key(cluster: SmallCluster, db: Any, key: dict[str, Any]) -> None:
    collection = db.modified
    cluster.client.admin.command("shardCollection", collection.full_name, key=key)
    collection.insert_many([{"_id": number, "k": number} for number in range(40)])
    if key == {"k": 1}:
        cluster.client.admin.command("moveRange", collection.full_name, min={"k": 20}, toShard="shard1")
    assert cluster.owners(collection.full_name) == {"shard0", "shard1"}
    for number in range(40):
        found = collection.find_one_and_update({"k": number}, {"$inc": {"n": 1}}, return_document=ReturnDocument.AFTER)
        assert found == {"_id": number, "k": number, "n": 1}
    assert collection.count_documents({"n": 1}) == 40
    created = collection.find_one_and_replace({"k": 77}, {"k": 77}, upsert=True, return_document=ReturnDocument.AFTER)
    assert created["k"] == 77
    assert collection.find_one_and_delete({"$and": [{"k": {"$eq": 3}}, {"n": 1}]})["_id"] == 3
    assert collection.find_one_and_delete({"k": 3}) is None
    for query in ({"k": {"$in": [5]}}, {"$or": [{"k": 5}]}):
        assert collection.find_one_and_update(query, {"$set": {"m": 1}})["_id"] == 5
    with pytest.raises(OperationFailure) as refused:
        collection.find_one_and_update({"n": 1}, {"$set": {"m": 1}})
    assert refused.value.code == 61


def test_a_document_cannot_move_to_another_shard_by_an_update(sharded: Any) -> None:
    for change in (sharded.update_one, sharded.find_one_and_update):
        with pytest.raises(OperationFailure, match="transaction") as refused:
            change({"k": 700}, {"$set": {"k": 1}})
        assert refused.value.code == 20
        assert sharded.count_documents({"k": 700}) == 1


def test_find_and_modify_carries_the_version_of_its_routing(cluster: SmallCluster, sharded: Any) -> None:
    """Without it a shard would change a document of a chunk it has just given away."""
    with cluster.shard("shard1") as shard:
        database = shard[sharded.database.name]
        database.command("profile", 2)
        sharded.find_one_and_update({"k": 700}, {"$set": {"a": 1}})
        database.command("profile", 0)
        (profiled,) = database["system.profile"].find({"command.findAndModify": "sharded"})
        (epoch,) = cluster.client.config.collections.distinct("lastmodEpoch", {"_id": sharded.full_name})
        assert profiled["command"]["shardVersion"]["e"] == epoch


def test_find_and_modify_on_an_unsharded_collection_needs_no_key(db: Any) -> None:
    assert db.plain.find_one_and_update({"a": 1}, {"$set": {"b": 2}}, upsert=True) is None
    assert db.plain.find_one_and_update({"b": 2}, {"$set": {"b": 3}})["a"] == 1


@pytest.mark.parametrize("database", ["config", "admin"])
def test_find_and_modify_on_the_databases_of_the_config_server(cluster: SmallCluster, database: str) -> None:
    collection = cluster.client[database].tried
    collection.insert_one({"_id": 1})
    assert collection.find_one_and_update({"_id": 1}, {"$set": {"a": 2}}) == {"_id": 1}
    assert collection.find_one_and_delete({"a": 2}) == {"_id": 1, "a": 2}
    collection.drop()


def test_unacknowledged_writes_arrive_before_the_next_read(db: Any) -> None:
    careless = db.get_collection("careless", write_concern=WriteConcern(w=0))
    for number in range(50):
        careless.insert_one({"_id": number})
    wait_until(lambda: db.careless.count_documents({}) == 50, 10, "the unacknowledged inserts")


def test_a_write_makes_its_database(cluster: SmallCluster) -> None:
    fresh = cluster.client["made_by_a_write"]
    try:
        fresh.things.insert_one({"_id": 1})
        assert "made_by_a_write" in cluster.client.list_database_names()
        assert fresh.list_collection_names() == ["things"]
    finally:
        cluster.client.drop_database("made_by_a_write")
    assert "made_by_a_write" not in cluster.client.list_database_names()
