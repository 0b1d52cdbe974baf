"""From a topology to processes and replica sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from microshard.definition.members import Member as MemberDefinition
from microshard.definition.members import listed
from microshard.definition.topology import Collection as CollectionDefinition
from microshard.definition.topology import Topology
from microshard.plan.cache import budget
from microshard.plan.model import (
    CacheBudget,
    Chunk,
    Collection,
    Host,
    Member,
    Process,
    ReplicaSet,
    Role,
    Zone,
    ZoneRange,
)

_ARBITER_CACHE_MIB = 64.0  # it bears no data: its share is better with the others
_DEFAULT = MemberDefinition()


@dataclass(frozen=True, slots=True)
class _Slot:
    """A process before it has a port."""

    name: str
    role: Role
    replica_set: str | None
    member: MemberDefinition = _DEFAULT
    added: bool = True  # False: its set is a shard that a phase adds

    @property
    def bears_data(self) -> bool:
        return self.role not in {"config", "mongos"} and not self.member.arbiter

    @property
    def own_cache_mib(self) -> float | None:
        """Cache apart from the policy."""
        return _ARBITER_CACHE_MIB if self.member.arbiter else self.member.cache_mb


@dataclass(frozen=True, slots=True)
class Deployment:
    """The processes of a point, and how they hang together."""

    processes: tuple[Process, ...]
    replica_sets: tuple[ReplicaSet, ...]
    collections: tuple[Collection, ...]
    zones: tuple[Zone, ...]
    cache: CacheBudget


def deploy(
    topology: Topology, *, point: str, host: Host, first_port: int, cores: int, ram_mib: float | None
) -> Deployment:
    """Lay a topology out on one host, ports from `first_port` on, one each and without a gap."""
    slots = _slots(topology)
    data_bearing = [s for s in slots if s.bears_data]
    own = [s.own_cache_mib for s in slots if s.own_cache_mib is not None]
    sharing = sum(s.own_cache_mib is None for s in data_bearing)
    cache = budget(topology.storage.cache, sharing, ram_mib, sum(own))
    processes = tuple(
        _process(
            slot,
            topology,
            folder=f"deployments/{point}/{slot.name}",
            host=host,
            port=first_port + offset,
            cache_mib=cache.per_process_mib,
            cpu_share=cores / len(data_bearing),
        )
        for offset, slot in enumerate(slots)
    )
    return Deployment(
        processes=processes,
        replica_sets=_replica_sets(slots, processes),
        collections=tuple(
            _collection(c, topology.shards.initial or topology.shards.count) for c in topology.collections
        ),
        zones=tuple(
            Zone(
                z.name,
                tuple(shard_name(n) for n in z.shards),
                tuple(ZoneRange(r.namespace, r.lower, r.upper) for r in z.ranges),
            )
            for z in topology.zones
        ),
        cache=cache,
    )


def process_count(topology: Topology) -> int:
    """How many processes, and so ports, the topology has."""
    return len(_slots(topology))


def _slots(topology: Topology) -> list[_Slot]:
    if topology.kind == "standalone":
        return [_Slot("mongod1", "standalone", None)]
    if topology.kind == "replica_set":
        members = listed(topology.replica_set.members)
        return [_Slot(f"rs0-{n}", "member", "rs0", member) for n, member in enumerate(members, start=1)]
    slots = [_Slot(f"mongos{n}", "mongos", None) for n in range(1, topology.mongos.count + 1)]
    slots += [_Slot(f"config{n}", "config", "config") for n in range(1, topology.config_servers.members + 1)]
    members = listed(topology.shards.members)
    for number in range(1, topology.shards.count + 1):
        shard = shard_name(number)
        added = number <= (topology.shards.initial or topology.shards.count)
        for place, member in enumerate(members, start=1):
            name = shard if len(members) == 1 else f"{shard}-{place}"
            slots.append(_Slot(name, "shard", shard, member, added))
    return slots


def shard_name(number: int) -> str:
    """The name of the shard and of its replica set, from 1: shard01."""
    return f"shard{number:02d}"


def _process(
    slot: _Slot, topology: Topology, *, folder: str, host: Host, port: int, cache_mib: float, cpu_share: float
) -> Process:
    is_mongos = slot.role == "mongos"
    if is_mongos:
        cache: float | None = None
    elif slot.role == "config":
        cache = topology.config_servers.cache_mb
    else:
        cache = cache_mib if slot.own_cache_mib is None else slot.own_cache_mib
    return Process(
        name=slot.name,
        role=slot.role,
        host=host.name,
        address=host.address,
        port=port,
        folder=folder,
        db_path=None if is_mongos else f"{folder}/data",
        log_path=f"{folder}/{'mongos' if is_mongos else 'mongod'}.log",
        config_path=f"{folder}/{'mongos' if is_mongos else 'mongod'}.conf",
        pid_path=f"{folder}/pid",
        replica_set=slot.replica_set,
        cache_mib=cache,
        cpu_share=cpu_share if slot.bears_data else 0.0,
        options=_options(slot, topology),
    )


def _options(slot: _Slot, topology: Topology) -> dict[str, Any]:
    """What the definition says about this process, in the form of MongoDB's configuration file."""
    role, member = slot.role, slot.member
    compressors = topology.network.compressors
    options: dict[str, Any] = {"net": {"compression": {"compressors": ",".join(compressors) or "disabled"}}}
    if role == "mongos":
        return options
    if role == "config":
        return options
    storage = topology.storage
    options["storage"] = {"engine": storage.engine}
    if storage.engine == "wiredTiger":
        options["storage"]["wiredTiger"] = {
            "collectionConfig": {"blockCompressor": member.block_compressor or storage.block_compressor},
            "indexConfig": {
                "prefixCompression": storage.index_prefix_compression
                if member.index_prefix_compression is None
                else member.index_prefix_compression
            },
        }
    if role != "standalone":
        options["replication"] = {"oplogSizeMB": storage.oplog_size_mb}
    return merge(merge(options, topology.mongod), member.mongod)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        result[key] = merge(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def _replica_sets(slots: Sequence[_Slot], processes: Sequence[Process]) -> tuple[ReplicaSet, ...]:
    sets: dict[str, list[tuple[_Slot, Process]]] = {}
    for slot, process in zip(slots, processes, strict=True):
        if slot.replica_set:
            sets.setdefault(slot.replica_set, []).append((slot, process))
    return tuple(
        ReplicaSet(
            name=name,
            role=members[0][0].role,
            members=tuple(_member(slot.member, process) for slot, process in members),
            initial=members[0][0].added,
        )
        for name, members in sets.items()
    )


def _member(definition: MemberDefinition, process: Process) -> Member:
    return Member(
        process=process.name,
        endpoint=process.endpoint,
        priority=definition.effective_priority,
        votes=definition.votes,
        hidden=definition.hidden,
        delay_seconds=definition.delay_seconds,
        arbiter=definition.arbiter,
        initial=definition.initial,
    )


def _collection(definition: CollectionDefinition, shards: int) -> Collection:
    chunks: tuple[Chunk, ...] = ()
    if definition.presplit.policy == "key_ranges":
        each = definition.presplit.ranges_per_shard
        total = each * shards
        # The source's layout: a loader owns the upper 32 bits of _id, and its chunk lives on one shard.
        chunks = tuple(
            Chunk(
                shard=shard_name(k // each + 1),
                lower=None if k == 0 else k << 32,
                upper=None if k == total - 1 else (k + 1) << 32,
            )
            for k in range(total)
        )
    if definition.presplit.policy == "split_points":
        bounds = [None, *definition.presplit.points, None]
        chunks = tuple(
            Chunk(shard=shard_name(k % shards + 1), lower=lower, upper=upper)
            for k, (lower, upper) in enumerate(pairwise(bounds))
        )
    each_shard = definition.presplit.chunks_per_shard
    return Collection(
        namespace=definition.namespace,
        shard_key=dict(definition.shard_key),
        unique=definition.unique,
        chunks=chunks,
        primary_shard=None if definition.primary_shard is None else shard_name(definition.primary_shard),
        initial_chunks=each_shard * shards if each_shard and definition.presplit.policy == "hashed" else None,
    )
