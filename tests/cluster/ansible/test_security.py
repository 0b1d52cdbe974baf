"""Logins and encryption: who may speak to the servers, and where the secrets are not."""

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from microshard.run import secrets
from microshard.workloads.connections import SYSTEM, with_login
from tests.cluster.ansible.lab import Lab, MakeLab
from tests.cluster.ansible.points import Layout
from tests.cluster.ansible.test_measure import COUNT
from tests.cluster.embedded.lab import wait_until

pytestmark = pytest.mark.cluster


def secured(lab: MakeLab, topology: dict[str, Any], **security: bool) -> Lab:
    made = lab(Layout(definition={**topology, "security": security}, phases=(COUNT,)))
    secrets.make(made.folder / "secrets", ["127.0.0.1"])
    return made


def client(made: Lab, user: str = "workload", *, endpoint: str = "", **options: Any) -> MongoClient[dict[str, Any]]:
    uri = f"mongodb://{endpoint}/?directConnection=true" if endpoint else made.point.connection_string
    reached = with_login(uri, made.folder / "secrets", user=user, **made.point.security)
    return MongoClient(reached, serverSelectionTimeoutMS=5000, **options)


def test_a_replica_set_with_logins_and_encryption_is_used_and_keeps_its_secrets(lab: MakeLab) -> None:
    topology = {"kind": "replica_set", "replica_set": {"members": [{}, {}, {"arbiter": True}]}}
    made = secured(lab, topology, authorization=True, tls=True)
    made.succeed("deploy")
    with client(made) as used:
        used["vosa"]["things"].insert_many([{"_id": n} for n in range(10)])
        assert used.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"] == [
            {"user": "microshard-workload", "db": "admin"}
        ]
    with client(made, "admin") as used:
        status = used.admin.command("replSetGetStatus")
        assert [m["stateStr"] for m in status["members"]] == ["PRIMARY", "SECONDARY", "ARBITER"]
    assert made.succeed("deploy").changed == 0
    made.succeed("pause")
    made.succeed("resume")

    ca = str(made.folder / "secrets" / "ca.pem")
    stranger: MongoClient[dict[str, Any]] = MongoClient(made.point.connection_string, tls=True, tlsCAFile=ca)
    with stranger, pytest.raises(OperationFailure):
        stranger["vosa"]["things"].find_one()
    plain: MongoClient[dict[str, Any]] = MongoClient(made.point.connection_string, serverSelectionTimeoutMS=300)
    with plain, pytest.raises(ServerSelectionTimeoutError):
        plain.admin.command("ping")

    made.succeed("measure")
    result = json.loads(Path(made.variables["microshard_step"]["results"]).read_text(encoding="utf-8"))
    assert result["phases"][0]["answer"] == [{"documents": {"$numberLong": "10"}}]
    telemetry = Path(made.variables["microshard_step"]["telemetry"], "server.jsonl").read_text(encoding="utf-8")
    assert "error" not in telemetry
    no_secret_is_shown(made)
    made.succeed("teardown")


def no_secret_is_shown(made: Lab) -> None:
    """No file of the run but those in secrets/ has a secret in it, no command line either; those are the owner's."""
    folder = made.folder / "secrets"
    users = json.loads((folder / "users.json").read_text(encoding="utf-8"))
    key = (folder / "keyfile").read_text(encoding="ascii")
    private = (folder / "server.pem").read_text(encoding="ascii").splitlines()[1]
    secrets = [account["password"].encode() for account in users.values()] + [key[:40].encode(), private.encode()]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    for file in made.folder.rglob("*"):
        if file.is_file() and file.parent != folder and "data" not in file.parts:
            content = file.read_bytes()
            assert not any(secret in content for secret in secrets), file
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            assert not any(secret in words for secret in secrets), words


@pytest.mark.long
def test_clients_of_the_embedded_mongos_log_in_at_the_config_servers(lab: MakeLab) -> None:
    collections = [{"namespace": "vosa.things", "shard_key": {"_id": "hashed"}, "presplit": {"policy": "hashed"}}]
    topology = {"kind": "sharded", "shards": {"count": 2}, "collections": collections}
    made = secured(lab, topology, authorization=True, tls=True)
    made.succeed("deploy")
    with client(made) as used:
        used["vosa"]["things"].insert_many([{"_id": n} for n in range(10)])
        assert used["vosa"]["things"].count_documents({}) == 10
        assert used["vosa"]["things"].find_one({"_id": 3}) == {"_id": 3}

        def all_straight(operation: Callable[[int], Any]) -> bool:  # to both shards, where the mongos is __system
            counts = []
            for numbers in (range(0), range(10)):
                assert all(operation(n) for n in numbers)
                counts.append(used.admin.command("serverStatus")["microshard"]["targeting"]["toShards"])
            return bool(counts[1] == counts[0] + 10)

        things = used["vosa"]["things"]
        wait_until(lambda: all_straight(lambda n: things.find_one({"_id": n})), what="reads straight from the shards")
        assert all_straight(lambda n: things.update_one({"_id": n}, {"$set": {"x": n}}).modified_count == 1)
        known = used.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"]
        assert known == [{"user": "microshard-workload", "db": "admin"}]
        assert len(used.admin.command("listShards")["shards"]) == 2

    ca = str(made.folder / "secrets" / "ca.pem")
    for guess in ({}, {"username": "microshard-workload", "password": "guessed"}):
        refuses_everything(made.point.connection_string, {"tls": True, "tlsCAFile": ca, **guess})
    endpoint = next(p.endpoint for p in made.point.processes if p.name == "shard01")
    plain: MongoClient[dict[str, Any]] = MongoClient(f"mongodb://{endpoint}/", serverSelectionTimeoutMS=300)
    with plain, pytest.raises(ServerSelectionTimeoutError):
        plain.admin.command("ping")

    account = {"username": "later", "password": "chosen"}
    with client(made, "admin") as used:  # a user of one's own, of whom a driver asks which mechanisms there are
        used.admin.command("createUser", account["username"], pwd=account["password"], roles=["read"])
    options: dict[str, Any] = {"tls": True, "tlsCAFile": ca, **account}
    later: MongoClient[dict[str, Any]] = MongoClient(made.point.connection_string, **options)
    with later:
        assert later.admin.command("connectionStatus")["authInfo"]["authenticatedUsers"][0]["user"] == "later"
    assert made.succeed("deploy").changed == 0
    made.succeed("pause")
    made.succeed("resume")
    no_secret_is_shown(made)
    made.succeed("teardown")
    assert made.alive() == {}


def refuses_everything(uri: str, options: dict[str, Any]) -> None:
    """Who is not logged in, or says a wrong password, gets nothing."""
    stranger: MongoClient[dict[str, Any]] = MongoClient(uri, **options)
    acts: list[Callable[[], Any]] = [
        lambda: stranger["vosa"]["things"].find_one(),  # noqa: PLW0108 - a name that is looked up when it is called
        lambda: stranger["vosa"]["things"].insert_one({}),
        lambda: stranger.admin.command("listShards"),
        lambda: stranger.admin.command("dropAllUsersFromDatabase"),
    ]
    with stranger:
        for act in acts:
            with pytest.raises(OperationFailure) as refused:
                act()
            assert refused.value.code in {13, 18}  # Unauthorized, AuthenticationFailed


@pytest.mark.long
def test_a_standalone_has_logins_without_encryption(lab: MakeLab) -> None:
    made = secured(lab, {"kind": "standalone"}, authorization=True, tls=False)
    made.succeed("deploy")
    with client(made) as used:
        used["db"]["things"].insert_one({"_id": 1})
    with client(made, SYSTEM) as used:
        assert used.admin.command("getCmdLineOpts")["parsed"]["security"]["keyFile"].endswith("/secrets/keyfile")
    assert made.succeed("deploy").changed == 0


def test_secrets_that_are_gone_are_named(lab: MakeLab) -> None:
    made = secured(lab, {"kind": "standalone"}, authorization=True, tls=True)
    (made.folder / "secrets" / "keyfile").unlink()
    failure = made.play("deploy").failure
    assert "the secrets of the run cannot be read" in failure
    assert "secrets/keyfile" in failure
    assert made.alive() == {}


def test_a_certificate_holds_for_its_addresses_only(tmp_path: Path) -> None:
    secrets.make(tmp_path / "secrets", ["db1.example", "10.0.0.7"])
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"],
        input=(tmp_path / "secrets" / "server.pem").read_text(encoding="ascii"),
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "DNS:db1.example, IP Address:10.0.0.7, DNS:localhost, IP Address:127.0.0.1" in said
    before = (tmp_path / "secrets" / "users.json").read_bytes()
    secrets.make(tmp_path / "secrets", ["db1.example"])
    assert (tmp_path / "secrets" / "users.json").read_bytes() == before
