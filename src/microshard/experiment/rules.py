"""Rules between keys that hold wherever an experiment runs: versions, placement of data, keys without effect.

What depends on the hosts (RAM, ports, disk, EBS limits) is checked when planning.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from microshard.experiment import question
from microshard.experiment.document import KeyPath
from microshard.experiment.mongod_options import Release, parse_release, refused_options, release_text, unknown_options
from microshard.experiment.releases import counts_initial_chunks, first_release
from microshard.experiment.server_versions import PACKAGED, packaged_version
from microshard.model.experiment import Experiment
from microshard.model.phases.insert import InsertPhase
from microshard.model.topology import Collection, Member, MongoDB, Topology, Zone

_EMBEDDED_RELEASE = (6, 0)

# First release of each, from MongoDB's release notes.
_BLOCK_COMPRESSORS = {"zstd": (4, 2)}
_NETWORK_COMPRESSORS = {"snappy": (3, 4), "zlib": (3, 6), "zstd": (4, 2)}
# First release, and the first without it. RocksDB (MongoRocks) and TokuMX were never built for 4.0.
_ENGINES: dict[str, tuple[Release, Release | None]] = {
    "wiredTiger": ((3, 0), None),
    "inMemory": ((3, 2), None),
    "mmapv1": ((0, 0), (4, 2)),
    "rocksdb": ((3, 0), (4, 0)),
    "tokumx": ((0, 0), (4, 0)),
}
# Engines not built by MongoDB and their compressors: MongoRocks (rocks_global_options.cpp), TokuMX (user's guide).
_ENGINE_COMPRESSORS = {"rocksdb": ("none", "snappy", "zlib"), "tokumx": ("none", "zlib")}
_PRESPLIT_KEYS = {"ranges_per_shard": "key_ranges", "points": "split_points", "chunks_per_shard": "hashed"}
ONLY_SHARDED = ("shards", "mongos", "config_servers", "balancer", "zones")


class RuleViolation(NamedTuple):
    """A rule that does not hold, with the key to change."""

    path: KeyPath
    message: str
    severity: Literal["error", "warning"] = "error"


def all_violations(experiment: Experiment) -> list[RuleViolation]:
    """Violations of all rules, those about the matrix included."""
    deployment = [*topology_violations(experiment.topology), *workload_violations(experiment)]
    unanswered = [RuleViolation(path, message) for path, message in question.problems(experiment)]
    return [*deployment, *_gates(experiment), *_reference(experiment), *unanswered]


def topology_violations(topology: Topology) -> list[RuleViolation]:
    """Violations of the rules about the topology: of the experiment as it is written, or of one point."""
    found = [
        *_packaged(topology),
        *_engine(topology),
        *_config_shard(topology),
        *_block_compressors(topology),
        *_wire_compressors(topology),
        *_without_effect(topology),
        *_presplit(topology),
        *(_placement(topology) if topology.kind == "sharded" else ()),
        *_mongod_options(topology),
    ]
    return [v._replace(path=("topology", *v.path)) for v in found]


def _gates(experiment: Experiment) -> Iterator[RuleViolation]:
    if experiment.gates.max_drift is not None and not experiment.order.repeat_first:
        message = "needs order.repeat_first: true; without it nothing is repeated at the end"
        yield RuleViolation(("gates", "max_drift"), message)


def _reference(experiment: Experiment) -> Iterator[RuleViolation]:
    reference, matrix = experiment.reference, experiment.matrix
    if reference is None:
        return
    names = [step.name or step.kind for step in experiment.workload]
    for index, point in enumerate(reference.points):
        if point.phase is not None and point.phase not in names:
            message = f"no phase of the workload is named {point.phase}; there is: {', '.join(names)}"
            yield RuleViolation(("reference", "points", index, "phase"), message)
    axes = {*matrix.axes, *matrix.zip, *(k for point in matrix.include for k in point)}
    for index, step in enumerate(experiment.workload):
        axes |= {f"workload.{index}.{step.kind}.{key}" for key in step.phase.sweeps()}
    if reference.axis not in axes:
        path = ("reference", "axis") if "axis" in reference.model_fields_set else ("reference",)
        message = f"{reference.axis} is no axis of the matrix, so the published values match no point"
        yield RuleViolation(path, message, "warning")


def _release(mongodb: MongoDB) -> Release | None:
    """Major and minor version; None where it depends on the binaries."""
    if mongodb.version is None:
        return _EMBEDDED_RELEASE if mongodb.source == "embedded" else None
    return parse_release(mongodb.version)


def _newer(name: str, first: Release, mongodb: MongoDB) -> str:
    """The sentence about something that came with a later release than the experiment's."""
    return f"{name} came with MongoDB {release_text(first)}; {_used_release(mongodb)}"


def _used_release(mongodb: MongoDB) -> str:
    which = "the embedded mongod is" if mongodb.version is None else "topology.mongodb.version is"
    return f"{which} {release_text(_release(mongodb) or _EMBEDDED_RELEASE)}"


def _packaged(topology: Topology) -> Iterator[RuleViolation]:
    """A version that no Python package carries, or that the embedded mongos cannot serve."""
    mongodb = topology.mongodb
    if mongodb.source != "embedded" or mongodb.version is None:
        return
    if packaged_version(mongodb.version) is None:
        message = f"no Python package carries MongoDB {mongodb.version}, only {', '.join(PACKAGED)}; use another source"
        yield RuleViolation(("mongodb", "version"), message)
    elif topology.kind == "sharded" and parse_release(mongodb.version) < _EMBEDDED_RELEASE:
        message = (
            f"the embedded mongos needs the routing commands of MongoDB {release_text(_EMBEDDED_RELEASE)}: "
            f"{mongodb.version} from packages serves standalone and replica_set"
        )
        yield RuleViolation(("mongodb", "version"), message)


def _engine(topology: Topology) -> Iterator[RuleViolation]:
    mongodb, storage = topology.mongodb, topology.storage
    release, engine = _release(mongodb), storage.engine
    path: KeyPath = ("storage", "engine") if "engine" in storage.model_fields_set else ("mongodb", "version")
    first, gone = _ENGINES[engine]
    if release is not None:
        if release < first:
            yield RuleViolation(path, _newer(engine, first, mongodb))
        if gone is not None and release >= gone:
            yield RuleViolation(
                path, f"{engine} exists only below MongoDB {release_text(gone)}; {_used_release(mongodb)}"
            )
        members = topology.config_servers.members
        if topology.kind == "sharded" and release < (3, 2) and members not in {1, 3}:
            message = f"config servers are a replica set since MongoDB 3.2, before it 1 or 3, not {members}"
            yield RuleViolation(("config_servers", "members"), message)
    if engine in _ENGINE_COMPRESSORS and mongodb.source == "packages":
        yield RuleViolation(("mongodb", "source"), f"MongoDB's packages have no {engine}; use a tarball, or path")
    if engine in _ENGINE_COMPRESSORS and (release is None or gone is None or release < gone):
        yield from _rocksdb_and_tokumx(topology)
    if engine == "inMemory" and mongodb.source == "embedded":
        message = "inMemory is part of MongoDB Enterprise, the embedded mongod is the Community edition"
        yield RuleViolation(path, message)


def _config_shard(topology: Topology) -> Iterator[RuleViolation]:
    release = _release(topology.mongodb)
    first = first_release("transitionFromDedicatedConfigServer")
    if topology.kind == "sharded" and topology.config_servers.embedded and (release is None or release < first):
        message = f"an embedded config server (config shard) came with MongoDB {release_text(first)}; "
        message += "give topology.mongodb.version" if release is None else _used_release(topology.mongodb)
        yield RuleViolation(("config_servers", "embedded"), message)


def _rocksdb_and_tokumx(topology: Topology) -> Iterator[RuleViolation]:
    storage, engine = topology.storage, topology.storage.engine
    toku: Any = topology.mongod
    for key in ("storage", "tokumx", "setParameter"):
        toku = toku.get(key) if isinstance(toku, dict) else None
    chosen = engine == "tokumx" and isinstance(toku, dict) and "defaultCompression" in toku
    compressors = _ENGINE_COMPRESSORS[engine]
    if not chosen and storage.block_compressor not in compressors:
        message = f"{engine} does not compress with {storage.block_compressor}, but with {' or '.join(compressors)}"
        if engine == "tokumx":
            message += "; for quicklz or lzma set defaultCompression in topology.mongod.storage.tokumx.setParameter"
        yield RuleViolation(("storage", "block_compressor"), message)
    if engine == "rocksdb" and storage.cache.policy == "per_process_mb" and storage.cache.value % 1024:
        # storage.rocksdb.cacheSizeGB is a whole number.
        message = "rocksdb takes its cache in whole GiB: multiples of 1024"
        yield RuleViolation(("storage", "cache", "value"), message)
    if engine == "tokumx" and topology.kind == "sharded":
        yield RuleViolation(("kind",), "TokuMX is deployed as standalone or replica_set, not sharded")


def _listed_members(topology: Topology) -> list[tuple[KeyPath, Member]]:
    """Members that were given as mappings, each with its path below `topology`."""
    if topology.kind == "standalone":
        return []
    section = "replica_set" if topology.kind == "replica_set" else "shards"
    members = topology.replica_set.members if topology.kind == "replica_set" else topology.shards.members
    return [] if isinstance(members, int) else [((section, "members", n), m) for n, m in enumerate(members)]


def _block_compressors(topology: Topology) -> Iterator[RuleViolation]:
    mongodb, release = topology.mongodb, _release(topology.mongodb)
    used: list[tuple[KeyPath, str | None]] = [(("storage",), topology.storage.block_compressor)]
    used += [(path, member.block_compressor) for path, member in _listed_members(topology)]
    for path, compressor in used:
        first = _BLOCK_COMPRESSORS.get(compressor or "none")
        if first is not None and release is not None and release < first:
            yield RuleViolation((*path, "block_compressor"), _newer(str(compressor), first, mongodb))


def _wire_compressors(topology: Topology) -> Iterator[RuleViolation]:
    network, release = topology.network, _release(topology.mongodb)
    both = [("compressors", network.compressors), ("mongos_compressors", network.mongos_compressors or [])]
    for key, index, compressor in ((key, n, name) for key, names in both for n, name in enumerate(names)):
        path: KeyPath = ("network", key, index)
        first = _NETWORK_COMPRESSORS.get(compressor)
        if first is None:
            yield RuleViolation(path, "none is not a network compressor; an empty list switches compression off")
        elif compressor in getattr(network, key)[:index]:
            yield RuleViolation(path, f"{compressor} is listed twice")
        elif release is not None and release < first:
            message = _newer(f"network compression with {compressor}", first, topology.mongodb)
            if key not in network.model_fields_set:
                path, message = ("mongodb", "version"), f"{message}; set topology.network.{key}: []"
            yield RuleViolation(path, message)
    if topology.kind != "sharded" and network.mongos_compressors is not None:
        message = f"has no effect: kind: {topology.kind} has no mongos"
        yield RuleViolation(("network", "mongos_compressors"), message, "warning")


def _without_effect(topology: Topology) -> Iterator[RuleViolation]:
    """Keys that were given and change nothing: only warnings, since other points of a sweep may need them."""

    def warning(path: KeyPath, reason: str) -> RuleViolation:
        return RuleViolation(path, f"has no effect: {reason}", "warning")

    kind, given = topology.kind, topology.model_fields_set
    for key in ONLY_SHARDED if kind != "sharded" else ():
        if key in given:
            yield warning((key,), f"kind: {kind} has none")
    if "point_operations" in topology.mongos.model_fields_set and topology.mongodb.source != "embedded":
        yield warning(("mongos", "point_operations"), "only mongodb.source: embedded has these two ways")
    if kind != "replica_set" and "replica_set" in given:
        yield warning(("replica_set",), f"kind: {kind} has none")
    storage = topology.storage
    if storage.engine == "mmapv1":
        given = storage.model_fields_set
        if "block_compressor" in given and storage.block_compressor != "none":
            yield warning(("storage", "block_compressor"), "mmapv1 does not compress")
        if "index_prefix_compression" in given and storage.index_prefix_compression:
            yield warning(("storage", "index_prefix_compression"), "mmapv1 does not compress")
        if "cache" in given:
            yield warning(("storage", "cache"), "mmapv1 maps its files and has no cache")


def _presplit(topology: Topology) -> Iterator[RuleViolation]:
    for index, collection in enumerate(topology.collections):
        path: KeyPath = ("collections", index, "presplit")
        presplit = collection.presplit
        for key, policy in _PRESPLIT_KEYS.items():
            if presplit.policy != policy and key in presplit.model_fields_set:
                message = f"has no effect: it belongs to policy {policy}, not to {presplit.policy}"
                yield RuleViolation((*path, key), message, "warning")
        release = _release(topology.mongodb)
        if presplit.chunks_per_shard is not None and release is not None and not counts_initial_chunks(release):
            message = f"the server ignores numInitialChunks since MongoDB 7.2; {_used_release(topology.mongodb)}"
            yield RuleViolation((*path, "chunks_per_shard"), message)
        if presplit.policy != "none" and topology.balancer.enabled:
            yield RuleViolation(path, "the balancer is enabled and may move what is pre-split here", "warning")


def _idle_loaders(experiment: Experiment, index: int, phase: InsertPhase) -> Iterator[RuleViolation]:
    """More loaders than ranges, in a collection with one range per loader."""
    topology, processes = experiment.topology, phase.processes
    for collection in topology.collections:
        presplit = collection.presplit
        if presplit.policy != "key_ranges" or phase.namespace != collection.namespace:
            continue
        ranges = presplit.ranges_per_shard * (topology.shards.initial or topology.shards.count)
        if isinstance(processes, int) and processes > ranges:
            path = ("workload", index, experiment.workload[index].kind, "processes")
            message = f"{processes} loaders for {ranges} key ranges: {processes - ranges} have nothing to do"
            yield RuleViolation(path, message, "warning")


def _placement(topology: Topology) -> Iterator[RuleViolation]:
    """Zones and primary shards that name shards or collections that do not exist."""
    shards = topology.shards.initial or topology.shards.count

    def no_shard(number: int | None) -> str:
        return f"there is no shard {number}; {shards} {'is' if shards == 1 else 'are'} added"

    primaries: dict[str, int | None] = {}
    for index, collection in enumerate(topology.collections):
        path: KeyPath = ("collections", index, "primary_shard")
        if (collection.primary_shard or 1) > shards:
            yield RuleViolation(path, no_shard(collection.primary_shard))
        database = collection.namespace.partition(".")[0]
        if primaries.setdefault(database, collection.primary_shard) != collection.primary_shard:
            message = f"database {database} has another primary shard with an earlier collection"
            yield RuleViolation(path, message)
    names: set[str] = set()
    for index, zone in enumerate(topology.zones):
        path = ("zones", index)
        if zone.name in names:
            yield RuleViolation((*path, "name"), f"{zone.name} is given twice")
        names.add(zone.name)
        for item, number in enumerate(zone.shards):
            if number > shards:
                yield RuleViolation((*path, "shards", item), no_shard(number))
        yield from _zone_ranges(zone, path, {c.namespace: c for c in topology.collections})


def _zone_ranges(zone: Zone, path: KeyPath, collections: dict[str, Collection]) -> Iterator[RuleViolation]:
    for index, zone_range in enumerate(zone.ranges):
        here, namespace = (*path, "ranges", index), zone_range.namespace
        collection = collections.get(namespace)
        if collection is None:
            yield RuleViolation((*here, "namespace"), f"{namespace} is not among topology.collections")
            continue
        policy, key = collection.presplit.policy, list(collection.shard_key)
        if policy in {"key_ranges", "split_points"}:
            message = f"{namespace} is pre-split by {policy}: its chunks are placed already"
            yield RuleViolation((*here, "namespace"), message)
        for side, bound in (("lower", zone_range.lower), ("upper", zone_range.upper)):
            if bound is not None and (not bound or list(bound) != key[: len(bound)]):
                message = f"needs the first fields of the shard key {key}, not {list(bound)}"
                yield RuleViolation((*here, side), message)


def _mongod_options(topology: Topology) -> Iterator[RuleViolation]:
    """mongod's own options, of all data-bearing processes and of single members."""
    given: list[tuple[KeyPath, dict[str, Any]]] = [(("mongod",), topology.mongod)]
    given += [((*path, "mongod"), member.mongod) for path, member in _listed_members(topology)]
    for path, options in (pair for pair in given if pair[1]):
        for below, message, severity in (
            *refused_options(options),
            *unknown_options(options, topology.storage.engine, _release(topology.mongodb)),
        ):
            yield RuleViolation((*path, *below), message, severity)


def _driver(experiment: Experiment) -> Iterator[RuleViolation]:
    """A driver of its own where something else would connect."""
    topology, driver, path = experiment.topology, experiment.client.driver, ("client", "driver")
    if driver is None:
        return
    if topology.kind == "sharded" and topology.mongodb.source == "embedded":
        yield RuleViolation(
            path,
            "the embedded mongos runs with the driver of microshard; leave it out, or use kinds "
            "standalone and replica_set, or a real mongos",
        )
    if any(step.phase.engine == "ycsb" for step in experiment.workload):
        yield RuleViolation(path, "the engine ycsb has MongoDB's Java driver, which cannot be chosen")


def workload_violations(experiment: Experiment) -> Iterator[RuleViolation]:
    """Violations of the rules about phases: by themselves, and with the topology."""
    topology = experiment.topology
    sharded = {c.namespace for c in topology.collections}
    yield from _driver(experiment)
    for index, step in enumerate(experiment.workload):
        phase, target = step.phase, step.phase.target()
        path: KeyPath = ("workload", index, step.kind)
        if topology.kind == "sharded" and target is not None and target not in sharded:
            key = "namespace" if "namespace" in phase.model_fields_set else "engine"
            message = f"{target} is not among topology.collections, so it is unsharded, on one shard"
            yield RuleViolation((*path, key), message, "warning")
        if isinstance(phase, InsertPhase):
            yield from _idle_loaders(experiment, index, phase)
        for below, message, severity in phase.findings(topology, step.kind):
            yield RuleViolation((*path, *below), message, severity)
