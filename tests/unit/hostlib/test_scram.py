"""SCRAM-SHA-256 against the exchange of RFC 7677, section 3."""

import pytest

from microshard.hostlib.scram import Conversation, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
ANSWER = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_exchange_of_the_rfc() -> None:
    conversation = Conversation("user", "pencil", NONCE)
    assert conversation.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert conversation.final(ANSWER).endswith(PROOF)
    conversation.verify(LAST)


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    conversation = Conversation("user", "pencil", NONCE)
    with pytest.raises(ScramError, match="another nonce"):
        conversation.final(ANSWER.replace(b"r=rO", b"r=Or"))
    conversation.final(ANSWER)
    with pytest.raises(ScramError, match="does not know the password"):
        conversation.verify(LAST.replace(b"v=6", b"v=7"))
