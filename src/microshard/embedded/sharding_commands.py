"""Administration of shards, chunks and zones: mongos's commands translated to those of config servers and shards."""

from collections.abc import Callable, Mapping
from typing import Any

from microshard.embedded.cluster import MAJORITY, ShardedCollection, shard_key_of
from microshard.embedded.errors import CommandError, ErrorCode
from microshard.embedded.mongod_connections import Document
from microshard.embedded.server import Command, Handler, Reply, Request, through_router

MOVE_TIME_LIMIT = 3_600_000  # ms; a move that waits for the deletion of orphans takes 15 min and more by default
BALANCER_STOP_LIMIT = 60_000  # ms; how long a mongos waits for the round under way


async def _on_config(request: Request, internal: Mapping[str, Any]) -> Document:
    return await request.cluster.config.call("admin", {**internal, **MAJORITY})


def _config_command(internal: str, value: Callable[[Request], Any], *fields: str, **constants: Any) -> Handler:
    """A handler that runs the config server's `internal` form of a command, with some of the command's fields."""

    async def handler(request: Request) -> Reply:
        command = {internal: value(request), **constants, **request.fields(*fields)}
        return await request.cluster.config.call("admin", command)

    return handler


def _one(_request: Request) -> int:
    return 1


def _name(request: Request) -> str:
    return request.text(request.name)


def _namespace(request: Request) -> str:
    return request.full_namespace


async def _config_server_command(request: Request) -> Reply:
    """Run a command that the config server knows by the same name."""
    command = {key: value for key, value in request.command.items() if key != "inMemory"}
    return await request.cluster.config.call(request.database, command)


async def _set_for_cluster(request: Request) -> Reply:
    """Set what the config servers keep for the whole cluster, and follow it at once."""
    reply = await _config_server_command(request)
    await request.server.follow_cluster()
    return reply


# --- shards


async def _add_shard(request: Request) -> Reply:
    reply = await _on_config(request, {"_configsvrAddShard": _name(request), **request.fields("name")})
    await request.cluster.shards()
    return reply


async def _remove_shard(request: Request) -> Reply:
    """Begin, or report the progress of, draining a shard."""
    return await _on_config(request, {"_configsvrRemoveShard": await request.cluster.shard_id(_name(request))})


async def _list_shards(request: Request) -> Reply:
    return {"shards": await request.cluster.config_documents("shards", {})}


# --- databases and collections


def _require_user_database(name: str) -> None:
    if name in ("admin", "local"):
        raise CommandError(ErrorCode.IllegalOperation, f"can't shard {name} collections")


async def _enable_sharding(request: Request) -> Reply:
    """Create a database, on the given primary shard if there is one."""
    name, primary = _name(request), request.document.get("primaryShard")
    _require_user_database(name)
    await request.cluster.create_database(name, await request.cluster.shard_id(primary) if primary else None)
    return {}


async def _move_primary(request: Request) -> Reply:
    """Move the unsharded collections of a database to another shard."""
    name = _name(request)
    to = await request.cluster.shard_id(request.text("to"))
    database = await request.cluster.database(name)
    if database is None:
        raise CommandError(ErrorCode.NamespaceNotFound, f"database {name} not found")
    if database.primary != to:
        move = {"_shardsvrMovePrimary": name, "to": to, "databaseVersion": database.version, **MAJORITY}
        await request.cluster.on_shard(database.primary, "admin", move)
        await request.cluster.forget_routing(name)
    return {}


async def _shard_collection(request: Request) -> Reply:
    namespace = request.full_namespace
    database, _, name = namespace.partition(".")
    _require_user_database(database)
    key = request.mapping("key")
    if not key:
        raise CommandError(ErrorCode.BadValue, "Shard key pattern must not be empty")
    options = request.fields("unique", "numInitialChunks", "presplitHashedZones", "collation", "timeseries",
                             "collectionUUID", "implicitlyCreateIndex", "enforceUniquenessCheck")  # fmt: skip
    command = {"_shardsvrCreateCollection": name, "shardKey": key, **options, **MAJORITY}
    await request.cluster.on_primary(database, command, create=True)
    await request.cluster.forget_routing(namespace)
    request.server.targeting.forget()
    return {"collectionsharded": namespace}


async def _refine_shard_key(request: Request) -> Reply:
    database, _, name = request.full_namespace.partition(".")
    refine = {"_shardsvrRefineCollectionShardKey": name, "newShardKey": request.mapping("key"), **MAJORITY}
    reply = await request.cluster.on_primary(database, refine)
    await request.cluster.forget_routing(request.full_namespace)
    return reply


async def _reshard_collection(request: Request) -> Reply:
    """Redistribute a collection by another shard key; its documents stay readable and writable."""
    namespace = request.full_namespace
    await request.cluster.sharded(namespace)
    options = request.fields("unique", "collation", "_presetReshardedChunks", "zones", "numInitialChunks",
                             "collectionUUID")  # fmt: skip
    command = {"_shardsvrReshardCollection": namespace, "key": request.mapping("key"), **options, **MAJORITY}
    await request.cluster.on_primary(namespace.partition(".")[0], command, run_on="admin")
    await request.cluster.forget_routing(namespace)
    return {}


async def _get_shard_version(request: Request) -> Reply:
    collection = await request.cluster.sharded(request.full_namespace)
    newest = max(collection.versions.values())
    return {"version": newest, "versionEpoch": collection.epoch, "versionTimestamp": collection.timestamp}


async def _balancer_stop(request: Request) -> Reply:
    limit = request.fields("maxTimeMS") or {"maxTimeMS": BALANCER_STOP_LIMIT}
    return await request.cluster.config.call("admin", {"_configsvrBalancerStop": 1, **limit})


# --- chunks


def _show(bound: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in bound.items()) + "}"


def _is_bound_of(collection: ShardedCollection, bound: Any) -> bool:
    return isinstance(bound, Mapping) and list(bound) == list(collection.key)


def _bounds(request: Request) -> tuple[Any, Any]:
    bounds = request.document.get("bounds")
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise CommandError(ErrorCode.FailedToParse, "bounds must be an array of two documents")
    return bounds[0], bounds[1]


async def _chunk(request: Request, collection: ShardedCollection) -> Document:
    """The chunk a command names by `find` (a document's shard key) or by `bounds`."""
    if "find" in request.document:
        key = shard_key_of(collection.key, request.mapping("find"))
        if key is None:
            message = f"no shard key found in chunk query {_show(request.mapping('find'))}"
            raise CommandError(ErrorCode.ShardKeyNotFound, message)
        return await request.cluster.chunk_of(collection, await request.cluster.hashed_key(collection, key))
    low, high = _bounds(request)
    if not _is_bound_of(collection, low) or not _is_bound_of(collection, high):
        raise CommandError(ErrorCode.BadValue, f"shard key bounds must have the fields {list(collection.key)}")
    query = {"uuid": collection.uuid, "min": low, "max": high}
    for chunk in await request.cluster.config_documents("chunks", query):
        return chunk
    message = f"no chunk found with the shard key bounds [{_show(low)}, {_show(high)})"
    raise CommandError(ErrorCode.BadValue, message)


async def _move_chunk(request: Request) -> Reply:
    chunk = await _chunk(request, await request.cluster.sharded(request.full_namespace))
    wait = request.document.get("_waitForDelete", request.document.get("waitForDelete"))
    throttle = request.document.get("_secondaryThrottle", request.document.get("secondaryThrottle"))
    return await _move(request, chunk["min"], chunk["max"], request.text("to"), wait, throttle)


async def _move_range(request: Request) -> Reply:
    """Move a range inside one chunk."""
    collection = await request.cluster.sharded(request.full_namespace)
    low, high = request.document.get("min"), request.document.get("max")
    if low is None and high is None:
        raise CommandError(ErrorCode.InvalidOptions, "moveRange needs min, max or both")
    for bound in (low, high):
        if bound is not None and not _is_bound_of(collection, bound):
            # The config server would wait for ever for an impossible range.
            message = f"moveRange bounds must have the fields {list(collection.key)}"
            raise CommandError(ErrorCode.BadValue, message)
    if low is not None and high is not None:
        await _require_inside_one_chunk(request, collection, low, high)
    return await _move(request, low, high, request.text("toShard"), request.document.get("waitForDelete"),
                       request.document.get("secondaryThrottle"))  # fmt: skip


async def _require_inside_one_chunk(request: Request, collection: ShardedCollection, low: Any, high: Any) -> None:
    # {a: 5} before {a: 9}: both bounds find the same chunk only when they are in order
    ordered = {"$expr": {"$lt": [{"$literal": low}, {"$literal": high}]}}
    query = {"uuid": collection.uuid, "min": {"$lte": low}, "max": {"$gt": low, "$gte": high}, **ordered}
    if not await request.cluster.config_documents("chunks", query):
        raise CommandError(ErrorCode.BadValue, f"[{_show(low)}, {_show(high)}) is not a range inside one chunk")


async def _move(request: Request, low: Any, high: Any, to: str, wait: Any, throttle: Any) -> Reply:
    target = await request.cluster.shard_id(to)
    move: Document = {"_configsvrMoveRange": request.full_namespace, "toShard": target}
    move |= {name: bound for name, bound in (("min", low), ("max", high)) if bound is not None}
    if wait is not None:
        move["waitForDelete"] = bool(wait)
    if throttle is not None:
        # The config server takes the two together, as a document; without a write concern the shard uses its default.
        move["secondaryThrottle"] = {"secondaryThrottle": bool(throttle)}
        if throttle:
            move["secondaryThrottle"] |= request.fields("writeConcern")
    move |= request.fields("forceJumbo", "maxChunkSizeBytes")
    move["maxTimeMS"] = request.document.get("maxTimeMS", MOVE_TIME_LIMIT)
    return await _on_config(request, move)


async def _split(request: Request) -> Reply:
    namespace = request.full_namespace
    if sum(way in request.document for way in ("find", "middle", "bounds")) != 1:
        raise CommandError(ErrorCode.InvalidOptions, "must specify exactly one of: find, bounds, middle")
    collection = await request.cluster.sharded(namespace)
    if "middle" in request.document:
        key: Any = request.mapping("middle")
        if not _is_bound_of(collection, key):
            message = f"new split key {_show(key)} does not contain the shard key {dict(collection.key)}"
            raise CommandError(ErrorCode.ShardKeyNotFound, message)
        chunk = await request.cluster.chunk_of(collection, key)
    else:
        chunk = await _chunk(request, collection)
        key = await _median(request, collection, chunk)
    command = {
        "splitChunk": namespace, "from": chunk["shard"], "keyPattern": collection.key, "epoch": collection.epoch,
        "timestamp": collection.timestamp, "min": chunk["min"], "max": chunk["max"], "splitKeys": [key],
    }  # fmt: skip
    await request.cluster.on_shard(chunk["shard"], "admin", command)
    await request.cluster.forget_routing(namespace)
    return {}


async def _median(request: Request, collection: ShardedCollection, chunk: Document) -> Document:
    vector = {
        "splitVector": collection.namespace, "keyPattern": collection.key, "min": chunk["min"], "max": chunk["max"],
        "force": True,
    }  # fmt: skip
    found = (await request.cluster.on_shard(chunk["shard"], "admin", vector))["splitKeys"]
    if not found:
        raise CommandError(ErrorCode.InvalidOptions, "unable to find median in chunk because chunk is indivisible")
    median: Document = found[0]
    return median


async def _split_vector(request: Request) -> Reply:
    namespace = request.full_namespace
    if await request.cluster.collection(namespace) is not None:
        message = "splitVector is not possible on a sharded collection through mongos"
        raise CommandError(ErrorCode.IllegalOperation, message)
    return await request.cluster.on_primary(request.database, request.command)


async def _merge_chunks(request: Request) -> Reply:
    namespace = request.full_namespace
    collection = await request.cluster.sharded(namespace)
    low, high = _bounds(request)
    if not isinstance(low, Mapping) or not isinstance(high, Mapping):
        raise CommandError(ErrorCode.FailedToParse, "bounds must be an array of two documents")
    shard = (await request.cluster.chunk_of(collection, low))["shard"]
    command = {
        "mergeChunks": namespace, "bounds": [low, high], "shardName": shard, "epoch": collection.epoch,
        "timestamp": collection.timestamp, "config": request.cluster.config.connection_string,
    }  # fmt: skip
    await request.cluster.on_shard(shard, "admin", command)
    await request.cluster.forget_routing(namespace)
    return {}


async def _clear_jumbo_flag(request: Request) -> Reply:
    """Let the balancer move a chunk again that was too large."""
    collection = await request.cluster.sharded(request.full_namespace)
    chunk = await _chunk(request, collection)
    if not chunk.get("jumbo"):
        return {}
    clear = {"_configsvrClearJumboFlag": collection.namespace, "epoch": collection.epoch}
    return await _on_config(request, {**clear, "minKey": chunk["min"], "maxKey": chunk["max"]})


_ADMIN_DATABASE: dict[str, Handler] = {
    **{f"{step}ReshardCollection": _config_command(f"_configsvr{step.title()}ReshardCollection", _namespace, **MAJORITY)
       for step in ("abort", "cleanup", "commit")},
    "addShard": _add_shard,
    "addShardToZone": _config_command("_configsvrAddShardToZone", _name, "zone", **MAJORITY),
    "balancerCollectionStatus": _config_command("_configsvrBalancerCollectionStatus", _namespace),
    "balancerStart": _config_command("_configsvrBalancerStart", _one, "maxTimeMS"),
    "balancerStatus": _config_command("_configsvrBalancerStatus", _one),
    "balancerStop": _balancer_stop,
    "clearJumboFlag": _clear_jumbo_flag,
    "configureCollectionBalancing": _config_command(
        "_configsvrConfigureCollectionBalancing", _namespace, "chunkSize", "defragmentCollection", "enableAutoSplitter"
    ),
    "enableSharding": _enable_sharding,
    "flushRouterConfig": through_router(),
    "getShardMap": through_router("getShardMap"),
    "getShardVersion": _get_shard_version,
    "listShards": _list_shards,
    "mergeChunks": _merge_chunks,
    "moveChunk": _move_chunk,
    "movePrimary": _move_primary,
    "moveRange": _move_range,
    "refineCollectionShardKey": _refine_shard_key,
    "removeShard": _remove_shard,
    "reshardCollection": _reshard_collection,
    "removeShardFromZone": _config_command("_configsvrRemoveShardFromZone", _name, "zone", **MAJORITY),
    "shardCollection": _shard_collection,
    "split": _split,
    "updateZoneKeyRange": _config_command(
        "_configsvrUpdateZoneKeyRange", _namespace, "min", "max", "zone", **MAJORITY
    ),
}  # fmt: skip
_ANY_DATABASE: dict[str, Handler] = {
    "getClusterParameter": _config_server_command,
    "getDefaultRWConcern": _config_server_command,
    "rolesInfo": _config_server_command,
    "setDefaultRWConcern": _set_for_cluster,
    "setFeatureCompatibilityVersion": _set_for_cluster,
    "splitVector": _split_vector,
    "usersInfo": _config_server_command,
}
COMMANDS = {
    **{name: Command(handler, admin_only=True) for name, handler in _ADMIN_DATABASE.items()},
    **{name: Command(handler) for name, handler in _ANY_DATABASE.items()},
}
