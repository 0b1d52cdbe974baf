"""Reads through the embedded mongos, as pymongo sends them."""

import threading
from typing import Any

import pymongo
import pytest
from bson import Int64
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import CursorNotFound, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import SecondaryPreferred

from tests.cluster.embedded.lab import Client, SmallCluster, wait_until

pytestmark = pytest.mark.cluster


def test_a_cursor_over_many_batches_brings_every_document_once(sharded: Any) -> None:
    assert sorted(document["k"] for document in sharded.find({}, batch_size=7)) == list(range(1000))


def test_a_sort_over_shards_is_in_order(sharded: Any) -> None:
    found = [document["k"] for document in sharded.find({}, batch_size=50).sort("k", -1).skip(10).limit(600)]
    assert found == list(range(989, 389, -1))


def test_a_killed_cursor_is_gone(sharded: Any) -> None:
    cursor = sharded.find({}, batch_size=3)
    next(cursor)
    killed = sharded.database.command("killCursors", sharded.name, cursors=[cursor.cursor_id, Int64(5)])
    assert killed["cursorsKilled"] == [cursor.cursor_id]
    assert killed["cursorsNotFound"] == [5]
    with pytest.raises(CursorNotFound):
        list(cursor)


def test_a_cursor_with_much_left_is_killed_without_reading_it(sharded: Any) -> None:
    # 20 million documents are left when it is killed: more than a last batch could take with it
    cursor = sharded.aggregate([{"$set": {"n": {"$range": [0, 20_000]}}}, {"$unwind": "$n"}], batchSize=3)
    killed = sharded.database.command("killCursors", sharded.name, cursors=[cursor.cursor_id])
    assert killed["cursorsKilled"] == [cursor.cursor_id]
    with pytest.raises(CursorNotFound):
        list(cursor)


def test_read_concern_and_read_preference_are_honoured(sharded: Any) -> None:
    careful = sharded.with_options(read_concern=ReadConcern("majority"), read_preference=SecondaryPreferred())
    assert careful.count_documents({"even": True}) == 500


def test_an_aggregation_gathers_from_all_shards(sharded: Any) -> None:
    pipeline = [{"$group": {"_id": "$even", "n": {"$sum": 1}, "sum": {"$sum": "$k"}}}, {"$sort": {"_id": 1}}]
    assert list(sharded.aggregate(pipeline, allowDiskUse=True)) == [
        {"_id": False, "n": 500, "sum": 250_000},
        {"_id": True, "n": 500, "sum": 249_500},
    ]


def test_out_and_merge_write_what_they_read(sharded: Any) -> None:
    database = sharded.database
    sharded.aggregate([{"$match": {"k": {"$gte": 400}}}, {"$out": "taken"}])
    assert database.taken.count_documents({}) == 600
    sharded.aggregate([{"$set": {"merged": True}}, {"$merge": {"into": "taken", "whenMatched": "replace"}}])
    assert database.taken.count_documents({"merged": True}) == 1000


def test_union_with_and_collection_statistics_reach_every_shard(sharded: Any) -> None:
    sharded.database.other.insert_many([{"k": -1}, {"k": -2}])
    union = list(sharded.aggregate([{"$unionWith": "other"}, {"$count": "n"}]))
    assert union == [{"n": 1002}]
    assert {entry["shard"] for entry in sharded.aggregate([{"$collStats": {"count": {}}}])} == {"shard0", "shard1"}
    assert {entry["shard"] for entry in sharded.aggregate([{"$indexStats": {}}])} == {"shard0", "shard1"}


def test_lookup_from_a_sharded_collection_is_refused_by_the_server_itself(sharded: Any) -> None:
    lookup = {"$lookup": {"from": "sharded", "localField": "k", "foreignField": "k", "as": "same"}}
    with pytest.raises(OperationFailure) as refused:
        list(sharded.aggregate([lookup]))
    assert refused.value.code == 28769


def test_count_counts_with_and_without_a_query(sharded: Any) -> None:
    command = sharded.database.command
    assert sharded.estimated_document_count() == 1000
    assert command("count", "sharded", query={"k": {"$lt": 700}})["n"] == 700
    assert command("count", "sharded", query={"even": True}, skip=100, limit=50)["n"] == 50
    assert command("count", "missing")["n"] == 0


def test_distinct_unwinds_arrays_and_knows_null_from_absent(sharded: Any) -> None:
    values = sharded.database.values
    values.insert_many([{"a": [1, 2, [3]]}, {"a": 2}, {"a": None}, {"a": []}, {}, {"b": [{"c": 1}, {"c": [2, 1]}, 5]}])
    assert values.distinct("a") == [None, 1, 2, [3]]
    assert values.distinct("b.c") == [1, 2]
    values.insert_one({"d": 7})
    assert values.distinct("d") == [7], "documents without the field have no value"
    assert sharded.distinct("even") == [False, True]
    assert len(sharded.distinct("k", {"k": {"$gte": 300}})) == 700


def test_count_and_distinct_read_views(sharded: Any) -> None:
    database = sharded.database
    database.create_collection("view", viewOn="sharded", pipeline=[{"$match": {"k": {"$lt": 5}}}])
    assert database.view.estimated_document_count() == 5
    assert database.view.distinct("k") == [0, 1, 2, 3, 4]
    assert len(list(database.view.find({}, batch_size=2))) == 5


@pytest.mark.parametrize(
    ("query", "stage"), [({"k": 7}, "SINGLE_SHARD"), ({"even": True}, "SHARD_MERGE")], ids=["one shard", "all shards"]
)
@pytest.mark.parametrize("name", ["find", "count", "distinct", "aggregate", "update", "delete", "findAndModify"])
def test_explain_names_the_shards(sharded: Any, name: str, query: dict[str, Any], stage: str) -> None:
    commands: dict[str, dict[str, Any]] = {
        "find": {"filter": query},
        "count": {"query": query},
        "distinct": {"key": "k", "query": query},
        "aggregate": {"pipeline": [{"$match": query}], "cursor": {}},
        "update": {"updates": [{"q": query, "u": {"$set": {"x": 1}}, "multi": True}]},
        "delete": {"deletes": [{"q": query, "limit": 0}]},
        "findAndModify": {"query": query, "remove": True},
    }
    explained = {name: "sharded", **commands[name]}
    if name == "findAndModify" and "k" not in query:
        with pytest.raises(OperationFailure, match="must contain the shard key"):
            sharded.database.command("explain", explained)
        return
    plan = sharded.database.command("explain", explained, verbosity="executionStats")
    shards = {"SINGLE_SHARD": {"shard0"}, "SHARD_MERGE": {"shard0", "shard1"}}[stage]
    if name == "aggregate":
        assert plan["shards"].keys() == shards
    else:
        assert plan["queryPlanner"]["winningPlan"]["stage"] == stage
        assert {shard["shardName"] for shard in plan["queryPlanner"]["winningPlan"]["shards"]} == shards
    assert sharded.count_documents({}) == 1000


def test_the_config_database_is_read_from_the_config_server(cluster: SmallCluster, sharded: Any) -> None:
    config = cluster.client.config
    assert {shard["_id"] for shard in config.shards.find()} == {"shard0", "shard1"}
    assert config.collections.distinct("key", {"_id": sharded.full_name}) == [{"k": 1}]
    assert len(list(config.chunks.aggregate([{"$limit": 2}]))) == 2
    assert "chunks" in config.list_collection_names()
    assert config.shards.count_documents({}) == 2


def test_cursors_that_live_on_a_shard_are_continued_there(sharded: Any) -> None:
    database = sharded.database
    for number in range(5):
        database.create_collection(f"c{number}")
    first = database.command("listCollections", cursor={"batchSize": 2})["cursor"]
    names = [entry["name"] for entry in first["firstBatch"]]
    more = database.command("getMore", first["id"], collection="$cmd.listCollections")["cursor"]
    assert sorted(names + [entry["name"] for entry in more["nextBatch"]]) == [*(f"c{n}" for n in range(5)), "sharded"]
    left = database.command("listCollections", cursor={"batchSize": 2})["cursor"]
    killed = database.command("killCursors", "$cmd.listCollections", cursors=[left["id"]])
    assert killed["cursorsKilled"] == [left["id"]]


def test_a_document_of_16_mib_passes_both_ways(db: Any) -> None:
    big = {"_id": 1, "data": b"x" * (16 * 1024 * 1024 - 64)}
    db.big.insert_one(big)
    assert db.big.find_one() == big


def test_many_connections_get_their_own_answers(cluster: SmallCluster, sharded: Any) -> None:
    wrong: list[Any] = []

    def read(start: int) -> None:
        with cluster.mongos.client() as client:
            collection = client[sharded.database.name].sharded
            for number in range(start, start + 40):
                found = collection.find_one({"k": number})
                if found is None or found["k"] != number:
                    wrong.append((number, found))

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 960, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_client_that_compresses_is_understood(cluster: SmallCluster, sharded: Any) -> None:
    with cluster.mongos.client(compressors="zlib") as client:
        assert client[sharded.database.name].sharded.count_documents({"even": True}) == 500
        raw = client[sharded.database.name].get_collection("sharded").find({}, batch_size=100)
        assert sum(1 for _ in raw) == 1000


def test_types_come_back_as_they_went(db: Any) -> None:
    raw = db.types.with_options(codec_options=CodecOptions(document_class=RawBSONDocument))
    raw.insert_one({"_id": 1, "n": Int64(5)})
    assert isinstance(raw.find_one_and_update({"_id": 1}, {"$set": {"m": Int64(6)}})["n"], Int64)
    assert isinstance(raw.find_one({"_id": 1})["m"], Int64)


def test_a_client_that_leaves_interrupts_its_operation(cluster: SmallCluster, sharded: Any) -> None:
    def sleeping() -> list[Any]:
        return list(cluster.client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.comment": "sleeper"}}]))

    impatient: Client = cluster.mongos.client(socketTimeoutMS=500, retryReads=False)
    sleep = {"$function": {"body": "function() { sleep(50); return 1; }", "args": [], "lang": "js"}}
    with impatient, pytest.raises(pymongo.errors.NetworkTimeout):
        list(impatient[sharded.database.name].sharded.aggregate([{"$set": {"x": sleep}}], comment="sleeper"))
    wait_until(lambda: not sleeping(), 15, "the end of the interrupted operation")
