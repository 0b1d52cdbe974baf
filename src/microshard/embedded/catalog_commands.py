"""Commands on databases, collections and indexes, and their sizes: from the shards that own them.

Internal commands (`_shardsvr…`) insist on write concern majority; a client's weaker one is thereby satisfied as well.
"""

from typing import Any

from bson import Int64

from microshard.embedded import api_version, refusals
from microshard.embedded.cluster import MAJORITY
from microshard.embedded.errors import CommandError, ErrorCode, require_ok
from microshard.embedded.mongod_connections import Document
from microshard.embedded.server import CONFIG_DATABASES, Command, Handler, Reply, Request

_NOT_USER_DATA = CONFIG_DATABASES | {"local"}


async def _raw_by_host(request: Request, replies: dict[str, Document]) -> Document:
    """Replies by connection string, as mongos shows them. CommandError of the first that failed."""
    hosts = await request.cluster.shards()
    raw = {hosts[shard].connection_string: reply for shard, reply in replies.items()}
    for reply in raw.values():
        if not reply.get("ok"):
            error = CommandError.from_reply(reply)
            error.fields["raw"] = raw
            raise error
    return raw


# --- databases and collections


async def _create(request: Request) -> Reply:
    return await request.cluster.on_primary(request.database, request.durable_command, create=True)


async def _drop(request: Request) -> Reply:
    command = {"_shardsvrDropCollection": request.collection, **request.fields("comment", "collectionUUID"), **MAJORITY}
    try:
        reply = await request.cluster.on_primary(request.database, command)
    except CommandError as error:
        if error.code == ErrorCode.NamespaceNotFound:
            raise CommandError(ErrorCode.NamespaceNotFound, "ns not found") from error
        raise
    await request.cluster.forget_routing(request.namespace)
    return reply


async def _drop_database(request: Request) -> Reply:
    if request.database in _NOT_USER_DATA:
        raise CommandError(ErrorCode.IllegalOperation, f"Cannot drop '{request.database}' database")
    if await request.cluster.database(request.database) is None:
        return {"info": "database does not exist"}
    command = {"_shardsvrDropDatabase": 1, **request.fields("comment"), **MAJORITY}
    reply = await request.cluster.on_primary(request.database, command)
    await request.cluster.forget_routing(request.database)
    return {"dropped": request.database, **reply}


async def _rename_collection(request: Request) -> Reply:
    source, target = request.full_namespace, request.text("to")
    database, _, name = source.partition(".")
    if not all(target.partition(".")):
        raise CommandError(ErrorCode.BadValue, f"Invalid target namespace: {target}")
    options = request.fields("dropTarget", "stayTemp", "comment")
    rename = {"_shardsvrRenameCollection": name, "to": target, **options, **MAJORITY}
    reply = await request.cluster.on_primary(database, rename)
    for namespace in (source, target):
        await request.cluster.forget_routing(namespace)
    return {"ok": reply["ok"]}


async def _coll_mod(request: Request) -> Reply:
    without = {"collMod", "writeConcern", *api_version.FIELDS}
    options = {key: value for key, value in request.command.items() if key not in without}
    command = {"_shardsvrCollMod": request.collection, **options, **MAJORITY}
    return await request.cluster.on_primary(request.database, command)


async def _convert_to_capped(request: Request) -> Reply:
    if await request.cluster.collection(request.namespace) is not None:
        raise CommandError(ErrorCode.IllegalOperation, "can't convertToCapped a sharded collection")
    return await request.cluster.on_primary(request.database, request.durable_command)


async def _list_collections(request: Request) -> Reply:
    """The collections of a database, from its primary shard."""
    database = await request.cluster.database(request.database)
    if database is None:
        return {"cursor": {"id": Int64(0), "ns": f"{request.database}.$cmd.listCollections", "firstBatch": []}}
    reply = await request.cluster.on_primary(request.database, request.command)
    return request.remember_cursor(reply, await request.cluster.shard(database.primary))


# --- indexes and plan caches


async def _on_owners(request: Request, *, create: bool = False) -> Reply:
    """Run a command on every shard that owns part of its collection, and answer as mongos does for several shards."""
    command = request.durable_command if create else request.command
    replies = await request.cluster.on_owners(
        request.database, request.collection, command, create=create, time_series=create
    )
    return {"raw": await _raw_by_host(request, replies)}


async def _create_indexes(request: Request) -> Reply:
    return await _on_owners(request, create=True)


async def _drop_indexes(request: Request) -> Reply:
    index = request.document.get("index")
    command = {"_shardsvrDropIndexes": request.collection, "index": index, **request.fields("comment"), **MAJORITY}
    return await request.cluster.on_primary(request.database, command)


async def _list_indexes(request: Request) -> Reply:
    """The indexes of a collection, from one of its shards."""
    found = await request.cluster.on_owners(
        request.database, request.collection, request.command, one=True, time_series=True
    )
    require_ok(found)
    ((shard, reply),) = found.items()
    return request.remember_cursor(reply, await request.cluster.shard(shard))


# --- sizes and checks


def _total(replies: dict[str, Document], name: str) -> Any:
    values = [reply.get(name, 0) for reply in replies.values()]
    total = sum(values)
    return total if any(isinstance(value, float) for value in values) else Int64(total)


async def _list_databases(request: Request) -> Reply:
    """The databases of all shards and of the config server, with their sizes summed."""
    listing = {"listDatabases": 1, **request.fields("filter", "nameOnly")}
    names_only = bool(request.document.get("nameOnly"))
    databases: dict[str, Document] = {}
    for shard, reply in (await request.cluster.on_all_shards("admin", listing)).items():
        for found in reply["databases"]:
            # A shard's config database holds its cache of the routing table, admin its identity.
            if found["name"] in _NOT_USER_DATA:
                continue
            entry = databases.setdefault(found["name"], {"name": found["name"]})
            if not names_only:
                entry["sizeOnDisk"] = Int64(entry.get("sizeOnDisk", 0) + found["sizeOnDisk"])
                entry["empty"] = entry.get("empty", True) and found["empty"]
                entry.setdefault("shards", {})[shard] = Int64(found["sizeOnDisk"])
    for found in (await request.cluster.config.call("admin", listing))["databases"]:
        if found["name"] in CONFIG_DATABASES:
            extra = {} if names_only else {"shards": {"config": Int64(found["sizeOnDisk"])}}
            databases[found["name"]] = {**found, **extra}
    answer: Document = {"databases": [databases[name] for name in sorted(databases)]}
    if not names_only:
        total = sum(entry["sizeOnDisk"] for entry in databases.values())
        answer |= {"totalSize": Int64(total), "totalSizeMb": Int64(total >> 20)}
    return answer


async def _db_stats(request: Request) -> Reply:
    """The sizes of a database, summed over all shards."""
    replies = await request.cluster.on_all_shards(request.database, request.command)
    sums = {
        name: _total(replies, name)
        for name in ("collections", "views", "objects", "dataSize", "storageSize", "indexes", "indexSize", "totalSize")
    }
    answer: Document = {"raw": await _raw_by_host(request, replies), "db": request.database, **sums}
    answer["avgObjSize"] = sums["dataSize"] / sums["objects"] if sums["objects"] else 0.0
    answer["scaleFactor"] = request.document.get("scale", 1)
    for name in ("fsUsedSize", "fsTotalSize"):
        # Every shard of one machine sees the same file system.
        answer[name] = max((reply.get(name, 0) for reply in replies.values()), default=0)
    return answer


async def _coll_stats(request: Request) -> Reply:
    """The sizes of a collection, summed over its shards."""
    cluster = request.cluster
    collection = await cluster.collection(request.namespace, time_series=True)
    if collection is None:
        database = await cluster.database(request.database)
        if database is None:
            raise CommandError(ErrorCode.NamespaceNotFound, f"Database [{request.database}] not found.")
        shards = [database.primary]
    else:
        shards = sorted(collection.versions)
    command = request.command if collection is None else {**request.command, request.name: collection.name}
    replies = {name: await cluster.on_shard(name, request.database, command) for name in shards}
    sums = {
        name: _total(replies, name)
        for name in ("size", "count", "numOrphanDocs", "storageSize", "totalIndexSize", "totalSize", "freeStorageSize")
        if any(name in reply for reply in replies.values())
    }
    index_sizes: dict[str, int] = {}
    for reply in replies.values():
        for index, size in reply.get("indexSizes", {}).items():
            index_sizes[index] = index_sizes.get(index, 0) + size
    # Sizes are scaled, the average is not: count times each shard's average gives the bytes.
    size_in_bytes = sum(reply.get("avgObjSize", 0) * reply.get("count", 0) for reply in replies.values())
    if collection is None:
        distribution: Document = {"primary": shards[0]}
    else:
        distribution = {"nchunks": len(await cluster.config_documents("chunks", {"uuid": collection.uuid}))}
    first = replies[shards[0]]
    return {
        "sharded": collection is not None,
        "ns": request.namespace,
        **sums,
        "avgObjSize": size_in_bytes / sums["count"] if sums.get("count") else 0.0,
        "capped": first.get("capped", False),
        "nindexes": max(reply.get("nindexes", 0) for reply in replies.values()),
        "indexSizes": index_sizes,
        "scaleFactor": first.get("scaleFactor", 1),
        **distribution,
        "shards": replies,
    }


async def _data_size(request: Request) -> Reply:
    database, _, name = request.full_namespace.partition(".")
    replies = await request.cluster.on_owners(database, name, request.command)
    require_ok(replies)
    return {name: _total(replies, name) for name in ("size", "numObjects", "millis")}


async def _validate(request: Request) -> Reply:
    replies = await request.cluster.on_owners(request.database, request.collection, request.command)
    raw = await _raw_by_host(request, replies)
    return {"valid": all(reply.get("valid") for reply in raw.values()), "raw": raw}


async def _fsync(request: Request) -> Reply:
    if request.document.get("lock"):
        raise refusals.FSYNC_LOCK.error()
    return {"numFiles": 1, "all": await request.cluster.on_all_shards("admin", request.command)}


_CONFIG_SERVER_HAS_THEM_TOO: dict[str, Handler] = {
    "create": _create,
    "drop": _drop,
    "collMod": _coll_mod,
    "collStats": _coll_stats,
    "createIndexes": _create_indexes,
    "dbStats": _db_stats,
    "deleteIndexes": _drop_indexes,
    "dropIndexes": _drop_indexes,
    "listCollections": _list_collections,
    "listIndexes": _list_indexes,
}
_SHARDS_ONLY: dict[str, Handler] = {
    "convertToCapped": _convert_to_capped,
    "dataSize": _data_size,
    "dropDatabase": _drop_database,
    "validate": _validate,
    **dict.fromkeys(("planCacheClear", "planCacheClearFilters", "planCacheListFilters", "planCacheSetFilter",
                     "setIndexCommitQuorum"), _on_owners),
}  # fmt: skip
COMMANDS = {
    **{name: Command(handler, config_forward=True) for name, handler in _CONFIG_SERVER_HAS_THEM_TOO.items()},
    **{name: Command(handler) for name, handler in _SHARDS_ONLY.items()},
    "fsync": Command(_fsync, admin_only=True),
    "listDatabases": Command(_list_databases, admin_only=True),
    "renameCollection": Command(_rename_collection, admin_only=True),
}
