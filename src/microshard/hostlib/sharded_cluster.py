"""A sharded cluster: shards, balancer, zones, and collections with their chunks as planned.

Only public commands, as a mongos takes them.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from .errors import HostError
from .mongo_config import connection
from .mongo_server import Deadline, hello, server_message

if TYPE_CHECKING:
    Client = MongoClient[dict[str, Any]]
else:
    Client = MongoClient  # that of PyMongo 3 has no type parameters
Document = dict[str, Any]


def await_mongos(endpoint: str, deadline: Deadline) -> None:
    """Wait until the mongos answers as one."""
    while True:
        answer = hello(endpoint, deadline)
        if answer and answer.get("msg") == "isdbgrid":
            return
        deadline.pause(f"mongos {endpoint} {'does not answer' if answer is None else 'is not a mongos'}")


def add_shards(client: Client, planned: list[dict[str, Any]], deadline: Deadline, *, check: bool) -> list[str]:
    """Add every initial replica set as a shard of its name; what was done. HostError for an unplanned shard."""
    shards = {shard["_id"]: shard["host"] for shard in admin(client, deadline, "listShards")["shards"]}
    known = {rs["name"]: {member["endpoint"] for member in rs["members"]} for rs in planned}
    wanted = {rs["name"]: connection(rs) for rs in planned if rs.get("initial", True)}
    unplanned = {name: host for name, host in shards.items() if not _endpoints(host) <= known.get(name, set())}
    if unplanned:
        raise HostError(f"the cluster has shards that are not planned: {unplanned}; planned are {wanted}")
    missing = [(name, host) for name, host in wanted.items() if name not in shards]
    if not missing:
        return []
    done = _set_concern_with_arbiters(client, planned, deadline, check=check)
    if not check:
        for name, host in missing:  # the config server adds one at a time: asking for several gains nothing
            if name == "config":  # from 8.0 on; its id is always that
                admin(client, deadline, "transitionFromDedicatedConfigServer")
            else:
                admin(client, deadline, "addShard", host, name=name)
        found = {shard["_id"] for shard in admin(client, deadline, "listShards")["shards"]}
        if found != set(wanted) | set(shards):
            raise HostError(f"listShards shows {sorted(found)} after all of {sorted(wanted)} were added")
    return [*done, *(f"shard {name} added" for name, _ in missing)]


def _set_concern_with_arbiters(
    client: Client, planned: list[dict[str, Any]], deadline: Deadline, *, check: bool
) -> list[str]:
    """Set a default write concern in a cluster with arbiters.

    With an arbiter a majority of the votes may not bear data, so from 5.0 on such a set falls back to w: 1 and addShard
    refuses it until the cluster has an explicit default: here the same.
    """
    if not any(member.get("arbiter") for rs in planned for member in rs["members"]):
        return []
    stored = admin(client, deadline, "getDefaultRWConcern")
    if stored.get("defaultWriteConcernSource") == "global":
        return []
    if not check:
        admin(client, deadline, "setDefaultRWConcern", defaultWriteConcern={"w": 1})
    return ["default write concern w: 1, as sets with an arbiter have it"]


def _endpoints(connection: str) -> set[str]:
    """The members a shard's entry names: those the server has found, in any order."""
    return set(connection.partition("/")[2].split(","))


def set_balancer(client: Client, planned: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """Start or stop the balancer and set its window, throttle and chunk size as planned; what was done."""
    changes = []
    settings = client["config"]["settings"]
    size = planned.get("chunk_size_mb")
    stored = settings.find_one({"_id": "chunksize"}) or {}
    if size is not None and stored.get("value") != size:
        changes.append(f"chunk size {size} MiB")
        if not check:
            settings.update_one({"_id": "chunksize"}, {"$set": {"value": size}}, upsert=True)
    stored = settings.find_one({"_id": "balancer"}) or {}
    wanted = _balancer_settings(planned)
    # What is not stored is false or absent to the server.
    differing = {key: value for key, value in wanted.items() if (stored.get(key) or None) != (value or None)}
    if differing:
        changes.append(f"balancer settings {differing}")
        if not check:
            put = {key: value for key, value in differing.items() if value is not None}
            gone = dict.fromkeys(differing.keys() - put.keys(), "")
            update = {**({"$set": put} if put else {}), **({"$unset": gone} if gone else {})}
            settings.update_one({"_id": "balancer"}, update, upsert=True)
    enabled = bool(planned.get("enabled", False))
    if (admin(client, deadline, "balancerStatus")["mode"] != "off") != enabled:
        changes.append(f"balancer {'started' if enabled else 'stopped'}")
        if not check:
            admin(client, deadline, "balancerStart" if enabled else "balancerStop")
    return changes


def _balancer_settings(planned: dict[str, Any]) -> dict[str, Any]:
    """The document of config.settings, by the manual's "Manage Sharded Cluster Balancer"; None is absent."""
    throttle: Any = bool(planned.get("secondary_throttle", False))
    return {
        # A write concern instead of true is the server's form for "throttled, with this one".
        "_secondaryThrottle": planned.get("write_concern") or throttle,
        "_waitForDelete": bool(planned.get("wait_for_delete", False)),
        "activeWindow": dict(planned["window"]) if planned.get("window") else None,
    }


def admin(client: Client, deadline: Deadline, command: str, value: Any = 1, **parameters: Any) -> dict[str, Any]:
    """Run a command on `admin`; HostError with the server's exact error."""
    try:
        return dict(client.admin.command(command, value, maxTimeMS=deadline.left_ms(), **parameters))
    except OperationFailure as error:
        raise HostError(f"{command} {value}: {server_message(error)}") from None
    except PyMongoError as error:
        raise HostError(f"{command} {value}: {error}") from None


def place_collection(
    client: Client, planned: Document, shards: list[str], deadline: Deadline, *, balanced: bool
) -> list[str]:
    """Shard the collection by the planned key and place its chunks as planned; what was done.

    Where a balancer is at work on a collection that was there before, its chunks are not verified.
    """
    namespace = planned["namespace"]
    stored = find_collection(client, namespace)
    if stored is not None and dict(stored["key"]) != dict(planned["shard_key"]):
        raise HostError(f"{namespace} is sharded by {dict(stored['key'])}, planned is {planned['shard_key']}")
    done = []
    if stored is None:
        _shard(client, planned, shards, deadline)
        done.append(f"{namespace} sharded by {planned['shard_key']}")
    elif balanced:
        return []
    if planned["chunks"] and _misplaced(client, planned):
        done += _split_and_move(client, planned, deadline)
    if done or planned["chunks"]:
        zoned = client["config"]["tags"].count_documents({"ns": namespace}) > 0
        _verify_chunks(client, planned, shards, zoned=zoned)
    return done


def find_collection(client: Client, namespace: str) -> Document | None:
    """The collection's entry in the cluster's catalogue."""
    return client["config"]["collections"].find_one({"_id": namespace, "dropped": {"$ne": True}})


def _shard(client: Client, planned: Document, shards: list[str], deadline: Deadline) -> None:
    """Define temporary zones, then shard the collection.

    The server then makes one empty chunk a zone range, at once on its shard, where splitting and moving would take a
    migration a chunk. The zones are removed again, or they would steer the balancer later.
    """
    namespace, key, chunks = planned["namespace"], dict(planned["shard_key"]), planned["chunks"]
    database = namespace.partition(".")[0]
    if client["config"]["databases"].find_one({"_id": database}) is None:
        primary = planned.get("primary_shard") or (chunks[0]["shard"] if chunks else shards[0])
        admin(client, deadline, "enableSharding", database, primaryShard=primary)
    if planned.get("options"):
        _create(client, namespace, planned["options"], deadline)
    zoned = chunks if len(chunks) > 1 else []
    zones = sorted({chunk["shard"] for chunk in zoned})
    for shard in zones:
        admin(client, deadline, "addShardToZone", shard, zone=shard)
    for chunk in zoned:
        lower, upper = _bounds(chunk, key)
        admin(client, deadline, "updateZoneKeyRange", namespace, min=lower, max=upper, zone=chunk["shard"])
    initial = {"numInitialChunks": planned["initial_chunks"]} if planned.get("initial_chunks") else {}
    admin(client, deadline, "shardCollection", namespace, key=key, unique=planned["unique"], **initial)
    for chunk in zoned:
        lower, upper = _bounds(chunk, key)
        admin(client, deadline, "updateZoneKeyRange", namespace, min=lower, max=upper, zone=None)
    for shard in zones:
        admin(client, deadline, "removeShardFromZone", shard, zone=shard)


def _create(client: Client, namespace: str, options: dict[str, Any], deadline: Deadline) -> None:
    """Create the collection with options that shardCollection has none for; the shards get them with its chunks."""
    database, _, name = namespace.partition(".")
    try:
        client[database].command("create", name, maxTimeMS=deadline.left_ms(), **options)
    except OperationFailure as error:
        raise HostError(f"create {namespace} {options}: {server_message(error)}") from None


def chunks_of(client: Client, namespace: str) -> list[tuple[float, str]]:
    """Lower end of the first key field (MinKey as -∞) and shard of every chunk, in the order of the key."""
    entries = client["config"]["chunks"].find(_of_collection(client, namespace))
    return sorted((_number(next(iter(entry["min"].values()))), entry["shard"]) for entry in entries)


def _of_collection(client: Client, namespace: str) -> Document:
    """The filter for the collection's chunks: since 5.0 they belong to its uuid, before to its name."""
    stored = find_collection(client, namespace) or {}
    return {"$or": [{"uuid": stored.get("uuid", "")}, {"ns": namespace}]}


def _number(value: Any) -> float:
    if isinstance(value, MinKey):
        return -math.inf
    return float(value) if isinstance(value, (int, float)) else math.nan


def _misplaced(client: Client, planned: Document) -> list[Document]:
    """Planned chunks that do not begin where a real one begins, or of which a part is on another shard."""
    real = chunks_of(client, planned["namespace"])
    wrong = []
    for chunk in planned["chunks"]:
        lower = -math.inf if chunk["lower"] is None else chunk["lower"]
        upper = math.inf if chunk["upper"] is None else chunk["upper"]
        inside = [(begin, shard) for begin, shard in real if lower <= begin < upper]
        if not inside or inside[0][0] != lower or any(shard != chunk["shard"] for _, shard in inside):
            wrong.append(chunk)
    return wrong


def _split_and_move(client: Client, planned: Document, deadline: Deadline) -> list[str]:
    """Split and move chunks, for a server that did not place them by zones; what was done."""
    namespace, key = planned["namespace"], dict(planned["shard_key"])
    begins = {begin for begin, _ in chunks_of(client, namespace)}
    done = []
    for chunk in planned["chunks"]:
        if chunk["lower"] is not None and chunk["lower"] not in begins:
            admin(client, deadline, "split", namespace, middle=_bounds(chunk, key)[0])
            done.append(f"{namespace} split at {chunk['lower']}")
    for chunk in _misplaced(client, planned):
        admin(client, deadline, "moveChunk", namespace, bounds=list(_bounds(chunk, key)), to=chunk["shard"])
        done.append(f"{namespace} from {chunk['lower']} moved to {chunk['shard']}")
    return done


def _verify_chunks(client: Client, planned: Document, shards: list[str], *, zoned: bool) -> None:
    """HostError unless the chunks are as planned; zones of the plan are verified by `verify_zones`."""
    namespace = planned["namespace"]
    real = chunks_of(client, namespace)
    counts = dict(sorted(Counter(shard for _, shard in real).items()))
    wrong = _misplaced(client, planned)
    if wrong:
        wanted = ", ".join(f"[{c['lower']}, {c['upper']}) on {c['shard']}" for c in wrong)
        raise HostError(f"{namespace}: chunks are not where they are planned: {wanted}. Chunks by shard: {counts}")
    without_chunks = sorted(set(shards) - set(counts))
    if planned.get("initial_chunks") and sum(counts.values()) < planned["initial_chunks"]:
        raise HostError(
            f"{namespace}: {sum(counts.values())} chunks where {planned['initial_chunks']} are planned; "
            "from MongoDB 7.2 on the server decides how many there are (leave presplit.chunks_per_shard out)"
        )
    if not planned["chunks"] and not zoned and "hashed" in planned["shard_key"].values() and without_chunks:
        raise HostError(f"{namespace}: no chunk of the hashed key on {without_chunks}. Chunks by shard: {counts}")


def define_zones(client: Client, point: Document, deadline: Deadline, *, check: bool) -> list[str]:
    """Add shards and ranges to the planned zones; what was done. HostError for a range of another zone."""
    if not point.get("zones"):
        return []
    done = []
    keys = {collection["namespace"]: dict(collection["shard_key"]) for collection in point["collections"]}
    members = {shard["_id"]: set(shard.get("tags") or []) for shard in client["config"]["shards"].find()}
    ranges = {
        (tag["ns"], _comparable(tag["min"])): (_comparable(tag["max"]), tag["tag"])
        for tag in client["config"]["tags"].find()
    }
    for zone in point["zones"]:
        for shard in zone["shards"]:
            if zone["name"] not in members.get(shard, set()):
                done.append(f"shard {shard} in zone {zone['name']}")
                if not check:
                    admin(client, deadline, "addShardToZone", shard, zone=zone["name"])
        for span in zone["ranges"]:
            namespace = span["namespace"]
            lower, upper = _bounds(span, keys[namespace])
            found = ranges.get((namespace, _comparable(lower)))
            if found == (_comparable(upper), zone["name"]):
                continue
            if found is not None:
                raise HostError(f"{namespace}: the range from {lower} belongs to zone {found[1]}, not as planned")
            done.append(f"{namespace} from {span['lower']} to {span['upper']} in zone {zone['name']}")
            if not check:
                admin(client, deadline, "updateZoneKeyRange", namespace, min=lower, max=upper, zone=zone["name"])
    return done


def verify_zones(client: Client, point: Document, deadline: Deadline, *, wait: bool) -> None:
    """HostError unless every chunk of a zone's range is on a shard of the zone.

    Collections are laid out by their zones when they are sharded. With `wait` the balancer is given time to do what is
    missing.
    """
    for zone in point.get("zones") or []:
        for span in zone["ranges"]:
            while True:
                wrong = _shards_outside(client, point, zone, span)
                if not wrong:
                    break
                problem = f"{span['namespace']}: chunks of zone {zone['name']} are on {wrong}, not on {zone['shards']}"
                if not wait:
                    raise HostError(problem)
                deadline.pause(problem)


def _shards_outside(client: Client, point: Document, zone: Document, span: Document) -> list[str]:
    namespace = span["namespace"]
    key = next(dict(c["shard_key"]) for c in point["collections"] if c["namespace"] == namespace)
    lower, upper = _bounds(span, key)
    # A chunk that reaches beyond the range counts too: it holds what belongs to the zone.
    inside = {"max": {"$gt": lower}, "min": {"$lt": upper}, "shard": {"$nin": zone["shards"]}}
    return sorted(client["config"]["chunks"].distinct("shard", {**_of_collection(client, namespace), **inside}))


def _bounds(span: Document, key: Document) -> tuple[Document, Document]:
    """The bounds of a chunk or a zone's range in the form of the shard key."""
    return _bound(span["lower"], key, MinKey()), _bound(span["upper"], key, MaxKey())


def _bound(given: int | Document | None, key: Document, end: MinKey | MaxKey) -> Document:
    """`end` for None; a number is the value of the first field; fields that are not given begin at MinKey."""
    if given is None:
        return dict.fromkeys(key, end)
    fields = given if isinstance(given, dict) else {next(iter(key)): given}
    # Values of a hashed field are 64 bits wide on the server.
    wide = {name: Int64(value) if type(value) is int else value for name, value in fields.items()}
    return {name: wide.get(name, MinKey()) for name in key}


def _comparable(bound: Document) -> str:
    return repr([(name, value) for name, value in bound.items()])
