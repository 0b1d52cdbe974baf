"""Sharded collections, and their chunks where the plan wants them before the first document."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey

from ..topology.cluster import Client, admin
from ..topology.server import Deadline, TopologyProblem

Document = dict[str, Any]


def place(client: Client, planned: Document, shards: list[str], deadline: Deadline, *, balanced: bool) -> list[str]:
    """The collection is sharded by the planned key and its chunks lie as planned; says what was done.

    Where a balancer is at work on a collection that was there before, the chunks are its business and not looked at.
    """
    namespace = planned["namespace"]
    stored = find(client, namespace)
    if stored is not None and dict(stored["key"]) != dict(planned["shard_key"]):
        raise TopologyProblem(f"{namespace} is sharded by {dict(stored['key'])}, planned is {planned['shard_key']}")
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
        _verify(client, planned, shards, zoned=zoned)
    return done


def find(client: Client, namespace: str) -> Document | None:
    """The collection's entry in the cluster's catalogue."""
    return client["config"]["collections"].find_one({"_id": namespace, "dropped": {"$ne": True}})


def _shard(client: Client, planned: Document, shards: list[str], deadline: Deadline) -> None:
    """Zones of our own first, then the collection.

    The server then makes one empty chunk a zone range, at once on its shard, where splitting and moving would take a
    migration a chunk. The zones are taken away again: nothing but the plan shall steer the balancer later.
    """
    namespace, key, chunks = planned["namespace"], dict(planned["shard_key"]), planned["chunks"]
    database = namespace.partition(".")[0]
    if client["config"]["databases"].find_one({"_id": database}) is None:
        primary = planned.get("primary_shard") or (chunks[0]["shard"] if chunks else shards[0])
        admin(client, deadline, "enableSharding", database, primaryShard=primary)
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


def _bounds(chunk: Document, key: Document) -> tuple[Document, Document]:
    """The chunk's bounds in the form of the shard key: only the first field is divided."""
    return _bound(chunk["lower"], key, MinKey()), _bound(chunk["upper"], key, MaxKey())


def _bound(value: int | None, key: Document, end: MinKey | MaxKey) -> Document:
    if value is None:
        return dict.fromkeys(key, end)
    first, *others = key
    return {first: Int64(value), **dict.fromkeys(others, MinKey())}


def chunks_of(client: Client, namespace: str) -> list[tuple[float, str]]:
    """Lower end of the first key field (MinKey as -∞) and shard of every chunk, in the order of the key."""
    stored = find(client, namespace) or {}
    # Since 5.0 chunks belong to the collection's uuid, before to its name.
    entries = client["config"]["chunks"].find({"$or": [{"uuid": stored.get("uuid", "")}, {"ns": namespace}]})
    return sorted((_number(next(iter(entry["min"].values()))), entry["shard"]) for entry in entries)


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
    """For a server that did not lay the chunks out by zones."""
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


def _verify(client: Client, planned: Document, shards: list[str], *, zoned: bool) -> None:
    """TopologyProblem unless the chunks lie as planned; where there are zones they decide, and are verified apart."""
    namespace = planned["namespace"]
    real = chunks_of(client, namespace)
    share = dict(sorted(Counter(shard for _, shard in real).items()))
    wrong = _misplaced(client, planned)
    if wrong:
        wanted = ", ".join(f"[{c['lower']}, {c['upper']}) on {c['shard']}" for c in wrong)
        raise TopologyProblem(f"{namespace}: chunks are not where they are planned: {wanted}. Chunks by shard: {share}")
    empty_handed = sorted(set(shards) - set(share))
    if planned.get("initial_chunks") and sum(share.values()) < planned["initial_chunks"]:
        raise TopologyProblem(
            f"{namespace}: {sum(share.values())} chunks where {planned['initial_chunks']} are planned; "
            "from MongoDB 7.2 on the server decides how many there are (leave presplit.chunks_per_shard out)"
        )
    if not planned["chunks"] and not zoned and "hashed" in planned["shard_key"].values() and empty_handed:
        raise TopologyProblem(f"{namespace}: no chunk of the hashed key on {empty_handed}. Chunks by shard: {share}")
