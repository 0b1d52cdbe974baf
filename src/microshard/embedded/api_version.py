"""The Stable API: apiVersion, apiStrict and apiDeprecationErrors, checked as a mongos of 6.0 checks them.

The router mongod would look for the name it knows a command by (`clusterFind`) and find none of these in API version 1,
so a strict command is checked here and forwarded as one that is not.
"""

from collections.abc import Collection, Mapping
from typing import Any

from microshard.embedded.errors import CommandError, ErrorCode

FIELDS: Mapping[str, type] = {"apiVersion": str, "apiStrict": bool, "apiDeprecationErrors": bool}
VERSION_1 = frozenset({
    "abortTransaction", "aggregate", "authenticate", "collMod", "commitTransaction", "count", "create", "createIndexes",
    "delete", "drop", "dropDatabase", "dropIndexes", "endSessions", "explain", "find", "findAndModify", "findandmodify",
    "getMore", "hello", "insert", "killCursors", "listCollections", "listDatabases", "listIndexes", "ping",
    "refreshSessions", "saslContinue", "saslStart", "update",
})  # fmt: skip
_UNSTABLE_FIND = frozenset({"awaitData", "max", "min", "noCursorTimeout", "oplogReplay", "returnKey", "showRecordId",
                            "tailable"})  # fmt: skip
_UNSTABLE_STAGES = frozenset({"$currentOp", "$indexStats", "$listLocalSessions", "$listSessions", "$planCacheStats"})
# The server has no named codes for these.
_VERSION_MISSING = 4886600
_VERSION_REQUIRED = 498870
REQUIRE = "requireApiVersion"  # the parameter
_MANUAL = "https://dochub.mongodb.org/core/manual-versioned-api"


def require(names: Collection[str]) -> None:
    """CommandError when a command's fields lack apiVersion, while the parameter requireApiVersion is set."""
    if "apiVersion" not in names:
        message = "The apiVersion parameter is required, please configure your MongoClient's API version"
        raise CommandError(_VERSION_REQUIRED, message)


def check(name: str, document: Mapping[str, Any]) -> None:
    """Check the API fields of a command. CommandError with the code a mongos answers."""
    given = {field: document[field] for field in FIELDS if field in document}
    for field, value in given.items():
        if not isinstance(value, FIELDS[field]):
            expected = "string" if FIELDS[field] is str else "bool"
            message = f"BSON field 'APIParametersFromClient.{field}' is the wrong type, expected type '{expected}'"
            raise CommandError(ErrorCode.TypeMismatch, message)
    if given and "apiVersion" not in given:
        message = "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion"
        raise CommandError(_VERSION_MISSING, message)
    if given.get("apiVersion", "1") != "1":
        raise CommandError(ErrorCode.APIVersionError, f"Cannot accept API version {given['apiVersion']}")
    if given.get("apiStrict"):
        _check_strict(name, document)


def _check_strict(name: str, document: Mapping[str, Any]) -> None:
    if name not in VERSION_1:
        message = (f"Provided apiStrict:true, but the command {name} is not in API Version 1. Information on supported "
                   f"commands and migrations in API Version 1 can be found at {_MANUAL}")  # fmt: skip
        raise CommandError(ErrorCode.APIStrictError, message)
    if name == "find" and (fields := _UNSTABLE_FIND & document.keys()):
        message = f"BSON field 'FindCommandRequest.{min(fields)}' is not allowed with apiStrict:true."
        raise CommandError(ErrorCode.APIStrictError, message)
    pipeline = document.get("pipeline")
    for stage in pipeline if isinstance(pipeline, list) else ():
        if not isinstance(stage, Mapping):
            continue
        if stages := _UNSTABLE_STAGES & stage.keys():
            message = f"{min(stages)} is not allowed with 'apiStrict: true' in API Version 1"
            raise CommandError(ErrorCode.APIStrictError, message)
        if isinstance(sizes := stage.get("$collStats"), Mapping) and sizes.keys() - {"count"}:
            message = "only the 'count' option to $collStats is supported in API Version 1"
            raise CommandError(ErrorCode.APIStrictError, message)
