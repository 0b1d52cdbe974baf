"""Zones: which shards alone hold which ranges."""

from __future__ import annotations

from typing import Any

from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey

from ..topology.cluster import Client, admin
from ..topology.server import Deadline, TopologyProblem

Document = dict[str, Any]


def define(client: Client, point: Document, deadline: Deadline, *, check: bool) -> list[str]:
    """Shards and ranges belong to the planned zones; says what was done. What is there and not planned is refused."""
    if not point.get("zones"):
        return []
    done = []
    keys = {collection["namespace"]: dict(collection["shard_key"]) for collection in point["collections"]}
    members = {shard["_id"]: set(shard.get("tags") or []) for shard in client["config"]["shards"].find()}
    ranges = {
        (tag["ns"], _frozen(tag["min"])): (_frozen(tag["max"]), tag["tag"]) for tag in client["config"]["tags"].find()
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
            found = ranges.get((namespace, _frozen(lower)))
            if found == (_frozen(upper), zone["name"]):
                continue
            if found is not None:
                raise TopologyProblem(f"{namespace}: the range from {lower} belongs to zone {found[1]}, not as planned")
            done.append(f"{namespace} from {span['lower']} to {span['upper']} in zone {zone['name']}")
            if not check:
                admin(client, deadline, "updateZoneKeyRange", namespace, min=lower, max=upper, zone=zone["name"])
    return done


def verify(client: Client, point: Document, deadline: Deadline, *, wait: bool) -> None:
    """TopologyProblem unless every chunk of a zone's range is on a shard of the zone.

    Collections are laid out by their zones when they are sharded. With `wait` the balancer is given time to do what is
    missing.
    """
    for zone in point.get("zones") or []:
        for span in zone["ranges"]:
            while True:
                wrong = _astray(client, point, zone, span)
                if not wrong:
                    break
                problem = f"{span['namespace']}: chunks of zone {zone['name']} are on {wrong}, not on {zone['shards']}"
                if not wait:
                    raise TopologyProblem(problem)
                deadline.pause(problem)


def _astray(client: Client, point: Document, zone: Document, span: Document) -> list[str]:
    namespace = span["namespace"]
    key = next(dict(c["shard_key"]) for c in point["collections"] if c["namespace"] == namespace)
    lower, upper = _bounds(span, key)
    stored = client["config"]["collections"].find_one({"_id": namespace}) or {}
    of_collection = {"$or": [{"uuid": stored.get("uuid", "")}, {"ns": namespace}]}
    # A chunk that reaches beyond the range counts too: it holds what belongs to the zone.
    inside = {"max": {"$gt": lower}, "min": {"$lt": upper}, "shard": {"$nin": zone["shards"]}}
    return sorted(client["config"]["chunks"].distinct("shard", {**of_collection, **inside}))


def _bounds(span: Document, key: Document) -> tuple[Document, Document]:
    """The range in the form of the shard key: fields that are not given begin at MinKey."""
    return _bound(span["lower"], key, MinKey()), _bound(span["upper"], key, MaxKey())


def _bound(given: Document | None, key: Document, end: MinKey | MaxKey) -> Document:
    if given is None:
        return dict.fromkeys(key, end)
    # Values of a hashed field are 64 bits wide on the server.
    wide = {name: Int64(value) if type(value) is int else value for name, value in given.items()}
    return {name: wide.get(name, MinKey()) for name in key}


def _frozen(bound: Document) -> str:
    return repr([(name, value) for name, value in bound.items()])
