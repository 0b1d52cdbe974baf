"""Reads through the embedded mongos, as pymongo sends them."""

import datetime
import os
import signal
import threading
from typing import Any

import pymongo
import pytest
from bson import Int64
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import CursorType
from pymongo.errors import CursorNotFound, OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import SecondaryPreferred

from microshard.embedded.sharded_cluster import Client
from tests.cluster.embedded.lab import SmallCluster, wait_until

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


@pytest.mark.parametrize("restarted", [False, True], ids=["at first", "router mongod restarted"])
def test_lookups_from_a_sharded_collection(cluster: SmallCluster, sharded: Any, restarted: bool) -> None:
    if restarted:
        os.kill(router := cluster.mongos.router_pid(), signal.SIGKILL)
        wait_until(lambda: cluster.mongos.router_pid() not in {0, router}, what="another router mongod")
        wait_until(sharded.find_one, what="the other router mongod")
    joined = {"$lookup": {"from": "sharded", "localField": "k", "foreignField": "k", "as": "same"}}
    walked = {"$graphLookup": {"from": "sharded", "startWith": "$k", "connectFromField": "k", "connectToField": "_id",
                               "as": "same"}}  # fmt: skip
    for stage in (joined, walked):
        found = list(sharded.aggregate([{"$match": {"k": {"$gte": 490, "$lt": 510}}}, stage]))
        assert [len(document["same"]) for document in found] == [1] * 20


def test_the_router_mongod_follows_the_clusters_compatibility_version(cluster: SmallCluster, sharded: Any) -> None:
    lookup = {"$lookup": {"from": "sharded", "localField": "k", "foreignField": "k", "as": "same"}}
    admin = cluster.client.admin
    admin.command("setFeatureCompatibilityVersion", "5.0")
    try:
        with pytest.raises(OperationFailure) as refused:
            list(sharded.aggregate([lookup]))
        assert refused.value.code == 28769
    finally:
        admin.command("setFeatureCompatibilityVersion", "6.0")
    assert len(list(sharded.aggregate([lookup]))) == 1000


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
    if name != "aggregate":
        assert next(iter(plan["command"])) == name
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


def test_a_tailable_cursor_waits_for_what_comes_and_hurts_no_other(cluster: SmallCluster, sharded: Any) -> None:
    database, router = sharded.database, cluster.mongos.router_pid()
    database.create_collection("log", capped=True, size=100_000)
    database.log.insert_one({"_id": 0})
    other = sharded.find({}, batch_size=10)
    next(other)
    for kind in (CursorType.TAILABLE, CursorType.TAILABLE_AWAIT):
        cursor = database.log.find({}, cursor_type=kind)
        if kind == CursorType.TAILABLE_AWAIT:
            cursor = cursor.max_await_time_ms(500)
        assert next(cursor)["_id"] == 0
        with pytest.raises(StopIteration):
            next(cursor)
        database.log.insert_one({"_id": kind})
        assert next(cursor)["_id"] == kind
        killed = database.command("killCursors", "log", cursors=[cursor.cursor_id])
        assert killed["cursorsKilled"] == [cursor.cursor_id]
        database.log.drop()
        database.create_collection("log", capped=True, size=100_000)
        database.log.insert_one({"_id": 0})
    with pytest.raises(OperationFailure) as refused:
        next(sharded.find({}, cursor_type=CursorType.TAILABLE))
    assert refused.value.code == 2
    assert list(database.nothing.find({}, cursor_type=CursorType.TAILABLE)) == []
    assert len(list(other)) == 999
    assert cluster.mongos.router_pid() == router


@pytest.mark.parametrize(
    ("query", "ids"),
    [({"$where": "this.k < 3"}, [0, 1, 2]), ({"$or": [{"k": 999}, {"$where": "this.k == 0"}]}, [0, 999]),
     ({"at": {"$near": [0, 2.2], "$maxDistance": 1.5}}, [1, 2, 3]), ({"$where": "false"}, [])],
    ids=["$where", "nested $where", "$near", "nothing"],
)  # fmt: skip
def test_count_and_distinct_know_operators_aggregations_lack(
    sharded: Any, query: dict[str, Any], ids: list[int]
) -> None:
    database = sharded.database
    sharded.update_many({}, [{"$set": {"at": [0, "$k"], "pair": ["$even", "$k"]}}])
    sharded.create_index({"at": "2d"}, min=0, max=2000)
    assert database.command("count", "sharded", query=query)["n"] == len(ids)
    assert database.command("count", "sharded", query=query, skip=1, limit=1)["n"] == min(max(len(ids) - 1, 0), 1)
    assert sharded.distinct("_id", query) == ids
    assert sharded.distinct("pair.1", query) == ids
    assert sharded.distinct("pair.0") == [False, True]
    assert database.missing.distinct("pair.0") == []


@pytest.mark.parametrize(
    ("command", "code"),
    [({"count": "sharded", "nonsense": 1}, 40415), ({"distinct": "sharded", "key": "k", "nonsense": 1}, 40415),
     ({"distinct": "sharded", "key": "long"}, 17217)],
    ids=["count", "distinct", "values above 16 MB"],
)  # fmt: skip
def test_count_and_distinct_are_as_strict_as_the_servers(sharded: Any, command: dict[str, Any], code: int) -> None:
    sharded.update_many({"k": {"$lt": 20}}, [{"$set": {"long": {"$concat": ["x" * 1_000_000, {"$toString": "$k"}]}}}])
    with pytest.raises(OperationFailure) as refused:
        sharded.database.command(command)
    assert refused.value.code == code


def test_map_reduce_over_shards(sharded: Any) -> None:
    database = sharded.database
    functions = {
        "map": "function() { emit(this.k % 3, 1) }",
        "reduce": "function(k, values) { return Array.sum(values) }",
    }
    command = {"mapReduce": "sharded", **functions, "query": {"k": {"$lt": 9}}, "out": {"inline": 1}}
    assert sorted(database.command(command)["results"], key=str) == [{"_id": float(n), "value": 3.0} for n in range(3)]
    finalized = command | {"finalize": "function(k, value) { return -value }"}
    assert database.command(finalized)["results"][0]["value"] == -3.0
    for out, value in (("made", 3.0), ({"merge": "made"}, 3.0), ({"reduce": "made"}, 6.0), ({"replace": "made"}, 3.0)):
        assert database.command(command | {"out": out})["result"] == "made"
        assert {document["value"] for document in database.made.find()} == {value}
    with pytest.raises(OperationFailure, match="scope"):
        database.command(command | {"scope": {"x": 1}})


def test_a_sharded_time_series(cluster: SmallCluster, db: Any) -> None:
    series, buckets = db.series, f"{db.name}.system.buckets.series"
    cluster.client.admin.command(
        "shardCollection", series.full_name, key={"m": 1}, timeseries={"timeField": "t", "metaField": "m"}
    )
    cluster.client.admin.command("split", buckets, middle={"meta": 5})
    cluster.client.admin.command("moveChunk", buckets, find={"meta": 5}, to="shard1")
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    series.insert_many([{"t": day, "m": number % 10, "v": number} for number in range(100)])
    assert series.create_index("v") == "v_1"
    assert series.index_information().keys() == {"meta_1", "v_1"}
    sizes = db.command("collStats", "series")
    assert (sizes["sharded"], sizes["ns"], set(sizes["shards"])) == (True, series.full_name, {"shard0", "shard1"})
    assert series.delete_many({"m": {"$in": [3, 7]}}).deleted_count == 20
    series.drop_index("v_1")
    assert series.count_documents({}) == db.command("count", "series")["n"] == 80
    assert series.distinct("m") == [0, 1, 2, 4, 5, 6, 8, 9]
    series.drop()
    assert set(db.list_collection_names()) <= {"system.views"}


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


@pytest.mark.parametrize("name", ["snappy", "zstd", "zlib"])
def test_a_client_that_compresses_is_understood(cluster: SmallCluster, sharded: Any, name: str) -> None:
    with cluster.mongos.client(compressors=name) as client:
        assert client.admin.command("hello", compression=["lz4", name])["compression"] == [name]
        before = client.admin.command("serverStatus")["network"]["compression"][name]
        assert client[sharded.database.name].sharded.count_documents({"even": True}) == 500
        raw = client[sharded.database.name].get_collection("sharded").find({}, batch_size=100)
        assert sum(1 for _ in raw) == 1000
        after = client.admin.command("serverStatus")["network"]["compression"][name]
        replies = {key: after["compressor"][key] - before["compressor"][key] for key in before["compressor"]}
        assert replies["bytesIn"] > 2 * replies["bytesOut"] > 0
        assert after["decompressor"]["bytesOut"] > before["decompressor"]["bytesOut"]


def test_only_a_shard_decides_whether_an_orphan_is_filtered(cluster: SmallCluster, db: Any) -> None:
    """A shard filters no orphans from what fixes the whole shard key, though a collation sends it to every shard."""
    namespace = f"{db.name}.names"
    cluster.client.admin.command("shardCollection", namespace, key={"k": 1})
    cluster.client.admin.command("split", namespace, middle={"k": "m"})
    cluster.client.admin.command("moveChunk", namespace, find={"k": "z"}, to="shard1")
    db.names.insert_one({"k": "x"})
    collection = cluster.client.config.collections.find_one({"_id": namespace})
    assert collection is not None
    newest = cluster.client.config.chunks.find({"uuid": collection["uuid"], "shard": "shard0"}).sort("lastmod", -1)[0]
    version = {"e": collection["lastmodEpoch"], "t": collection["timestamp"], "v": newest["lastmod"]}
    with cluster.shard("shard0") as shard:
        shard[db.name].names.insert_one({"k": "x", "orphan": True})
        english, one, range_ = {"locale": "en"}, {"k": "x"}, {"k": {"$gte": "x"}}
        for query, collation, found in ((one, english, 1), (range_, english, 0), (range_, None, 0), (one, None, 1)):
            command = {"find": "names", "filter": query, "shardVersion": version}
            command |= {"collation": collation} if collation else {}
            assert len(shard[db.name].command(command)["cursor"]["firstBatch"]) == found, command
            # with a collation both shards get it, else the one that has no orphan
            routed = 1 + found if collation else 1
            assert len(list(db.names.find(query, collation=collation))) == routed, command


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
