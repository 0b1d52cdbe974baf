"""What the embedded mongos refuses before it is forwarded, each with the server's error code and a reason.

One table: the handlers answer from it, and `python -m microshard.embedded.refusals` writes docs/mongos.md from it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from microshard.embedded.errors import CHANGE_STREAM_UNSUPPORTED, CommandError, ErrorCode
from microshard.embedded.options import OPTIONS


class Refusal(NamedTuple):
    """Why something is refused, with which code."""

    message: str
    code: int

    def error(self) -> CommandError:
        """The error a client gets."""
        return CommandError(self.code, self.message, fields={"info": "mongos"})


def _commands(names: str, reason: str, code: ErrorCode = ErrorCode.CommandNotSupported) -> dict[str, Refusal]:
    return {name: Refusal(f"{name} is not supported by the embedded mongos: {reason}", code) for name in names.split()}


COMMANDS: dict[str, Refusal] = {
    **_commands("startSession endSessions refreshSessions killSessions killAllSessions killAllSessionsByPattern "
                "reapLogicalSessionCacheNow refreshLogicalSessionCacheNow", "it has no sessions.",
                ErrorCode.IllegalOperation),
    **_commands("commitTransaction abortTransaction coordinateCommitTransaction prepareTransaction",
                "it has no transactions.", ErrorCode.OperationNotSupportedInTransaction),
    **_commands("authenticate", "clients log in with SCRAM only."),
    **_commands("rotateCertificates", "certificates are read at the start only."),
    **_commands("replSetGetStatus replSetGetConfig replSetInitiate replSetReconfig replSetStepDown replSetFreeze "
                "replSetMaintenance replSetSyncFrom", "a mongos is no replica set member; ask a shard."),
    **_commands("top compact reIndex dbHash lockInfo cleanupOrphaned applyOps oplogSize repairDatabase "
                "cloneCollectionAsCapped setFreeMonitoring getFreeMonitoringStatus getDiagnosticData",
                "a mongos holds no data; ask a shard."),
    **_commands("compactStructuredEncryptionData", "queryable encryption needs transactions."),
}  # fmt: skip

_NO_TRANSACTIONS = Refusal(
    "The embedded mongos has no transactions.", ErrorCode.OperationNotSupportedInTransaction
)  # fmt: skip
# A message with one of these fields would end the router mongod (an invariant): it must not get there.
FIELDS: dict[str, Refusal] = {
    "autocommit": _NO_TRANSACTIONS,
    "startTransaction": _NO_TRANSACTIONS,
    # Drivers know the first words, and advise their user to switch retryable writes off.
    "txnNumber": Refusal("Transaction numbers are only allowed on a replica set member or mongos; "
                         "the embedded mongos has no retryable writes and no transactions.",
                         ErrorCode.IllegalOperation),
    "lsid": Refusal("The embedded mongos has no sessions: send the command without lsid.", ErrorCode.IllegalOperation),
}  # fmt: skip


def require_no_refused_field(names: Sequence[str]) -> None:
    """CommandError for the first field that must not reach the router mongod."""
    for name, refusal in FIELDS.items():
        if name in names:
            raise refusal.error()


CHANGE_STREAM = Refusal("The $changeStream stage is only supported on replica sets: the embedded mongos has no change "
                        "streams.", CHANGE_STREAM_UNSUPPORTED)  # fmt: skip
MAP_REDUCE_SCOPE = Refusal("mapReduce with a scope is not supported by the embedded mongos: write its values into the "
                           "functions.", ErrorCode.CommandNotSupported)  # fmt: skip
FSYNC_LOCK = Refusal("can't do lock through mongos", ErrorCode.CommandNotSupported)
# Commands of which only a part is refused, by what a client sends (shown in the page, tried in the tests).
PARTS: dict[str, tuple[dict[str, object], Refusal]] = {
    "aggregate with $changeStream": ({"aggregate": 1, "pipeline": [{"$changeStream": {}}], "cursor": {}},
                                     CHANGE_STREAM),
    "mapReduce with scope": ({"mapReduce": "x", "map": "function() {}", "reduce": "function() {}",
                              "out": {"inline": 1}, "scope": {"a": 1}}, MAP_REDUCE_SCOPE),
    "fsync with lock": ({"fsync": 1, "lock": True}, FSYNC_LOCK),
}  # fmt: skip
_HEAD = """# What the embedded mongos refuses

Written by `make generate` from the tables the program itself answers from (`src/microshard/embedded/refusals.py`,
`options.py`); the tests send every command and field in them. How it works and how to run it alone:
[its README](../src/microshard/embedded/README.md).

Also different from a mongos of MongoDB 6.0: a user who has logged in may do everything; clients may compress with
snappy and zstd only where `pip install 'microshard[compression]'` was done, with zlib everywhere; an update that would
move a document to another shard is refused (20), because it takes a transaction. As with any mongos, `distinct` on an
array position (`a.0`), or with `$where` or `$near`, may see values of orphaned documents, and so may a find for a
string as whole shard key with a collation: it goes to every shard, and one that is given the whole key filters nothing.
Operations on one document by its whole shard key go straight to their shard, all others through the router mongod; all
of them do with `--setParameter microshardTargeting=false`, in an experiment with
`topology.mongos.point_operations: router_mongod`."""


def page() -> Iterator[str]:
    """The lines of docs/mongos.md."""
    yield _HEAD
    yield "\n## Commands\n\n| command | code | error |\n|---|---|---|"
    parts = {what: refusal for what, (_, refusal) in PARTS.items()}
    for name, refusal in sorted({**COMMANDS, **parts}.items(), key=lambda item: item[0].lower()):
        yield f"| {name} | {int(refusal.code)} | {refusal.message} |"
    yield "\n## Fields of any command\n\n| field | code | error |\n|---|---|---|"
    for name, refusal in FIELDS.items():
        yield f"| {name} | {int(refusal.code)} | {refusal.message} |"
    yield "\n## Options\n\n| option | |\n|---|---|"
    for option in OPTIONS:
        if option.refused or option.no_effect:
            effect = f"refused: {option.refused}" if option.refused else f"no effect: {option.no_effect}"
            yield f"| `{option.path or option.flag}` | {effect} |"


if __name__ == "__main__":
    print("\n".join(page()))
