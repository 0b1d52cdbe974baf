"""The server's error codes, the exception that carries one to a client, and reading replies for errors."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from microshard.embedded import wire


class ErrorCode(IntEnum):
    """Error codes by the names of the server's error_codes.yml."""

    BadValue = 2
    HostUnreachable = 6
    UnknownError = 8
    FailedToParse = 9
    Unauthorized = 13
    TypeMismatch = 14
    ProtocolError = 17
    IllegalOperation = 20
    NamespaceNotFound = 26
    CursorNotFound = 43
    CommandNotFound = 59
    ShardKeyNotFound = 61
    ShardNotFound = 70
    InvalidOptions = 72
    InvalidNamespace = 73
    ShutdownInProgress = 91
    CommandNotSupported = 115
    NamespaceNotSharded = 118
    FailedToSatisfyReadPreference = 133
    StaleEpoch = 150
    CommandNotSupportedOnView = 166
    CommandOnShardedViewNotSupportedOnMongod = 169
    PrimarySteppedDown = 189
    StaleDbVersion = 249
    OperationNotSupportedInTransaction = 263
    ShardInvalidatedForTargeting = 304
    APIVersionError = 322
    APIStrictError = 323
    UnsupportedOpQueryCommand = 352
    NotWritablePrimary = 10107
    BSONObjectTooLarge = 10334
    InterruptedAtShutdown = 11600
    InterruptedDueToReplStateChange = 11602
    StaleConfig = 13388
    NotPrimaryNoSecondaryOk = 13435
    NotPrimaryOrSecondary = 13436


# The server has no named codes for these.
CHANGE_STREAM_UNSUPPORTED = 40573
DATABASE_FIELD_MISSING = 40571
UNKNOWN_FIELD = 40415
DISTINCT_TOO_BIG = 17217

# A mongos answers these by reading the routing table again.
STALE_ROUTING = frozenset({ErrorCode.StaleConfig, ErrorCode.StaleEpoch, ErrorCode.StaleDbVersion,
                           ErrorCode.ShardInvalidatedForTargeting})  # fmt: skip
NOT_PRIMARY = frozenset({
    ErrorCode.NotWritablePrimary, ErrorCode.NotPrimaryNoSecondaryOk, ErrorCode.NotPrimaryOrSecondary,
    ErrorCode.InterruptedDueToReplStateChange, ErrorCode.PrimarySteppedDown, ErrorCode.ShutdownInProgress,
    ErrorCode.InterruptedAtShutdown,
})  # fmt: skip
# Of these the server says that it has not begun with the operation.
NOT_EXECUTED = frozenset({ErrorCode.NotWritablePrimary, ErrorCode.NotPrimaryNoSecondaryOk,
                          ErrorCode.NotPrimaryOrSecondary})  # fmt: skip
# Fields every replica set member adds to every reply; a reply the router composes does not repeat another node's.
CLOCK_FIELDS = frozenset({"$clusterTime", "operationTime", "$gleStats", "lastCommittedOpTime", "$configTime",
                          "$topologyTime", "electionId", "opTime"})  # fmt: skip
# A failed reply of the server begins with "ok": 0.0 (element type 1, name, eight zero bytes).
NOT_OK = b"\x01ok\x00" + bytes(8)


def _name(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"Location{code}"


class CommandError(Exception):
    """A command that failed: `code` and `message` as the client sees them, `fields` added to the reply."""

    def __init__(
        self, code: int, message: str, *, labels: tuple[str, ...] = (), fields: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message
        self.labels = labels
        self.fields = dict(fields or {})

    def document(self) -> dict[str, Any]:
        """The reply a mongos would send: ok, errmsg, code, codeName, labels."""
        reply: dict[str, Any] = {
            "ok": 0.0,
            "errmsg": self.message,
            "code": self.code,
            "codeName": self.fields.get("codeName") or _name(self.code),
        }
        if self.labels:
            reply["errorLabels"] = list(self.labels)
        return {**reply, **{key: value for key, value in self.fields.items() if key not in reply}}

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> "CommandError":
        """The error another server answered, with every field it sent except the cluster's clocks."""
        return cls(
            int(reply.get("code", ErrorCode.UnknownError)),
            str(reply.get("errmsg", "the server gave no message")),
            labels=tuple(reply.get("errorLabels", ())),
            fields=without_clocks(reply),
        )

    def __str__(self) -> str:
        return f"{_name(self.code)} ({self.code}): {self.message}"


def without_clocks(reply: Mapping[str, Any]) -> dict[str, Any]:
    """A reply without the fields that only describe the node that sent it."""
    return {key: value for key, value in reply.items() if key not in CLOCK_FIELDS}


def require_ok(replies: Mapping[str, Mapping[str, Any]]) -> None:
    """CommandError of the first reply that is not ok."""
    for reply in replies.values():
        if not reply.get("ok"):
            raise CommandError.from_reply(reply)


def failed(body: bytes) -> bool:
    """Whether a reply says ok: 0. Its first element tells; only a reply in another order is decoded."""
    if body.startswith(NOT_OK, 4):
        return True
    return NOT_OK in body and not wire.decode(body).get("ok")


def failed_with(body: bytes, codes: frozenset[ErrorCode]) -> bool:
    """Whether a reply is an error with one of these codes."""
    return failed(body) and wire.decode(body).get("code") in codes


def checked(body: bytes) -> dict[str, Any]:
    """A reply as a document. CommandError when it is not ok."""
    reply = wire.decode(body)
    if not reply.get("ok"):
        raise CommandError.from_reply(reply)
    return without_clocks(reply)
