"""mongos's administration of shards, chunks and zones, translated to what config servers and shards call it."""

from collections.abc import Mapping
from typing import Any

from microshard.embedded.cluster import MAJORITY, ShardedCollection, checked
from microshard.embedded.errors import BAD_VALUE, FAILED_TO_PARSE, ILLEGAL_OPERATION, INVALID_OPTIONS, CommandError
from microshard.embedded.nodes import Document
from microshard.embedded.registry import Reply, Request, command
from microshard.embedded.targeting import chunk_of, hashed, shard_key_of

MOVE_TIME_LIMIT = 3_600_000  # ms; a move that waits for the deletion of orphans takes 15 min and more by default
_SYSTEM_DATABASES = frozenset({"admin", "local"})


async def _config(request: Request, internal: Mapping[str, Any], *, majority: bool = True) -> Reply:
    reply = await request.cluster.config.call_raw("admin", {**internal, **(MAJORITY if majority else {})})
    return checked(reply)


# --- shards


@command("addShard", "addshard", admin_only=True)
async def _add_shard(request: Request) -> Reply:
    reply = await _config(request, {"_configsvrAddShard": request.text(request.name), **request.fields("name")})
    await request.cluster.shards()
    return reply


@command("removeShard", "removeshard", admin_only=True)
async def _remove_shard(request: Request) -> Reply:
    shard = await request.cluster.shard_id(request.text(request.name))
    return await _config(request, {"_configsvrRemoveShard": shard})


@command("listShards", "listshards", admin_only=True)
async def _list_shards(request: Request) -> Reply:
    return {"shards": await request.cluster.config_documents("shards", {})}


@command("getShardMap", admin_only=True)
async def _shard_map(request: Request) -> Reply:
    return checked(await request.cluster.through_router("admin", {"getShardMap": 1}))


@command("flushRouterConfig", admin_only=True)
async def _flush(request: Request) -> Reply:
    # Every collection's routing, or that of the one that is named.
    return checked(await request.cluster.through_router("admin", request.passed_on))


# --- databases and collections


@command("enableSharding", "enablesharding", admin_only=True)
async def _enable_sharding(request: Request) -> Reply:
    name, primary = request.text(request.name), request.document.get("primaryShard")
    _ordinary(name)
    await request.cluster.create_database(name, await request.cluster.shard_id(primary) if primary else None)
    return {}


def _ordinary(database: str) -> None:
    if database in _SYSTEM_DATABASES:
        raise CommandError(ILLEGAL_OPERATION, f"can't shard {database} collections")


@command("movePrimary", "moveprimary", admin_only=True)
async def _move_primary(request: Request) -> Reply:
    name = request.text(request.name)
    to = await request.cluster.shard_id(request.text("to"))
    database = await request.cluster.database(name)
    if database is None:
        raise CommandError(26, f"database {name} not found")
    if database.primary != to:
        shard = await request.cluster.shard(database.primary)
        move = {"_shardsvrMovePrimary": name, "to": to, "databaseVersion": database.version, **MAJORITY}
        checked(await shard.call_raw("admin", move))
        await request.cluster.forget_routing(name)
    return {}


@command("shardCollection", "shardcollection", admin_only=True)
async def _shard_collection(request: Request) -> Reply:
    namespace = request.full_namespace
    database, _, name = namespace.partition(".")
    _ordinary(database)
    key = request.mapping("key")
    if not key:
        raise CommandError(BAD_VALUE, "Shard key pattern must not be empty")
    create = {
        "_shardsvrCreateCollection": name,
        "shardKey": key,
        **request.fields("unique", "numInitialChunks", "presplitHashedZones", "collation", "timeseries",
                         "collectionUUID", "implicitlyCreateIndex", "enforceUniquenessCheck"),
        **MAJORITY,
    }  # fmt: skip
    checked(await request.cluster.on_primary(database, create, create=True))
    await request.cluster.forget_routing(namespace)
    return {"collectionsharded": namespace}


@command("refineCollectionShardKey", admin_only=True)
async def _refine(request: Request) -> Reply:
    database, _, name = request.full_namespace.partition(".")
    refine = {"_shardsvrRefineCollectionShardKey": name, "newShardKey": request.mapping("key"), **MAJORITY}
    reply = checked(await request.cluster.on_primary(database, refine))
    await request.cluster.forget_routing(request.full_namespace)
    return reply


@command("getShardVersion", admin_only=True)
async def _shard_version(request: Request) -> Reply:
    collection = await request.cluster.sharded(request.full_namespace)
    newest = max(collection.versions.values())
    return {"version": newest, "versionEpoch": collection.epoch, "versionTimestamp": collection.timestamp}


# --- balancer and zones


@command("balancerStart", admin_only=True)
async def _balancer_start(request: Request) -> Reply:
    return await _config(request, {"_configsvrBalancerStart": 1, **request.fields("maxTimeMS")}, majority=False)


@command("balancerStop", admin_only=True)
async def _balancer_stop(request: Request) -> Reply:
    # 60 s is what a mongos waits for the round under way
    limit = request.fields("maxTimeMS") or {"maxTimeMS": 60_000}
    return await _config(request, {"_configsvrBalancerStop": 1, **limit}, majority=False)


@command("balancerStatus", admin_only=True)
async def _balancer_status(request: Request) -> Reply:
    return await _config(request, {"_configsvrBalancerStatus": 1}, majority=False)


@command("balancerCollectionStatus", admin_only=True)
async def _balancer_collection_status(request: Request) -> Reply:
    status = {"_configsvrBalancerCollectionStatus": request.full_namespace}
    return await _config(request, status, majority=False)


@command("configureCollectionBalancing", admin_only=True)
async def _configure_balancing(request: Request) -> Reply:
    options = request.fields("chunkSize", "defragmentCollection", "enableAutoSplitter")
    configure = {"_configsvrConfigureCollectionBalancing": request.full_namespace, **options}
    return await _config(request, configure, majority=False)


@command("addShardToZone", "removeShardFromZone", admin_only=True)
async def _shard_zone(request: Request) -> Reply:
    internal = {"addShardToZone": "_configsvrAddShardToZone", "removeShardFromZone": "_configsvrRemoveShardFromZone"}
    return await _config(request, {internal[request.name]: request.text(request.name), **request.fields("zone")})


@command("updateZoneKeyRange", admin_only=True)
async def _zone_range(request: Request) -> Reply:
    namespace = request.full_namespace
    return await _config(request, {"_configsvrUpdateZoneKeyRange": namespace, **request.fields("min", "max", "zone")})


@command("getDefaultRWConcern", "setDefaultRWConcern", "setFeatureCompatibilityVersion", "getClusterParameter",
         "usersInfo", "rolesInfo")  # fmt: skip
async def _by_config_server(request: Request) -> Reply:
    rest = {key: value for key, value in request.passed_on.items() if key != "inMemory"}
    reply = checked(await request.cluster.config.call_raw(request.database, rest))
    if request.name == "setDefaultRWConcern":
        await request.front.learn_defaults()
    return reply


# --- chunks


async def _chunk_at(request: Request, collection: ShardedCollection, key: Mapping[str, Any]) -> Document:
    return await chunk_of(request.cluster, collection, dict(key))


async def _chunk_with_bounds(request: Request, collection: ShardedCollection, low: Any, high: Any) -> Document:
    for bound in (low, high):
        if not isinstance(bound, Mapping) or list(bound) != list(collection.key):
            raise CommandError(BAD_VALUE, f"shard key bounds must have the fields {list(collection.key)}")
    query = {"uuid": collection.uuid, "min": low, "max": high}
    for chunk in await request.cluster.config_documents("chunks", query):
        return chunk
    raise CommandError(BAD_VALUE, f"no chunk found with the shard key bounds [{_show(low)}, {_show(high)})")


def _show(bound: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in bound.items()) + "}"


async def _chosen_chunk(request: Request, collection: ShardedCollection) -> Document:
    """The chunk a command names by `find` (a document's shard key) or by `bounds`."""
    if "find" in request.document:
        key = shard_key_of(collection.key, request.mapping("find"))
        if key is None:
            raise CommandError(61, f"no shard key found in chunk query {_show(request.mapping('find'))}")
        return await _chunk_at(request, collection, await hashed(request.cluster, collection, key))
    return await _chunk_with_bounds(request, collection, *_bounds(request))


def _bounds(request: Request) -> tuple[Any, Any]:
    bounds = request.document.get("bounds")
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise CommandError(FAILED_TO_PARSE, "bounds must be an array of two documents")
    return bounds[0], bounds[1]


@command("moveChunk", "movechunk", admin_only=True)
async def _move_chunk(request: Request) -> Reply:
    collection = await request.cluster.sharded(request.full_namespace)
    chunk = await _chosen_chunk(request, collection)
    wait = request.document.get("_waitForDelete", request.document.get("waitForDelete"))
    throttle = request.document.get("_secondaryThrottle", request.document.get("secondaryThrottle"))
    return await _move(request, chunk["min"], chunk["max"], request.text("to"), wait, throttle)


@command("moveRange", admin_only=True)
async def _move_range(request: Request) -> Reply:
    collection = await request.cluster.sharded(request.full_namespace)
    low, high = request.document.get("min"), request.document.get("max")
    if low is None and high is None:
        raise CommandError(INVALID_OPTIONS, "moveRange needs min, max or both")
    for bound in (low, high):
        if bound is not None and (not isinstance(bound, Mapping) or list(bound) != list(collection.key)):
            # The config server would wait for ever for a range that cannot be.
            raise CommandError(BAD_VALUE, f"moveRange bounds must have the fields {list(collection.key)}")
    if low is not None and high is not None:
        await _inside_one_chunk(request, collection, low, high)
    return await _move(request, low, high, request.text("toShard"), request.document.get("waitForDelete"),
                       request.document.get("secondaryThrottle"))  # fmt: skip


async def _inside_one_chunk(request: Request, collection: ShardedCollection, low: Any, high: Any) -> None:
    query = {"uuid": collection.uuid, "min": {"$lte": low}, "max": {"$gt": low, "$gte": high}}
    # {a: 5} before {a: 9}: only a range that is one is found by both bounds at once
    ordered = await request.cluster.config_documents("chunks", {**query, "$expr": {"$lt": [
        {"$literal": low}, {"$literal": high}]}})  # fmt: skip
    if not ordered:
        raise CommandError(BAD_VALUE, f"[{_show(low)}, {_show(high)}) is not a range inside one chunk")


async def _move(request: Request, low: Any, high: Any, to: str, wait: Any, throttle: Any) -> Reply:
    target = await request.cluster.shard_id(to)
    move: Document = {"_configsvrMoveRange": request.full_namespace, "toShard": target}
    move |= {name: bound for name, bound in (("min", low), ("max", high)) if bound is not None}
    if wait is not None:
        move["waitForDelete"] = bool(wait)
    if throttle is not None:
        # The config server takes the two together, as a document; without a write concern the shard has its own.
        move["secondaryThrottle"] = {"secondaryThrottle": bool(throttle)}
        if throttle:
            move["secondaryThrottle"] |= request.fields("writeConcern")
    move |= request.fields("forceJumbo", "maxChunkSizeBytes")
    move["maxTimeMS"] = request.document.get("maxTimeMS", MOVE_TIME_LIMIT)
    return await _config(request, move)


@command("split", admin_only=True)
async def _split(request: Request) -> Reply:
    namespace = request.full_namespace
    ways = [way for way in ("find", "middle", "bounds") if way in request.document]
    if len(ways) != 1:
        raise CommandError(INVALID_OPTIONS, "must specify exactly one of: find, bounds, middle")
    collection = await request.cluster.sharded(namespace)
    if ways == ["middle"]:
        middle: Any = request.mapping("middle")
        if list(middle) != list(collection.key):
            raise CommandError(
                61, f"new split key {_show(middle)} does not contain the shard key {dict(collection.key)}"
            )
        chunk = await _chunk_at(request, collection, middle)
    else:
        chunk = await _chosen_chunk(request, collection)
        middle = await _median(request, collection, chunk)
    shard = await request.cluster.shard(chunk["shard"])
    split = {
        "splitChunk": namespace, "from": chunk["shard"], "keyPattern": collection.key, "epoch": collection.epoch,
        "timestamp": collection.timestamp, "min": chunk["min"], "max": chunk["max"], "splitKeys": [middle],
    }  # fmt: skip
    checked(await shard.call_raw("admin", split))
    await request.cluster.forget_routing(namespace)
    return {}


async def _median(request: Request, collection: ShardedCollection, chunk: Document) -> Document:
    shard = await request.cluster.shard(chunk["shard"])
    vector = {
        "splitVector": collection.namespace, "keyPattern": collection.key, "min": chunk["min"], "max": chunk["max"],
        "force": True,
    }  # fmt: skip
    found = checked(await shard.call_raw("admin", vector))["splitKeys"]
    if not found:
        raise CommandError(INVALID_OPTIONS, "unable to find median in chunk because chunk is indivisible")
    median: Document = found[0]
    return median


@command("splitVector")
async def _split_vector(request: Request) -> Reply:
    database, _, name = request.full_namespace.partition(".")
    if await request.cluster.collection(f"{database}.{name}") is not None:
        raise CommandError(ILLEGAL_OPERATION, "splitVector is not possible on a sharded collection through mongos")
    vector = {**request.passed_on, "splitVector": f"{database}.{name}"}
    return checked(await request.cluster.on_primary(request.database, vector))


@command("mergeChunks", admin_only=True)
async def _merge_chunks(request: Request) -> Reply:
    namespace = request.full_namespace
    collection = await request.cluster.sharded(namespace)
    low, high = _bounds(request)
    if not isinstance(low, Mapping) or not isinstance(high, Mapping):
        raise CommandError(FAILED_TO_PARSE, "bounds must be an array of two documents")
    chunk = await _chunk_at(request, collection, low)
    shard = await request.cluster.shard(chunk["shard"])
    merge = {
        "mergeChunks": namespace, "bounds": [low, high], "shardName": chunk["shard"], "epoch": collection.epoch,
        "timestamp": collection.timestamp, "config": request.cluster.config.connection_string,
    }  # fmt: skip
    checked(await shard.call_raw("admin", merge))
    await request.cluster.forget_routing(namespace)
    return {}


@command("clearJumboFlag", admin_only=True)
async def _clear_jumbo(request: Request) -> Reply:
    collection = await request.cluster.sharded(request.full_namespace)
    chunk = await _chosen_chunk(request, collection)
    if not chunk.get("jumbo"):
        return {}
    clear = {"_configsvrClearJumboFlag": collection.namespace, "epoch": collection.epoch, "minKey": chunk["min"],
             "maxKey": chunk["max"]}  # fmt: skip
    return await _config(request, clear)
