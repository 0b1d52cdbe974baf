"""Hostile clients that speak the protocol well: cursors, sessions, exhaust, huge and nested commands in a row.

A conversation is some commands on one connection, each of which may go on with the cursor the last one left. Several
run side by side, and meanwhile two other clients use a cursor each, one over both shards, one that waits at the end of
a capped collection.
"""

import concurrent.futures
import contextlib
import random
import reprlib
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import bson
from bson import Int64
from pymongo import CursorType
from pymongo.errors import PyMongoError

from microshard.embedded import wire
from tests.cluster.embedded.lab import SmallCluster, children, running
from tests.faults.hostile import DATABASE, EXTRA, LSID
from tests.faults.table import Row

DOCUMENTS = 200
BATCH, SIDE_BY_SIDE = 20, 4  # conversations
TIMEOUT = 3.0  # seconds for a reply
LIMIT = 40_000_000  # bytes of the largest reply read
_STAGES = (
    "$addFields $backupCursor $backupCursorExtend $bucketAuto $changeStream $collStats $currentOp $densify $documents "
    "$facet $fill $geoNear $graphLookup $group $indexStats $limit $listLocalSessions $listSessions $lookup $match "
    "$merge $mergeCursors $operationMetrics $out $planCacheStats $project $queue $redact $replaceRoot $sample $search "
    "$setWindowFields $shardedDataDistribution $skip $sort $sortByCount $unionWith $unset $unwind "
    "$_addReshardingResumeId $_internalAllCollectionStats $_internalApplyOplogUpdate $_internalBoundedSort "
    "$_internalChangeStreamAddPreImage $_internalFindAndModifyImageLookup $_internalInhibitOptimization "
    "$_internalReshardingIterateTransaction $_internalReshardingOwnershipMatch $_internalSetWindowFields "
    "$_internalShardFilter $_internalSplitPipeline $_internalUnpackBucket $_unpackBucket"
)
_FIND_OPTIONS: dict[str, list[Any]] = {
    "tailable": [True, False, 1], "awaitData": [True], "noCursorTimeout": [True], "allowPartialResults": [True],
    "singleBatch": [True], "showRecordId": [True], "returnKey": [True], "oplogReplay": [True], "readOnce": [True],
    "$_requestResumeToken": [True], "$_resumeAfter": [{}, {"$recordId": Int64(1)}], "term": [Int64(1)],
    "sort": [{"k": -1}, {"$natural": 1}, {"x": {"$meta": "textScore"}}], "hint": [{"$natural": 1}, "none"],
    "ntoreturn": [3], "min": [{"k": 1}], "max": [{"k": 5}], "limit": [-1, 5], "skip": [3],
    "collation": [{"locale": "de"}],
    "readConcern": [{"level": level} for level in ("local", "available", "majority", "linearizable", "snapshot")],
    "$readPreference": [{"mode": mode} for mode in ("secondary", "nearest", "secondaryPreferred")],
}  # fmt: skip
_SHORT = reprlib.Repr()  # commands may be too deep for repr, and too long to print
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxlist = 9, 20, 12
_SESSION: list[dict[str, Any]] = [
    {"lsid": LSID}, {"lsid": LSID, "txnNumber": Int64(1)}, {"txnNumber": Int64(1)}, {"autocommit": False},
    {"lsid": LSID, "txnNumber": Int64(2), "autocommit": False, "startTransaction": True}, {"stmtIds": [1, 2]},
]  # fmt: skip


def _command(rng: random.Random, cursor: int) -> dict[str, Any]:
    """The next command, which continues or ends the last cursor if there is one."""
    collection = rng.choice(["numbers", "tail", "tail", "missing", "system.profile"])
    size = rng.choice([0, 1, 3, 100])
    if cursor and rng.random() < 0.7:
        if rng.random() < 0.15:
            return {"killCursors": collection, "cursors": [Int64(cursor)]}
        more = {"maxTimeMS": 30} if rng.random() < 0.5 else {}
        return {"getMore": Int64(cursor), "collection": collection, "batchSize": size, **more}
    find: dict[str, Any] = {"find": collection, "filter": {}, "batchSize": size}
    find |= {name: rng.choice(_FIND_OPTIONS[name]) for name in rng.sample(sorted(_FIND_OPTIONS), rng.randrange(3))}
    values: list[Any] = [{}, 1, "numbers", "$k", [], {"into": "junk"}, {"a": [{"$match": {}}]}, {"coll": "numbers"},
                         {"from": "numbers", "as": "x", "pipeline": []}]  # fmt: skip
    stages = [{rng.choice(_STAGES.split()): rng.choice(values)} for _ in range(rng.randrange(1, 4))]
    return rng.choice([
        find, find, {**find, "tailable": True, "awaitData": True},
        {"aggregate": rng.choice([collection, 1]), "pipeline": stages, "cursor": {"batchSize": size}},
        {"explain": find, "verbosity": rng.choice(["queryPlanner", "executionStats", "allPlansExecution"])},
        {"listCollections": 1, "cursor": {"batchSize": size}}, {"listIndexes": collection, "cursor": {"batchSize": 0}},
        {"count": collection, "query": {"$where": rng.choice(["1", "while (true) {}", "("])}, "maxTimeMS": 100},
        {"distinct": collection, "key": rng.choice(["k", "k.0", "", "a." * 90, "$k"]), "query": _nested(rng)},
        {"insert": "junk", "documents": [{"x": _nested(rng)}, {"y": "x" * rng.choice([1, 15_000_000])}]},
        {"insert": "junk", "documents": [{} for _ in range(rng.choice([0, 1, 100_001]))], "ordered": False},
        {"update": "junk", "updates": [{"q": _nested(rng), "u": {"$set": {"a": _nested(rng)}}}]},
        {"findAndModify": "junk", "query": _nested(rng), "update": {"$set": {"a": 1}}},
        {"mapReduce": "numbers", "map": "function() { emit(1, this) }", "reduce": "function() {", "out": {"inline": 1}},
        {"startSession": 1}, {"hello": 1, "maxAwaitTimeMS": 10, "topologyVersion": {}},
    ])  # fmt: skip


def _nested(rng: random.Random) -> Any:
    value: Any = {"$and": [{}]}
    for _ in range(rng.choice([0, 1, 20, 90, 150, 176, 180, 200, 400, 3000])):
        value = (
            rng.choice([{"$and": [value]}, {"a": value}, {"$or": [value]}]) if rng.random() < 0.9 else {"a": [value]}
        )
    return value


def _read(client: socket.socket) -> bytes:
    """One whole message. OSError when the connection ends or is silent."""
    data = b""
    while len(data) < 4 or len(data) < struct.unpack_from("<i", data)[0]:
        part = client.recv(1 << 20)
        if not part or len(data) > LIMIT:
            raise ConnectionError("closed, or without end")
        data += part
    return data


def converse(port: int, rng: random.Random) -> list[dict[str, Any]]:
    """One conversation; returns its commands."""
    said: list[dict[str, Any]] = []
    cursor = 0
    with socket.socket() as client, contextlib.suppress(OSError, wire.ProtocolError):
        client.settimeout(TIMEOUT)
        client.connect(("127.0.0.1", port))
        for _ in range(rng.randrange(1, 12)):
            command = _command(rng, cursor)
            if rng.random() < 0.15:
                command |= rng.choice(_SESSION)
            if rng.random() < 0.15:
                name = rng.choice(sorted(EXTRA))
                command[name] = EXTRA[name]
            said.append(command)
            try:
                body = bson.encode({**command, "$db": rng.choice([DATABASE] * 9 + ["admin", "config", "local"])})
            except (bson.errors.BSONError, RecursionError):
                continue  # too deep for the driver's own encoder
            flags = rng.choice([0] * 6 + [wire.EXHAUST_ALLOWED, wire.MORE_TO_COME])
            client.sendall(wire.build(body, flags=flags))
            if flags == wire.MORE_TO_COME or rng.random() < 0.05:
                continue
            reply = wire.decode(wire.parse(_read(client)).body)
            found = reply.get("cursor")
            cursor = found["id"] if isinstance(found, dict) else 0
    return said


class Bystanders:
    """Two clients with an open cursor each, and the router mongod they depend on."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.mongos, self.router = cluster.mongos, cluster.mongos.router_pid()
        self.database = cluster.mongos.client(serverSelectionTimeoutMS=10_000, socketTimeoutMS=20_000)[DATABASE]
        self.database.drop_collection("tail")
        self.database.create_collection("tail", capped=True, size=1 << 20)
        self.database.tail.insert_one({"number": 0})
        self.numbers = iter(self.database.numbers.find({}, batch_size=2))
        self.tail = self.database.tail.find({}, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(2000)
        self.read = self.written = 0

    def wrong(self) -> Iterator[str]:
        """What a hostile client has broken."""
        if not running(self.router) or self.router not in children(self.mongos.pid):
            yield "the router mongod was replaced"
        try:
            self.read += sum(1 for _ in zip(range(2), self.numbers, strict=False))
            if self.read == DOCUMENTS:
                self.numbers, self.read = iter(self.database.numbers.find({}, batch_size=2)), 0
            self.written += 1
            self.database.tail.insert_one({"number": self.written})
            while next(self.tail)["number"] < self.written:
                pass
        except (PyMongoError, StopIteration) as error:
            yield f"another client's cursor ended: {error!r}"


def campaign(cluster: SmallCluster, seed: int, commands: int, tell: Callable[[str], None] = lambda _: None) -> Row:
    """Conversations of so many commands in all, in batches; during each and after it, what the bystanders have."""
    rng = random.Random(seed)
    row = Row("commands of conversations", "embedded mongos")
    bystanders = Bystanders(cluster)
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as clients:
        while row.times < commands and not row.lost:
            seeds = [rng.random() for _ in range(BATCH)]
            batch = [clients.submit(converse, cluster.mongos.port, random.Random(each)) for each in seeds]
            wrong: list[str] = []
            while not wrong and not all(conversation.done() for conversation in batch):
                wrong += bystanders.wrong()
            said = [conversation.result() for conversation in batch]
            wrong += bystanders.wrong()
            row.times += sum(map(len, said))
            row.lost += [f"{what}; seed {seed}, with {_SHORT.repr(said)}" for what in wrong]
            tell(f"{row.times:,} of {commands:,} commands")
    return row
