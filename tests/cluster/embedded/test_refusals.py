"""What the embedded mongos cannot do is refused with the server's codes, before the router mongod sees it."""

import re
import socket
import struct
from typing import Any

import bson
import pytest
from bson import Binary, Int64
from pymongo.errors import ConfigurationError, OperationFailure
from pymongo.server_api import ServerApi

from microshard.embedded import refusals, wire
from tests.cluster.embedded.lab import SmallCluster

pytestmark = pytest.mark.cluster
LSID = {"id": Binary(bytes(16), 4)}


@pytest.fixture(autouse=True)
def same_router(cluster: SmallCluster) -> Any:
    """Whatever a test sends, the router mongod survives it."""
    before = cluster.mongos.router_pid()
    yield
    assert cluster.mongos.router_pid() == before


@pytest.mark.parametrize(("name", "refusal"), refusals.COMMANDS.items())
def test_every_refused_command_is_refused_by_code(cluster: SmallCluster, name: str, refusal: refusals.Refusal) -> None:
    with pytest.raises(OperationFailure, match=re.escape(refusal.message)) as refused:
        cluster.client.admin.command(name)
    assert refused.value.code == refusal.code


@pytest.mark.parametrize(("command", "refusal"), refusals.PARTS.values(), ids=refusals.PARTS)
def test_every_refused_part_is_refused_by_code(cluster: SmallCluster, command: Any, refusal: refusals.Refusal) -> None:
    with pytest.raises(OperationFailure, match=re.escape(refusal.message)) as refused:
        cluster.client.admin.command(command)
    assert refused.value.code == refusal.code


@pytest.mark.parametrize(("field", "refusal"), refusals.FIELDS.items())
def test_every_refused_field_is_refused_by_code(db: Any, field: str, refusal: refusals.Refusal) -> None:
    transaction = {} if field == "lsid" else {"txnNumber": Int64(1)}
    fields = {field: LSID if field == "lsid" else False} | transaction
    for command in ({"insert": "x", "documents": [{"_id": 1}]}, {"find": "x"}, {"ping": 1}):
        with pytest.raises(OperationFailure, match=re.escape(refusal.message)) as refused:
            db.command({**command, **fields})
        assert refused.value.code == refusal.code
    assert db.x.count_documents({}) == 0


def test_a_document_may_contain_the_refused_names(db: Any) -> None:
    document = {"_id": 1, "lsid": LSID, "txnNumber": Int64(7), "writeConcern": {"w": 5},
                "nested": {"lsid": 1, "txnNumber": 2, "autocommit": 3}}  # fmt: skip
    # in the body, where drivers without document sequences put it
    db.command({"insert": "named", "documents": [document]})
    db.named.update_one({"nested.txnNumber": 2, "_id": 1}, {"$set": {"lsid": 2}})
    assert db.named.find_one({"nested.lsid": 1})["lsid"] == 2


def test_drivers_see_no_sessions(cluster: SmallCluster) -> None:
    with cluster.client.start_session() as session, pytest.raises(ConfigurationError, match="not supported"):
        cluster.client.test.x.find_one(session=session)


def test_change_streams_are_refused(cluster: SmallCluster, db: Any) -> None:
    for watched in (db.watched, db, cluster.client):
        with pytest.raises(OperationFailure) as refused:
            watched.watch()
        assert refused.value.code == 40573


def test_an_unknown_command_is_refused(cluster: SmallCluster) -> None:
    with pytest.raises(OperationFailure, match="noSuchCommand") as refused:
        cluster.client.admin.command("noSuchCommand")
    assert refused.value.code == 59


@pytest.mark.parametrize(
    ("command", "code"),
    [({"find": "x"}, 0), ({"ping": 1}, 0), ({"hello": 1}, 0), ({"count": "x"}, 0), ({"create": "made"}, 0),
     ({"aggregate": "x", "pipeline": [{"$match": {"apiStrict": 1}}], "cursor": {}}, 0),
     ({"insert": "x", "documents": [{"apiStrict": True}]}, 0), ({"collMod": "x"}, 0),
     ({"findAndModify": "x", "query": {}, "update": {"$set": {"a": 1}}}, 0),
     ({"distinct": "x", "key": "a"}, 323), ({"isMaster": 1}, 323), ({"serverStatus": 1}, 323), ({"none": 1}, 59),
     ({"find": "x", "tailable": True}, 323), ({"create": "made", "capped": True, "size": 1000}, 323),
     ({"aggregate": "x", "pipeline": [{"$indexStats": {}}], "cursor": {}}, 323),
     ({"aggregate": "x", "pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}}, 323)],
    ids=str,
)  # fmt: skip
def test_a_strict_client_of_the_stable_api(db: Any, command: dict[str, Any], code: int) -> None:
    db.x.insert_one({})
    strict = {**command, "apiVersion": "1", "apiStrict": True, "apiDeprecationErrors": True}
    if not code:
        assert db.command(strict)["ok"] == 1
        return
    with pytest.raises(OperationFailure) as refused:
        db.command(strict)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"apiVersion": "2"}, 322), ({"apiVersion": 1}, 14), ({"apiVersion": "1", "apiStrict": 1}, 14),
     ({"apiStrict": True}, 4886600), ({"apiDeprecationErrors": False}, 4886600)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("command", [{"find": "x"}, {"ping": 1}, {"hello": 1}], ids=str)
def test_api_fields_are_checked(db: Any, command: dict[str, Any], fields: dict[str, Any], code: int) -> None:
    with pytest.raises(OperationFailure) as refused:
        db.command({**command, **fields})
    assert refused.value.code == code


def test_a_strict_cursor_over_many_batches(cluster: SmallCluster, sharded: Any) -> None:
    with cluster.mongos.client(server_api=ServerApi("1", strict=True, deprecation_errors=True)) as client:
        assert sum(1 for _ in client[sharded.database.name].sharded.find({}, batch_size=10)) == 1000


@pytest.mark.parametrize("later", [{}, {"apiVersion": "1"}], ids=str)
def test_a_cursor_goes_on_with_the_api_fields_it_began_with(sharded: Any, later: dict[str, Any]) -> None:
    strict = {"apiVersion": "1", "apiStrict": True}
    found = sharded.database.command({"find": "sharded", "batchSize": 10, **strict})
    more = {"getMore": found["cursor"]["id"], "collection": "sharded"}
    assert len(sharded.database.command({**more, **strict, "batchSize": 10})["cursor"]["nextBatch"]) == 10
    with pytest.raises(OperationFailure, match="API parameter mismatch") as refused:
        sharded.database.command({**more, **later})
    assert refused.value.code == 347


def test_users_log_in_on_a_cluster_without_a_key_file(cluster: SmallCluster, db: Any) -> None:
    db.command("createUser", "anna", pwd=db.name, roles=["readWrite"])
    with cluster.mongos.client(username="anna", password=db.name, authSource=db.name) as client:
        assert client[db.name].command("connectionStatus")["authInfo"]["authenticatedUsers"][0]["user"] == "anna"
    with (
        cluster.mongos.client(username="anna", password=db.name * 2, authSource=db.name) as client,
        pytest.raises(OperationFailure) as refused,
    ):
        client[db.name].x.find_one()
    assert refused.value.code == 18
    db.command("dropUser", "anna")


def test_a_mongos_profiles_nothing(db: Any) -> None:
    assert db.command("profile", -1)["was"] == 0
    with pytest.raises(OperationFailure, match="not permitted"):
        db.command("profile", 2)
    assert len(db.command("getnonce")["nonce"]) == 16


def test_admin_commands_belong_to_the_admin_database(db: Any) -> None:
    with pytest.raises(OperationFailure) as refused:
        db.command("listShards")
    assert refused.value.code == 13


def _exchange(cluster: SmallCluster, message: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", cluster.mongos.port), timeout=10) as connection:
        connection.sendall(message)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            if len(received) >= 4 and len(received) >= struct.unpack_from("<i", received)[0]:
                break
        return received


def test_a_legacy_handshake_is_answered_and_other_legacy_queries_are_not(cluster: SmallCluster) -> None:
    def query(document: dict[str, Any]) -> dict[str, Any]:
        payload = struct.pack("<i", 0) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + bson.encode(document)
        reply = _exchange(cluster, struct.pack("<iiii", 16 + len(payload), 9, 0, wire.OP_QUERY) + payload)
        assert struct.unpack_from("<ii", reply, 8) == (9, wire.OP_REPLY)
        return wire.decode(reply[36:])

    hello = query({"isMaster": 1, "helloOk": True})
    assert (hello["msg"], hello["helloOk"], hello["ismaster"]) == ("isdbgrid", True, True)
    assert query({"find": "x"})["code"] == 352


def test_a_checksum_is_verified(cluster: SmallCluster) -> None:
    plain = wire.build(bson.encode({"ping": 1, "$db": "admin"}), flags=wire.CHECKSUM_PRESENT)
    summed = struct.pack("<i", len(plain) + 4) + plain[4:]
    good = _exchange(cluster, summed + struct.pack("<I", wire.crc32c(summed)))
    assert wire.decode(wire.parse(good).body)["ok"] == 1
    assert _exchange(cluster, summed + struct.pack("<I", wire.crc32c(summed) ^ 1)) == b""


def test_an_exhaust_hello_streams(cluster: SmallCluster) -> None:
    version = cluster.client.admin.command("hello")["topologyVersion"]
    hello = {"hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 50, "$db": "admin"}
    with socket.create_connection(("127.0.0.1", cluster.mongos.port), timeout=10) as connection:
        connection.sendall(wire.build(bson.encode(hello), flags=wire.EXHAUST_ALLOWED))
        stream = connection.makefile("rb")
        answered = None
        for _ in range(3):
            head = stream.read(4)
            whole = head + stream.read(struct.unpack("<i", head)[0] - 4)
            message = wire.parse(whole)
            number, response_to = struct.unpack_from("<ii", whole, 4)
            assert answered in {None, response_to}, "each reply of a stream answers the one before it"
            answered = number
            assert message.flags == wire.MORE_TO_COME
            assert wire.decode(message.body)["isWritablePrimary"] is True


@pytest.mark.parametrize(
    "message",
    [
        struct.pack("<iiii", 48_000_001, 1, 0, wire.OP_MSG),
        struct.pack("<iiii", 15, 1, 0, wire.OP_MSG),
        struct.pack("<iiii", -1, 1, 0, wire.OP_MSG),
        struct.pack("<iiiii", 20, 1, 0, wire.OP_MSG, 0),
        struct.pack("<iiiiiBi", 25, 1, 0, wire.OP_MSG, 0, 0, 99),
        struct.pack("<iiiiiBi", 25, 1, 0, wire.OP_MSG, 0, 2, 5),
        struct.pack("<iiii", 16, 1, 0, 2001),
    ],
    ids=["too long", "too short", "negative", "no section", "section too long", "unknown section", "unknown operation"],
)
def test_what_is_no_message_closes_its_connection_only(cluster: SmallCluster, message: bytes) -> None:
    assert _exchange(cluster, message) == b""
    assert cluster.client.admin.command("ping")["ok"] == 1


def _insert_of(size: int, database: str) -> bytes:
    """An insert whose message has exactly so many bytes."""
    body = bson.encode({"insert": "sized", "$db": database})
    documents = [{"_id": number, "p": b"x" * 10_000_000} for number in range(4)]
    head = len(wire.build(body)) + len(b"\x01") + 4 + len(b"documents\0") + sum(len(bson.encode(d)) for d in documents)
    documents.append({"_id": 4, "p": b""})
    documents[-1]["p"] = b"x" * (size - head - len(bson.encode(documents[-1])))
    content = b"documents\0" + b"".join(map(bson.encode, documents))
    return wire.build(body, sequences=b"\x01" + struct.pack("<i", len(content) + 4) + content)


def test_the_largest_message_passes_and_a_larger_one_is_refused(cluster: SmallCluster, db: Any) -> None:
    limit = cluster.client.admin.command("hello")["maxMessageSizeBytes"]
    largest = _insert_of(limit, db.name)
    assert len(largest) == limit
    assert wire.decode(wire.parse(_exchange(cluster, largest)).body)["n"] == 5
    refused = wire.decode(wire.parse(_exchange(cluster, _insert_of(wire.MAX_MESSAGE, db.name))).body)
    assert (refused["ok"], refused["code"]) == (0, 10334)


def test_a_body_that_lies_about_its_length_hurts_only_its_sender(cluster: SmallCluster, db: Any) -> None:
    message = bytearray(wire.build(bson.encode({"find": "x", "filter": {}, "$db": db.name})))
    struct.pack_into("<i", message, 21, 2_000_000)
    reply = _exchange(cluster, bytes(message))
    assert reply == b"" or wire.decode(wire.parse(reply).body)["ok"] == 0
    assert db.x.count_documents({}) == 0
