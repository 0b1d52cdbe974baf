"""From a topology to processes and replica sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from microshard.experiment.mongod_options import ENGINE_SECTIONS
from microshard.memoize import memoize_by_identity
from microshard.model.plan import (
    CacheBudget,
    Host,
    PlannedChunk,
    PlannedCollection,
    PlannedMember,
    PlannedReplicaSet,
    PlannedZone,
    PlannedZoneRange,
    Process,
    Role,
    endpoint,
)
from microshard.model.topology import (
    Cache,
    ConfigServers,
    MongoDB,
    Network,
    ReplicaSetSpec,
    Shards,
    Storage,
    Topology,
    listed,
    mongos_count,
)
from microshard.model.topology import Collection as CollectionDefinition
from microshard.model.topology import Member as MemberDefinition
from microshard.plan.cache import budget
from microshard.plan.placement import HostsByRole, host_of

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
    number: int = 1  # of its shard or of the mongos, from 1
    place: int = 1  # in its replica set, from 1

    @property
    def bears_data(self) -> bool:
        return self.role not in {"config", "mongos"} and not self.member.arbiter

    @property
    def own_cache_mib(self) -> float | None:
        """Cache apart from the policy."""
        return _ARBITER_CACHE_MIB if self.member.arbiter else self.member.cache_mb


@dataclass(frozen=True, slots=True)
class PlacedProcess:
    """A process on its host, without what is a point's own: port and folder."""

    slot: _Slot
    host: Host
    address: str
    cache_mib: float | None
    cpu_share: float
    options: dict[str, Any]

    @property
    def role(self) -> Role:
        """What it is for."""
        return self.slot.role

    @property
    def replica_set(self) -> str | None:
        """The one it is a member of."""
        return self.slot.replica_set


@dataclass(frozen=True, slots=True)
class Deployment:
    """The processes of a point, and how they hang together."""

    laid: tuple[PlacedProcess, ...]
    processes: tuple[Process, ...]
    replica_sets: tuple[PlannedReplicaSet, ...]
    collections: tuple[PlannedCollection, ...]
    zones: tuple[PlannedZone, ...]
    caches: tuple[CacheBudget, ...]  # one a host that bears data


def deploy(topology: Topology, *, point: str, there: HostsByRole, first_port: int) -> Deployment:
    """Lay a topology out on its hosts; on each host ports from `first_port` on, one each and without a gap.

    Raises ValueError when the cache is a share of a RAM that is not known.
    """
    placed = _placed(_slots(topology), there)
    caches = _caches(topology.storage.cache, placed)
    laid = _laid(
        placed,
        caches,
        topology.config_servers,
        topology.mongodb,
        topology.network,
        topology.storage,
        topology.mongod or None,
    )
    ports = _ports(laid, first_port)
    return Deployment(
        laid=laid,
        processes=tuple(
            [_process(one, f"deployments/{point}/{one.slot.name}", port) for one, port in zip(laid, ports, strict=True)]
        ),
        replica_sets=_replica_sets(laid, ports),
        collections=tuple(
            _collection(c, topology.shards.initial or topology.shards.count) for c in topology.collections
        ),
        zones=tuple(
            PlannedZone(
                z.name,
                tuple(shard_name(n) for n in z.shards),
                tuple(PlannedZoneRange(r.namespace, r.lower, r.upper) for r in z.ranges),
            )
            for z in topology.zones
        ),
        caches=tuple(caches.values()),
    )


Placed = tuple[tuple[_Slot, Host], ...]


@memoize_by_identity
def _placed(slots: tuple[_Slot, ...], there: HostsByRole) -> Placed:
    return tuple((slot, host_of(slot, there)) for slot in slots)


@memoize_by_identity
def _bearing(placed: Placed) -> Counter[str]:
    """Data-bearing processes of each host."""
    return Counter(host.name for slot, host in placed if slot.bears_data)


@memoize_by_identity
def _caches(cache: Cache, placed: Placed) -> dict[str, CacheBudget]:
    """Host → its cache, of those that bear data."""
    return {host.name: _budget(cache, host, placed) for slot, host in placed if slot.bears_data}


def _budget(cache: Cache, host: Host, placed: Placed) -> CacheBudget:
    """The cache of one host among the processes it bears data with; some may have a cache apart from the policy."""
    here = [slot for slot, other in placed if other == host]
    own = sum(slot.own_cache_mib for slot in here if slot.own_cache_mib is not None)
    sharing = sum(slot.bears_data and slot.own_cache_mib is None for slot in here)
    return budget(cache, sharing, host.ram_mib, own, host.name)


def ports_needed(topology: Topology, there: HostsByRole) -> int:
    """How many ports the topology takes on the host that has most of its processes."""
    return _most(_placed(_slots(topology), there))


@memoize_by_identity
def _most(placed: Placed) -> int:
    return max(Counter(host.name for _, host in placed).values())


def _slots(topology: Topology) -> tuple[_Slot, ...]:
    if topology.kind == "standalone":
        return _STANDALONE
    if topology.kind == "replica_set":
        return _members(topology.replica_set)
    return _of_cluster(topology.shards, topology.config_servers, mongos_count(topology))


_STANDALONE = (_Slot("mongod1", "standalone", None),)


@memoize_by_identity
def _members(replica_set: ReplicaSetSpec) -> tuple[_Slot, ...]:
    members = enumerate(listed(replica_set.members), start=1)
    return tuple(_Slot(f"rs0-{n}", "member", "rs0", member, place=n) for n, member in members)


@memoize_by_identity
def _of_cluster(shards: Shards, config_servers: ConfigServers, mongos: int) -> tuple[_Slot, ...]:
    slots = [_Slot(f"mongos{n}", "mongos", None, number=n) for n in range(1, mongos + 1)]
    slots += [_Slot(f"config{n}", "config", "config", place=n) for n in range(1, config_servers.members + 1)]
    members = listed(shards.members)
    for number in range(1, shards.count + 1):
        shard = shard_name(number)
        added = number <= (shards.initial or shards.count)
        for place, member in enumerate(members, start=1):
            name = shard if len(members) == 1 else f"{shard}-{place}"
            slots.append(_Slot(name, "shard", shard, member, added, number, place))
    return tuple(slots)


def shard_name(number: int) -> str:
    """The name of the shard and of its replica set, from 1: shard01."""
    return f"shard{number:02d}"


@memoize_by_identity
def _laid(
    placed: Placed,
    caches: Mapping[str, CacheBudget],
    config_servers: ConfigServers,
    mongodb: MongoDB,
    network: Network,
    storage: Storage,
    mongod: Mapping[str, Any] | None,
) -> tuple[PlacedProcess, ...]:
    bearing = _bearing(placed)
    laid = []
    for slot, host in placed:
        # The embedded mongos listens on loopback only, so it is on the client host and the client reaches it there.
        alone = slot.role == "mongos" and mongodb.source == "embedded"
        if slot.role == "mongos":
            cache: float | None = None
        elif slot.role == "config":
            cache = config_servers.cache_mb
        elif slot.own_cache_mib is not None:
            cache = slot.own_cache_mib
        else:
            cache = caches[host.name].per_process_mib
        laid.append(
            PlacedProcess(
                slot,
                host,
                address="127.0.0.1" if alone else host.address,
                cache_mib=cache,
                cpu_share=host.cores / bearing[host.name] if slot.bears_data else 0.0,
                options=_options(slot.role, slot.member, mongodb, network, storage, mongod),
            )
        )
    return tuple(laid)


@memoize_by_identity
def _ports(laid: tuple[PlacedProcess, ...], first: int) -> tuple[int, ...]:
    """Of each process: on each host from the first one on."""
    used: Counter[str] = Counter()
    ports = []
    for process in laid:
        ports.append(first + used[process.host.name])
        used[process.host.name] += 1
    return tuple(ports)


def _process(laid: PlacedProcess, folder: str, port: int) -> Process:
    slot = laid.slot
    program = "mongos" if slot.role == "mongos" else "mongod"
    return Process(
        name=slot.name,
        role=slot.role,
        host=laid.host.name,
        address=laid.address,
        port=port,
        folder=folder,
        db_path=None if program == "mongos" else f"{folder}/data",
        log_path=f"{folder}/{program}.log",
        config_path=f"{folder}/{program}.conf",
        pid_path=f"{folder}/pid",
        replica_set=slot.replica_set,
        cache_mib=laid.cache_mib,
        cpu_share=laid.cpu_share,
        options=laid.options,
    )


def _knows_wire_compression(version: str | None) -> bool:
    """Whether this version has the option net.compression at all: 3.4 and later; what is not known is new."""
    return version is None or tuple(int(part) for part in version.split(".")[:2]) >= (3, 4)


@memoize_by_identity
def _options(
    role: Role,
    member: MemberDefinition,
    mongodb: MongoDB,
    network: Network,
    storage: Storage,
    mongod: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What the definition says about such a process, in the form of MongoDB's configuration file."""
    options: dict[str, Any] = {}
    if _knows_wire_compression(mongodb.version):
        own = network.mongos_compressors if role == "mongos" else None
        names = network.compressors if own is None else own
        options["net"] = {"compression": {"compressors": ",".join(names) or "disabled"}}
    if role in {"mongos", "config"}:
        return options
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
    if storage.engine == "rocksdb":
        options["storage"]["rocksdb"] = {"compression": member.block_compressor or storage.block_compressor}
    if storage.engine == "tokumx":
        compressor = member.block_compressor or storage.block_compressor
        options["storage"]["tokumx"] = {"setParameter": {"defaultCompression": compressor}}
    if role != "standalone":
        options["replication"] = {"oplogSizeMB": storage.oplog_size_mb}
    return _own_engine_only(merge(merge(options, mongod or {}), member.mongod), storage.engine)


def _own_engine_only(options: dict[str, Any], engine: str) -> dict[str, Any]:
    """Without the sections of other storage engines: a mongod may not know them; one experiment may compare several."""
    kept = {k: v for k, v in options["storage"].items() if k == engine or k not in ENGINE_SECTIONS}
    return {**options, "storage": kept}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        mine = result.get(key)
        result[key] = merge(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


@memoize_by_identity
def _replica_sets(laid: tuple[PlacedProcess, ...], ports: tuple[int, ...]) -> tuple[PlannedReplicaSet, ...]:
    sets: dict[str, list[tuple[PlacedProcess, int]]] = {}
    for one, port in zip(laid, ports, strict=True):
        if one.replica_set:
            sets.setdefault(one.replica_set, []).append((one, port))
    return tuple(
        PlannedReplicaSet(
            name=name,
            role=members[0][0].role,
            members=tuple(_member(one, port) for one, port in members),
            initial=members[0][0].slot.added,
        )
        for name, members in sets.items()
    )


def _member(laid: PlacedProcess, port: int) -> PlannedMember:
    definition = laid.slot.member
    return PlannedMember(
        process=laid.slot.name,
        endpoint=endpoint(laid.address, port),
        priority=definition.effective_priority,
        votes=definition.votes,
        hidden=definition.hidden,
        delay_seconds=definition.delay_seconds,
        arbiter=definition.arbiter,
        initial=definition.initial,
    )


@memoize_by_identity
def _collection(definition: CollectionDefinition, shards: int) -> PlannedCollection:
    chunks: tuple[PlannedChunk, ...] = ()
    if definition.presplit.policy == "key_ranges":
        each = definition.presplit.ranges_per_shard
        total = each * shards
        # The source's layout: a loader owns the upper 32 bits of _id, and its chunk lives on one shard.
        chunks = tuple(
            PlannedChunk(
                shard=shard_name(k // each + 1),
                lower=None if k == 0 else k << 32,
                upper=None if k == total - 1 else (k + 1) << 32,
            )
            for k in range(total)
        )
    if definition.presplit.policy == "split_points":
        bounds = [None, *definition.presplit.points, None]
        chunks = tuple(
            PlannedChunk(shard=shard_name(k % shards + 1), lower=lower, upper=upper)
            for k, (lower, upper) in enumerate(pairwise(bounds))
        )
    each_shard = definition.presplit.chunks_per_shard
    return PlannedCollection(
        namespace=definition.namespace,
        shard_key=dict(definition.shard_key),
        unique=definition.unique,
        chunks=chunks,
        primary_shard=None if definition.primary_shard is None else shard_name(definition.primary_shard),
        initial_chunks=each_shard * shards if each_shard and definition.presplit.policy == "hashed" else None,
    )
