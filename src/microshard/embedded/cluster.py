"""What the router knows of its cluster: config servers, shards, and who owns a database or collection at this moment.

The router mongod has its own routing table for everything it routes itself. Commands it has no cluster form of are sent
to shards from here, with the versions a mongos attaches: a shard refuses what was routed by an old table, and the
command is tried again with a new one. Nothing is cached: these commands are rare, the config server answers in 1 ms.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bson import ObjectId, Timestamp

from microshard.embedded import wire
from microshard.embedded.errors import (
    CLOCK_FIELDS,
    HOST_UNREACHABLE,
    NAMESPACE_NOT_FOUND,
    NAMESPACE_NOT_SHARDED,
    NO_WRITES_PERFORMED,
    RETRYABLE_WRITE,
    SHARD_NOT_FOUND,
    STALE_ROUTING,
    CommandError,
)
from microshard.embedded.nodes import Backoff, Document, Link, NotSentError, Pool, ReplicaSet, failed
from microshard.embedded.router_mongod import RouterMongod

MAJORITY: Mapping[str, Any] = {"writeConcern": {"w": "majority"}}
# The version a shard expects for a collection that is not sharded.
UNSHARDED: Mapping[str, Any] = {"t": Timestamp(0, 0), "e": ObjectId(bytes(12)), "v": Timestamp(0, 0)}
T = TypeVar("T")
CONFIG_DATABASES = frozenset({"admin", "config"})
ROUTER_WAIT = 3.0  # s a request waits for a router mongod that is being restarted (0.4 s) before it gets an error


@dataclass(frozen=True)
class Database:
    """A database: its primary shard and the version the shard checks."""

    name: str
    primary: str
    version: Mapping[str, Any]


@dataclass(frozen=True)
class ShardedCollection:
    """A sharded collection: its key, and by shard that owns chunks of it the version the shard checks."""

    namespace: str
    key: Mapping[str, Any]
    uuid: Any
    epoch: ObjectId
    timestamp: Timestamp
    unique: bool
    versions: Mapping[str, Timestamp]

    def shard_version(self, shard: str) -> Document:
        """What a command for this shard carries."""
        return {"shardVersion": {"t": self.timestamp, "e": self.epoch, "v": self.versions[shard]}}


class Cluster:
    """Config servers, shards and the router mongod."""

    def __init__(self, config: ReplicaSet, router: RouterMongod) -> None:
        self.config = config
        self.router = router
        self._shards: dict[str, ReplicaSet] = {}

    async def config_documents(self, collection: str, query: Mapping[str, Any]) -> list[Document]:
        """Documents of a collection of the config database. CommandError."""
        command = {"find": collection, "filter": query, "batchSize": 1_000_000, "singleBatch": True}
        reply = await self.config.call("config", command)
        batch: list[Document] = reply["cursor"]["firstBatch"]
        return batch

    async def shards(self) -> dict[str, ReplicaSet]:
        """Every shard by its id, from the config server. CommandError."""
        found = {document["_id"]: document["host"] for document in await self.config_documents("shards", {})}
        for name, host in found.items():
            known = self._shards.get(name)
            if known is None or known.connection_string != host:
                self._shards[name] = ReplicaSet(host, self.config.access)
        for name in self._shards.keys() - found.keys():
            self._shards.pop(name).close()
        return dict(self._shards)

    async def shard(self, name: str) -> ReplicaSet:
        """One shard, by its id or its connection string. CommandError ShardNotFound."""
        shards = self._shards if name in self._shards else await self.shards()
        for identity, shard in shards.items():
            if name in (identity, shard.connection_string):
                return shard
        raise CommandError(SHARD_NOT_FOUND, f"Shard {name} does not exist")

    async def shard_id(self, name: str) -> str:
        """The id of a shard given by id or connection string. CommandError ShardNotFound."""
        wanted = await self.shard(name)
        return next(identity for identity, shard in self._shards.items() if shard is wanted)

    async def database(self, name: str) -> Database | None:
        """A database of the cluster; None when it does not exist (yet). CommandError."""
        for document in await self.config_documents("databases", {"_id": name}):
            return Database(name, document["primary"], document["version"])
        return None

    async def create_database(self, name: str, primary: str | None = None) -> Database:
        """A database, made when it does not exist. CommandError, also when it exists on another primary."""
        database = await self.database(name)
        if database is not None and primary in (None, database.primary):
            return database
        wanted = {"primaryShardId": primary} if primary else {}
        await self.config.call("admin", {"_configsvrCreateDatabase": name, **wanted, **MAJORITY})
        database = await self.database(name)
        if database is None:
            raise CommandError(NAMESPACE_NOT_FOUND, f"database {name} was dropped while it was created")
        return database

    async def collection(self, namespace: str) -> ShardedCollection | None:
        """A sharded collection; None when it is not sharded or does not exist. CommandError."""
        for document in await self.config_documents("collections", {"_id": namespace}):
            owners = {"$group": {"_id": "$shard", "version": {"$max": "$lastmod"}}}
            pipeline = [{"$match": {"uuid": document["uuid"]}}, owners]
            reply = await self.config.call("config", {"aggregate": "chunks", "pipeline": pipeline, "cursor": {}})
            versions = {entry["_id"]: entry["version"] for entry in reply["cursor"]["firstBatch"]}
            return ShardedCollection(
                namespace, document["key"], document["uuid"], document["lastmodEpoch"], document["timestamp"],
                bool(document.get("unique")), versions,
            )  # fmt: skip
        return None

    async def sharded(self, namespace: str) -> ShardedCollection:
        """A sharded collection. CommandError NamespaceNotSharded."""
        collection = await self.collection(namespace)
        if collection is None or not collection.versions:
            raise CommandError(NAMESPACE_NOT_SHARDED, f"Collection {namespace} is not sharded")
        return collection

    async def on_primary(self, name: str, command: Mapping[str, Any], *, create: bool = False) -> bytes:
        """Run a command on a database's primary shard, return the BSON of its reply whatever it says.

        CommandError NamespaceNotFound when the database does not exist and is not to be created.
        """

        async def attempt() -> bytes:
            database = await self.create_database(name) if create else await self.database(name)
            if database is None:
                raise CommandError(NAMESPACE_NOT_FOUND, f"database {name} not found")
            shard = await self.shard(database.primary)
            return await shard.call_raw(name, {**command, "databaseVersion": database.version})

        return await self.retrying(attempt)

    async def on_owners(self, database: str, name: str, command: Mapping[str, Any], *, create: bool = False,
                        one: bool = False) -> dict[str, bytes]:  # fmt: skip
        """Run a command on every shard that owns part of a collection, return the replies by shard id.

        For an unsharded collection that is the database's primary shard. `one` asks a single owner. All are asked again
        when the routing changed, so the command must be one that may run twice. CommandError.
        """

        async def attempt() -> dict[str, bytes]:
            targets = await self._owners(database, name, create=create)
            chosen = dict([min(targets.items())]) if one else targets
            shards = [await self.shard(shard) for shard in chosen]
            calls = [
                node.call_raw(database, {**command, **versions})
                for node, versions in zip(shards, chosen.values(), strict=True)
            ]
            replies = dict(zip(chosen, await asyncio.gather(*calls), strict=True))
            for body in replies.values():
                if stale(body):
                    raise CommandError.from_reply(wire.decode(body))
            return replies

        return await self.retrying(attempt)

    async def _owners(self, database: str, name: str, *, create: bool) -> dict[str, Document]:
        collection = await self.collection(f"{database}.{name}")
        if collection is not None and collection.versions:
            return {shard: collection.shard_version(shard) for shard in collection.versions}
        home = await self.create_database(database) if create else await self.database(database)
        if home is None:
            raise CommandError(NAMESPACE_NOT_FOUND, f"ns not found: database {database} does not exist")
        return {home.primary: {"shardVersion": UNSHARDED, "databaseVersion": home.version}}

    async def on_all_shards(self, database: str, command: Mapping[str, Any]) -> dict[str, bytes]:
        """Run a command on every shard, return the replies by shard id. CommandError."""
        shards = await self.shards()
        replies = await asyncio.gather(*(shard.call_raw(database, command) for shard in shards.values()))
        return dict(zip(shards, replies, strict=True))

    async def router_pool(self) -> Pool:
        """The router mongod, waited for while it is being restarted. CommandError HostUnreachable, safe to retry."""
        end = time.monotonic() + ROUTER_WAIT
        while time.monotonic() < end:
            if self.router.pool is not None:
                return self.router.pool
            await asyncio.sleep(0.02)
        raise CommandError(HOST_UNREACHABLE, "the router mongod of this embedded mongos is being restarted",
                           labels=(RETRYABLE_WRITE, NO_WRITES_PERFORMED))  # fmt: skip

    async def router_link(self) -> Link:
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
            if pool is None:
                return
            if await pool.answers():
                return
            await asyncio.sleep(0.01)

    async def through_router(self, database: str, command: Mapping[str, Any]) -> bytes:
        """Run a command on the router mongod, again when its routing was old; the BSON of the reply. CommandError."""

        async def attempt() -> bytes:
            while True:
                pool = await self.router_pool()
                try:
                    return await pool.call_raw(database, command)
                except NotSentError:
                    await self.router_settled()

        return await self.retrying(attempt)

    async def aggregate(self, database: str, name: str, pipeline: list[Any], options: Mapping[str, Any]) -> list[Any]:
        """All results of an aggregation that gives few, through the router mongod. CommandError."""
        command = {"clusterAggregate": name, "pipeline": pipeline, "cursor": {}, **options}
        reply = checked(await self.through_router(database, command))
        results: list[Any] = reply["cursor"]["firstBatch"]
        while reply["cursor"]["id"]:
            more = {"clusterGetMore": reply["cursor"]["id"], "collection": reply["cursor"]["ns"].split(".", 1)[1]}
            reply = checked(await self.through_router(database, more))
            results += reply["cursor"]["nextBatch"]
        return results

    async def forget_routing(self, namespace: str) -> None:
        """Have the router mongod read a collection's, or with a bare name a database's, routing again."""
        pool = await self.router_pool()
        await pool.call("admin", {"flushRouterConfig": namespace})

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run an attempt until the shards agree with its routing, for at most 15 s. CommandError."""
        backoff = Backoff()
        while True:
            try:
                result = await attempt()
            except CommandError as error:
                if error.code not in STALE_ROUTING or not await backoff.again():
                    raise
                continue
            if isinstance(result, bytes) and stale(result):
                reply = wire.decode(result)
                if isinstance(namespace := reply.get("ns", reply.get("db")), str):
                    await self.forget_routing(namespace)
                if await backoff.again():
                    continue
            return result

    def close(self) -> None:
        """Break every connection."""
        self.config.close()
        for shard in self._shards.values():
            shard.close()


def stale(body: bytes) -> bool:
    """Whether a reply says that the command was routed by an old table."""
    return failed(body) and wire.decode(body).get("code") in STALE_ROUTING


def checked(body: bytes) -> Document:
    """A reply as a document. CommandError when it is not ok."""
    reply = wire.decode(body)
    if not reply.get("ok"):
        raise CommandError.from_reply(reply)
    return {key: value for key, value in reply.items() if key not in CLOCK_FIELDS}
