"""The state of one running embedded mongos, and what it gives the handler of a command: a `Request`.

A command is either forwarded undecoded to the router mongod (`ForwardedCommand`) or decoded and answered by a handler
(`Command`). The tables of handlers are at the end of the `*_commands.py` files; `mongos.py` joins them into one.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple, cast

import bson
from bson import ObjectId

from microshard.embedded import api_version, wire
from microshard.embedded.cluster import Cluster
from microshard.embedded.cluster_clock import ClusterClock
from microshard.embedded.compression import Compression
from microshard.embedded.errors import UNKNOWN_FIELD, CommandError, ErrorCode, checked
from microshard.embedded.mongod_connections import Document, MongodConnection, MongodPool, ReplicaSetClient
from microshard.embedded.options import Options
from microshard.embedded.router_mongod import RouterMongod
from microshard.embedded.server_log import ServerLog
from microshard.embedded.targeting import Targeting

PACKAGE_VERSION = version("microshard")
DESCRIPTION = "embedded mongos of microshard: a Python process over MongoDB's router code in a mongod; one machine only"
MAX_REMEMBERED_CURSORS = 10_000  # cursors on a shard or config server; beyond that the oldest is forgotten
PING_INTERVAL = 30.0  # s between two updates of config.mongos, as a real mongos writes them
CONFIG_DATABASES = frozenset({"admin", "config"})
# Fields any command may carry that the router itself has dealt with.
_ROUTER_FIELDS = frozenset({"$db", "$clusterTime", "$readPreference", "lsid", "maxTimeMSOpOnly"})
# Fields any command may carry.
_GENERIC_FIELDS = _ROUTER_FIELDS | {*api_version.FIELDS, "comment", "maxTimeMS", "readConcern", "writeConcern"}


class ClientConnection(wire.MessageProtocol):
    """One client connection, as the server and the handlers of commands see it."""

    def __init__(self, server: "MongosServer") -> None:
        super().__init__()
        self.server = server
        self.transport = cast(asyncio.Transport, None)  # set by connection_made, before anything else can happen
        self.number = 0
        self.peer = ""
        self.busy = False  # whether a request is under way
        self.authenticated = not server.credentials.key
        self.auth_info: Mapping[str, Any] = {}  # of connectionStatus, as the config server reports it
        self.sasl_connection: MongodConnection | None = None  # to the config server, while the client logs in


@dataclass
class Request:
    """One command as a handler sees it; documents inside it are raw BSON."""

    client: ClientConnection
    server: "MongosServer"
    name: str
    database: str
    document: Document
    exhaust: bool = False

    @property
    def cluster(self) -> Cluster:
        """The cluster behind the router."""
        return self.server.cluster

    @property
    def collection(self) -> str:
        """The collection the command names. CommandError InvalidNamespace."""
        value = self.document[self.name]
        if not isinstance(value, str) or not value:
            message = f"collection name has invalid type or is empty: {value!r}"
            raise CommandError(ErrorCode.InvalidNamespace, message)
        return value

    @property
    def namespace(self) -> str:
        """`database.collection` of a command that names its collection. CommandError InvalidNamespace."""
        return f"{self.database}.{self.collection}"

    @property
    def full_namespace(self) -> str:
        """The `database.collection` a command on the admin database names as its value. CommandError."""
        value = self.document[self.name]
        if not isinstance(value, str) or not all(value.partition(".")):
            raise CommandError(ErrorCode.InvalidNamespace, f"Invalid namespace specified: {value!r}")
        return value

    @property
    def command(self) -> Document:
        """The command without what belongs to the client's conversation with the router."""
        return {key: value for key, value in self.document.items() if key not in _ROUTER_FIELDS}

    @property
    def durable_command(self) -> Document:
        """The same, with the cluster's default write concern unless it names one."""
        return {**self.command, **({} if "writeConcern" in self.document else self.server.default_write_concern)}

    @property
    def read_command(self) -> Document:
        """The same as `command`, with the cluster's default read concern unless it names one."""
        return {**self.command, **({} if "readConcern" in self.document else self.server.default_read_concern)}

    def fields(self, *names: str) -> Document:
        """Those of the named fields that the command has."""
        return {name: self.document[name] for name in names if name in self.document}

    def allow_only(self, *names: str) -> None:
        """CommandError (40415, as the server) when the command has another field than these and the generic ones."""
        for field in self.document.keys() - {self.name, *names} - _GENERIC_FIELDS:
            raise CommandError(UNKNOWN_FIELD, f"BSON field '{self.name}.{field}' is an unknown field.")

    def text(self, name: str) -> str:
        """A field that is a string. CommandError FailedToParse."""
        value = self.document.get(name)
        if isinstance(value, str) and value:
            return value
        message = f"BSON field '{self.name}.{name}' is missing but a required field"
        raise CommandError(ErrorCode.FailedToParse, message)

    def mapping(self, name: str) -> Mapping[str, Any]:
        """A field that is a document. CommandError FailedToParse."""
        value = self.document.get(name)
        if not isinstance(value, Mapping):
            raise CommandError(ErrorCode.FailedToParse, f"BSON field '{self.name}.{name}' is not a document")
        return value

    def remember_cursor(self, reply: Document, node: ReplicaSetClient) -> Document:
        """The reply, whose cursor lives on this node: its getMore has to go there."""
        cursor = reply.get("cursor")
        if isinstance(cursor, Mapping) and cursor.get("id"):
            self.server.remember_cursor(cursor["id"], node)
        return reply


Reply = Document | bytes
Handler = Callable[[Request], Awaitable[Reply]]


class Command(NamedTuple):
    """The handler of a command, and where it may be run."""

    handler: Handler
    admin_only: bool = False
    config_forward: bool = False  # on the databases admin and config, the config server answers it

    async def run(self, request: Request) -> Reply:
        """The reply to a command. CommandError."""
        if self.admin_only and request.database != "admin":
            message = f"{request.name} may only be run against the admin database."
            raise CommandError(ErrorCode.Unauthorized, message)
        counts = request.server.command_counts
        counts[request.name] = counts.get(request.name, 0) + 1
        if self.config_forward and request.database in CONFIG_DATABASES:
            config = request.cluster.config
            return request.remember_cursor(await config.call(request.database, request.command), config)
        return await self.handler(request)


def through_router(internal: str = "") -> Handler:
    """A handler that runs the command, or `internal` instead, on the router mongod, where the routing code is."""

    async def handler(request: Request) -> Reply:
        command = {internal: 1} if internal else request.command
        return await request.cluster.through_router("admin", command)

    return handler


@dataclass(slots=True)
class ForwardedCommand:
    """A command the router mongod has a cluster form of; it is forwarded undecoded.

    `cluster_name` replaces its first element's type and name and is `growth` bytes longer. `concern` is the cluster's
    default write concern, for a find the read concern, as a BSON element, for a command that has none: a mongos adds
    it, a mongod does not.
    """

    name: str
    cluster_name: bytes
    growth: int
    # A message whose body contains one of these names is decoded and examined before it is forwarded.
    suspects: tuple[bytes, ...]
    concern: bytes = b""
    count: int = 0  # sent to the router mongod
    targeted: int = 0  # answered by a shard itself


WRITING_STAGES = frozenset({"$out", "$merge"})
SUSPECT_STAGES = (b"$changeStream\0", b"$out\0", b"$merge\0")
# Stages that read with read concern local only.
LOCAL_STAGES = (b"$collStats\0", b"$currentOp\0", b"$indexStats\0", b"$listCatalog\0", b"$listLocalSessions\0",
                b"$listSessions\0", b"$operationMetrics\0", b"$planCacheStats\0", b"$shardedDataDistribution\0",
                b"$_internalAllCollectionStats\0")  # fmt: skip
_SUSPECT_FIELDS = (b"lsid\0", b"txnNumber\0", b"apiStrict\0")
_AGGREGATE_SUSPECTS = _SUSPECT_FIELDS + SUSPECT_STAGES
_SUSPECTS = {"aggregate": _AGGREGATE_SUSPECTS, "find": (*_SUSPECT_FIELDS, b"tailable\0")}


def as_element(field: Mapping[str, Any]) -> bytes:
    """A document of at most one field as it is inside another."""
    return bson.encode(field)[4:-1]  # without its length and the zero byte at its end


def forwarded_commands() -> dict[bytes, ForwardedCommand]:
    """The forwarded commands by type and name of their first element."""
    table = {}
    for name in ("find", "insert", "update", "delete", "aggregate", "getMore"):
        cluster = "cluster" + name[0].upper() + name[1:]
        suspects = _SUSPECTS.get(name, _SUSPECT_FIELDS)
        # string; double, int32 and int64 for aggregate without a collection; int64 is a cursor's number
        for kind in (b"\x12",) if name == "getMore" else (b"\x02", b"\x01", b"\x10", b"\x12"):
            table[kind + name.encode()] = ForwardedCommand(
                name, kind + cluster.encode(), len(cluster) - len(name), suspects
            )
    return table


class MongosServer:
    """What all client connections share: options, cluster, commands, counters, cursors outside the router mongod."""

    def __init__(self, options: Options, log: ServerLog, cluster: Cluster, commands: Mapping[str, Command]) -> None:
        self.options = options
        self.log = log
        self.cluster = cluster
        self.router: RouterMongod = cluster.router
        self.targeting = Targeting(cluster)
        self.credentials = cluster.config.credentials
        self.commands = commands
        self.forwarded = forwarded_commands()
        self.loop = asyncio.get_running_loop()
        self.stop = asyncio.Event()
        self.cursors: dict[int, ReplicaSetClient] = {}  # by id, the cursors that live on a shard or config server
        self.clients: set[ClientConnection] = set()
        self.total_connections = 0
        self.command_counts: dict[str, int] = {}
        self.bytes_in = 0
        self.bytes_out = 0
        self.clock = ClusterClock()
        self.api_version_required = options.api_version_required  # the parameter requireApiVersion
        self.compression = Compression(options.compressors)
        self.started = time.time()
        self.process_id = ObjectId()
        self.build_info: dict[str, Any] = {}
        self.default_write_concern: dict[str, Any] = {}  # for a write without one, as the field; none for w: 1
        self.default_read_concern: dict[str, Any] = {}  # for a read without one, as the field; none for local
        self.max_wire_version = 17  # of MongoDB 6.0; replaced by what the router mongod says
        self._listeners: list[asyncio.Server] = []

    async def listen(self, protocol: Callable[["MongosServer"], ClientConnection]) -> None:
        """Accept clients. OSError when the port is taken."""
        for host in self.options.hosts:
            self._listeners.append(
                await self.loop.create_server(
                    lambda: protocol(self), host, self.options.port,
                    backlog=self.options.backlog, ssl=self.credentials.client_tls,
                )
            )  # fmt: skip

    def close(self) -> None:
        """Stop accepting and disconnect every client."""
        for listener in self._listeners:
            listener.close()
        for client in list(self.clients):
            client.transport.abort()

    def remember_cursor(self, cursor: int, node: ReplicaSetClient) -> None:
        """Have getMore and killCursors of a cursor go to this node."""
        while len(self.cursors) >= MAX_REMEMBERED_CURSORS:
            self.cursors.pop(next(iter(self.cursors)))
        self.cursors[cursor] = node

    def client_connected(self, client: ClientConnection) -> None:
        """Count a client; refuse it when there are too many."""
        self.total_connections += 1
        client.number = self.total_connections
        self.clients.add(client)
        if len(self.clients) > self.options.max_connections:
            self.log.warning("Connection refused because there are too many open connections", component="NETWORK",
                             remote=client.peer, connectionCount=len(self.clients))  # fmt: skip
            client.transport.abort()
        else:
            self._log_connection("Connection accepted", client)

    def client_disconnected(self, client: ClientConnection) -> None:
        """Remove a client."""
        self.clients.discard(client)
        self._log_connection("Connection ended", client)

    def _log_connection(self, message: str, client: ClientConnection) -> None:
        if not self.options.quiet:
            self.log.info(message, component="NETWORK", remote=client.peer, connectionId=client.number,
                          connectionCount=len(self.clients))  # fmt: skip

    async def read_versions(self, router: MongodPool) -> None:
        """Read the router mongod's version and wire version, which clients are given."""
        self.build_info = await router.call("admin", {"buildInfo": 1})
        hello = await router.call_raw("admin", {"hello": 1})
        self.clock.stamp(hello)  # so that the first reply has a time
        self.max_wire_version = checked(hello)["maxWireVersion"]

    async def follow_cluster(self) -> None:
        """Read the cluster's feature compatibility version and default write and read concern. CommandError.

        A mongos adds them to writes and reads that name none.
        """
        parameter = "featureCompatibilityVersion"
        reply = await self.cluster.config.call("admin", {"getParameter": 1, parameter: 1})
        await self.router.set_compatibility(reply[parameter]["version"])
        reply = await self.cluster.config.call("admin", {"getDefaultRWConcern": 1})
        default = {name: reply["defaultWriteConcern"][name] for name in ("w", "wtimeout", "j")
                   if name in reply["defaultWriteConcern"]}  # fmt: skip
        self.default_write_concern = {} if default.get("w") == 1 else {"writeConcern": default}
        level = reply.get("defaultReadConcern", {}).get("level", "local")
        self.default_read_concern = {} if level == "local" else {"readConcern": {"level": level}}
        for forwarded in self.forwarded.values():
            if forwarded.name in ("insert", "update", "delete"):
                forwarded.concern = as_element(self.default_write_concern)
            elif forwarded.name == "find":
                forwarded.concern = as_element(self.default_read_concern)
            elif forwarded.name == "aggregate":
                # Not every stage may have it, so that every pipeline is looked at.
                forwarded.suspects = _AGGREGATE_SUSPECTS + ((b"pipeline\0",) if self.default_read_concern else ())

    async def ping_config_servers(self) -> None:
        """Register in config.mongos, as tools expect (sh.status), and read defaults again. Runs until cancelled."""
        name = f"{os.uname().nodename}:{self.options.port}"
        created = datetime.now(UTC)
        while True:
            entry = {
                "ping": datetime.now(UTC), "up": int(time.time() - self.started), "waiting": True, "created": created,
                "mongoVersion": self.build_info["version"], "advisoryHostFQDNs": [],
            }  # fmt: skip
            update = {"q": {"_id": name}, "u": {"$set": entry}, "upsert": True}
            try:
                await self.cluster.config.call("config", {"update": "mongos", "updates": [update]})
                await self.follow_cluster()
            except CommandError as error:
                self.log.warning("Cannot reach the config server", component="SHARDING", error=str(error))
            await asyncio.sleep(PING_INTERVAL)
