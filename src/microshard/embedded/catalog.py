"""Commands on databases, collections and indexes: the primary shard of a database or all owners of a collection."""

from typing import Any

from bson import Int64

from microshard.embedded import wire
from microshard.embedded.cluster import CONFIG_DATABASES, MAJORITY, checked
from microshard.embedded.errors import BAD_VALUE, ILLEGAL_OPERATION, NAMESPACE_NOT_FOUND, CommandError
from microshard.embedded.nodes import Document
from microshard.embedded.registry import Reply, Request, command

# MAJORITY: internal commands insist on it; a client's weaker wish is thereby granted as well.


async def _on_config(request: Request) -> Reply:
    """config and admin live on the config server."""
    reply = checked(await request.cluster.config.call_raw(request.database, request.passed_on))
    request.keep_cursor(reply, request.cluster.config)
    return reply


def raw_by_host(replies: dict[str, Any], hosts: dict[str, Any]) -> tuple[Document, Document | None]:
    """Replies by connection string, as mongos shows them, and the first that failed."""
    raw: Document = {}
    failure: Document | None = None
    for shard, reply in replies.items():
        raw[hosts[shard].connection_string] = reply
        if not reply.get("ok") and failure is None:
            failure = reply
    return raw, failure


async def _on_owners(request: Request, *, create: bool = False) -> Reply:
    """Run the command on every owner of its collection and answer as mongos does for several shards."""
    sent = request.durably if create else request.passed_on
    bodies = await request.cluster.on_owners(request.database, request.collection, sent, create=create)
    replies = {
        shard: {key: value for key, value in wire.decode(body).items() if not key.startswith("$")}
        for shard, body in bodies.items()
    }
    raw, failure = raw_by_host(replies, await request.cluster.shards())
    if failure is not None:
        error = CommandError.from_reply(failure)
        error.fields["raw"] = raw
        raise error
    return {"raw": raw}


@command("create")
async def _create(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    return checked(await request.cluster.on_primary(request.database, request.durably, create=True))


@command("drop")
async def _drop(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    drop = {"_shardsvrDropCollection": request.collection, **request.fields("comment", "collectionUUID"), **MAJORITY}
    try:
        reply = checked(await request.cluster.on_primary(request.database, drop))
    except CommandError as error:
        if error.code == NAMESPACE_NOT_FOUND:
            raise CommandError(NAMESPACE_NOT_FOUND, "ns not found") from error
        raise
    await request.cluster.forget_routing(request.namespace)
    return reply


@command("dropDatabase")
async def _drop_database(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES | {"local"}:
        raise CommandError(ILLEGAL_OPERATION, f"Cannot drop '{request.database}' database")
    if await request.cluster.database(request.database) is None:
        return {"info": "database does not exist"}
    drop = {"_shardsvrDropDatabase": 1, **request.fields("comment"), **MAJORITY}
    reply = checked(await request.cluster.on_primary(request.database, drop))
    await request.cluster.forget_routing(request.database)
    return {"dropped": request.database, **reply}


@command("renameCollection", admin_only=True)
async def _rename(request: Request) -> Reply:
    source, target = request.full_namespace, request.text("to")
    database, _, name = source.partition(".")
    if not all(target.partition(".")):
        raise CommandError(BAD_VALUE, f"Invalid target namespace: {target}")
    rename = {
        "_shardsvrRenameCollection": name, "to": target, **request.fields("dropTarget", "stayTemp", "comment"),
        **MAJORITY,
    }  # fmt: skip
    reply = checked(await request.cluster.on_primary(database, rename))
    for namespace in (source, target):
        await request.cluster.forget_routing(namespace)
    return {"ok": reply["ok"]}


@command("collMod")
async def _modify(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    rest = {key: value for key, value in request.passed_on.items() if key not in ("collMod", "writeConcern")}
    modify = {"_shardsvrCollMod": request.collection, **rest, **MAJORITY}
    return checked(await request.cluster.on_primary(request.database, modify))


@command("convertToCapped")
async def _convert(request: Request) -> Reply:
    if await request.cluster.collection(request.namespace) is not None:
        raise CommandError(ILLEGAL_OPERATION, "can't convertToCapped a sharded collection")
    return checked(await request.cluster.on_primary(request.database, request.durably))


@command("createIndexes")
async def _create_indexes(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    return await _on_owners(request, create=True)


@command("dropIndexes", "deleteIndexes")
async def _drop_indexes(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    index = request.document.get("index")
    drop = {"_shardsvrDropIndexes": request.collection, "index": index, **request.fields("comment"), **MAJORITY}
    return checked(await request.cluster.on_primary(request.database, drop))


@command("planCacheClear", "planCacheSetFilter", "planCacheClearFilters", "planCacheListFilters",
         "setIndexCommitQuorum")  # fmt: skip
async def _on_every_owner(request: Request) -> Reply:
    return await _on_owners(request)


@command("listCollections")
async def _list_collections(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    database = await request.cluster.database(request.database)
    if database is None:
        return _empty_cursor(f"{request.database}.$cmd.listCollections")
    reply = checked(await request.cluster.on_primary(request.database, request.passed_on))
    request.keep_cursor(reply, await request.cluster.shard(database.primary))
    return reply


@command("listIndexes")
async def _list_indexes(request: Request) -> Reply:
    if request.database in CONFIG_DATABASES:
        return await _on_config(request)
    found = await request.cluster.on_owners(request.database, request.collection, request.passed_on, one=True)
    shard, body = next(iter(found.items()))
    reply = checked(body)
    request.keep_cursor(reply, await request.cluster.shard(shard))
    return reply


def _empty_cursor(namespace: str) -> Document:
    return {"cursor": {"id": Int64(0), "ns": namespace, "firstBatch": []}}
