"""Sizes and states gathered from the shards: listDatabases, dbStats, collStats, dataSize, validate, fsync."""

from typing import Any

from bson import Int64

from microshard.embedded import wire
from microshard.embedded.catalog import raw_by_host
from microshard.embedded.cluster import CONFIG_DATABASES, checked
from microshard.embedded.errors import CLOCK_FIELDS, NAMESPACE_NOT_FOUND, CommandError
from microshard.embedded.nodes import Document
from microshard.embedded.registry import Reply, Request, command

_SUMMED_DB = ("collections", "views", "objects", "dataSize", "storageSize", "indexes", "indexSize", "totalSize")
_SUMMED_COLLECTION = ("size", "count", "numOrphanDocs", "storageSize", "totalIndexSize", "totalSize",
                      "freeStorageSize")  # fmt: skip


def _plain(body: bytes) -> Document:
    return {key: value for key, value in wire.decode(body).items() if key not in CLOCK_FIELDS}


def _total(replies: dict[str, Document], name: str) -> Any:
    values = [reply.get(name, 0) for reply in replies.values()]
    total = sum(values)
    return total if any(isinstance(value, float) for value in values) else Int64(total)


@command("listDatabases", admin_only=True)
async def _list_databases(request: Request) -> Reply:
    listing = {"listDatabases": 1, **request.fields("filter", "nameOnly")}
    replies = {name: checked(body) for name, body in (await request.cluster.on_all_shards("admin", listing)).items()}
    names_only = bool(request.document.get("nameOnly"))
    databases: dict[str, Document] = {}
    for shard, reply in replies.items():
        for found in reply["databases"]:
            # A shard's own config database holds its cache of the routing table, admin its identity.
            if found["name"] in CONFIG_DATABASES | {"local"}:
                continue
            entry = databases.setdefault(found["name"], {"name": found["name"]})
            if not names_only:
                entry["sizeOnDisk"] = Int64(entry.get("sizeOnDisk", 0) + found["sizeOnDisk"])
                entry["empty"] = entry.get("empty", True) and found["empty"]
                entry.setdefault("shards", {})[shard] = Int64(found["sizeOnDisk"])
    for found in checked(await request.cluster.config.call_raw("admin", listing))["databases"]:
        if found["name"] in CONFIG_DATABASES:
            extra = {} if names_only else {"shards": {"config": Int64(found["sizeOnDisk"])}}
            databases[found["name"]] = {**found, **extra}
    answer: Document = {"databases": [databases[name] for name in sorted(databases)]}
    if not names_only:
        total = sum(entry["sizeOnDisk"] for entry in databases.values())
        answer |= {"totalSize": Int64(total), "totalSizeMb": Int64(total >> 20)}
    return answer


@command("dbStats", "dbstats")
async def _database_stats(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return checked(await request.cluster.config.call_raw(request.database, request.passed_on))
    bodies = await request.cluster.on_all_shards(request.database, request.passed_on)
    replies = {shard: checked(body) for shard, body in bodies.items()}
    raw, _ = raw_by_host(replies, await request.cluster.shards())
    sums = {name: _total(replies, name) for name in _SUMMED_DB}
    objects = sums["objects"]
    answer: Document = {"raw": raw, "db": request.database, **sums}
    answer["avgObjSize"] = sums["dataSize"] / objects if objects else 0.0
    answer["scaleFactor"] = request.document.get("scale", 1)
    for name in ("fsUsedSize", "fsTotalSize"):
        # Every shard of one machine sees the same file system.
        answer[name] = max((reply.get(name, 0) for reply in replies.values()), default=0)
    return answer


@command("collStats", "collstats")
async def _collection_stats(request: Request) -> Reply:
    cluster = request.cluster
    if request.database in CONFIG_DATABASES:
        return checked(await cluster.config.call_raw(request.database, request.passed_on))
    collection = await cluster.collection(request.namespace)
    if collection is None:
        database = await cluster.database(request.database)
        if database is None:
            raise CommandError(NAMESPACE_NOT_FOUND, f"Database [{request.database}] not found.")
        shards = [database.primary]
    else:
        shards = sorted(collection.versions)
    replies = {name: checked(await (await cluster.shard(name)).call_raw(request.database, request.passed_on))
               for name in shards}  # fmt: skip
    first = next(iter(replies.values()))
    sums = {name: _total(replies, name) for name in _SUMMED_COLLECTION if any(name in r for r in replies.values())}
    index_sizes: dict[str, int] = {}
    for reply in replies.values():
        for index, size in reply.get("indexSizes", {}).items():
            index_sizes[index] = index_sizes.get(index, 0) + size
    chunks = len(await cluster.config_documents("chunks", {"uuid": collection.uuid})) if collection else 0
    answer: Document = {"sharded": collection is not None, "ns": request.namespace, **sums}
    if not sums.get("count"):
        answer["avgObjSize"] = 0.0
    else:
        # sizes are scaled, the average is not: count times each shard's average gives the bytes back
        bytes_ = sum(reply.get("avgObjSize", 0) * reply.get("count", 0) for reply in replies.values())
        answer["avgObjSize"] = bytes_ / sums["count"]
    return {
        **answer,
        "capped": first.get("capped", False),
        "nindexes": max(reply.get("nindexes", 0) for reply in replies.values()),
        "indexSizes": index_sizes,
        "scaleFactor": first.get("scaleFactor", 1),
        **({"nchunks": chunks} if collection else {"primary": shards[0]}),
        "shards": replies,
    }


@command("dataSize", "datasize")
async def _data_size(request: Request) -> Reply:
    database, _, name = request.full_namespace.partition(".")
    bodies = await request.cluster.on_owners(database, name, request.passed_on)
    replies = {shard: checked(body) for shard, body in bodies.items()}
    return {name: _total(replies, name) for name in ("size", "numObjects", "millis")}


@command("validate")
async def _validate(request: Request) -> Reply:
    bodies = await request.cluster.on_owners(request.database, request.collection, request.passed_on)
    raw, failure = raw_by_host({shard: _plain(body) for shard, body in bodies.items()}, await request.cluster.shards())
    if failure is not None:
        error = CommandError.from_reply(failure)
        error.fields["raw"] = raw
        raise error
    return {"valid": all(reply.get("valid") for reply in raw.values()), "raw": raw}


@command("fsync", admin_only=True)
async def _fsync(request: Request) -> Reply:
    if request.document.get("lock"):
        raise CommandError(115, "can't do lock through mongos")
    bodies = await request.cluster.on_all_shards("admin", request.passed_on)
    replies = {shard: checked(body) for shard, body in bodies.items()}
    return {"numFiles": 1, "all": replies}
