"""Reads and writes the router mongod has no cluster form of, and what belongs to cursors and running operations."""

import asyncio
from typing import Any

from bson import Int64

from microshard.embedded import wire
from microshard.embedded.cluster import UNSHARDED, checked
from microshard.embedded.errors import (
    BAD_VALUE,
    COMMAND_NOT_SUPPORTED,
    CURSOR_NOT_FOUND,
    FAILED_TO_PARSE,
    NAMESPACE_NOT_FOUND,
    NOT_SUPPORTED_ON_VIEW,
    SHARD_KEY_NOT_FOUND,
    CommandError,
)
from microshard.embedded.nodes import failed
from microshard.embedded.registry import Reply, Request, command
from microshard.embedded.targeting import owner_of, shard_key_of

_READ_OPTIONS = ("hint", "collation", "readConcern", "maxTimeMS", "comment", "$readPreference", "let")


@command("count")
async def _count(request: Request) -> Reply:
    query = request.document.get("query") or {}
    limit, skip = int(request.document.get("limit") or 0), int(request.document.get("skip") or 0)
    if skip < 0:
        raise CommandError(BAD_VALUE, f"BSON field 'skip' value must be >= 0, actual value '{skip}'")
    if not query and not limit and not skip and "hint" not in request.document:
        counted = await _count_by_metadata(request)
        if counted is not None:
            return {"n": counted}
    pipeline: list[Any] = [{"$match": query}]
    if skip:
        pipeline.append({"$skip": Int64(skip)})
    if limit:
        pipeline.append({"$limit": Int64(abs(limit))})
    pipeline.append({"$count": "n"})
    results = await request.cluster.aggregate(
        request.database, request.collection, pipeline, request.fields(*_READ_OPTIONS)
    )
    return {"n": results[0]["n"] if results else 0}


async def _count_by_metadata(request: Request) -> int | None:
    """As a mongos counts without a query: the sum of what the shards have recorded; None for a view."""
    options = request.fields("maxTimeMS", "comment", "$readPreference")
    stats: list[Any] = [{"$collStats": {"count": {}}}]
    try:
        results = await request.cluster.aggregate(request.database, request.collection, stats, options)
    except CommandError as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return 0
        if error.code == NOT_SUPPORTED_ON_VIEW:
            return None
        raise
    return sum(int(entry["count"]) for entry in results)


@command("distinct")
async def _distinct(request: Request) -> Reply:
    results = await request.cluster.aggregate(
        request.database, request.collection, distinct_pipeline(request), request.fields(*_READ_OPTIONS)
    )
    return {"values": [entry["_id"] for entry in results]}


def distinct_pipeline(request: Request) -> list[Any]:
    """The aggregation that finds the distinct values of a key: elements of arrays on its way count one by one."""
    key = request.text("key")
    names = key.split(".")
    if any(name.isdigit() for name in names):
        raise CommandError(
            COMMAND_NOT_SUPPORTED, "distinct on an array position is not supported by the embedded mongos."
        )
    pipeline: list[Any] = [{"$match": request.document.get("query") or {}}]
    for depth in range(1, len(names) + 1):
        path = "$" + ".".join(names[:depth])
        # null is a value, an empty array or an absent field is none: both come out of $unwind as absent
        pipeline.append({"$unwind": {"path": path, "preserveNullAndEmptyArrays": True}})
        if depth < len(names):
            pipeline.append({"$match": {"$expr": {"$eq": [{"$type": path}, "object"]}}})
    pipeline.append({"$match": {"$expr": {"$ne": [{"$type": f"${key}"}, "missing"]}}})
    # mongos merges the shards' values in order
    return [*pipeline, {"$group": {"_id": f"${key}"}}, {"$sort": {"_id": 1}}]


@command("findAndModify", "findandmodify")
async def _find_and_modify(request: Request) -> Reply:
    cluster = request.cluster
    rest = request.durably

    async def attempt() -> bytes:
        collection = await cluster.collection(request.namespace)
        if collection is None or not collection.versions:
            database = await cluster.create_database(request.database)
            shard, versions = database.primary, {"shardVersion": UNSHARDED, "databaseVersion": database.version}
        else:
            query = request.document.get("query") or {}
            key = shard_key_of(collection.key, query, request.document.get("collation"))
            if key is None:
                raise CommandError(SHARD_KEY_NOT_FOUND, "Query for sharded findAndModify must contain the shard key")
            shard, versions = await owner_of(cluster, collection, key)
        return await (await cluster.shard(shard)).call_raw(request.database, {**rest, **versions})

    return await cluster.retrying(attempt)


@command("getMore")
async def _get_more(request: Request) -> Reply:
    """Only for cursors that live on a shard or config server; the others take the short way."""
    cursor = request.document["getMore"]
    node = request.front.pins.get(cursor)
    if node is None:
        raise CommandError(CURSOR_NOT_FOUND, f"Cursor not found (id: {cursor}).")
    body = await node.call_raw(request.database, request.passed_on)
    if failed(body) or not wire.decode_raw(body)["cursor"]["id"]:
        request.front.pins.pop(cursor, None)
    return body


@command("killCursors")
async def _kill_cursors(request: Request) -> Reply:
    cursors = request.document.get("cursors")
    if not isinstance(cursors, list) or not all(isinstance(cursor, int) for cursor in cursors):
        raise CommandError(FAILED_TO_PARSE, "BSON field 'killCursors.cursors' is not an array of cursor ids")
    killed = await asyncio.gather(*(_kill_cursor(request, cursor) for cursor in cursors))
    return {
        "cursorsKilled": [Int64(cursor) for cursor, done in zip(cursors, killed, strict=True) if done],
        "cursorsNotFound": [Int64(cursor) for cursor, done in zip(cursors, killed, strict=True) if not done],
        "cursorsAlive": [],
        "cursorsUnknown": [],
    }


async def _kill_cursor(request: Request, cursor: int) -> bool:
    node = request.front.pins.pop(cursor, None)
    if node is not None:
        kill = {"killCursors": request.collection, "cursors": [Int64(cursor)]}
        return bool(checked(await node.call_raw(request.database, kill))["cursorsKilled"])
    # killCursors of the router mongod does not know cluster cursors. A getMore with maxTimeMS is refused for every
    # cursor but a tailable one, and a cluster cursor does not survive a refused getMore.
    pool = await request.cluster.router_pool()
    more = {"clusterGetMore": Int64(cursor), "collection": request.collection, "maxTimeMS": 1}
    reply = wire.decode(await pool.call_raw(request.database, more))
    if reply.get("ok") and reply["cursor"]["id"]:
        return False
    return reply.get("code") != CURSOR_NOT_FOUND


@command("currentOp", admin_only=True)
async def _current_op(request: Request) -> Reply:
    own = {"currentOp", "$all", "$ownOps", "comment", "maxTimeMS", "$truncateOps"}
    stage: dict[str, Any] = {"idleConnections": bool(request.document.get("$all"))}
    match = {key: value for key, value in request.passed_on.items() if key not in own}
    pipeline: list[Any] = [{"$currentOp": stage}, {"$match": match}]
    # aggregate without a collection
    command_ = {"clusterAggregate": 1, "pipeline": pipeline, "cursor": {"batchSize": 100_000}}
    reply = checked(await request.cluster.through_router("admin", command_))
    return {"inprog": reply["cursor"]["firstBatch"]}


@command("killOp", admin_only=True)
async def _kill_op(request: Request) -> Reply:
    operation = request.document.get("op")
    if isinstance(operation, str) and ":" in operation:
        shard, _, number = operation.rpartition(":")
        if not number.isdigit():
            raise CommandError(
                BAD_VALUE, f"The op argument to killOp must be of the format shardid:opid, not {operation}"
            )
        return checked(await (await request.cluster.shard(shard)).call_raw("admin", {"killOp": 1, "op": int(number)}))
    if not isinstance(operation, (int, float)):
        raise CommandError(BAD_VALUE, "killOp needs op: a number, or shard:number for an operation on a shard")
    return checked(await request.cluster.through_router("admin", {"killOp": 1, "op": int(operation)}))
