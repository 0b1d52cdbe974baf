"""How a command of the long way is declared, and what its handler is given."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from microshard.embedded.cluster import Cluster, checked
from microshard.embedded.errors import (
    COMMAND_NOT_SUPPORTED,
    FAILED_TO_PARSE,
    INVALID_NAMESPACE,
    UNAUTHORIZED,
    CommandError,
)
from microshard.embedded.nodes import Document, Pool, ReplicaSet

if TYPE_CHECKING:
    from microshard.embedded.front import Front
    from microshard.embedded.server import ClientConnection

# Fields any command may carry that the router itself has dealt with.
ENVELOPE = frozenset({"$db", "$clusterTime", "$readPreference", "apiVersion", "apiStrict", "apiDeprecationErrors",
                      "lsid", "maxTimeMSOpOnly"})  # fmt: skip


@dataclass
class Request:
    """One command as a handler sees it; documents inside it are raw BSON."""

    connection: "ClientConnection"
    front: "Front"
    name: str
    database: str
    document: Document
    exhaust: bool = False

    @property
    def cluster(self) -> Cluster:
        """The cluster behind the router."""
        return self.front.cluster

    @property
    def collection(self) -> str:
        """The collection the command names. CommandError InvalidNamespace."""
        value = self.document[self.name]
        if not isinstance(value, str) or not value:
            raise CommandError(INVALID_NAMESPACE, f"collection name has invalid type or is empty: {value!r}")
        return value

    @property
    def full_namespace(self) -> str:
        """The `database.collection` a command on the admin database names as its value. CommandError."""
        value = self.document[self.name]
        if not isinstance(value, str) or not all(value.partition(".")):
            raise CommandError(INVALID_NAMESPACE, f"Invalid namespace specified: {value!r}")
        return value

    @property
    def namespace(self) -> str:
        """`database.collection` of a command that names its collection."""
        return f"{self.database}.{self.collection}"

    @property
    def passed_on(self) -> Document:
        """The command without what belongs to the client's conversation with the router."""
        return {key: value for key, value in self.document.items() if key not in ENVELOPE}

    @property
    def durably(self) -> Document:
        """The command to be passed on, with the cluster's default write concern unless it names its own."""
        return {**self.passed_on, **({} if "writeConcern" in self.document else self.front.default_concern)}

    def fields(self, *names: str) -> Document:
        """Those of the named fields that the command has."""
        return {name: self.document[name] for name in names if name in self.document}

    def text(self, *names: str) -> str:
        """The first of the named fields, which is a string. CommandError FailedToParse."""
        for name in names:
            value = self.document.get(name)
            if isinstance(value, str) and value:
                return value
        raise CommandError(FAILED_TO_PARSE, f"BSON field '{self.name}.{names[0]}' is missing but a required field")

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A field that is a document. CommandError FailedToParse."""
        value = self.document.get(name)
        if not isinstance(value, Mapping):
            raise CommandError(FAILED_TO_PARSE, f"BSON field '{self.name}.{name}' is not a document")
        return value

    def keep_cursor(self, reply: Document, node: ReplicaSet | Pool) -> None:
        """Remember where the cursor of a reply lives, so that its getMore gets there."""
        cursor = reply.get("cursor")
        if isinstance(cursor, Mapping) and cursor.get("id"):
            self.front.pin(cursor["id"], node)


Reply = Document | bytes
Handler = Callable[[Request], Awaitable[Reply]]


@dataclass(frozen=True)
class Declared:
    """A command's handler and where it may be called."""

    handler: Handler
    admin_only: bool


HANDLERS: dict[str, Declared] = {}


def command(*names: str, admin_only: bool = False) -> Callable[[Handler], Handler]:
    """Declare a coroutine as the handler of commands."""

    def declare(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = Declared(handler, admin_only)
        return handler

    return declare


def refuse(reason: str, *names: str, code: int = COMMAND_NOT_SUPPORTED) -> None:
    """Declare commands that the embedded mongos cannot do, and why."""

    async def handler(request: Request) -> Reply:
        raise CommandError(code, f"{request.name} is not supported by the embedded mongos: {reason}",
                           fields={"info": "mongos"})  # fmt: skip

    command(*names)(handler)


async def run(request: Request) -> Reply:
    """The answer to a command. CommandError, CommandNotFound among them."""
    declared = HANDLERS.get(request.name)
    if declared is None:
        raise CommandError(59, f"no such command: '{request.name}'")
    if declared.admin_only and request.database != "admin":
        raise CommandError(UNAUTHORIZED, f"{request.name} may only be run against the admin database.")
    counts = request.front.command_counts
    counts[request.name] = counts.get(request.name, 0) + 1
    return await declared.handler(request)


__all__ = ["HANDLERS", "Reply", "Request", "checked", "command", "refuse", "run"]
