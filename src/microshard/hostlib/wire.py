"""MongoDB's wire protocol as far as a readiness check needs it: one command and one answer, TLS, authentication.

Database hosts have no driver. BSON types beyond those of a `hello` or a short cursor are skipped by their length.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .errors import HostError
from .files import require_run_folder


@dataclass(frozen=True)
class Access:
    """How the servers of a run are reached: in the open, or with TLS and their key file."""

    ca_file: str = ""  # "" is without TLS
    key: str = ""  # of the key file, the password of the servers' own user; "" does not authenticate

    def __repr__(self) -> str:
        """Without the key: a message or a trace must not carry it."""
        return f"Access(tls={bool(self.ca_file)}, authenticates={bool(self.key)})"

    def tls(self) -> ssl.SSLContext | None:
        """For a socket; None without TLS."""
        return ssl.create_default_context(cafile=self.ca_file) if self.ca_file else None


OPEN = Access()


def access_of_run(run_folder: str, security: dict[str, Any] | None) -> Access:
    """The access that `topology.security` needs, with the files in `secrets/` of the run. HostError without them."""
    security = security or {}
    if not security.get("authorization") and not security.get("tls"):
        return OPEN
    folder = os.path.join(require_run_folder(run_folder), "secrets")
    ca_file = os.path.join(folder, "ca.pem") if security.get("tls") else ""
    try:
        key = ""
        if security.get("authorization"):
            with open(os.path.join(folder, "keyfile"), encoding="ascii") as file:
                key = "".join(file.read().split())
        if ca_file:
            with open(ca_file, encoding="ascii"):
                pass
    except OSError as error:
        raise HostError(f"the secrets of the run cannot be read: {error}") from None
    return Access(ca_file, key)


# Servers of a run with a key file know the user `__system`, whose password is the key: so what starts and joins them
# needs no user. Names and passwords here are ASCII without blanks, `,` and `=`, so no SASLprep.
MECHANISM = "SCRAM-SHA-256"
SYSTEM_USER, SYSTEM_DATABASE = "__system", "local"


class ScramConversation:
    """The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677).

    Send `first`, then `final` of the server's answer, then `verify` its last one. OSError for wrong answers.
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
        """The client's proof for the server's answer to `first`."""
        fields = _fields(answer)
        try:
            nonce, salt, rounds = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise OSError(f"authentication failed: not an answer of {MECHANISM}: {answer!r}") from None
        if not nonce.startswith(self._nonce):
            raise OSError("authentication failed: the server answers with another nonce")
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), salt, rounds)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without_proof = f"c=biws,r={nonce}"  # biws: the "n,," of `first` in base 64
        signed = f"{self._bare},{answer.decode()},{without_proof}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        self._server_signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, answer: bytes) -> None:
        """Check that the server knows the password too."""
        if not hmac.compare_digest(base64.b64decode(_fields(answer).get("v", "")), self._server_signature):
            raise OSError("authentication failed: the server does not know the password itself")


def _fields(message: bytes) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.decode().split(",")}


_OP_MSG = 2013
_HEADER = struct.Struct("<iiii")
# Lengths of the BSON types whose values are not needed; by the BSON specification, version 1.1.
_FIXED = {0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x11: 8, 0x13: 16, 0xFF: 0, 0x7F: 0}


def command(address: str, port: int, document: dict[str, Any], timeout: float, access: Access = OPEN) -> dict[str, Any]:
    """Send a command (with its `$db`) and return the answer; OSError when none comes within `timeout` seconds.

    Where the access has a key the connection authenticates first; OSError with the server's message when it may not.
    """
    with _connection(address, port, timeout, access) as connection:
        if access.key:
            _authenticate(connection, access.key)
        return _exchange(connection, document)


def hello(address: str, port: int, timeout: float = 1.0, access: Access = OPEN) -> dict[str, Any]:
    """The server's answer to `hello`, which needs no authentication; of one before 4.4.2 that to `isMaster`."""
    with _connection(address, port, timeout, access) as connection:
        answer = _exchange(connection, {"hello": 1, "$db": "admin"})
        if answer.get("codeName") == "CommandNotFound":
            answer = _exchange(connection, {"isMaster": 1, "$db": "admin"})
            answer["isWritablePrimary"] = answer.get("ismaster")
        return answer


@contextlib.contextmanager
def _connection(address: str, port: int, timeout: float, access: Access) -> Iterator[socket.socket]:
    with socket.create_connection((address, port), timeout) as plain:
        context = access.tls()
        if context is None:
            yield plain
        else:
            with context.wrap_socket(plain, server_hostname=address) as secured:
                yield secured


def _exchange(connection: socket.socket, document: dict[str, Any]) -> dict[str, Any]:
    body = encode(document)
    connection.sendall(_HEADER.pack(16 + 5 + len(body), 1, 0, _OP_MSG) + b"\0\0\0\0\0" + body)
    length, _, _, opcode = _HEADER.unpack(_read(connection, 16))
    payload = _read(connection, length - 16)
    if opcode != _OP_MSG:
        raise OSError(f"the server does not speak MongoDB's wire protocol (opcode {opcode})")
    return decode(payload[5:])


def _authenticate(connection: socket.socket, key: str) -> None:
    """As the servers' own user, whose password is the key of the key file."""
    conversation = ScramConversation(SYSTEM_USER, key)
    start = {"saslStart": 1, "mechanism": MECHANISM, "payload": conversation.first, "$db": SYSTEM_DATABASE}
    answer = _granted(_exchange(connection, start))
    payload = conversation.final(answer["payload"])
    answer = _granted(_exchange(connection, _continued(answer, payload)))
    conversation.verify(answer["payload"])
    if not answer.get("done"):
        _granted(_exchange(connection, _continued(answer, b"")))


def _continued(answer: dict[str, Any], payload: bytes) -> dict[str, Any]:
    return {"saslContinue": 1, "conversationId": answer["conversationId"], "payload": payload, "$db": SYSTEM_DATABASE}


def _granted(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("ok") != 1:
        raise OSError(f"authentication failed: {answer.get('errmsg')}")
    return answer


def answers(address: str, port: int, access: Access = OPEN) -> bool:
    """Whether a server answers `hello` here."""
    try:
        hello(address, port, access=access)
    except (OSError, ValueError):
        return False
    return True


def error_of(address: str, port: int, document: dict[str, Any], timeout: float = 5.0, access: Access = OPEN) -> str:
    """The server's error message for this command; "" when it succeeds."""
    answer = command(address, port, document, timeout, access)
    return "" if answer.get("ok") == 1 else str(answer.get("errmsg") or answer)


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise OSError("the server closed the connection")
        data += part
    return data


def encode(document: dict[str, Any]) -> bytes:
    """BSON of a document of strings, bytes, 32-bit integers, booleans, lists and documents."""
    elements = b"".join(_element(key, value) for key, value in document.items())
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def _element(key: str, value: Any) -> bytes:
    name = key.encode() + b"\0"
    if isinstance(value, bool):
        return b"\x08" + name + bytes([value])
    if isinstance(value, int):
        return b"\x10" + name + struct.pack("<i", value)
    if isinstance(value, str):
        raw = value.encode() + b"\0"
        return b"\x02" + name + struct.pack("<i", len(raw)) + raw
    if isinstance(value, bytes):
        return b"\x05" + name + struct.pack("<iB", len(value), 0) + value
    if isinstance(value, dict):
        return b"\x03" + name + encode(value)
    if isinstance(value, list):
        return b"\x04" + name + encode({str(i): v for i, v in enumerate(value)})
    raise TypeError(f"{type(value).__name__} is not needed in a readiness check")


def decode(data: bytes) -> dict[str, Any]:
    """A BSON document as a dictionary; lists become lists, values of rare types None."""
    document: dict[str, Any] = {}
    position, end = 4, struct.unpack_from("<i", data)[0] - 1
    while position < end:
        kind = data[position]
        stop = data.index(b"\0", position + 1)
        name = data[position + 1 : stop].decode()
        document[name], position = _value(kind, data, stop + 1)
    return document


def _value(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    """The value of this BSON type at this place, and the place after it."""
    if kind in {0x01, 0x10, 0x12}:
        layout = {0x01: "<d", 0x10: "<i", 0x12: "<q"}[kind]
        return struct.unpack_from(layout, data, at)[0], at + struct.calcsize(layout)
    if kind in _FIXED:
        return (data[at] == 1 if kind == 0x08 else None), at + _FIXED[kind]
    if kind == 0x0B:  # regular expression: two C strings
        return None, data.index(b"\0", data.index(b"\0", at) + 1) + 1
    return _sized_value(kind, data, at)


def _sized_value(kind: int, data: bytes, at: int) -> tuple[Any, int]:
    """The value of a BSON type that begins with its length."""
    (length,) = struct.unpack_from("<i", data, at)
    if kind in {0x02, 0x0D, 0x0E}:
        return data[at + 4 : at + 3 + length].decode(), at + 4 + length
    if kind == 0x03:
        return decode(data[at : at + length]), at + length
    if kind == 0x04:
        return list(decode(data[at : at + length]).values()), at + length
    if kind == 0x05:
        return data[at + 5 : at + 5 + length], at + 5 + length
    raise ValueError(f"BSON type {kind:#04x} is unknown")
