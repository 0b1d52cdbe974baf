"""The routing table for point operations that go straight to the shard that owns them, without the router mongod.

These are a find, an update or delete of one document whose filter fixes the whole shard key by equality, and an insert
of one document. Each carries the version of the table it was routed by, as a mongos sends it; a shard refuses a version
that is not its own. Whatever is not plainly such an operation takes the way through the router mongod.
"""

import asyncio
import contextlib
import struct
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import bson
from bson import Timestamp

from microshard.embedded import wire
from microshard.embedded.cluster import Cluster
from microshard.embedded.errors import CommandError, checked
from microshard.embedded.mongod_connections import ReplicaSetClient
from microshard.embedded.point_operation import (
    BODY,
    FIELDS,
    MAX_MESSAGE,
    NAME,
    Ordered,
    ValueReader,
    fields,
    fixed_parts,
    key_place,
    namespace_of,
    ordered,
    plain_options,
    value_reader,
)

REREAD = 5.0  # s after which a collection that cannot be targeted is looked at again
_MAX_CHUNKS = 100_000
_MAX_REMEMBERED = 10_000  # collections that cannot be targeted
_MAX_SHAPE = 4096  # bytes of a message whose shape is remembered, one for each length

_MIN_KEY, _NULL, _MAX_KEY = (-1,), (5,), (127,)
_ONLY_BOUNDS: Mapping[int, Ordered] = {0xFF: _MIN_KEY, 0x0A: _NULL, 0x7F: _MAX_KEY}
# Fields of config.collections that make a collection none for this way.
_NEVER = ("reshardingFields", "timeseriesFields", "defaultCollation", "dropped", "unsplittable")


class Target(NamedTuple):
    """A shard, and the version an operation for it carries, as a BSON element; `route` is the table it comes from."""

    route: "Route"
    shard: str
    node: ReplicaSetClient
    version: bytes


class Route:
    """Where the documents of one sharded collection are: lower bounds of its chunks, and who owns each."""

    def __init__(self, namespace: bytes, key: Mapping[str, Any]) -> None:
        self.namespace = namespace
        self.names = tuple(name.encode() for name in key)
        self.hashed = tuple(kind == "hashed" for kind in key.values())
        self.bounds: list[tuple[Ordered, ...]] = []
        self.owners: list[Target] = []

    def readers(self, data: bytes, found: Mapping[bytes, int]) -> list[ValueReader] | None:
        """What reads the fields of the shard key, which were found at these offsets; None when one is missing."""
        if not all(name in found for name in self.names):
            return None
        keys = zip(self.names, self.hashed, strict=True)
        return [value_reader(data, found[name], len(name), hashed=hashed) for name, hashed in keys]

    def owner(self, data: bytes, readers: list[ValueReader]) -> Target | None:
        """The shard that holds a shard key; None when the key is not fixed to one place."""
        key = []
        for reader in readers:
            value = reader(data)
            if value is None:
                return None
            key.append(value)
        return self.owners[bisect_right(self.bounds, tuple(key)) - 1]


class Shape(NamedTuple):
    """What decided about one message but the values of its shard key; so it does about all that fit it."""

    route: Route
    command: bytes  # type and name of the first element
    name_end: int
    body_end: int
    fixed: list[tuple[slice, bytes]]
    readers: list[ValueReader]

    def fits(self, data: bytes) -> bool:
        """Whether a message of the same length differs only in values no decision depends on."""
        for span, fixed in self.fixed:  # noqa: SIM110 - all() with a generator takes twice the time
            if data[span] != fixed:
                return False
        return True


class Targeting:
    """The routing table for operations that go straight to a shard, read from the config servers when it is needed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.routes: dict[bytes, Route] = {}
        self._shapes: dict[int, Shape] = {}  # by the length of the message; of the routes there are now
        self._untargeted: dict[bytes, float] = {}  # collections that cannot be, until when that is believed
        self._reading: dict[bytes, asyncio.Task[None]] = {}
        self._searching: dict[ReplicaSetClient, asyncio.Task[None]] = {}
        self.reads = 0  # of the config servers' table
        self.refusals = 0  # by a shard, because of the version
        self.returned = 0  # operations the router mongod got after a shard had refused them

    def remembered(self, data: bytes) -> tuple[Shape, Target] | None:
        """The shard a message is for that fits the shape of an earlier one; None when it has to be looked at."""
        shape = self._shapes.get(len(data))
        if shape is None or not shape.fits(data):
            return None
        owner = shape.route.owner(data, shape.readers)
        return None if owner is None else (shape, owner)

    def target(self, data: bytes, name_end: int, body_end: int, command: str) -> Target | None:
        """The shard a message is for; None for the way through the router mongod.

        `data` is a plain OP_MSG with a forwarded command, whose name and body end at these offsets.
        """
        allowed = FIELDS.get(command)
        if allowed is None or len(data) > MAX_MESSAGE:
            return None
        try:
            found = fields(data, BODY)
            if not found.keys() <= allowed:
                return None
            route = self._route(namespace_of(data, name_end, found[b"$db"]))
            if route is None or not plain_options(data, found):
                return None
            place = key_place(data, body_end, command, found, route.names)
            readers = None if place is None else route.readers(data, place.offsets)
            owner = None if readers is None else route.owner(data, readers)
            if place is not None and readers is not None and owner is not None and len(data) <= _MAX_SHAPE:
                fixed = fixed_parts(data, found, place, route.names)
                self._shapes[len(data)] = Shape(route, data[NAME:name_end], name_end, body_end, fixed, readers)
        except (LookupError, ValueError, struct.error):
            return None  # malformed, or nothing known here: the router mongod answers that
        return owner

    def _route(self, namespace: bytes) -> Route | None:
        route = self.routes.get(namespace)
        if route is None and self._untargeted.get(namespace, 0.0) < time.monotonic():
            self._read_later(namespace)
        return route

    def find_primary(self, node: ReplicaSetClient) -> None:
        """Search for a shard's primary; until it is found its operations go through the router mongod."""

        async def search() -> None:
            with contextlib.suppress(CommandError):
                await node.primary()

        if node not in self._searching:
            task = self._searching[node] = asyncio.get_running_loop().create_task(search())
            task.add_done_callback(lambda _: self._searching.pop(node, None))

    def forget(self) -> None:
        """Look again at every collection that could not be targeted: something was sharded."""
        self._untargeted.clear()

    # --- reading the table

    def _read_later(self, namespace: bytes) -> asyncio.Task[None]:
        task = self._reading.get(namespace)
        if task is None:
            task = self._reading[namespace] = asyncio.get_running_loop().create_task(self._read(namespace))
        return task

    async def reread(self, route: Route) -> None:
        """Read the table of a collection again, unless that has been done since this one was read.

        The router mongod has not met the shard that refused and has to do so, too: by an old table it would refuse
        what it cannot target without asking a shard.
        """
        if self.routes.get(route.namespace) is route:
            with contextlib.suppress(CommandError):
                await self._cluster.forget_routing(route.namespace.decode())
            await asyncio.shield(self._read_later(route.namespace))

    async def _read(self, namespace: bytes) -> None:
        self.reads += 1
        route = None
        try:
            route = await self._read_route(namespace)
        except (CommandError, UnicodeDecodeError, LookupError):
            pass  # the router mongod has this collection's operations
        finally:
            del self._reading[namespace]
            self._shapes.clear()
            if route is not None:
                self.routes[namespace] = route
                self._untargeted.pop(namespace, None)
            else:
                self.routes.pop(namespace, None)
                if len(self._untargeted) > _MAX_REMEMBERED:
                    self._untargeted.clear()
                self._untargeted[namespace] = time.monotonic() + REREAD

    async def _read_route(self, namespace: bytes) -> Route | None:
        """One collection's table as of one moment: a version newer than the chunks' owners would misroute writes."""
        name = namespace.decode()
        if name.partition(".")[2].startswith("system."):
            return None
        chunks = {"from": "chunks", "localField": "uuid", "foreignField": "uuid", "as": "chunks",
                  "pipeline": [{"$sort": {"min": 1}}, {"$limit": _MAX_CHUNKS},
                               {"$project": {"_id": 0, "min": 1, "max": 1, "shard": 1, "lastmod": 1}}]}  # fmt: skip
        reply = await self._cluster.config.call_raw("config", {
            "aggregate": "collections", "pipeline": [{"$match": {"_id": name}}, {"$lookup": chunks}], "cursor": {},
            "readConcern": {"level": "snapshot"},
        })  # fmt: skip
        checked(reply)
        found = wire.decode_raw(reply)["cursor"]["firstBatch"]
        if not found or any(found[0].get(field) for field in _NEVER):
            return None
        (document,) = found
        if any(kind not in (1, "hashed") or "." in field for field, kind in document["key"].items()):
            return None
        shards = await self._cluster.shards()
        return make_route(namespace, document, shards)


def make_route(namespace: bytes, document: Mapping[str, Any], shards: Mapping[str, ReplicaSetClient]) -> Route | None:
    """The table from a document of config.collections with its chunks, in order; None when it has gaps or values whose
    order is not known here."""
    route = Route(namespace, document["key"])
    versions: dict[str, Timestamp] = {}
    for chunk in document["chunks"]:
        versions[chunk["shard"]] = max(chunk["lastmod"], versions.get(chunk["shard"], chunk["lastmod"]))
    targets = {}
    for shard, version in versions.items():
        given = {"e": document["lastmodEpoch"], "t": document["timestamp"], "v": version}
        element = bson.encode({"shardVersion": given})[4:-1]
        targets[shard] = Target(route, shard, shards[shard], element)
    end: Sequence[Ordered | None] = [_MIN_KEY] * len(route.names)
    for chunk in document["chunks"]:
        bound = _bound(chunk["min"].raw, route.names)
        if bound != tuple(end) or None in bound:
            return None
        route.bounds.append(cast(tuple[Ordered, ...], bound))
        route.owners.append(targets[chunk["shard"]])
        end = _bound(chunk["max"].raw, route.names)
    return route if tuple(end) == (_MAX_KEY,) * len(route.names) else None


def _bound(data: bytes, names: tuple[bytes, ...]) -> tuple[Ordered | None, ...]:
    """The bound of a chunk, comparable; with None for a value whose order is not known here."""
    found = fields(data, 0)
    if tuple(found) != names:
        return (None,)
    return tuple(_ONLY_BOUNDS.get(data[at]) or ordered(data, at, len(name)) for name, at in found.items())
