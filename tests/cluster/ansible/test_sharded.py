"""A sharded cluster behind the embedded mongos, through real plays."""

from collections import Counter
from typing import Any

import pytest
from pymongo import MongoClient

from tests.cluster.ansible.lab import MakeLab
from tests.cluster.ansible.points import Layout

pytestmark = pytest.mark.cluster


def test_two_shards_are_deployed_as_planned_paused_resumed_and_removed(lab: MakeLab) -> None:
    made = lab(Layout("sharded", shards=2))
    made.succeed("deploy")
    with made.client() as client:
        assert [shard["_id"] for shard in client.admin.command("listShards")["shards"]] == ["shard01", "shard02"]
        assert client.admin.command("balancerStatus")["mode"] == "off"
        assert client["config"]["settings"].distinct("value", {"_id": "chunksize"}) == [32]
        assert chunks(client, "vosa.by_range") == {"shard01": 1, "shard02": 1}
        assert set(chunks(client, "vosa.by_hash")) == {"shard01", "shard02"}
        assert client["config"]["tags"].count_documents({}) == 0
        client["vosa"]["by_range"].insert_many([{"_id": n << 30} for n in range(8)])
    with made.client("shard02") as client:
        assert client["vosa"]["by_range"].count_documents({}) == 4  # keys from 1 << 32 on

    assert made.succeed("deploy").changed == 0

    made.succeed("pause")
    # config server, two shards, mongos and the router mongod below it
    assert list(made.alive().values()) == ["T"] * 5
    made.succeed("resume")
    with made.client() as client:
        assert client["vosa"]["by_range"].count_documents({}) == 8

    made.succeed("teardown")
    assert made.alive() == {}
    assert not made.deployment.exists()


@pytest.mark.long
def test_shards_the_plan_does_not_know_are_refused(lab: MakeLab) -> None:
    made = lab(Layout("sharded", shards=2))
    made.succeed("deploy")
    point = made.variables["microshard_point"]
    point["replica_sets"] = [rs for rs in point["replica_sets"] if rs["name"] != "shard02"]
    played = made.play("deploy")
    assert played.code != 0
    assert "the cluster has shards that are not planned: {'shard02'" in played.failure


def chunks(client: MongoClient[dict[str, Any]], namespace: str) -> Counter[str]:
    [uuid] = client["config"]["collections"].distinct("uuid", {"_id": namespace})
    return Counter(chunk["shard"] for chunk in client["config"]["chunks"].find({"uuid": uuid}))
