"""Administrative commands through the embedded mongos."""

import threading
from typing import Any

import pytest
from bson import MaxKey, MinKey
from pymongo import UpdateOne
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from tests.cluster.embedded.lab import SmallCluster, direct, small_cluster, wait_until

pytestmark = pytest.mark.cluster


def _chunks(cluster: SmallCluster, namespace: str) -> list[tuple[Any, Any, str]]:
    config = cluster.client.config
    (uuid,) = config.collections.distinct("uuid", {"_id": namespace})
    return [(chunk["min"], chunk["max"], chunk["shard"]) for chunk in config.chunks.find({"uuid": uuid}).sort("min", 1)]


def test_hello_is_a_mongos_without_sessions(cluster: SmallCluster) -> None:
    hello = cluster.client.admin.command("hello")
    assert hello["msg"] == "isdbgrid"
    assert "setName" not in hello
    assert "logicalSessionTimeoutMinutes" not in hello
    assert hello["maxWireVersion"] == 17


def test_it_reports_that_it_is_the_embedded_one(cluster: SmallCluster) -> None:
    admin = cluster.client.admin
    build = admin.command("buildInfo")
    assert build["version"].startswith("6.0.")
    assert build["microshard"]["embeddedMongos"] is True
    assert "embedded mongos" in admin.command("getLog", "startupWarnings")["log"][0]
    status = admin.command("serverStatus")
    assert (status["process"], status["pid"]) == ("mongos", cluster.mongos.pid)
    options = admin.command("getCmdLineOpts")["parsed"]
    assert (options["net"]["port"], options["sharding"]["configDB"]) == (cluster.mongos.port, cluster.config)


@pytest.mark.parametrize("name", ["ping", "isdbgrid", "connectionStatus", "whatsmyuri", "hostInfo", "listCommands",
                                  "connPoolStats", "currentOp", "getDefaultRWConcern", "balancerStatus"])  # fmt: skip
def test_small_commands_answer(cluster: SmallCluster, name: str) -> None:
    assert cluster.client.admin.command(name)["ok"] == 1


def test_operations_are_counted(cluster: SmallCluster, db: Any) -> None:
    before = cluster.client.admin.command("serverStatus")["opcounters"]
    db.counted.insert_one({"_id": 1})
    db.counted.find_one({"_id": 1})
    after = cluster.client.admin.command("serverStatus")["opcounters"]
    assert (after["insert"] - before["insert"], after["query"] - before["query"]) == (1, 1)


def test_shards_are_listed_and_mapped(cluster: SmallCluster) -> None:
    admin = cluster.client.admin
    hosts = {name: f"{name}/127.0.0.1:{port}" for name, port in cluster.shards.items()}
    assert {shard["_id"]: shard["host"] for shard in admin.command("listShards")["shards"]} == hosts
    assert admin.command("getShardMap")["map"] == {**hosts, "config": cluster.config}


@pytest.mark.parametrize(("options", "chunks"), [({"numInitialChunks": 8}, 8), ({}, 4)], ids=["eight", "default"])
def test_a_hashed_collection_is_split_over_all_shards(
    cluster: SmallCluster, db: Any, options: dict[str, Any], chunks: int
) -> None:
    namespace = f"{db.name}.hashed"
    reply = cluster.client.admin.command("shardCollection", namespace, key={"_id": "hashed"}, **options)
    assert reply["collectionsharded"] == namespace
    found = _chunks(cluster, namespace)
    assert len(found) == chunks
    assert {shard for _, _, shard in found} == {"shard0", "shard1"}


def test_a_unique_shard_key_is_unique(cluster: SmallCluster, db: Any) -> None:
    cluster.client.admin.command("shardCollection", f"{db.name}.unique", key={"k": 1}, unique=True)
    assert db.unique.index_information()["k_1"]["unique"] is True


def test_chunks_are_split_moved_and_merged(cluster: SmallCluster, sharded: Any) -> None:
    admin, namespace = cluster.client.admin, sharded.full_name
    admin.command("split", namespace, find={"k": 10})
    (_, median, _), *_ = _chunks(cluster, namespace)
    assert 100 < median["k"] < 400
    admin.command("split", namespace, bounds=[{"k": 500}, {"k": MaxKey()}])
    admin.command("moveChunk", namespace, bounds=[{"k": MinKey()}, median], to="shard1")
    assert _chunks(cluster, namespace)[0][2] == "shard1"
    admin.command("moveRange", namespace, min={"k": 5}, max={"k": 9}, toShard="shard0", secondaryThrottle=False)
    assert ({"k": 5}, {"k": 9}, "shard0") in _chunks(cluster, namespace)
    admin.command("moveChunk", namespace, find={"k": 6}, to=f"shard1/127.0.0.1:{cluster.shards['shard1']}")
    admin.command("mergeChunks", namespace, bounds=[{"k": MinKey()}, median])
    assert _chunks(cluster, namespace)[0] == ({"k": MinKey()}, median, "shard1")
    assert sorted(document["k"] for document in sharded.find()) == list(range(1000))


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ({"moveRange": "", "min": {"x": 1}, "toShard": "shard1"}, 2),
        ({"moveRange": "", "min": {"k": 900}, "max": {"k": 600}, "toShard": "shard1"}, 2),
        ({"moveRange": "", "min": {"k": 100}, "max": {"k": 900}, "toShard": "shard1"}, 2),
        ({"moveRange": "", "toShard": "shard1"}, 72),
        ({"moveRange": "", "min": {"k": 1}, "toShard": "shard1", "secondaryThrottle": True, "writeConcern": {"w": 5}},
         100),
        ({"moveRange": "", "min": {"k": 1}, "toShard": "nowhere"}, 70),
        ({"moveChunk": "", "bounds": [{"k": 1}, {"k": 2}], "to": "shard1"}, 2),
        ({"moveChunk": "", "find": {"even": True}, "to": "shard1"}, 61),
        ({"moveChunk": "", "find": {"k": 1}}, 9),
        ({"split": "", "middle": {"x": 1}}, 61),
        ({"split": "", "middle": {"k": 1}, "find": {"k": 1}}, 72),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)  # fmt: skip
def test_impossible_chunk_commands_fail_at_once(
    cluster: SmallCluster, sharded: Any, command: dict[str, Any], code: int
) -> None:
    name = next(iter(command))
    with pytest.raises(OperationFailure) as refused:
        cluster.client.admin.command({**command, name: sharded.full_name})
    assert refused.value.code == code


def test_zones_are_made_and_unmade(cluster: SmallCluster, sharded: Any) -> None:
    admin, namespace = cluster.client.admin, sharded.full_name
    bounds: dict[str, Any] = {"min": {"k": 0}, "max": {"k": 10}}
    admin.command("addShardToZone", "shard0", zone="cold")
    admin.command("updateZoneKeyRange", namespace, **bounds, zone="cold")
    assert cluster.client.config.tags.distinct("tag", {"ns": namespace}) == ["cold"]
    admin.command("updateZoneKeyRange", namespace, **bounds, zone=None)
    admin.command("removeShardFromZone", "shard0", zone="cold")
    assert cluster.client.config.tags.count_documents({"ns": namespace}) == 0


def test_the_balancer_is_started_and_stopped(cluster: SmallCluster, sharded: Any) -> None:
    admin = cluster.client.admin
    admin.command("balancerStart")
    assert admin.command("balancerStatus")["mode"] == "full"
    admin.command("balancerStop")
    assert admin.command("balancerStatus")["mode"] == "off"
    assert admin.command("balancerCollectionStatus", sharded.full_name)["balancerCompliant"] is True
    admin.command("configureCollectionBalancing", sharded.full_name, chunkSize=4)
    assert cluster.client.config.collections.distinct("maxChunkSizeBytes", {"_id": sharded.full_name}) == [4 << 20]


def test_a_database_moves_to_another_primary(cluster: SmallCluster, db: Any) -> None:
    db.plain.insert_many([{"_id": number} for number in range(10)])
    cluster.client.admin.command("movePrimary", db.name, to="shard1")
    assert cluster.client.config.databases.distinct("primary", {"_id": db.name}) == ["shard1"]
    assert db.plain.count_documents({}) == 10
    assert db.plain.find_one_and_update({"_id": 3}, {"$set": {"a": 1}}) == {"_id": 3}


def test_a_shard_key_is_refined(cluster: SmallCluster, sharded: Any) -> None:
    sharded.create_index([("k", 1), ("even", 1)])
    cluster.client.admin.command("refineCollectionShardKey", sharded.full_name, key={"k": 1, "even": 1})
    assert cluster.client.config.collections.distinct("key", {"_id": sharded.full_name}) == [{"k": 1, "even": 1}]
    assert sharded.find_one({"k": 700}) is not None


def test_a_collection_is_resharded(cluster: SmallCluster, sharded: Any) -> None:
    admin = cluster.client.admin
    for step in ("commit", "abort"):
        with pytest.raises(OperationFailure) as refused:
            admin.command(f"{step}ReshardCollection", sharded.full_name)
        assert refused.value.code == 339, "there is none under way"
    with direct(cluster.config_port) as config:  # five minutes otherwise
        config.admin.command("setParameter", reshardingMinimumOperationDurationMillis=500)
    admin.command("reshardCollection", sharded.full_name, key={"_id": "hashed"}, numInitialChunks=4)
    (key,) = cluster.client.config.collections.distinct("key", {"_id": sharded.full_name})
    assert key == {"_id": "hashed"}
    assert cluster.owners(sharded.full_name) == {"shard0", "shard1"}
    assert sorted(document["k"] for document in sharded.find()) == list(range(1000))


def test_indexes_are_on_every_shard(cluster: SmallCluster, sharded: Any) -> None:
    sharded.create_index("even", name="by_even")
    for name in ("shard0", "shard1"):
        with cluster.shard(name) as shard:
            assert "by_even" in shard[sharded.database.name].sharded.index_information()
    assert sharded.index_information().keys() == {"_id_", "k_1", "by_even"}
    sharded.drop_index("by_even")
    assert sharded.index_information().keys() == {"_id_", "k_1"}
    with pytest.raises(OperationFailure) as missing:
        sharded.drop_index("by_even")
    assert (missing.value.code, missing.value.details["codeName"]) == (27, "IndexNotFound")  # type: ignore[index]


def test_collections_are_created_changed_renamed_and_dropped(cluster: SmallCluster, db: Any) -> None:
    db.create_collection("capped", capped=True, size=100_000)
    assert db.capped.options()["capped"] is True
    db.create_collection("one")
    db.command("collMod", "one", validator={"a": {"$gt": 0}})
    with pytest.raises(OperationFailure):
        db.one.insert_one({"a": 0})
    db.one.rename("two")
    assert sorted(db.list_collection_names()) == ["capped", "two"]
    db.two.drop()
    assert db.list_collection_names() == ["capped"]
    cluster.client.drop_database(db.name)
    assert db.list_collection_names() == []


def test_sizes_are_summed_over_shards(cluster: SmallCluster, sharded: Any) -> None:
    stats = sharded.database.command("collStats", "sharded")
    assert (stats["sharded"], stats["count"], stats["nchunks"]) == (True, 1000, 2)
    assert stats["shards"].keys() == {"shard0", "shard1"}
    assert stats["size"] == sum(shard["size"] for shard in stats["shards"].values())
    assert sharded.database.command("dbStats")["objects"] == 1000
    assert cluster.client.admin.command("dataSize", sharded.full_name)["numObjects"] == 1000
    assert sharded.database.validate_collection("sharded")["valid"] is True
    (entry,) = [entry for entry in cluster.client.list_databases() if entry["name"] == sharded.database.name]
    assert entry["shards"].keys() == {"shard0", "shard1"}


def test_an_operation_is_found_and_killed(cluster: SmallCluster, sharded: Any) -> None:
    sleep = {"$function": {"body": "function() { sleep(100); return 1; }", "args": [], "lang": "js"}}
    ended: list[Exception] = []

    def work() -> None:
        try:
            list(sharded.aggregate([{"$set": {"x": sleep}}], comment="victim"))
        except OperationFailure as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    admin, running = cluster.client.admin, {"ns": sharded.full_name, "microsecs_running": {"$gt": 50_000}}
    for operation in wait_until(lambda: admin.command("currentOp", **running)["inprog"], 10, "the operation"):
        admin.command("killOp", op=operation["opid"])
    thread.join(20)
    assert [error.code for error in ended] == [11601]  # type: ignore[attr-defined]


def test_an_empty_shard_is_removed(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Another cluster: removing a shard drains it, which needs the balancer and time.
    with small_cluster(tmp_path_factory.mktemp("removal")) as other:
        admin = other.client.admin
        wait_until(lambda: admin.command("removeShard", "shard1")["state"] == "completed", 30, "the removal")
        assert [shard["_id"] for shard in admin.command("listShards")["shards"]] == ["shard0"]
        with direct(other.shards["shard1"]) as left:
            assert left.admin.command("ping")["ok"] == 1


def test_the_default_write_concern_is_the_clusters(cluster: SmallCluster, db: Any) -> None:
    admin = cluster.client.admin
    assert admin.command("getDefaultRWConcern")["defaultWriteConcern"]["w"] == "majority"
    db.durable.insert_one({"_id": 1})
    # A majority read sees only what was acknowledged by a majority: with w: 1 the read could come before.
    majority = db.get_collection("durable", read_concern=ReadConcern("majority"))
    for number in range(30):
        db.durable.insert_one({"number": number})
        assert majority.count_documents({"number": number}) == 1
        db.durable.bulk_write([UpdateOne({"number": number}, {"$set": {"changed": True}})])
        assert majority.count_documents({"number": number, "changed": True}) == 1
    db.durable.insert_one({"_id": 2, "writeConcern": {"w": 1}})
    db.command({"insert": "durable", "documents": [{"_id": 3}], "writeConcern": {"w": 1}})
    assert db.durable.count_documents({"_id": {"$in": [1, 2, 3]}}) == 3
