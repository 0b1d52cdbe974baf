"""From a topology to processes and replica sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.definition.topology import Collection as CollectionDefinition
from microshard.definition.topology import Topology
from microshard.plan.cache import budget
from microshard.plan.model import CacheBudget, Chunk, Collection, Host, Member, Process, ReplicaSet, Role


@dataclass(frozen=True, slots=True)
class _Slot:
    """A process before it has a port."""

    name: str
    role: Role
    replica_set: str | None


@dataclass(frozen=True, slots=True)
class Deployment:
    """The processes of a point, and how they hang together."""

    processes: tuple[Process, ...]
    replica_sets: tuple[ReplicaSet, ...]
    collections: tuple[Collection, ...]
    cache: CacheBudget


def deploy(
    topology: Topology, *, point: str, host: Host, first_port: int, cores: int, ram_mib: float | None
) -> Deployment:
    """Lay a topology out on one host, ports from `first_port` on, one each and without a gap."""
    slots = _slots(topology)
    data_bearing = [s for s in slots if s.role not in {"config", "mongos"}]
    cache = budget(topology.storage.cache, len(data_bearing), ram_mib)
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
        replica_sets=_replica_sets(processes),
        collections=tuple(_collection(c, topology.shards.count) for c in topology.collections),
        cache=cache,
    )


def process_count(topology: Topology) -> int:
    """How many processes, and so ports, the topology has."""
    return len(_slots(topology))


def _slots(topology: Topology) -> list[_Slot]:
    if topology.kind == "standalone":
        return [_Slot("mongod1", "standalone", None)]
    if topology.kind == "replica_set":
        return [_Slot(f"rs0-{n}", "member", "rs0") for n in range(1, topology.replica_set.members + 1)]
    slots = [_Slot(f"mongos{n}", "mongos", None) for n in range(1, topology.mongos.count + 1)]
    slots += [_Slot(f"config{n}", "config", "config") for n in range(1, topology.config_servers.members + 1)]
    for number in range(1, topology.shards.count + 1):
        shard = shard_name(number)
        if topology.shards.members == 1:
            slots.append(_Slot(shard, "shard", shard))
        else:
            slots += [_Slot(f"{shard}-{m}", "shard", shard) for m in range(1, topology.shards.members + 1)]
    return slots


def shard_name(number: int) -> str:
    """The name of the shard and of its replica set, from 1: shard01."""
    return f"shard{number:02d}"


def _process(
    slot: _Slot, topology: Topology, *, folder: str, host: Host, port: int, cache_mib: float, cpu_share: float
) -> Process:
    is_mongos = slot.role == "mongos"
    is_data = slot.role not in {"mongos", "config"}
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
        cache_mib=cache_mib if is_data else None if is_mongos else topology.config_servers.cache_mb,
        cpu_share=cpu_share if is_data else 0.0,
        options=_options(slot.role, topology),
    )


def _options(role: Role, topology: Topology) -> dict[str, Any]:
    """What the definition says about this process, in the form of MongoDB's configuration file."""
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
            "collectionConfig": {"blockCompressor": storage.block_compressor},
            "indexConfig": {"prefixCompression": storage.index_prefix_compression},
        }
    if role != "standalone":
        options["replication"] = {"oplogSizeMB": storage.oplog_size_mb}
    return merge(options, topology.mongod)


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        result[key] = merge(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def _replica_sets(processes: Sequence[Process]) -> tuple[ReplicaSet, ...]:
    sets: dict[str, list[Process]] = {}
    for process in processes:
        if process.replica_set:
            sets.setdefault(process.replica_set, []).append(process)
    return tuple(
        ReplicaSet(
            name=name,
            role=members[0].role,
            members=tuple(Member(process=p.name, endpoint=p.endpoint) for p in members),
        )
        for name, members in sets.items()
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
    return Collection(
        namespace=definition.namespace,
        shard_key=dict(definition.shard_key),
        unique=definition.unique,
        chunks=chunks,
    )
