"""The routing table for point operations that go straight to the shard that owns them, without the router mongod.

These are a find, an update or delete of one document whose filter fixes the whole shard key by equality, and an insert
of one document. Each carries the version of the table it was routed by, as a mongos sends it; a shard refuses a version
that is not its own. Messages are not decoded: their fields are found in the BSON. Whatever is not plainly such an
operation takes the way through the router mongod.
"""

import asyncio
import contextlib
import hashlib
import math
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import bson
from bson import Timestamp

from microshard.embedded import wire
from microshard.embedded.cluster import Cluster
from microshard.embedded.errors import CommandError, checked
from microshard.embedded.mongod_connections import ReplicaSetClient

MAX_MESSAGE = 1 << 20  # bytes of an operation that is examined
REREAD = 5.0  # s after which a collection that cannot be targeted is looked at again
_MAX_CHUNKS = 100_000
_MAX_REMEMBERED = 10_000  # collections that cannot be targeted
_BODY = 21  # offset of the BSON in a plain OP_MSG
_NAME = _BODY + 4  # the type of its first element

# A value as the server orders it: the rank of its type, then the value. Ranks are the server's canonical types.
Ordered = tuple[int, Any] | tuple[int]
_NUMBER, _STRING, _BINARY, _OBJECT_ID, _BOOL, _DATE = 10, 15, 30, 35, 40, 45
_MIN_KEY, _NULL, _MAX_KEY = (-1,), (5,), (127,)
_ONLY_BOUNDS: Mapping[int, Ordered] = {0xFF: _MIN_KEY, 0x0A: _NULL, 0x7F: _MAX_KEY}
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_EXACT = float(1 << 53)
# Fields of config.collections that make a collection none for this way.
_NEVER = ("reshardingFields", "timeseriesFields", "defaultCollation", "dropped", "unsplittable")

# Fields that change nothing about where an operation goes, and that a shard understands as a mongos does.
_ANY = frozenset({b"$db", b"$clusterTime", b"$readPreference", b"comment", b"maxTimeMS", b"writeConcern"})
_FIELDS: Mapping[str, frozenset[bytes]] = {
    "find": _ANY | {b"find", b"filter", b"projection", b"sort", b"skip", b"limit", b"batchSize", b"singleBatch",
                    b"hint"},
    "insert": _ANY | {b"insert", b"documents", b"ordered", b"bypassDocumentValidation"},
    "update": _ANY | {b"update", b"updates", b"ordered", b"bypassDocumentValidation"},
    "delete": _ANY | {b"delete", b"deletes", b"ordered"},
}  # fmt: skip
_STATEMENT: Mapping[str, frozenset[bytes]] = {
    "update": frozenset({b"q", b"u", b"multi", b"upsert"}),
    "delete": frozenset({b"q", b"limit"}),
}
_FIRST = b"\x030\0"
_ONE = (_NUMBER, 1)
_LIST = {"insert": b"documents", "update": b"updates", "delete": b"deletes"}
_PRIMARY = frozenset(bson.encode({"mode": mode}) for mode in ("primary", "primaryPreferred"))
_UNACKNOWLEDGED = tuple(bson.encode({"w": zero})[4:-1] for zero in (0, 0.0, bson.Int64(0)))


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

    def owner(self, data: bytes, found: Mapping[bytes, int]) -> Target | None:
        """The shard that holds the shard key whose fields were found at these offsets; None when they fix none."""
        key = []
        for name, hashed in zip(self.names, self.hashed, strict=True):
            at = found.get(name)
            value = None if at is None else ordered(data, at, len(name), hashed=hashed)
            if value is None:
                return None
            key.append(value)
        return self.owners[bisect_right(self.bounds, tuple(key)) - 1]


def _double(data: bytes, at: int) -> float | None:
    value: float = _DOUBLE.unpack_from(data, at)[0]
    return None if math.isnan(value) else value


def _string(data: bytes, at: int) -> bytes:
    return data[at + 4 : at + 3 + _INT32.unpack_from(data, at)[0]]


def _binary(data: bytes, at: int) -> tuple[int, bytes] | None:
    size = _INT32.unpack_from(data, at)[0]
    return None if data[at + 4] == 2 else (size, data[at + 4 : at + 5 + size])  # subtype 2 has a second length


# By type: its rank, and what reads a value so that it compares as the server compares it; None for one that does not.
_READERS: Mapping[int, tuple[int, Callable[[bytes, int], Any]]] = {
    0x01: (_NUMBER, _double),
    0x02: (_STRING, _string),
    0x05: (_BINARY, _binary),
    0x07: (_OBJECT_ID, lambda data, at: data[at : at + 12]),
    0x08: (_BOOL, lambda data, at: data[at]),
    0x09: (_DATE, lambda data, at: _INT64.unpack_from(data, at)[0]),
    0x10: (_NUMBER, lambda data, at: _INT32.unpack_from(data, at)[0]),
    0x12: (_NUMBER, lambda data, at: _INT64.unpack_from(data, at)[0]),
}
_UNKNOWN: tuple[int, Callable[[bytes, int], Any]] = (0, lambda _data, _at: None)


def ordered(data: bytes, at: int, name_length: int, *, hashed: bool = False) -> Ordered | None:
    """The value of the element at an offset, comparable as the server compares it; with `hashed`, of its hash.

    None for a value that an equality does not fix to one place (null, arrays, regular expressions), or whose order is
    not known here (NaN, Decimal128, documents).
    """
    kind = data[at]
    at += name_length + 2
    rank, reader = _READERS.get(kind, _UNKNOWN)
    value = reader(data, at)
    if value is None or not hashed:
        return None if value is None else (rank, value)
    if rank != _NUMBER:
        return _hash(rank, data[at : element_end(data, kind, at)])
    # Numbers of every type hash as the 64-bit integer they are cut to.
    return _hash(rank, _INT64.pack(int(value))) if kind != 0x01 or -_EXACT < value < _EXACT else None


def _hash(rank: int, value: bytes) -> Ordered:
    """As the server hashes a value: the first 64 bits of the MD5 of a seed of 0, the canonical type and the value."""
    digest = hashlib.md5(_INT64.pack(rank << 32) + value, usedforsecurity=False).digest()
    return _NUMBER, _INT64.unpack_from(digest)[0]


def element_end(data: bytes, kind: int, at: int) -> int:
    """Where a value of a BSON type ends that begins at an offset. LookupError, ValueError, struct.error."""
    size = wire.FIXED_SIZES.get(kind)
    if size is not None:
        return at + size
    if kind == wire.REGEX:
        return data.index(0, data.index(0, at) + 1) + 1
    length: int = _INT32.unpack_from(data, at)[0]
    if length < 0:
        raise ValueError("negative length")
    return at + length + wire.PREFIXED_SIZES[kind]


def fields(data: bytes, at: int) -> dict[bytes, int]:
    """The elements of the document at an offset: name → offset of the type byte.

    ValueError when a name occurs twice or the document does not end where it says. LookupError, struct.error.
    """
    end = at + _INT32.unpack_from(data, at)[0] - 1
    at += 4
    found: dict[bytes, int] = {}
    count = 0
    while kind := data[at]:
        value = data.index(0, at + 1) + 1
        found[data[at + 1 : value - 1]] = at
        count += 1
        size = wire.FIXED_SIZES.get(kind)  # of most fields of a command: a call less
        at = element_end(data, kind, value) if size is None else value + size
    if at != end or count != len(found):
        raise ValueError("a field occurs twice, or the document does not end where it says")
    return found


def _only_document(data: bytes, name: bytes, at: int | None, body_end: int) -> int:
    """Where the one document of a write begins: in the array in its body, or in the sequence after it. ValueError."""
    if at is not None:
        at += len(name) + 2
        start = at + 7  # length of the array, type and name "0" of its element
        end = at + _INT32.unpack_from(data, at)[0] - 1
        if data[at - len(name) - 2] != 0x04 or len(data) != body_end or data[at + 4 : start] != _FIRST:
            raise ValueError("not an array with a document, or a sequence besides")
    else:
        start = body_end + 6 + len(name)
        end = body_end + 1 + _INT32.unpack_from(data, body_end + 1)[0]
        if end != len(data) or data[body_end + 5 : start] != name + b"\0":
            raise ValueError("not the one sequence of this command")
    if start + _INT32.unpack_from(data, start)[0] != end:
        raise ValueError("not one document")
    return start


def _key_fields(data: bytes, at: int, names: tuple[bytes, ...]) -> dict[bytes, int]:
    """The first elements of these names in the document at an offset. LookupError, ValueError, struct.error."""
    at += 4
    found: dict[bytes, int] = {}
    while kind := data[at]:
        name_end = data.index(0, at + 1)
        name = data[at + 1 : name_end]
        if name in names and name not in found:
            found[name] = at
            if len(found) == len(names):
                break
        at = element_end(data, kind, name_end + 1)
    return found


def _document(data: bytes, found: Mapping[bytes, int], name: bytes) -> int:
    """Where the embedded document of a field begins. ValueError when the field is none, LookupError when absent."""
    at = found[name]
    if data[at] != 0x03:
        raise ValueError("not a document")
    return at + len(name) + 2


def _embedded(data: bytes, at: int, name: bytes) -> bytes:
    at += len(name) + 2
    return data[at : at + _INT32.unpack_from(data, at)[0]]


def _owner_by_filter(route: Route, data: bytes, at: int) -> Target | None:
    query = fields(data, at)
    for name in query:
        if name[:1] == b"$":
            return None
    return route.owner(data, query)


def _owner_by_statement(route: Route, data: bytes, at: int, command: str) -> Target | None:
    statement = fields(data, at)
    if not statement.keys() <= _STATEMENT[command]:
        return None
    if command == "delete":
        # A delete of many could be refused half-way.
        if ordered(data, statement[b"limit"], len(b"limit")) != _ONE:
            return None
    else:
        for name in (b"multi", b"upsert"):
            given = statement.get(name)
            if given is not None and (data[given] != 0x08 or data[given + len(name) + 2]):
                return None
        # Update operators only: a replacement may belong to another shard.
        if data[_document(data, statement, b"u") + 5] != 0x24:
            return None
    return _owner_by_filter(route, data, _document(data, statement, b"q"))


class Targeting:
    """The routing table for operations that go straight to a shard, read from the config servers when it is needed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.routes: dict[bytes, Route] = {}
        self._untargeted: dict[bytes, float] = {}  # collections that cannot be, until when that is believed
        self._reading: dict[bytes, asyncio.Task[None]] = {}
        self._searching: dict[ReplicaSetClient, asyncio.Task[None]] = {}
        self.reads = 0  # of the config servers' table
        self.refusals = 0  # by a shard, because of the version
        self.returned = 0  # operations the router mongod got after a shard had refused them

    def target(self, data: bytes, name_end: int, body_end: int, command: str) -> Target | None:
        """The shard a message is for; None for the way through the router mongod.

        `data` is a plain OP_MSG with a forwarded command, whose name and body end at these offsets.
        """
        allowed = _FIELDS.get(command)
        if allowed is None or len(data) > MAX_MESSAGE:
            return None
        try:
            found = fields(data, _BODY)
            if not found.keys() <= allowed:
                return None
            route = self._route(data, name_end, found[b"$db"])
            if route is None or not _plain_options(data, found):
                return None
            if command == "find":
                owner = _owner_by_filter(route, data, _document(data, found, b"filter"))
            else:
                name = _LIST[command]
                start = _only_document(data, name, found.get(name), body_end)
                if command == "insert":
                    owner = route.owner(data, _key_fields(data, start, route.names))
                else:
                    owner = _owner_by_statement(route, data, start, command)
        except (LookupError, ValueError, struct.error):
            return None  # malformed, or nothing known here: the router mongod answers that
        return owner

    def _route(self, data: bytes, name_end: int, database: int) -> Route | None:
        # Both are strings: length, bytes, zero byte; $db has 5 bytes of type and name before it.
        if data[_NAME] != 0x02 or data[database] != 0x02:
            return None
        size = _INT32.unpack_from(data, database + 5)[0]
        namespace = data[database + 9 : database + 8 + size] + b"."
        size = _INT32.unpack_from(data, name_end + 1)[0]
        namespace += data[name_end + 5 : name_end + 4 + size]
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


def _plain_options(data: bytes, found: Mapping[bytes, int]) -> bool:
    """Whether the operation is for the primary, and acknowledged."""
    at = found.get(b"$readPreference")
    if at is not None and _embedded(data, at, b"$readPreference") not in _PRIMARY:
        return False
    at = found.get(b"writeConcern")
    if at is None:
        return True
    concern = _embedded(data, at, b"writeConcern")
    return not any(element in concern for element in _UNACKNOWLEDGED)


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
