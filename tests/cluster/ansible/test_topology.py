"""Members and shards that differ from one another, from the definition to the servers."""

from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.cluster.ansible.lab import MakeLab
from tests.cluster.ansible.points import Layout

pytestmark = pytest.mark.cluster


def test_members_of_every_kind_stand_in_their_places(lab: MakeLab) -> None:
    members = [
        {},
        {"hidden": True, "votes": 0, "block_compressor": "zlib", "index_prefix_compression": False, "cache_mb": 32},
        {"delay_seconds": 3600, "hidden": True, "mongod": {"operationProfiling": {"slowOpThresholdMs": 7}}},
        {"arbiter": True},
        {"initial": False, "block_compressor": "none"},
    ]
    made = lab(Layout(definition={"kind": "replica_set", "replica_set": {"members": members}}))
    made.succeed("deploy")
    with made.client("rs0-1") as client:
        config = client.admin.command("replSetGetConfig")["config"]["members"]
        states = [m["stateStr"] for m in client.admin.command("replSetGetStatus")["members"]]
        client["db"].create_collection("things")
    keys = ("priority", "votes", "hidden", "arbiterOnly", "secondaryDelaySecs")
    assert [[member[key] for key in keys] for member in config] == [
        [1, 1, False, False, 0],
        [0, 0, True, False, 0],
        [0, 1, True, False, 3600],
        [0, 1, False, True, 0],
    ]
    assert states == ["PRIMARY", "SECONDARY", "SECONDARY", "ARBITER"]

    with made.client("rs0-2") as client:
        options = client.admin.command("getCmdLineOpts")["parsed"]["storage"]["wiredTiger"]
        assert options["collectionConfig"]["blockCompressor"] == "zlib"
        assert options["indexConfig"]["prefixCompression"] is False
        cache = client.admin.command("serverStatus")["wiredTiger"]["cache"]
        assert cache["maximum bytes configured"] == 32 << 20
    with made.client("rs0-3") as client:
        assert client.admin.command("getCmdLineOpts")["parsed"]["operationProfiling"]["slowOpThresholdMs"] == 7
    with made.client("rs0-5") as client:  # runs, knows of no set, and waits to be added
        assert "setName" not in client.admin.command("hello")
        with pytest.raises(OperationFailure, match="no replset config"):
            client.admin.command("replSetGetConfig")
    assert made.succeed("deploy").changed == 0

    with made.client("rs0-1") as client:  # as a phase adds it
        added = client.admin.command("replSetGetConfig")["config"]
        endpoint = made.point.processes[4].endpoint
        member = {"_id": 9, "host": endpoint, "priority": 0, "votes": 0}
        command = {"replSetReconfig": {**added, "version": added["version"] + 1, "members": [*config, member]}}
        client.admin.command(command)
    assert made.succeed("deploy").changed == 0
    assert made.point.connection_string.count(",") == 0  # no seed is hidden, an arbiter or not yet there


@pytest.mark.long
def test_zones_window_throttle_and_shards_that_come_later(lab: MakeLab) -> None:
    topology = {
        "kind": "sharded",
        "shards": {"count": 3, "initial": 2},
        "balancer": {
            "chunk_size_mb": 16,
            "window": {"start": "23:00", "stop": "04:30"},
            "secondary_throttle": True,
            "write_concern": {"w": "majority", "wtimeout": 5000},
            "wait_for_delete": True,
        },
        "collections": [
            {"namespace": "vosa.zoned", "shard_key": {"area": 1, "n": 1}, "primary_shard": 2},
            {"namespace": "vosa.split", "shard_key": {"n": 1}, "primary_shard": 2,
             "presplit": {"policy": "split_points", "points": [10, 20, 30]},
             "options": {"storageEngine": {"wiredTiger": {"configString": "block_compressor=zlib"}}}},
            {"namespace": "vosa.hashed", "shard_key": {"n": "hashed"}, "primary_shard": 2,
             "presplit": {"policy": "hashed", "chunks_per_shard": 3}},
            {"namespace": "vosa.whole", "shard_key": {"n": 1}, "primary_shard": 2},
        ],
        "zones": [
            {"name": "south", "shards": [1], "ranges": [{"namespace": "vosa.zoned", "upper": {"area": "M"}}]},
            {"name": "north", "shards": [2], "ranges": [{"namespace": "vosa.zoned", "lower": {"area": "M"}}]},
        ],
    }  # fmt: skip
    made = lab(Layout(definition=topology))
    made.succeed("deploy")
    with made.client() as client:
        shards = {shard["_id"]: shard.get("tags") for shard in client["config"]["shards"].find()}
        assert shards == {"shard01": ["south"], "shard02": ["north"]}
        settings = client["config"]["settings"].find_one({"_id": "balancer"}) or {}
        assert settings["activeWindow"] == {"start": "23:00", "stop": "04:30"}
        assert settings["_secondaryThrottle"] == {"w": "majority", "wtimeout": 5000}
        assert settings["_waitForDelete"] is True
        assert client["config"]["databases"].distinct("primary", {"_id": "vosa"}) == ["shard02"]
        assert [(c["min"]["n"], c["shard"]) for c in chunks(client, "vosa.split")[1:]] == [
            (10, "shard02"), (20, "shard01"), (30, "shard02")]  # fmt: skip
        assert len(chunks(client, "vosa.hashed")) == 6
        assert {c["shard"] for c in chunks(client, "vosa.whole")} == {"shard02"}
        client["vosa"]["zoned"].insert_many([{"area": area, "n": 1} for area in ("AB", "EH", "SW", "ZE")])
    for shard in ("shard01", "shard02"):
        with made.client(shard) as client:
            created = client["vosa"].command("collStats", "split")["wiredTiger"]["creationString"]
            assert "block_compressor=zlib" in created, "every shard has the collection's options"
    with made.client("shard01") as client:
        assert sorted(client["vosa"]["zoned"].distinct("area")) == ["AB", "EH"]
    with made.client("shard03") as client:  # a set of its own, and no shard yet
        assert client.admin.command("hello")["isWritablePrimary"]
    assert made.succeed("deploy").changed == 0

    with made.client() as client:  # as a phase adds it
        client.admin.command("addShard", f"shard03/{made.point.processes[4].endpoint}", name="shard03")
    point = made.variables["microshard_point"]
    point["balancer"].update(window=None, write_concern=None, secondary_throttle=False)
    changed = made.succeed("deploy")
    assert changed.changed == 1
    with made.client() as client:
        settings = client["config"]["settings"].find_one({"_id": "balancer"}) or {}
        assert "activeWindow" not in settings
        assert settings["_secondaryThrottle"] is False
        # A chunk outside of its zone, which a stopped balancer leaves there
        lower, upper = chunks(client, "vosa.zoned")[0]["min"], chunks(client, "vosa.zoned")[0]["max"]
        client.admin.command("moveChunk", "vosa.zoned", bounds=[lower, upper], to="shard03")
    assert "vosa.zoned: chunks of zone south are on ['shard03'], not on ['shard01']" in made.play("deploy").failure


@pytest.mark.long
def test_a_shard_with_an_arbiter_is_added(lab: MakeLab) -> None:
    topology = {"kind": "sharded", "shards": {"members": [{}, {"arbiter": True}]}}
    made = lab(Layout(definition=topology))
    made.succeed("deploy")
    with made.client() as client:
        assert [shard["_id"] for shard in client.admin.command("listShards")["shards"]] == ["shard01"]
    assert made.succeed("deploy").changed == 0


def test_what_a_server_refuses_is_said_in_its_words(lab: MakeLab) -> None:
    made = lab(Layout(definition={"kind": "replica_set", "replica_set": {"members": 1}}))
    made.variables["microshard_point"]["replica_sets"][0]["members"][0]["priority"] = 5000
    failure = made.play("deploy").failure
    assert "replSetInitiate of rs0 on 127.0.0.1:" in failure
    assert "priority" in failure
    assert "(code 93, InvalidReplicaSetConfig)" in failure


def chunks(client: MongoClient[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    [uuid] = client["config"]["collections"].distinct("uuid", {"_id": namespace})
    return list(client["config"]["chunks"].find({"uuid": uuid}).sort("min"))
