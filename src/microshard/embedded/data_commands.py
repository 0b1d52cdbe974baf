"""Reads and writes the router mongod has no cluster form of, their explain, cursors and running operations."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import bson
from bson import Int64

from microshard.embedded import api_version, refusals, wire
from microshard.embedded.cluster import UNSHARDED, shard_key_of
from microshard.embedded.errors import (
    DISTINCT_TOO_BIG,
    STALE_ROUTING,
    CommandError,
    ErrorCode,
    failed,
    failed_with,
    require_ok,
)
from microshard.embedded.mongod_connections import Document
from microshard.embedded.server import Command, Reply, Request

_READ_OPTIONS = ("hint", "collation", "readConcern", "maxTimeMS", "comment", "$readPreference", "let")
# A find, count or distinct may contain them, the $match of an aggregation may not.
_NOT_IN_MATCH = frozenset({"$where", "$near", "$nearSphere"})
_MAX_REPLY = 16 * 1024 * 1024  # bytes of BSON
_NEEDS_SHARD_KEY = "Query for sharded findAndModify must contain the shard key"


async def _count(request: Request) -> Reply:
    """Count by an aggregation, without a query by metadata; with operators aggregations lack on each shard."""
    request.allow_only("query", "limit", "skip", "hint", "collation", "fields")
    query = request.document.get("query") or {}
    limit, skip = int(request.document.get("limit") or 0), int(request.document.get("skip") or 0)
    if skip < 0:
        raise CommandError(ErrorCode.BadValue, f"BSON field 'skip' value must be >= 0, actual value '{skip}'")
    if not query and not limit and not skip and "hint" not in request.document:
        counted = await _count_by_metadata(request)
        if counted is not None:
            return {"n": counted}
    if _mentions(query, _NOT_IN_MATCH):
        command = {**request.read_command, "limit": Int64(abs(limit) + skip if limit else 0), "skip": Int64(0)}
        replies = await _on_shards(request, command)
        if replies is not None:
            rest = max(sum(reply["n"] for reply in replies) - skip, 0)
            return {"n": min(rest, abs(limit)) if limit else rest}
    pipeline: list[Any] = [{"$match": query}]
    if skip:
        pipeline.append({"$skip": Int64(skip)})
    if limit:
        pipeline.append({"$limit": Int64(abs(limit))})
    results = await _read(request, [*pipeline, {"$count": "n"}])
    return {"n": results[0]["n"] if results else 0}


def _mentions(value: Any, names: frozenset[str]) -> bool:
    if isinstance(value, Mapping):
        return any(key in names or _mentions(inner, names) for key, inner in value.items())
    return isinstance(value, list) and any(_mentions(inner, names) for inner in value)


async def _on_shards(request: Request, command: Document) -> list[Document] | None:
    """The replies of the shards that own a collection; None for a view that needs more than one. CommandError."""
    try:
        replies = await request.cluster.on_owners(request.database, request.collection, command)
    except CommandError as error:
        if error.code == ErrorCode.NamespaceNotFound:  # no such database
            return []
        raise
    if any(reply.get("code") == ErrorCode.CommandOnShardedViewNotSupportedOnMongod for reply in replies.values()):
        return None
    require_ok(replies)
    return list(replies.values())


async def _aggregate(request: Request, pipeline: list[Any], *options: str) -> list[Any]:
    return await request.cluster.aggregate(request.database, request.collection, pipeline, request.fields(*options))


async def _read(request: Request, pipeline: list[Any]) -> list[Any]:
    """As above with the options of a read; its read concern may be the cluster's default."""
    options = {**request.server.default_read_concern, **request.fields(*_READ_OPTIONS)}
    return await request.cluster.aggregate(request.database, request.collection, pipeline, options)


async def _count_by_metadata(request: Request) -> int | None:
    """As a mongos counts without a query: the sum of the counts the shards have recorded; None for a view."""
    try:
        stages: list[Any] = [{"$collStats": {"count": {}}}]
        results = await _aggregate(request, stages, "maxTimeMS", "comment", "$readPreference")
    except CommandError as error:
        if error.code == ErrorCode.NamespaceNotFound:
            return 0
        if error.code == ErrorCode.CommandNotSupportedOnView:
            return None
        raise
    if any(entry["ns"] != request.namespace for entry in results):
        return None  # a time series, of which newer servers count the buckets
    return sum(int(entry["count"]) for entry in results)


async def _distinct(request: Request) -> Reply:
    """The distinct values of a field, in order, by an aggregation; by each shard what aggregations lack.

    As with a mongos, a shard's own answer may contain values of orphans.
    """
    request.allow_only("key", "query", "collation")
    key, replies = request.text("key"), None
    if any(name.isdigit() for name in key.split(".")) or _mentions(request.document.get("query"), _NOT_IN_MATCH):
        replies = await _on_shards(request, request.read_command)
    if replies is None:
        results = await _read(request, _distinct_pipeline(request, key))
    else:
        results = await _merged_values(request, [value for reply in replies for value in reply["values"]])
    body = bson.encode({"values": [entry["_id"] for entry in results], "ok": 1.0})
    if len(body) > _MAX_REPLY:
        raise CommandError(DISTINCT_TOO_BIG, "distinct too big, 16mb cap")
    return body


async def _merged_values(request: Request, values: list[Any]) -> list[Document]:
    """Each of some values once and in the server's order, by an aggregation that reads no collection."""
    stages = [{"$documents": [{"v": {"$literal": values}}]}, {"$unwind": "$v"}, {"$group": {"_id": "$v"}}]
    command = {"aggregate": 1, "pipeline": [*stages, {"$sort": {"_id": 1}}], "cursor": {"batchSize": 2**31 - 1}}
    reply = await request.cluster.config.call("admin", {**command, **request.fields("collation")})
    merged: list[Document] = reply["cursor"]["firstBatch"]
    return merged


def _distinct_pipeline(request: Request, key: str) -> list[Any]:
    """The aggregation that finds the distinct values of a key: elements of arrays on its path count one by one."""
    names = key.split(".")
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


async def _find_and_modify(request: Request) -> Reply:
    """Run findAndModify on the shard that owns the shard key."""
    cluster, command = request.cluster, request.durable_command

    async def attempt() -> bytes:
        collection = await cluster.collection(request.namespace)
        if collection is None or not collection.versions:
            database = await cluster.create_database(request.database)
            shard, versions = database.primary, {"shardVersion": UNSHARDED, "databaseVersion": database.version}
        else:
            query = request.document.get("query") or {}
            key = shard_key_of(collection.key, query, request.document.get("collation"))
            if key is None:
                raise CommandError(ErrorCode.ShardKeyNotFound, _NEEDS_SHARD_KEY)
            shard, versions = await cluster.owner_of(collection, key)
        reply = await (await cluster.shard(shard)).call_raw(request.database, {**command, **versions})
        if failed_with(reply, STALE_ROUTING):
            raise CommandError.from_reply(wire.decode(reply))
        return reply  # undecoded: BSON types reach the client as they are

    return await cluster.retrying(attempt)


# --- mapReduce


async def _map_reduce(request: Request) -> Reply:
    """mapReduce as the aggregation a mongos makes of it."""
    if request.document.get("scope"):
        raise refusals.MAP_REDUCE_SCOPE.error()
    call = {"lang": "js"}
    pipeline: list[Any] = [{f"${'match' if name == 'query' else name}": request.document[name]}
                           for name in ("query", "sort", "limit") if request.document.get(name)]  # fmt: skip
    finalize = [{"$project": {"value": {"$function": {"body": body, "args": ["$_id", "$value"], **call}}}}
                for body in [request.document.get("finalize")] if body is not None]  # fmt: skip
    reduce = request.document.get("reduce")
    pipeline += [
        {
            "$project": {
                "_id": 0,
                "emits": {"$_internalJsEmit": {"eval": request.document.get("map"), "this": "$$ROOT"}},
            }
        },
        {"$unwind": "$emits"},
        {"$group": {"_id": "$emits.k", "value": {"$_internalJsReduce": {"data": "$emits", "eval": reduce}}}},
    ]
    out = request.document.get("out")
    if isinstance(out, str):
        out = {"replace": out}
    if not isinstance(out, Mapping) or len(ways := out.keys() & {"inline", "replace", "merge", "reduce"}) != 1:
        raise CommandError(
            ErrorCode.BadValue, "'out' must be a collection or have one of inline, replace, merge, reduce"
        )
    (way,) = ways
    into = {"db": out.get("db", request.database), "coll": out[way]}
    if way == "replace":
        pipeline += [*finalize, {"$out": into}]
    elif way == "merge":
        pipeline += [*finalize, {"$merge": {"into": into, "on": "_id", "whenMatched": "replace"}}]
    elif way == "reduce":
        both = {"$function": {"body": reduce, "args": ["$_id", ["$value", "$$new.value"]], **call}}
        pipeline.append({"$merge": {"into": into, "whenMatched": [{"$project": {"value": both}}, *finalize]}})
    else:
        return {"results": await _aggregate(request, [*pipeline, *finalize], *_READ_OPTIONS)}
    # an aggregation's write concern is the cluster's default, as any write's
    await _aggregate(request, pipeline, *_READ_OPTIONS, "writeConcern", "bypassDocumentValidation")
    return {"result": dict(sorted(into.items(), reverse=True)) if "db" in out else out[way]}


# --- cursors


async def _find_tailable(request: Request) -> Reply:
    """A tailable cursor, on the shard itself: a getMore of one would end the router mongod."""
    try:
        found = await request.cluster.on_owners(request.database, request.collection, request.read_command, one=True)
    except CommandError as error:
        if error.code == ErrorCode.NamespaceNotFound:  # no such database
            return {"cursor": {"id": Int64(0), "ns": request.namespace, "firstBatch": []}}
        raise
    require_ok(found)
    ((shard, reply),) = found.items()
    return request.remember_cursor(reply, await request.cluster.shard(shard))


async def _get_more(request: Request) -> Reply:
    """Continue a cursor that lives on a shard or config server; getMore of other cursors is forwarded."""
    cursor = request.document["getMore"]
    node = request.server.cursors.get(cursor)
    if node is None:
        raise CommandError(ErrorCode.CursorNotFound, f"Cursor not found (id: {cursor}).")
    body = await node.call_raw(request.database, request.command)
    if failed(body) or not wire.decode_raw(body)["cursor"]["id"]:
        request.server.cursors.pop(cursor, None)
    return body


async def _kill_cursors(request: Request) -> Reply:
    cursors = request.document.get("cursors")
    if not isinstance(cursors, list) or not all(isinstance(cursor, int) for cursor in cursors):
        raise CommandError(ErrorCode.FailedToParse, "BSON field 'killCursors.cursors' is not an array of cursor ids")
    killed = await asyncio.gather(*(_kill_cursor(request, cursor) for cursor in cursors))
    return {
        "cursorsKilled": [Int64(cursor) for cursor, done in zip(cursors, killed, strict=True) if done],
        "cursorsNotFound": [Int64(cursor) for cursor, done in zip(cursors, killed, strict=True) if not done],
        "cursorsAlive": [],
        "cursorsUnknown": [],
    }


async def _kill_cursor(request: Request, cursor: int) -> bool:
    node = request.server.cursors.pop(cursor, None)
    if node is not None:
        kill = {"killCursors": request.collection, "cursors": [Int64(cursor)]}
        return bool((await node.call(request.database, kill))["cursorsKilled"])
    # killCursors of the router mongod does not know cluster cursors. A getMore with maxTimeMS is refused for every
    # cursor but a tailable one, and a cluster cursor does not survive a refused getMore.
    pool = await request.cluster.router_pool()
    more = {"clusterGetMore": Int64(cursor), "collection": request.collection, "maxTimeMS": 1}
    reply = wire.decode(await pool.call_raw(request.database, more))
    if reply.get("ok") and reply["cursor"]["id"]:
        return False
    return reply.get("code") != ErrorCode.CursorNotFound


# --- running operations


async def _current_op(request: Request) -> Reply:
    """Operations of all shards, by an aggregation without a collection."""
    options = {"currentOp", "$all", "$ownOps", "comment", "maxTimeMS", "$truncateOps", *api_version.FIELDS}
    match = {key: value for key, value in request.command.items() if key not in options}
    pipeline = [{"$currentOp": {"idleConnections": bool(request.document.get("$all"))}}, {"$match": match}]
    command = {"clusterAggregate": 1, "pipeline": pipeline, "cursor": {"batchSize": 100_000}}
    reply = await request.cluster.through_router("admin", command)
    return {"inprog": reply["cursor"]["firstBatch"]}


async def _kill_op(request: Request) -> Reply:
    """Kill an operation of the router mongod, or of a shard as `shard:number`."""
    operation = request.document.get("op")
    if isinstance(operation, str) and ":" in operation:
        shard, _, number = operation.rpartition(":")
        if not number.isdigit():
            message = f"The op argument to killOp must be of the format shardid:opid, not {operation}"
            raise CommandError(ErrorCode.BadValue, message)
        return await request.cluster.on_shard(shard, "admin", {"killOp": 1, "op": int(number)})
    if not isinstance(operation, (int, float)):
        message = "killOp needs op: a number, or shard:number for an operation on a shard"
        raise CommandError(ErrorCode.BadValue, message)
    return await request.cluster.through_router("admin", {"killOp": 1, "op": int(operation)})


# --- explain


async def _explain(request: Request) -> Reply:
    """Explain reads by the router mongod, and commands without a cluster form from the shards' explanations."""
    inner = dict(request.mapping("explain"))
    name = next(iter(inner), "")
    options = request.fields("verbosity", "comment", "maxTimeMS")
    if name in ("find", "aggregate"):
        renamed = {"clusterFind" if name == "find" else "clusterAggregate": inner.pop(name), **inner}
        if name == "aggregate":
            renamed.setdefault("cursor", {})
        command = {"explain": renamed, **options, **request.fields("$readPreference")}
        reply = await request.cluster.through_router(request.database, command)
        if isinstance(reply.get("command"), dict):  # which names the internal form
            internal = {key: value for key, value in reply["command"].items() if not key.startswith("cluster")}
            reply["command"] = {name: request.mapping("explain")[name], **internal}
        return reply
    # The router mongod explains these by asking a shard for the same cluster form, and that shard itself, without end.
    if name not in ("count", "distinct", "findAndModify", "findandmodify", "update", "delete"):
        raise CommandError(ErrorCode.CommandNotSupported, f"explain of {name} is not supported.")
    replies = await _explain_on_shards(request, name, inner, options)
    hosts = {shard: node.connection_string for shard, node in (await request.cluster.shards()).items()}
    return _merge_explanations(replies, inner, hosts)


def _query_and_collation(name: str, inner: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    if name in ("update", "delete"):
        statements = inner.get(name + "s")
        if not isinstance(statements, list) or len(statements) != 1:
            raise CommandError(ErrorCode.InvalidOptions, "explained write batches must be of size 1")
        return statements[0].get("q", {}), statements[0].get("collation")
    return inner.get("query") or {}, inner.get("collation")


async def _explain_on_shards(request: Request, name: str, inner: Document, options: Document) -> dict[str, Document]:
    cluster, target = request.cluster, inner[name]
    if not isinstance(target, str):
        raise CommandError(ErrorCode.InvalidNamespace, "collection name has invalid type")
    query, collation = _query_and_collation(name, inner)

    async def attempt() -> dict[str, Document]:
        collection = await cluster.collection(f"{request.database}.{target}")
        key = shard_key_of(collection.key, query, collation) if collection is not None else None
        if collection is None or key is None:
            if collection is not None and name.lower() == "findandmodify":
                raise CommandError(ErrorCode.ShardKeyNotFound, _NEEDS_SHARD_KEY)
            replies = await cluster.on_owners(request.database, target, {"explain": inner, **options})
            require_ok(replies)
            return replies
        shard, versions = await cluster.owner_of(collection, key)
        # The version belongs to the explained command, whose collection the shard checks.
        command = {"explain": {**inner, **versions}, **options}
        return {shard: await cluster.on_shard(shard, request.database, command)}

    return await cluster.retrying(attempt)


def _merge_explanations(replies: dict[str, Document], inner: Document, hosts: dict[str, str]) -> Document:
    """One explanation in mongos's form from the shards'."""
    stage = "SINGLE_SHARD" if len(replies) == 1 else "SHARD_MERGE"
    planners = [
        {"shardName": shard, "connectionString": hosts[shard], "serverInfo": reply.get("serverInfo", {}),
         **reply.get("queryPlanner", {})}
        for shard, reply in replies.items()
    ]  # fmt: skip
    answer: Document = {
        "queryPlanner": {"mongosPlannerVersion": 1, "winningPlan": {"stage": stage, "shards": planners}}
    }
    executed = {shard: reply["executionStats"] for shard, reply in replies.items() if "executionStats" in reply}
    if executed:
        totals = {
            name: sum(stats.get(name, 0) for stats in executed.values())
            for name in ("nReturned", "totalKeysExamined", "totalDocsExamined")
        }
        totals["executionTimeMillis"] = max(stats.get("executionTimeMillis", 0) for stats in executed.values())
        stages = [{"shardName": shard, **stats} for shard, stats in executed.items()]
        answer["executionStats"] = {**totals, "executionStages": {"stage": stage, **totals, "shards": stages}}
    return {**answer, "serverInfo": {"host": os.uname().nodename}, "command": inner}


COMMANDS = {
    "count": Command(_count),
    "distinct": Command(_distinct),
    "explain": Command(_explain),
    "find": Command(_find_tailable, config_forward=True),
    "findAndModify": Command(_find_and_modify, config_forward=True),
    **dict.fromkeys(("mapReduce", "mapreduce"), Command(_map_reduce)),
    "getMore": Command(_get_more),
    "killCursors": Command(_kill_cursors),
    "currentOp": Command(_current_op, admin_only=True),
    "killOp": Command(_kill_op, admin_only=True),
}
