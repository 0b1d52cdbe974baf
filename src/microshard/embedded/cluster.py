"""The cluster behind the router: config servers, shards, the router mongod, and who owns which data at this moment.

The router mongod has its own routing table for everything it routes itself. Commands it has no cluster form of are sent
to shards from here, with the versions a mongos attaches: a shard refuses what was routed by an old table, and the
command is tried again with a new one. Nothing is cached: these commands are rare, the config server answers in 1 ms.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bson import ObjectId, Regex, Timestamp

from microshard.embedded import wire
from microshard.embedded.errors import STALE_ROUTING, CommandError, ErrorCode, checked, without_clocks
from microshard.embedded.mongod_connections import (
    Document,
    MongodConnection,
    MongodPool,
    NotSentError,
    ReplicaSetClient,
    RetryDelay,
)
from microshard.embedded.router_mongod import RouterMongod

T = TypeVar("T")
MAJORITY: Mapping[str, Any] = {"writeConcern": {"w": "majority"}}
# The version a shard expects for a collection that is not sharded.
UNSHARDED: Mapping[str, Any] = {"t": Timestamp(0, 0), "e": ObjectId(bytes(12)), "v": Timestamp(0, 0)}
ROUTER_WAIT = 3.0  # s a request waits for a router mongod that is being restarted (0.4 s) before it gets an error
BUCKETS = "system.buckets."  # before a time series' name: the collection of its documents
_ABSENT = object()


@dataclass(frozen=True)
class Database:
    """A database: its primary shard and the version the shard checks."""

    primary: str
    version: Mapping[str, Any]


@dataclass(frozen=True)
class ShardedCollection:
    """A sharded collection: its key, and for each shard that owns chunks of it the version the shard checks."""

    namespace: str
    key: Mapping[str, Any]
    uuid: Any
    epoch: ObjectId
    timestamp: Timestamp
    versions: Mapping[str, Timestamp]

    @property
    def name(self) -> str:
        """The name without its database."""
        return self.namespace.partition(".")[2]

    def version_fields(self, version: Timestamp) -> Document:
        """What a command routed by this version carries."""
        return {"shardVersion": {"t": self.timestamp, "e": self.epoch, "v": version}}


class Cluster:
    """Runs commands on config servers, shards and the router mongod."""

    def __init__(self, config: ReplicaSetClient, router: RouterMongod) -> None:
        self.config = config
        self.router = router
        self._shards: dict[str, ReplicaSetClient] = {}

    def close(self) -> None:
        """Break every connection to config servers and shards."""
        for replica_set in (self.config, *self._shards.values()):
            replica_set.close()

    # --- what the config servers record

    async def config_documents(self, collection: str, query: Mapping[str, Any]) -> list[Document]:
        """Documents of a collection of the config database. CommandError."""
        command = {"find": collection, "filter": query, "batchSize": 1_000_000, "singleBatch": True}
        batch: list[Document] = (await self.config.call("config", command))["cursor"]["firstBatch"]
        return batch

    async def shards(self) -> dict[str, ReplicaSetClient]:
        """Every shard by its id, from the config server. CommandError."""
        found = {document["_id"]: document["host"] for document in await self.config_documents("shards", {})}
        for name, host in found.items():
            known = self._shards.get(name)
            if known is None or known.connection_string != host:
                self._shards[name] = ReplicaSetClient(host, self.config.credentials)
        for name in self._shards.keys() - found.keys():
            self._shards.pop(name).close()
        return dict(self._shards)

    async def shard(self, name: str) -> ReplicaSetClient:
        """One shard, by its id or its connection string. CommandError ShardNotFound."""
        return (await self._find_shard(name))[1]

    async def shard_id(self, name: str) -> str:
        """The id of a shard given by id or connection string. CommandError ShardNotFound."""
        return (await self._find_shard(name))[0]

    async def _find_shard(self, name: str) -> tuple[str, ReplicaSetClient]:
        shards = self._shards if name in self._shards else await self.shards()
        for shard_id, shard in shards.items():
            if name in (shard_id, shard.connection_string):
                return shard_id, shard
        raise CommandError(ErrorCode.ShardNotFound, f"Shard {name} does not exist")

    async def database(self, name: str) -> Database | None:
        """A database of the cluster; None when it does not exist (yet). CommandError."""
        for document in await self.config_documents("databases", {"_id": name}):
            return Database(document["primary"], document["version"])
        return None

    async def create_database(self, name: str, primary: str | None = None) -> Database:
        """A database, created when it does not exist. CommandError, also when it exists on another primary."""
        database = await self.database(name)
        if database is not None and primary in (None, database.primary):
            return database
        wanted = {"primaryShardId": primary} if primary else {}
        await self.config.call("admin", {"_configsvrCreateDatabase": name, **wanted, **MAJORITY})
        database = await self.database(name)
        if database is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"database {name} was dropped while it was created")
        return database

    async def collection(self, namespace: str, *, time_series: bool = False) -> ShardedCollection | None:
        """A sharded collection; None when it is not sharded or does not exist. CommandError.

        A time series is a view; with `time_series` its name stands for the collection of its buckets.
        """
        database, _, name = namespace.partition(".")
        names = [namespace, f"{database}.{BUCKETS}{name}"] if time_series else [namespace]
        for document in await self.config_documents("collections", {"_id": {"$in": names}}):
            owners = {"$group": {"_id": "$shard", "version": {"$max": "$lastmod"}}}
            pipeline = [{"$match": {"uuid": document["uuid"]}}, owners]
            reply = await self.config.call("config", {"aggregate": "chunks", "pipeline": pipeline, "cursor": {}})
            versions = {entry["_id"]: entry["version"] for entry in reply["cursor"]["firstBatch"]}
            return ShardedCollection(
                document["_id"],
                document["key"],
                document["uuid"],
                document["lastmodEpoch"],
                document["timestamp"],
                versions,
            )
        return None

    async def sharded(self, namespace: str) -> ShardedCollection:
        """A sharded collection. CommandError NamespaceNotSharded."""
        collection = await self.collection(namespace)
        if collection is None or not collection.versions:
            raise CommandError(ErrorCode.NamespaceNotSharded, f"Collection {namespace} is not sharded")
        return collection

    # --- which shard holds a shard key

    async def hashed_key(self, collection: ShardedCollection, key: Document) -> Document:
        """The key as chunks bound it: a hashed field's value replaced by its hash, computed by the config server."""
        result = dict(key)
        for name, kind in collection.key.items():
            if kind == "hashed":
                project = {"$project": {"h": {"$toHashedIndexKey": {"$literal": key[name]}}}}
                # Without a collection, aggregate takes its documents from the command.
                command = {"aggregate": 1, "pipeline": [{"$documents": [{}]}, project], "cursor": {}}
                result[name] = (await self.config.call("admin", command))["cursor"]["firstBatch"][0]["h"]
        return result

    async def chunk_of(self, collection: ShardedCollection, key: Mapping[str, Any]) -> Document:
        """The chunk that holds a shard key (hashed fields hashed). CommandError when the collection just changed."""
        query = {"uuid": collection.uuid, "min": {"$lte": key}, "max": {"$gt": key}}
        for chunk in await self.config_documents("chunks", query):
            return chunk
        raise CommandError(ErrorCode.NamespaceNotSharded, f"no chunk of {collection.namespace} holds {key}")

    async def owner_of(self, collection: ShardedCollection, key: Document) -> tuple[str, Document]:
        """The shard that holds a shard key and the version a command for it carries, both from one snapshot.

        A version newer than the owner would let a shard take a write for a chunk it has just given away.
        """
        bounds = await self.hashed_key(collection, key)
        holds = {"$and": [{"$lte": ["$min", {"$literal": bounds}]}, {"$gt": ["$max", {"$literal": bounds}]}]}
        group = {"$group": {"_id": "$shard", "version": {"$max": "$lastmod"}, "holds": {"$max": holds}}}
        reply = await self.config.call("config", {
            "aggregate": "chunks", "pipeline": [{"$match": {"uuid": collection.uuid}}, group], "cursor": {},
            "readConcern": {"level": "snapshot"},
        })  # fmt: skip
        for entry in reply["cursor"]["firstBatch"]:
            if entry["holds"]:
                return entry["_id"], collection.version_fields(entry["version"])
        # Between two reads the collection was dropped or recreated: the caller reads both again.
        message = f"the chunks of {collection.namespace} changed while they were read"
        raise CommandError(ErrorCode.StaleConfig, message)

    # --- commands on shards

    async def on_shard(self, shard: str, database: str, command: Mapping[str, Any]) -> Document:
        """Run a command on one shard. CommandError."""
        return await (await self.shard(shard)).call(database, command)

    async def on_primary(self, name: str, command: Mapping[str, Any], *, create: bool = False,
                         run_on: str = "") -> Document:  # fmt: skip
        """Run a command on a database's primary shard, there on the same database unless `run_on` names another.

        CommandError, NamespaceNotFound when there is no database.
        """

        async def attempt() -> Document:
            database = await self.create_database(name) if create else await self.database(name)
            if database is None:
                raise CommandError(ErrorCode.NamespaceNotFound, f"database {name} not found")
            return await self.on_shard(
                database.primary, run_on or name, {**command, "databaseVersion": database.version}
            )

        return await self.retrying(attempt)

    async def on_owners(self, database: str, name: str, command: Mapping[str, Any], *, create: bool = False,
                        one: bool = False, time_series: bool = False) -> dict[str, Document]:  # fmt: skip
        """Run a command on every shard that owns part of a collection, return the replies by shard id.

        For an unsharded collection that is the database's primary shard. `one` uses a single owner; `time_series` is
        for commands that know isTimeseriesNamespace. All run it again when the routing changed, so the command must be
        one that may run twice. Replies may be errors. CommandError.
        """

        async def attempt() -> dict[str, Document]:
            targets = await self._owners(database, name, next(iter(command)), create=create, time_series=time_series)
            chosen = dict([min(targets.items())]) if one else targets
            shards = [await self.shard(shard) for shard in chosen]
            commands = ({**command, **fields} for fields in chosen.values())
            calls = (shard.call_raw(database, sent) for shard, sent in zip(shards, commands, strict=True))
            replies = [without_clocks(wire.decode(body)) for body in await asyncio.gather(*calls)]
            for reply in replies:
                if not reply.get("ok") and reply.get("code") in STALE_ROUTING:
                    raise CommandError.from_reply(reply)
            return dict(zip(chosen, replies, strict=True))

        return await self.retrying(attempt)

    async def _owners(self, database: str, name: str, command: str, *, create: bool,
                      time_series: bool) -> dict[str, Document]:  # fmt: skip
        """The shards to ask, and the fields that are theirs in the command."""
        collection = await self.collection(f"{database}.{name}", time_series=time_series)
        if collection is not None and collection.versions:
            buckets = {command: collection.name, "isTimeseriesNamespace": True} if collection.name != name else {}
            return {shard: collection.version_fields(version) | buckets
                    for shard, version in collection.versions.items()}  # fmt: skip
        home = await self.create_database(database) if create else await self.database(database)
        if home is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"ns not found: database {database} does not exist")
        return {home.primary: {"shardVersion": UNSHARDED, "databaseVersion": home.version}}

    async def on_all_shards(self, database: str, command: Mapping[str, Any]) -> dict[str, Document]:
        """Run a command on every shard, return the replies by shard id. CommandError when one of them failed."""
        shards = await self.shards()
        replies = await asyncio.gather(*(shard.call_raw(database, command) for shard in shards.values()))
        return {shard: checked(body) for shard, body in zip(shards, replies, strict=True)}

    # --- commands on the router mongod

    async def router_pool(self) -> MongodPool:
        """The router mongod, waited for while it is being restarted. CommandError HostUnreachable, safe to retry."""
        end = time.monotonic() + ROUTER_WAIT
        while time.monotonic() < end:
            if self.router.pool is not None:
                return self.router.pool
            await asyncio.sleep(0.02)
        raise CommandError(ErrorCode.HostUnreachable, "the router mongod of this embedded mongos is being restarted",
                           labels=("RetryableWriteError", "NoWritesPerformed"))  # fmt: skip

    async def router_connection(self) -> MongodConnection:
        """A connection to the router mongod, waited for while it is being restarted. CommandError as above."""
        while True:
            pool = await self.router_pool()
            try:
                return await pool.acquire()
            except OSError:
                await self.router_settled()

    async def router_settled(self) -> None:
        """After a broken connection: return when the router mongod is known to have ended, or answers."""
        for _ in range(50):
            self.router.withdraw_if_ended()
            pool = self.router.pool
            if pool is None or await pool.answers():
                return
            await asyncio.sleep(0.01)

    async def through_router(self, database: str, command: Mapping[str, Any]) -> Document:
        """Run a command on the router mongod, again when its routing was old. CommandError."""

        async def attempt() -> Document:
            while True:
                pool = await self.router_pool()
                try:
                    return await pool.call(database, command)
                except NotSentError:
                    await self.router_settled()

        return await self.retrying(attempt)

    async def aggregate(self, database: str, name: str, pipeline: list[Any], options: Mapping[str, Any]) -> list[Any]:
        """All results of an aggregation with few results, through the router mongod. CommandError."""
        command = {"clusterAggregate": name, "pipeline": pipeline, "cursor": {}, **options}
        cursor = (await self.through_router(database, command))["cursor"]
        results: list[Any] = cursor["firstBatch"]
        while cursor["id"]:
            more = {"clusterGetMore": cursor["id"], "collection": cursor["ns"].split(".", 1)[1]}
            cursor = (await self.through_router(database, more))["cursor"]
            results += cursor["nextBatch"]
        return results

    async def forget_routing(self, namespace: str) -> None:
        """Have the router mongod read the routing of a collection, or of a database without its collections, again."""
        pool = await self.router_pool()
        await pool.call("admin", {"flushRouterConfig": namespace})

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run an attempt until the shards agree with its routing, for at most 15 s. CommandError."""
        delay = RetryDelay()
        while True:
            try:
                return await attempt()
            except CommandError as error:
                if error.code not in STALE_ROUTING:
                    raise
                namespace = error.fields.get("ns", error.fields.get("db"))
                if isinstance(namespace, str):
                    await self.forget_routing(namespace)
                if not await delay.wait():
                    raise


def shard_key_of(pattern: Mapping[str, Any], query: Mapping[str, Any], collation: Any = None) -> Document | None:
    """The shard key a query fixes by equality; None when it leaves a field of it open.

    With a non-simple collation a query for a string does not fix it: other strings are equal, too.
    """
    key: Document = {}
    for name in pattern:
        value = _equality(query, name)
        if value is _ABSENT or isinstance(value, (list, Regex)):
            return None
        if isinstance(value, (str, Mapping)) and collation and collation.get("locale") != "simple":
            return None
        key[name] = value
    return key


def _equality(query: Mapping[str, Any], name: str) -> Any:
    """The value a query compares a field with for equality, or _ABSENT."""
    for field, value in _clauses(query):
        if field == name:
            if not isinstance(value, Mapping):
                return value
            operators = [key for key in value if key.startswith("$")]
            if "$eq" in operators:
                return value["$eq"]
            if isinstance(any_of := value.get("$in"), list) and len(any_of) == 1:
                return any_of[0]
            if not operators or operators[0] in ("$ref", "$id"):
                return value
        elif name.startswith(f"{field}.") and isinstance(value, Mapping) and not next(iter(value), "$").startswith("$"):
            inner: Any = value
            for part in name[len(field) + 1 :].split("."):
                inner = inner.get(part, _ABSENT) if isinstance(inner, Mapping) else _ABSENT
            if inner is not _ABSENT:
                return inner
    return _ABSENT


def _clauses(query: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in query.items():
        if isinstance(value, list) and (field == "$and" or (field == "$or" and len(value) == 1)):
            for part in value:
                yield from _clauses(part)
        else:
            yield field, value
