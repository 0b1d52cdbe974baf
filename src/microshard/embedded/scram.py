"""The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677) with nothing but the standard library.

Servers of a run that has a key file know the user `__system`, whose password is the key: so the parts that start and
join them need no user of their own. Names and passwords here are ASCII without blanks, `,` and `=`, so nothing is
prepared.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

MECHANISM = "SCRAM-SHA-256"
SYSTEM_USER, SYSTEM_DATABASE = "__system", "local"
_HEADER = "n,,"  # no channel binding, no other identity


class ScramError(Exception):
    """The server's messages are not those of one that knows the password."""


class Conversation:
    """One authentication: `first`, then `final` with the server's answer, then `verify` with its last one."""

    def __init__(self, user: str, password: str, nonce: str | None = None) -> None:
        self._password = password
        self._nonce = nonce or base64.b64encode(os.urandom(18)).decode()
        self._bare = f"n={user},r={self._nonce}"
        self._signature = b""

    @property
    def first(self) -> bytes:
        """The client's first message."""
        return f"{_HEADER}{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The client's proof. ScramError when the answer is none to `first`."""
        parts = _parts(answer)
        try:
            nonce, salt, rounds = parts["r"], base64.b64decode(parts["s"]), int(parts["i"])
        except (KeyError, ValueError):
            raise ScramError(f"not an answer of {MECHANISM}: {answer!r}") from None
        if not nonce.startswith(self._nonce):
            raise ScramError("the server answers with another nonce")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, rounds)
        client_key = _mac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(_HEADER.encode()).decode()},r={nonce}"
        signed = f"{self._bare},{answer.decode()},{without_proof}".encode()
        signature = _mac(hashlib.sha256(client_key).digest(), signed)
        proof = (int.from_bytes(client_key, "big") ^ int.from_bytes(signature, "big")).to_bytes(len(client_key), "big")
        self._signature = _mac(_mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        """ScramError unless the server knows the password too."""
        given = base64.b64decode(_parts(answer).get("v", ""))
        if not hmac.compare_digest(given, self._signature):
            raise ScramError("the server does not know the password itself")


def _parts(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode().split(",")}


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()
