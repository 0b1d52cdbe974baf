"""Which shard a document with a given shard key lives on, for commands the router mongod has no cluster form of."""

from collections.abc import Iterator, Mapping
from typing import Any

from bson import Regex

from microshard.embedded.cluster import Cluster, ShardedCollection
from microshard.embedded.errors import NAMESPACE_NOT_SHARDED, CommandError
from microshard.embedded.nodes import Document

_ABSENT = object()


def shard_key_of(pattern: Mapping[str, Any], query: Mapping[str, Any], collation: Any = None) -> Document | None:
    """The shard key a query fixes by equality; None when it leaves a field of it open.

    With a collation of its own a query for a string does not fix it: other strings are equal, too.
    """
    key: Document = {}
    for name in pattern:
        value = _equal_to(query, name)
        if value is _ABSENT or isinstance(value, (list, Regex)):
            return None
        if isinstance(value, (str, Mapping)) and collation and collation.get("locale") != "simple":
            return None
        key[name] = value
    return key


def _equal_to(query: Mapping[str, Any], name: str) -> Any:
    for field, value in _clauses(query):
        if field == name:
            if not isinstance(value, Mapping):
                return value
            operators = [key for key in value if key.startswith("$")]
            if "$eq" in operators:
                return value["$eq"]
            if not operators or operators[0] in ("$ref", "$id"):
                return value
        elif name.startswith(f"{field}.") and isinstance(value, Mapping) and not next(iter(value), "$").startswith("$"):
            inner = value_at(value, name[len(field) + 1 :])
            if inner is not _ABSENT:
                return inner
    return _ABSENT


def _clauses(query: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in query.items():
        if field == "$and" and isinstance(value, list):
            for part in value:
                yield from _clauses(part)
        else:
            yield field, value


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """The value at a dotted path of a document, a private marker when there is none."""
    value: Any = document
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = value[name]
    return value


async def hashed(cluster: Cluster, collection: ShardedCollection, key: Document) -> Document:
    """The key as chunks bound it: a hashed field's value replaced by its hash, computed by the config server."""
    result = dict(key)
    for name, kind in collection.key.items():
        if kind == "hashed":
            project = {"$project": {"h": {"$toHashedIndexKey": {"$literal": key[name]}}}}
            # The form of aggregate without a collection takes its documents from the command.
            pipeline = [{"$documents": [{}]}, project]
            reply = await cluster.config.call("admin", {"aggregate": 1, "pipeline": pipeline, "cursor": {}})
            result[name] = reply["cursor"]["firstBatch"][0]["h"]
    return result


async def chunk_of(cluster: Cluster, collection: ShardedCollection, key: Document) -> Document:
    """The chunk that holds a shard key (hashed fields hashed). CommandError when the collection has just changed."""
    query = {"uuid": collection.uuid, "min": {"$lte": key}, "max": {"$gt": key}}
    for chunk in await cluster.config_documents("chunks", query):
        return chunk
    raise CommandError(NAMESPACE_NOT_SHARDED, f"no chunk of {collection.namespace} holds {key}")


async def owner_of(cluster: Cluster, collection: ShardedCollection, key: Document) -> tuple[str, Document]:
    """The shard that holds a shard key and the version a command for it carries, both of one moment.

    A version newer than the owner would let a shard take a write for a chunk it has just given away.
    """
    bounds = await hashed(cluster, collection, key)
    holds = {"$and": [{"$lte": ["$min", {"$literal": bounds}]}, {"$gt": ["$max", {"$literal": bounds}]}]}
    group = {"$group": {"_id": "$shard", "version": {"$max": "$lastmod"}, "holds": {"$max": holds}}}
    reply = await cluster.config.call("config", {
        "aggregate": "chunks", "pipeline": [{"$match": {"uuid": collection.uuid}}, group], "cursor": {},
        "readConcern": {"level": "snapshot"},
    })  # fmt: skip
    for entry in reply["cursor"]["firstBatch"]:
        if entry["holds"]:
            version = {"t": collection.timestamp, "e": collection.epoch, "v": entry["version"]}
            return entry["_id"], {"shardVersion": version}
    # Between two reads the collection was dropped or made anew: the caller reads both again.
    raise CommandError(13388, f"the chunks of {collection.namespace} changed while they were read")
