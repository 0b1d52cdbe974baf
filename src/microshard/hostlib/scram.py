"""The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), for the user `__system`, whose password is the key file."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

MECHANISM = "SCRAM-SHA-256"
SYSTEM_USER, SYSTEM_DATABASE = "__system", "local"


class ScramError(Exception):
    """The server's messages are not those of one that knows the password."""


class Conversation:
    """One login: `first`, then `final` with the server's answer, then `verify` with its last one.

    User names and passwords are ASCII without blanks, `,` and `=` here, so SASLprep is not needed.
    """

    def __init__(self, user: str, password: str, nonce: str | None = None) -> None:
        self._password = password
        self._nonce = nonce or base64.b64encode(os.urandom(18)).decode()
        self._bare = f"n={user},r={self._nonce}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        """The client's first message: no channel binding, no other identity."""
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The client's proof for the server's answer to `first`. ScramError when the answer is not valid."""
        fields = _fields(answer)
        try:
            nonce, salt, rounds = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise ScramError(f"not an answer of {MECHANISM}: {answer!r}") from None
        if not nonce.startswith(self._nonce):
            raise ScramError("the server answers with another nonce")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={nonce}"  # biws: the "n,," of `first` in base 64
        signed = f"{self._bare},{answer.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        """ScramError unless the server knows the password too."""
        if not hmac.compare_digest(base64.b64decode(_fields(answer).get("v", "")), self._server_signature):
            raise ScramError("the server does not know the password itself")


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode().split(",")}
