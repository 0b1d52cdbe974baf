"""Compressed messages: what is opened, what is refused, what a client may use."""

import struct
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.embedded import compression, wire
from microshard.embedded.compression import COMPRESSORS, Compression
from tests.unit.embedded.test_wire import DOCUMENTS, INT32

PING = wire.build(bson.encode({"ping": 1}))
NUMBERS = {"snappy": 1, "zlib": 2, "zstd": 3}  # of the protocol
numbers = pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)


def _with_size(message: bytes, size: int) -> bytes:
    return message[:20] + struct.pack("<i", size) + message[24:]


def test_every_compressor_has_its_number() -> None:
    assert {name: codec.number for name, codec in COMPRESSORS.items()} == NUMBERS


@numbers
@given(DOCUMENTS)
def test_a_compressed_message_is_decompressed_unchanged(number: int, document: dict[str, Any]) -> None:
    message, compressors = wire.build(bson.encode(document)), Compression(None)
    assert compressors.decompress(compressors.compress(message, number)) == (message, number)


@numbers
@given(INT32 | st.integers(0, 100))
def test_a_compressed_message_with_a_wrong_size_is_refused(number: int, size: int) -> None:
    compressors = Compression(None)
    if size != len(PING) - 16:
        with pytest.raises(wire.ProtocolError):
            compressors.decompress(_with_size(compressors.compress(PING, number), size))


@numbers
@given(st.binary(max_size=60))
def test_bytes_that_no_compressor_wrote_are_refused(number: int, data: bytes) -> None:
    head = struct.pack("<iiiiiiB", 25 + len(data), 1, 0, wire.OP_COMPRESSED, wire.OP_MSG, 1 << 20, number)
    with pytest.raises(wire.ProtocolError):
        Compression(None).decompress(head + data)


@pytest.mark.parametrize(
    ("allowed", "offered", "used"),
    [
        (None, ["zstd", "zlib", "snappy"], ["zstd", "zlib", "snappy"]),
        ("zlib,snappy", ["lz4", "snappy", "zstd", "zlib"], ["snappy", "zlib"]),
        ("disabled", ["zlib"], []),
        (None, None, []),
        (None, "zlib", []),
        (None, [1, {}], []),
    ],
)
def test_a_client_may_use_what_it_offers_and_the_option_allows(allowed: str | None, offered: Any, used: Any) -> None:
    assert list(Compression(allowed).negotiate(offered)) == used


def test_a_compressor_that_is_not_allowed_is_refused() -> None:
    message = Compression(None).compress(PING, NUMBERS["snappy"])
    with pytest.raises(wire.ProtocolError, match="negotiated"):
        Compression("zlib").decompress(message)


def test_a_message_that_is_only_wrapped_is_answered_plainly() -> None:
    head = struct.pack("<iiiiiiB", len(PING) + 9, *struct.unpack_from("<ii", PING, 4), wire.OP_COMPRESSED,
                       wire.OP_MSG, len(PING) - 16, compression.NOOP)  # fmt: skip
    message, number = Compression(None).decompress(head + PING[16:])
    assert message == PING
    assert Compression(None).compress(PING, number) == PING
