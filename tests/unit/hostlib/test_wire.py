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


# The exchange of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_exchange_of_the_rfc() -> None:
    conversation = wire.ScramConversation("user", "pencil", NONCE)
    assert conversation.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert conversation.final(ANSWER).endswith(PROOF)
    conversation.verify(LAST)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    conversation = wire.ScramConversation("user", "pencil", NONCE)
    with pytest.raises(OSError, match="another nonce"):
        conversation.final(ANSWER.replace(b"r=rO", b"r=Or"))
    conversation.final(ANSWER)
    with pytest.raises(OSError, match="does not know the password"):
        conversation.verify(LAST.replace(b"v=6", b"v=7"))
