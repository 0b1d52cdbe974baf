"""Zones and primary shards that name what is not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from microshard.experiment.source import KeyPath
from microshard.model.topology import Collection, Shards, Zone

Found = tuple[KeyPath, str]


def misplaced(planned: Shards, collections: Sequence[Collection], zones: Sequence[Zone]) -> Iterator[Found]:
    """What is wrong in a sharded cluster: path below `topology`, and a sentence."""
    shards = planned.initial or planned.count
    yield from _primaries(collections, shards)
    names: set[str] = set()
    for index, zone in enumerate(zones):
        here: KeyPath = ("zones", index)
        if zone.name in names:
            yield (*here, "name"), f"{zone.name} is there twice"
        names.add(zone.name)
        for place, number in enumerate(zone.shards):
            if number > shards:
                yield (*here, "shards", place), _no_shard(number, shards)
        yield from _ranges(zone, here, {c.namespace: c for c in collections})


def _no_shard(number: int | None, shards: int) -> str:
    return f"there is no shard {number}; {shards} {'is' if shards == 1 else 'are'} added"


def _primaries(collections: Sequence[Collection], shards: int) -> Iterator[Found]:
    primaries: dict[str, int | None] = {}
    for index, collection in enumerate(collections):
        path: KeyPath = ("collections", index, "primary_shard")
        if (collection.primary_shard or 1) > shards:
            yield path, _no_shard(collection.primary_shard, shards)
        database = collection.namespace.partition(".")[0]
        if primaries.setdefault(database, collection.primary_shard) != collection.primary_shard:
            yield path, f"database {database} has another primary shard with an earlier collection"


def _ranges(zone: Zone, here: KeyPath, collections: dict[str, Collection]) -> Iterator[Found]:
    for place, span in enumerate(zone.ranges):
        at = (*here, "ranges", place)
        found = collections.get(span.namespace)
        if found is None:
            yield (*at, "namespace"), f"{span.namespace} is not among topology.collections"
            continue
        policy = found.presplit.policy
        if policy in {"key_ranges", "split_points"}:
            yield (*at, "namespace"), f"{span.namespace} is pre-split by {policy}: its chunks are placed already"
        for side, bound in (("lower", span.lower), ("upper", span.upper)):
            if bound is not None and (not bound or list(bound) != list(found.shard_key)[: len(bound)]):
                yield (*at, side), f"needs the first fields of the shard key {list(found.shard_key)}, not {list(bound)}"
