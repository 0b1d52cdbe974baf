"""Framing, sections and checksums of the wire protocol."""

import struct
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.embedded import wire

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | NAMES | st.binary()
    | st.builds(bson.ObjectId) | st.builds(bson.Regex, NAMES) | st.builds(bson.Timestamp, st.just(3), st.just(4))
    | st.just(bson.MinKey()) | st.just(bson.MaxKey()) | st.builds(bson.Code, NAMES)
    | st.builds(bson.Decimal128, st.just("1.5")) | st.builds(bson.Code, NAMES, st.just({"x": 1})),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=6)
INT32 = st.integers(-(2**31), 2**31 - 1)
PING = wire.build(bson.encode({"ping": 1}))


def _sequence(name: str, documents: list[dict[str, Any]]) -> bytes:
    content = name.encode() + b"\0" + b"".join(map(bson.encode, documents))
    return b"\x01" + struct.pack("<i", len(content) + 4) + content


def _with_int32(message: bytes, offset: int, value: int) -> bytes:
    return message[:offset] + struct.pack("<i", value) + message[offset + 4 :]


class Collected(wire.MessageProtocol):
    """Keeps what a connection received."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[bytes] = []
        self.error: wire.ProtocolError | None = None

    def message_received(self, message: bytes) -> None:
        self.messages.append(message)

    def protocol_failed(self, error: wire.ProtocolError) -> None:
        self.error = error


@given(DOCUMENTS, st.lists(DOCUMENTS, max_size=3), st.integers(0, 2**31 - 1))
def test_a_built_message_is_parsed_to_its_parts(
    body: dict[str, Any], documents: list[dict[str, Any]], number: int
) -> None:
    sequences = _sequence("documents", documents) if documents else b""
    message = wire.build(bson.encode(body), sequences=sequences, request_id=number, flags=wire.MORE_TO_COME)
    assert wire.message_length(message) == len(message)
    assert wire.parse(message) == (number, wire.MORE_TO_COME, bson.encode(body), sequences)


@given(st.lists(DOCUMENTS, min_size=1, max_size=4), st.data())
def test_messages_are_cut_from_any_division_of_the_stream(documents: list[dict[str, Any]], data: st.DataObject) -> None:
    messages = [wire.build(bson.encode(document)) for document in documents]
    stream, collected = b"".join(messages), Collected()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        collected.data_received(stream[:size])
        stream = stream[size:]
    assert collected.messages == messages
    assert collected.error is None


@pytest.mark.parametrize("length", [-1, 0, 15, wire.MAX_MESSAGE + 1, 2**31 - 1])
def test_an_impossible_length_is_refused(length: int) -> None:
    collected = Collected()
    collected.data_received(struct.pack("<i", length) + bytes(20))
    assert collected.error is not None
    assert collected.messages == []


@given(DOCUMENTS, INT32)
def test_a_wrong_section_length_is_refused(body: dict[str, Any], length: int) -> None:
    message = wire.build(bson.encode(body))
    if length != len(message) - 21:
        with pytest.raises(wire.ProtocolError):
            wire.parse(_with_int32(message, 21, length))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_or_parsed_but_never_crash(content: bytes) -> None:
    try:
        parsed = wire.parse(struct.pack("<iiii", 16 + len(content), 1, 0, wire.OP_MSG) + content)
        wire.merge_sequences(wire.decode_raw(parsed.body), parsed.sequences)
        wire.top_level_names(parsed.body)
    except wire.ProtocolError:
        pass


def test_sections_may_come_in_any_order_but_only_one_is_the_body() -> None:
    body, sequence = bson.encode({"insert": "x"}), _sequence("documents", [{"a": 1}])
    head = struct.pack("<iiiii", 0, 1, 0, wire.OP_MSG, 0)
    assert wire.parse(head + sequence + b"\0" + body) == (1, 0, body, sequence)
    for wrong in (sequence, b"\0" + body + b"\0" + body, b"\x02" + body):
        with pytest.raises(wire.ProtocolError):
            wire.parse(head + wrong)


@given(st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_a_document_sequence_becomes_an_array(documents: list[dict[str, Any]]) -> None:
    merged = wire.merge_sequences({"insert": "x"}, _sequence("documents", documents))
    assert bson.encode(merged) == bson.encode({"insert": "x", "documents": documents})


@given(DOCUMENTS, VALUES)
def test_documents_are_examined_and_extended_without_decoding(document: dict[str, Any], value: Any) -> None:
    encoded = bson.encode(document)
    assert wire.top_level_names(encoded) == list(document)
    assert bson.encode(wire.decode_raw(bson.encode({"inside": document}))) == bson.encode({"inside": document})
    document.pop("appended", None)
    element = bson.encode({"appended": value})[4:-1]
    assert wire.append_field(bson.encode(document), element) == bson.encode({**document, "appended": value})


def test_a_wrong_checksum_and_unknown_required_flags_are_refused() -> None:
    assert wire.crc32c(b"123456789") == 0xE3069283  # the check value of the CRC catalogue
    body = bson.encode({"ping": 1})
    message = wire.build(body, flags=wire.CHECKSUM_PRESENT)
    assert wire.parse(message + struct.pack("<I", wire.crc32c(message))).body == body
    with pytest.raises(wire.ProtocolError, match="checksum"):
        wire.parse(message + struct.pack("<I", wire.crc32c(message) ^ 1))
    with pytest.raises(wire.ProtocolError, match="flag"):
        wire.parse(wire.build(body, flags=1 << 3))


@given(st.binary(max_size=80))
def test_a_malformed_legacy_query_is_refused(content: bytes) -> None:
    try:
        _, body = wire.parse_legacy_query(struct.pack("<iiii", 0, 1, 0, wire.OP_QUERY) + content)
    except wire.ProtocolError:
        return
    assert len(body) == struct.unpack_from("<i", body)[0]
