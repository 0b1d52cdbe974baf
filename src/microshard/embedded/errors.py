"""The server's error codes the router itself answers with, and the exception that carries one to a client."""

from collections.abc import Mapping
from typing import Any

# Numbers and names are those of the server's error_codes.yml.
CODE_NAMES: Mapping[int, str] = {
    2: "BadValue",
    6: "HostUnreachable",
    8: "UnknownError",
    9: "FailedToParse",
    13: "Unauthorized",
    20: "IllegalOperation",
    26: "NamespaceNotFound",
    43: "CursorNotFound",
    50: "MaxTimeMSExpired",
    59: "CommandNotFound",
    61: "ShardKeyNotFound",
    70: "ShardNotFound",
    72: "InvalidOptions",
    73: "InvalidNamespace",
    91: "ShutdownInProgress",
    115: "CommandNotSupported",
    118: "NamespaceNotSharded",
    133: "FailedToSatisfyReadPreference",
    166: "CommandNotSupportedOnView",
    263: "OperationNotSupportedInTransaction",
    10334: "BSONObjectTooLarge",
    352: "UnsupportedOpQueryCommand",
}

BAD_VALUE = 2
HOST_UNREACHABLE = 6
FAILED_TO_PARSE = 9
UNAUTHORIZED = 13
ILLEGAL_OPERATION = 20
NAMESPACE_NOT_FOUND = 26
CURSOR_NOT_FOUND = 43
COMMAND_NOT_FOUND = 59
SHARD_KEY_NOT_FOUND = 61
SHARD_NOT_FOUND = 70
INVALID_OPTIONS = 72
INVALID_NAMESPACE = 73
COMMAND_NOT_SUPPORTED = 115
NAMESPACE_NOT_SHARDED = 118
NO_PRIMARY = 133
NOT_SUPPORTED_ON_VIEW = 166
NOT_SUPPORTED_IN_TRANSACTION = 263
UNSUPPORTED_OP_QUERY = 352
TOO_LARGE = 10334
# The server has no named code for this one: change streams on a deployment that cannot serve them.
CHANGE_STREAM_UNSUPPORTED = 40573

# What a mongos answers by reading the routing table again: StaleConfig, StaleEpoch, StaleDbVersion,
# ShardInvalidatedForTargeting.
STALE_ROUTING = frozenset({13388, 150, 249, 304})
# The node is not, or no longer, the primary: NotWritablePrimary, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary,
# InterruptedDueToReplStateChange, PrimarySteppedDown, ShutdownInProgress, InterruptedAtShutdown.
NOT_PRIMARY = frozenset({10107, 13435, 13436, 11602, 189, 91, 11600})

RETRYABLE_WRITE = "RetryableWriteError"
NO_WRITES_PERFORMED = "NoWritesPerformed"


class CommandError(Exception):
    """A command that failed: `code` and `message` as the client sees them, `fields` added to the reply."""

    def __init__(
        self, code: int, message: str, *, labels: tuple[str, ...] = (), fields: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.labels = labels
        self.fields = dict(fields or {})

    def document(self) -> dict[str, Any]:
        """The reply a mongos would send: ok, errmsg, code, codeName, labels."""
        reply: dict[str, Any] = {
            "ok": 0.0,
            "errmsg": self.message,
            "code": self.code,
            "codeName": self.fields.get("codeName") or CODE_NAMES.get(self.code, f"Location{self.code}"),
        }
        if self.labels:
            reply["errorLabels"] = list(self.labels)
        return {**reply, **{key: value for key, value in self.fields.items() if key not in reply}}

    @classmethod
    def from_reply(cls, reply: Mapping[str, Any]) -> "CommandError":
        """The error another server answered, with every field it sent except the cluster's clocks."""
        return cls(
            int(reply.get("code", 8)),
            str(reply.get("errmsg", "the server gave no message")),
            labels=tuple(reply.get("errorLabels", ())),
            fields={key: value for key, value in reply.items() if key not in CLOCK_FIELDS},
        )

    def __str__(self) -> str:
        return f"{CODE_NAMES.get(self.code, 'error')} ({self.code}): {self.message}"


# Fields every replica set member adds to every reply; a reply the router composes does not repeat another node's.
CLOCK_FIELDS = frozenset({"$clusterTime", "operationTime", "$gleStats", "lastCommittedOpTime", "$configTime",
                          "$topologyTime", "electionId", "opTime"})  # fmt: skip
