"""What the embedded mongos cannot do is refused with the server's codes, before the router mongod sees it."""

import socket
import struct
from typing import Any

import bson
import pytest
from bson import Binary, Int64
from pymongo.errors import ConfigurationError, OperationFailure

from microshard.embedded import wire
from tests.cluster.embedded.lab import SmallCluster

pytestmark = pytest.mark.cluster
LSID = {"id": Binary(bytes(16), 4)}


@pytest.fixture(autouse=True)
def same_router(cluster: SmallCluster) -> Any:
    """Whatever a test sends, the router mongod survives it."""
    before = cluster.mongos.router_pid()
    yield
    assert cluster.mongos.router_pid() == before


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"lsid": LSID, "txnNumber": Int64(1)}, 20, "Transaction numbers are only allowed"),
        ({"lsid": LSID, "txnNumber": Int64(1), "autocommit": False, "startTransaction": True}, 263, "no transactions"),
        ({"lsid": LSID}, 20, "no sessions"),
    ],
    ids=["retryable write", "transaction", "session"],
)
def test_sessions_and_transactions_are_refused(db: Any, fields: dict[str, Any], code: int, says: str) -> None:
    with pytest.raises(OperationFailure, match=says) as refused:
        db.command({"insert": "x", "documents": [{"_id": 1}], **fields})
    assert refused.value.code == code
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


@pytest.mark.parametrize(
    ("name", "code"),
    [("startSession", 20), ("commitTransaction", 263), ("mapReduce", 115), ("replSetGetStatus", 115),
     ("saslStart", 115), ("createUser", 115), ("top", 115), ("noSuchCommand", 59)],
)  # fmt: skip
def test_other_commands_are_refused_by_code(cluster: SmallCluster, name: str, code: int) -> None:
    with pytest.raises(OperationFailure) as refused:
        cluster.client.admin.command(name)
    assert refused.value.code == code


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
