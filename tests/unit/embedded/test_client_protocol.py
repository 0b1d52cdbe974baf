"""What the short way does to a message's bytes."""

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.embedded import wire
from microshard.embedded.client_protocol import with_concern
from microshard.embedded.cluster_clock import ClusterClock
from microshard.embedded.errors import without_clocks
from microshard.embedded.server import forwarded_commands
from microshard.embedded.shard_operation import election

CONCERN = bson.encode({"writeConcern": {"w": "majority"}})[4:-1]


def _with_concern(command: dict[str, Any], sequences: bytes = b"") -> wire.Message:
    message = wire.build(bson.encode(command), sequences=sequences)
    body_end = len(message) - len(sequences)
    return wire.parse(with_concern(message, body_end, message.index(0, 25), CONCERN))


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 9)), st.binary(max_size=30))
def test_a_write_without_a_concern_gets_the_default(document: dict[str, int], padding: bytes) -> None:
    sequence = b"\x01" + (4 + len(b"documents\0") + len(bson.encode({"p": padding}))).to_bytes(4, "little")
    sequence += b"documents\0" + bson.encode({"p": padding})
    command = {"insert": "x", "documents": [document]}
    parsed = _with_concern(command, sequence)
    assert bson.decode(parsed.body) == {**command, "writeConcern": {"w": "majority"}}
    assert parsed.sequences == sequence


def test_a_write_keeps_its_own_concern() -> None:
    command = {"insert": "x", "writeConcern": {"w": 1}}
    assert bson.decode(_with_concern(command).body) == command


def test_a_document_that_has_such_a_field_does_not_count() -> None:
    command = {"insert": "x", "documents": [{"writeConcern": {"w": 1}}]}
    assert bson.decode(_with_concern(command).body)["writeConcern"] == {"w": "majority"}


@pytest.mark.parametrize("name", ["find", "insert", "update", "delete", "aggregate", "getMore"])
def test_a_renamed_command_grows_by_what_is_announced(name: str) -> None:
    value: Any = bson.Int64(5) if name == "getMore" else "collection"
    body = bson.encode({name: value})
    forwarded = forwarded_commands()[body[4 : body.index(0, 5)]]
    assert forwarded.cluster_name[1:].decode() == "cluster" + name[0].upper() + name[1:]
    assert forwarded.growth == len("cluster")
    assert len(forwarded.cluster_name) == 1 + len(name) + forwarded.growth


def test_aggregations_without_a_collection_are_forwarded_too() -> None:
    for value in (1, bson.Int64(1), 1.0):
        body = bson.encode({"aggregate": value})
        assert forwarded_commands()[body[4 : body.index(0, 5)]].name == "aggregate"


_CLOCKS = {
    "lastCommittedOpTime": bson.Timestamp(3, 1),
    "$clusterTime": {"clusterTime": bson.Timestamp(9, 2), "signature": {"hash": bytes(20), "keyId": bson.Int64(0)}},
    "operationTime": bson.Timestamp(9, 2),
}
_ELECTION = {"electionId": bson.ObjectId(), "opTime": {"ts": bson.Timestamp(5, 1), "t": 1}}


@pytest.mark.parametrize(("reply", "kept"), [
    ({"n": 1, **_ELECTION, "nModified": 1, "ok": 1.0}, {"n": 1, "nModified": 1, "ok": 1.0}),
    ({"n": 1, "electionId": bson.ObjectId(), "ok": 1.0}, {"n": 1, "ok": 1.0}),
    ({"n": 1, "ok": 1.0}, {"n": 1, "ok": 1.0}),
    ({"ok": 0.0, "errmsg": "no"}, {"ok": 0.0, "errmsg": "no"}),
])  # fmt: skip
@pytest.mark.parametrize("clocks", [{}, _CLOCKS])
def test_a_shards_reply_to_a_write_becomes_a_mongoss(
    reply: dict[str, Any], kept: dict[str, Any], clocks: dict[str, Any]
) -> None:
    shards = wire.build(bson.encode({**reply, **clocks}), response_to=7)
    message = ClusterClock().relay(shards, election(shards))
    assert wire.message_length(message) == len(message)
    assert without_clocks(wire.decode(wire.parse(message).body)) == kept
