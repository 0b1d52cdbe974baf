"""The processes, replica sets, collections and zones of a topology."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from microshard.experiment.mongod_options import ENGINE_SECTIONS, parse_release
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
)
from microshard.model.topology import Cache, Collection, Member, Topology, listed, mongos_count
from microshard.plan.hosts import HostsByRole

_OPTION_MINIMUM_MIB = 256.0  # mongod's own option cacheSizeGB refuses less; WiredTiger's configuration string does not
_ARBITER_CACHE_MIB = 64.0  # an arbiter bears no data: its share is better used by the others
_DEFAULT_MEMBER = Member()


@dataclass(frozen=True, slots=True)
class _Slot:
    """A process before it has a host."""

    name: str
    role: Role
    replica_set: str | None = None
    member: Member = _DEFAULT_MEMBER
    initial: bool = True  # False: its replica set is a shard that a phase adds
    shard: int = 1  # number of its shard or of the mongos, from 1
    place: int = 1  # in its replica set, from 1

    @property
    def bears_data(self) -> bool:
        return self.role not in {"config", "mongos"} and not self.member.arbiter

    @property
    def fixed_cache_mib(self) -> float | None:
        """Cache that is not shared out by the policy."""
        return _ARBITER_CACHE_MIB if self.member.arbiter else self.member.cache_mb


@dataclass(frozen=True, slots=True)
class PlacedProcess:
    """A process on its host, without what differs between points: port and folder."""

    slot: _Slot
    host: Host
    address: str
    cache_mib: float | None
    cpu_share: float
    options: dict[str, Any]
    limits: dict[str, float]

    @property
    def role(self) -> Role:
        """What the process is for."""
        return self.slot.role


def _slots(topology: Topology) -> Iterator[_Slot]:
    if topology.kind == "standalone":
        yield _Slot("mongod1", "standalone")
    elif topology.kind == "replica_set":
        for place, member in enumerate(listed(topology.replica_set.members), start=1):
            yield _Slot(f"rs0-{place}", "member", "rs0", member, place=place)
    else:
        yield from (_Slot(f"mongos{n}", "mongos", shard=n) for n in range(1, mongos_count(topology) + 1))
        config_servers = 0 if topology.config_servers.embedded else topology.config_servers.members
        for place in range(1, config_servers + 1):
            yield _Slot(f"config{place}", "config", "config", place=place)
        members = listed(topology.shards.members)
        for number in range(1, topology.shards.count + 1):
            shard, initial = shard_name(number, topology), number <= initial_shards(topology)
            for place, member in enumerate(members, start=1):
                name = shard if len(members) == 1 else f"{shard}-{place}"
                yield _Slot(name, "shard", shard, member, initial, number, place)


def shard_name(number: int, topology: Topology) -> str:
    """The name of a shard and of its replica set, from 1: shard01; MongoDB calls a config shard `config`."""
    return "config" if number == 1 and topology.config_servers.embedded else f"shard{number:02d}"


def initial_shards(topology: Topology) -> int:
    """How many shards are added before the first phase."""
    return topology.shards.initial or topology.shards.count


def _assigned(topology: Topology, hosts: HostsByRole) -> list[tuple[_Slot, Host]]:
    """Every process with its host.

    The first members of the shards, which become primaries, are on successive data hosts. Every other member is on the
    host with the fewest data-bearing processes among those without a member of its set, so none is idle while another
    has two; of equals on the next after the member before. mongos and config servers are on successive hosts. What
    `topology.placement` names is where it says.
    """
    of_role = {"mongos": hosts.mongos, "config": hosts.config}
    slots = list(_slots(topology))
    pinned = {slot.name: host for slot, key, name in _pins(topology, slots) if (host := hosts.named.get(name))}
    chosen: dict[str, Host] = {}
    bearing: Counter[str] = Counter()
    members: dict[str | None, list[Host]] = {}
    for slot in sorted(slots, key=lambda slot: slot.place > 1):  # stable: first members before the others
        candidates = of_role.get(slot.role, hosts.data)
        start = (slot.shard - 1 + slot.place - 1) % len(candidates)
        rotated = [*candidates[start:], *candidates[:start]]
        if slot.role not in of_role and slot.place > 1:
            free = [host for host in rotated if host not in members[slot.replica_set]]
            rotated = sorted(free or rotated, key=lambda host: bearing[host.name])
        host = pinned.get(slot.name, rotated[0])
        chosen[slot.name] = host
        members.setdefault(slot.replica_set, []).append(host)
        bearing[host.name] += slot.bears_data
    return [(slot, chosen[slot.name]) for slot in slots]


def _pins(topology: Topology, slots: Sequence[_Slot]) -> Iterator[tuple[_Slot, str, str]]:
    """Processes that `placement` names a host for: the process, the key below `placement`, the name."""
    placement = topology.placement
    for slot in slots:
        numbers = {"shards": slot.shard, "mongos": slot.shard, "config_servers": slot.place, "replica_set": slot.place}
        key = {"shard": "shards", "mongos": "mongos", "config": "config_servers"}.get(slot.role, "replica_set")
        number = numbers[key] - 1
        listed_hosts = getattr(placement, key)
        if key == "shards" and number < len(listed_hosts):
            key, listed_hosts, number = f"shards.{number}", listed_hosts[number], slot.place - 1
        if number < len(listed_hosts) and isinstance(listed_hosts[number], str):
            yield slot, f"{key}.{number}", listed_hosts[number]


def placement_problems(topology: Topology, hosts: HostsByRole) -> Iterator[tuple[str, str]]:
    """Lists of `topology.placement` that do not fit the processes or the hosts, as (dotted key, sentence)."""
    slots, here = list(_slots(topology)), "topology.placement"
    wanted = {
        "shards": topology.shards.count if topology.kind == "sharded" else 0,
        "replica_set": 0 if topology.kind == "sharded" else len(slots),
        "config_servers": sum(slot.role == "config" for slot in slots),
        "mongos": mongos_count(topology),
    }
    for key, count in wanted.items():
        given = len(getattr(topology.placement, key))
        if given and not count:
            yield f"{here}.{key}", f"a topology of kind {topology.kind} has none: this has no effect"
        elif 0 < given < count or (given > count and key in {"replica_set", "config_servers"}):
            yield f"{here}.{key}", f"{given} given, there are {count}: name a host for each, or for none"
    members = len(listed(topology.shards.members))
    for number, names in enumerate(topology.placement.shards if topology.kind == "sharded" else ()):
        if len(names) != members:
            yield (
                f"{here}.shards.{number}",
                f"{len(names)} hosts for {members} members of {shard_name(number + 1, topology)}",
            )
    if topology.placement.mongos and topology.mongodb.source == "embedded":
        yield f"{here}.mongos", "the embedded mongos listens on loopback only, so it runs on the client host"
    yield from ((f"{here}.{key}", problem) for key, problem in _pin_problems(topology, slots, hosts))


def _pin_problems(topology: Topology, slots: Sequence[_Slot], hosts: HostsByRole) -> Iterator[tuple[str, str]]:
    taken: set[tuple[str, str]] = set()
    for slot, key, name in _pins(topology, slots):
        host = hosts.named.get(name)
        if host is None:
            yield key, f"{name} is not among the hosts: {', '.join(host.name for host in hosts.all)}"
        elif slot.bears_data and host not in hosts.data:
            yield key, f"{name} is no shard host, and only those have the volumes for data"
        elif slot.replica_set and (slot.replica_set, host.name) in taken:
            yield key, f"{name} has another member of {slot.replica_set} already"
        elif slot.replica_set:
            taken.add((slot.replica_set, host.name))


def _limits(slot: _Slot, topology: Topology) -> dict[str, float]:
    """The limits of a process, by the closest name that `topology.limits` has."""
    for name in (slot.name, slot.replica_set, "all") if slot.bears_data else ():
        if name in topology.limits:
            return topology.limits[name].model_dump(exclude_none=True)
    return {}


def limit_problems(topology: Topology) -> Iterator[tuple[str, str]]:
    """Names in `topology.limits` that no data-bearing process has, as (dotted key, sentence)."""
    known = {name for slot in _slots(topology) if slot.bears_data for name in (slot.name, slot.replica_set)}
    for name in topology.limits:
        if name != "all" and name not in known:
            names = ", ".join(sorted(filter(None, known)))
            yield f"topology.limits.{name}", f"no data-bearing process is called that; there are: all, {names}"


def ports_needed(topology: Topology, hosts: HostsByRole) -> int:
    """How many ports the topology takes on the host that has most of its processes."""
    return max(Counter(host.name for _, host in _assigned(topology, hosts)).values())


def place_processes(
    topology: Topology, hosts: HostsByRole
) -> tuple[tuple[PlacedProcess, ...], tuple[CacheBudget, ...]]:
    """Every process on its host, and the cache budget of each host that bears data.

    Raises ValueError when the cache is a fraction of an unknown RAM.
    """
    assigned = _assigned(topology, hosts)
    caches: dict[str, CacheBudget] = {}
    for host in dict.fromkeys(host for slot, host in assigned if slot.bears_data):
        here = [slot for slot, other in assigned if other == host]
        fixed = sum(slot.fixed_cache_mib for slot in here if slot.fixed_cache_mib is not None)
        sharing = sum(slot.bears_data and slot.fixed_cache_mib is None for slot in here)
        caches[host.name] = cache_budget(topology.storage.cache, sharing, host.ram_mib, fixed, host.name)
    bearing = Counter(host.name for slot, host in assigned if slot.bears_data)
    options: dict[tuple[Role, int], dict[str, Any]] = {}  # one for all processes of a role with the same member
    placed = []
    for slot, host in assigned:
        cache_mib = slot.fixed_cache_mib
        if slot.role in {"mongos", "config"}:
            cache_mib = None if slot.role == "mongos" else topology.config_servers.cache_mb
        elif cache_mib is None:
            cache_mib = caches[host.name].per_process_mib
        key = (slot.role, id(slot.member))
        if key not in options:
            options[key] = _options(slot.role, slot.member, topology)
        # The embedded mongos listens on loopback only: it is on the client host, and the client reaches it there.
        on_loopback = slot.role == "mongos" and topology.mongodb.source == "embedded"
        address = "127.0.0.1" if on_loopback else host.address
        share = host.cores / bearing[host.name] if slot.bears_data else 0.0
        placed.append(PlacedProcess(slot, host, address, cache_mib, share, options[key], _limits(slot, topology)))
    return tuple(placed), tuple(caches.values())


def cache_budget(
    cache: Cache, processes: int, ram_mib: float | None, own_mib: float = 0.0, host: str = "local"
) -> CacheBudget:
    """Share out the cache of one host among its data-bearing processes; `own_mib` is what others have besides it.

    The total never exceeds what the policy grants the host. Raises ValueError for a fraction of an unknown RAM.
    """
    if cache.policy == "per_process_mb":
        each = cache.value
    elif cache.policy == "host_total_mb":
        each = cache.value / max(processes, 1)
    elif ram_mib is None:
        raise ValueError(f"topology.storage.cache: a fraction of RAM needs to know the RAM of {host}")
    else:
        each = cache.value * ram_mib / max(processes, 1)
    each = int(each * 1024) / 1024  # rounded down to whole KiB, the unit of the configuration string
    return CacheBudget(
        policy=cache.policy,
        processes=processes,
        per_process_mib=each,
        total_mib=each * processes + own_mib,
        ram_mib=ram_mib,
        through_config_string=each < _OPTION_MINIMUM_MIB,
        own_mib=own_mib,
        host=host,
    )


def _options(role: Role, member: Member, topology: Topology) -> dict[str, Any]:
    """The options of such a process, in the form of MongoDB's configuration file."""
    network, storage, version = topology.network, topology.storage, topology.mongodb.version
    options: dict[str, Any] = {}
    if version is None or parse_release(version) >= (3, 4):  # older versions do not know net.compression
        names = network.compressors
        if role == "mongos" and network.mongos_compressors is not None:
            names = network.mongos_compressors
        options["net"] = {"compression": {"compressors": ",".join(names) or "disabled"}}
    embedded = topology.mongodb.source == "embedded"
    if role == "mongos" and embedded and topology.mongos.point_operations == "router_mongod":
        options["setParameter"] = {"microshardTargeting": False}
    if role in {"mongos", "config"}:
        return options
    compressor = member.block_compressor or storage.block_compressor
    prefix = member.index_prefix_compression
    engines: dict[str, Any] = {
        "wiredTiger": {
            "collectionConfig": {"blockCompressor": compressor},
            "indexConfig": {"prefixCompression": storage.index_prefix_compression if prefix is None else prefix},
        },
        "rocksdb": {"compression": compressor},
        "tokumx": {"setParameter": {"defaultCompression": compressor}},
    }
    engine = storage.engine
    options["storage"] = {"engine": engine} | ({engine: engines[engine]} if engine in engines else {})
    if role != "standalone":
        options["replication"] = {"oplogSizeMB": storage.oplog_size_mb}
    options = merge(merge(options, topology.mongod), member.mongod)
    # A mongod may not know the sections of other engines, which an experiment that compares engines has.
    kept = {k: v for k, v in options["storage"].items() if k == engine or k not in ENGINE_SECTIONS}
    return {**options, "storage": kept}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` merged over `base`, mapping by mapping; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = merge(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return result


def processes_of(placed: Sequence[PlacedProcess], point: str, first_port: int) -> tuple[Process, ...]:
    """The processes of a point; on each host they have ports from the first one on, without a gap."""
    used: Counter[str] = Counter()
    processes = []
    for one in placed:
        slot = one.slot
        folder, program = f"deployments/{point}/{slot.name}", "mongos" if slot.role == "mongos" else "mongod"
        processes.append(
            Process(
                name=slot.name,
                role=slot.role,
                host=one.host.name,
                address=one.address,
                port=first_port + used[one.host.name],
                folder=folder,
                db_path=None if program == "mongos" else f"{folder}/data",
                log_path=f"{folder}/{program}.log",
                config_path=f"{folder}/{program}.conf",
                pid_path=f"{folder}/pid",
                replica_set=slot.replica_set,
                cache_mib=one.cache_mib,
                cpu_share=one.cpu_share,
                options=one.options,
                limits=one.limits,
            )
        )
        used[one.host.name] += 1
    return tuple(processes)


def replica_sets_of(placed: Iterable[PlacedProcess], processes: Iterable[Process]) -> tuple[PlannedReplicaSet, ...]:
    """The replica sets of a point's processes, in the order of their first members."""
    sets: dict[str, list[tuple[_Slot, Process]]] = {}
    for one, process in zip(placed, processes, strict=True):
        if process.replica_set:
            sets.setdefault(process.replica_set, []).append((one.slot, process))
    return tuple(
        PlannedReplicaSet(
            name=name,
            role=members[0][0].role,
            members=tuple(_member(slot.member, process) for slot, process in members),
            initial=members[0][0].initial,
        )
        for name, members in sets.items()
    )


def _member(member: Member, process: Process) -> PlannedMember:
    return PlannedMember(
        process=process.name,
        endpoint=process.endpoint,
        priority=member.effective_priority,
        votes=member.votes,
        hidden=member.hidden,
        delay_seconds=member.delay_seconds,
        arbiter=member.arbiter,
        initial=member.initial,
    )


def planned_collection(collection: Collection, topology: Topology) -> PlannedCollection:
    """A collection with its chunks on the shards that are added at once."""
    shards = initial_shards(topology)
    chunks: tuple[PlannedChunk, ...] = ()
    presplit = collection.presplit
    if presplit.policy == "key_ranges":
        total = presplit.ranges_per_shard * shards
        # A loader owns the upper 32 bits of _id, and its chunk is on one shard.
        chunks = tuple(
            PlannedChunk(
                shard=shard_name(k // presplit.ranges_per_shard + 1, topology),
                lower=None if k == 0 else k << 32,
                upper=None if k == total - 1 else (k + 1) << 32,
            )
            for k in range(total)
        )
    if presplit.policy == "split_points":
        bounds = pairwise([None, *presplit.points, None])
        chunks = tuple(PlannedChunk(shard_name(k % shards + 1, topology), *bound) for k, bound in enumerate(bounds))
    primary, each = collection.primary_shard, presplit.chunks_per_shard
    return PlannedCollection(
        namespace=collection.namespace,
        shard_key=dict(collection.shard_key),
        unique=collection.unique,
        chunks=chunks,
        primary_shard=None if primary is None else shard_name(primary, topology),
        initial_chunks=each * shards if each and presplit.policy == "hashed" else None,
        options=dict(collection.options),
    )


def planned_zones(topology: Topology) -> tuple[PlannedZone, ...]:
    """The zones, with shards by name."""
    return tuple(
        PlannedZone(
            zone.name,
            tuple(shard_name(number, topology) for number in zone.shards),
            tuple(PlannedZoneRange(r.namespace, r.lower, r.upper) for r in zone.ranges),
        )
        for zone in topology.zones
    )
