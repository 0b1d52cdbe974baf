"""The small codec against the driver's own."""

import datetime
import re

import bson
import pytest

from microshard.hostlib import wire


def test_what_is_sent_is_what_the_driver_would_send() -> None:
    document = {
        "payload": b"a\0b",
        "aggregate": "shards",
        "pipeline": [{"$match": {"x": True}}],
        "cursor": {},
        "n": 3,
        "$db": "config",
    }
    assert wire.encode(document) == bson.encode(document)


def test_what_is_received_is_read_and_rare_types_are_stepped_over() -> None:
    answer = {
        "first": 1,
        "long": 1 << 40,
        "double": 1.5,
        "text": "grün",
        "yes": True,
        "no": False,
        "nothing": None,
        "list": [1, {"a": "b"}],
        "bytes": b"xyz",
        "rare": [
            bson.ObjectId(),
            bson.Timestamp(1, 2),
            datetime.datetime.now(datetime.UTC),
            bson.Regex("a+", re.IGNORECASE),
            bson.MinKey(),
            bson.MaxKey(),
            bson.Decimal128("1.5"),
        ],
        "last": "still in step",
    }
    assert wire.decode(bson.encode(answer)) == answer | {"rare": [None] * 7}


def test_a_type_no_server_sends_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="0x42"):
        wire.decode(b"\x0c\0\0\0\x42a\0\0\0\0\0\0")
