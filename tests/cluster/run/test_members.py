"""A replica set is brought up for work by hand, and members are added to it."""

from typing import Any

import pytest
from pymongo import MongoClient

from microshard.backends import local_processes
from tests.cluster.run.conftest import Cli


@pytest.mark.long
def test_a_waiting_member_is_added_and_then_another_and_down_removes_both(cli: Cli) -> None:
    experiment = cli.write(
        topology={
            "kind": "replica_set",
            "replica_set": {"members": [{}, {"initial": False}]},
            "storage": {"cache": {"policy": "per_process_mb", "value": 256}},
        },
        matrix={},
    )
    code, output = cli.run("up", experiment)
    assert code == 0, output
    (folder,) = cli.folders
    uri = output.strip().splitlines()[-1]
    client: MongoClient[dict[str, Any]]
    member: MongoClient[dict[str, Any]]
    with MongoClient(uri, serverSelectionTimeoutMS=10_000) as client:
        documents: list[Any] = [{"_id": n} for n in range(1000)]
        client["lab"]["things"].insert_many(documents)
        assert len(client.admin.command("replSetGetConfig")["config"]["members"]) == 1
        for expected in ("rs0-2", "rs0-3"):
            code, output = cli.run("add-member")
            assert code == 0, output
            assert f"{expected} is a member of rs0: " in output
            endpoint = output.strip().rsplit(" ", 1)[1]
            with MongoClient(endpoint, directConnection=True) as member:
                assert member.admin.command("hello")["secondary"]
                assert member.lab.things.count_documents({}) == 1000
        members = client.admin.command("replSetGetConfig")["config"]["members"]
        assert [m["votes"] for m in members] == [1, 1, 1]
    assert len(cli.running()) == 3
    code, output = cli.run("add-member", folder.run_id, "--replica-set", "rs7")
    assert (code, "--replica-set rs7: replica set has rs0" in output) == (2, True), output
    code, output = cli.run("down")
    assert code == 0, output
    assert local_processes.running(folder) == []
    code, output = cli.run("add-member")
    assert (code, "nothing is up" in output) == (4, True), output
