"""Rules across keys that hold wherever an experiment runs: versions, what belongs to the tool, what has no effect.

What depends on the machine (RAM, ports, disk, EBS ceilings) is checked when planning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec

from microshard.experiment.passthrough import passthrough
from microshard.experiment.placement import misplaced
from microshard.experiment.source import KeyPath
from microshard.experiment.versions import unknown
from microshard.memoize import memoize_by_identity
from microshard.model.experiment import Experiment
from microshard.model.phases.insert import InsertPhase
from microshard.model.topology import (
    Collection,
    ConfigServers,
    Kind,
    Member,
    MongoDB,
    Network,
    ReplicaSetSpec,
    Shards,
    Storage,
    Topology,
    Zone,
    given_one_by_one,
)
from microshard.model.workload import WorkloadStep

P = ParamSpec("P")
Members = tuple[tuple[KeyPath, Member], ...]  # those that were given one by one, with their paths
Release = tuple[int, int] | None  # major and minor; None where it is whatever the given binaries are

# The embedded mongod, and so what is known of a definition that asks for no version.
_EMBEDDED = (6, 0)

# First release of each, from MongoDB's release notes.
_BLOCK_COMPRESSORS = {"zstd": (4, 2)}
_NETWORK_COMPRESSORS = {"snappy": (3, 4), "zlib": (3, 6), "zstd": (4, 2)}
# First release and the one it is gone from. RocksDB (MongoRocks) and TokuMX were never built for 4.0.
_ENGINES: dict[str, tuple[tuple[int, int], tuple[int, int] | None]] = {
    "wiredTiger": ((3, 0), None),
    "inMemory": ((3, 2), None),
    "mmapv1": ((0, 0), (4, 2)),
    "rocksdb": ((3, 0), (4, 0)),
    "tokumx": ((0, 0), (4, 0)),
}
_ELSEWHERE = ("rocksdb", "tokumx")  # built by others than MongoDB
# What MongoRocks (rocks_global_options.cpp) and TokuMX (user's guide) compress with, of the definition's own words.
_ENGINE_COMPRESSORS = {"rocksdb": ("none", "snappy", "zlib"), "tokumx": ("none", "zlib")}
ONLY_SHARDED = ("shards", "mongos", "config_servers", "balancer", "zones")


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that does not hold, at the key where it is mended."""

    path: KeyPath
    message: str
    severity: Literal["error", "warning"] = "error"


def _shared(rule: Callable[P, Iterator[Finding]]) -> Callable[P, tuple[Finding, ...]]:
    """What a rule finds, for its sections once, and not anew at each point that has the same."""

    def found(*sections: P.args, **named: P.kwargs) -> tuple[Finding, ...]:
        return tuple(rule(*sections, **named))

    return memoize_by_identity(found)


def findings(experiment: Experiment) -> list[Finding]:
    """All rules about one deployment: of the experiment as it stands, or of one point."""
    topology = experiment.topology
    kind, mongodb, storage, mongod = topology.kind, topology.mongodb, topology.storage, topology.mongod or None
    members = _members(kind, topology.replica_set, topology.shards)
    return [
        *_engine(kind, mongodb, storage, topology.config_servers, mongod),
        *_compressors(mongodb, storage, members),
        *_wire_compressors(kind, mongodb, topology.network),
        *_without_effect(topology),
        *_presplit(topology.collections, topology.shards, experiment.workload, topology.balancer.enabled),
        *_misplaced(kind, topology.shards, topology.collections, topology.zones),
        *_workload(experiment),
        *_passthrough(mongodb, storage, members, mongod),
    ]


@memoize_by_identity
def _members(kind: Kind, replica_set: ReplicaSetSpec, shards: Shards) -> Members:
    if kind == "standalone":
        return ()
    section = ("replica_set", replica_set.members) if kind == "replica_set" else ("shards", shards.members)
    return tuple(given_one_by_one([section]))


@_shared
def _passthrough(
    mongodb: MongoDB, storage: Storage, members: Members, mongod: dict[str, Any] | None
) -> Iterator[Finding]:
    """mongod's own options, of all data-bearing processes and of single members."""
    everywhere: list[tuple[KeyPath, dict[str, Any]]] = [(("mongod",), mongod or {})]
    everywhere += [((*path, "mongod"), member.mongod) for path, member in members]
    for here, options in everywhere:
        for path, message, severity in passthrough(options):
            yield Finding(("topology", *here, *path), message, severity)
        for path, message in unknown(options, storage.engine, _version(mongodb)):
            yield Finding(("topology", *here, *path), message)


def matrix_findings(experiment: Experiment) -> list[Finding]:
    """Rules about the experiment as a whole."""
    return [*_gates(experiment), *_reference(experiment)]


def _gates(experiment: Experiment) -> list[Finding]:
    if experiment.gates.max_drift is None or experiment.order.repeat_first:
        return []
    message = "needs order.repeat_first: true; without it nothing is repeated at the end"
    return [Finding(("gates", "max_drift"), message)]


def _reference(experiment: Experiment) -> list[Finding]:
    reference, matrix = experiment.reference, experiment.matrix
    if reference is None:
        return []
    found = []
    names = [step.name or step.kind for step in experiment.workload]
    for index, point in enumerate(reference.points):
        if point.phase is not None and point.phase not in names:
            message = f"no phase of the workload is named {point.phase}; there is: {', '.join(names)}"
            found.append(Finding(("reference", "points", index, "phase"), message))
    axes = {*matrix.axes, *matrix.zip, *(k for point in matrix.include for k in point)}
    for index, step in enumerate(experiment.workload):
        axes |= {f"workload.{index}.{step.kind}.{key}" for key in step.phase.sweeps()}
    if reference.axis in axes:
        return found
    path = ("reference", "axis") if "axis" in reference.model_fields_set else ("reference",)
    message = f"{reference.axis} is no axis of the matrix, so the published values have no points beside them"
    return [*found, Finding(path, message, "warning")]


def _version(mongodb: MongoDB) -> Release:
    if mongodb.version is None:
        return _EMBEDDED if mongodb.source == "embedded" else None
    major, minor = mongodb.version.split(".")[:2]
    return int(major), int(minor)


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _here(mongodb: MongoDB, version: tuple[int, int]) -> str:
    own = "the embedded mongod is" if mongodb.version is None else "topology.mongodb.version is"
    return f"{own} {_shown(version)}"


@_shared
def _engine(
    kind: Kind, mongodb: MongoDB, storage: Storage, config_servers: ConfigServers, mongod: dict[str, Any] | None
) -> Iterator[Finding]:
    version, engine = _version(mongodb), storage.engine
    path: KeyPath = ("topology", "storage", "engine")
    if "engine" not in storage.model_fields_set:
        path = ("topology", "mongodb", "version")
    if version is not None:
        first, gone = _ENGINES[engine]
        if version < first:
            yield Finding(path, f"{engine} came with MongoDB {_shown(first)}; {_here(mongodb, version)}")
        if gone is not None and version >= gone:
            yield Finding(path, f"{engine} exists only below MongoDB {_shown(gone)}; {_here(mongodb, version)}")
        members = config_servers.members
        if kind == "sharded" and version < (3, 2) and members not in {1, 3}:
            message = f"config servers are a replica set from MongoDB 3.2 on, before it 1 or 3, not {members}"
            yield Finding(("topology", "config_servers", "members"), message)
    if engine in _ELSEWHERE and mongodb.source == "packages":
        message = f"MongoDB's packages have no {engine}; take a tarball, or path"
        yield Finding(("topology", "mongodb", "source"), message)
    gone = _ENGINES[engine][1]
    if version is None or gone is None or version < gone:
        yield from _own_engine(kind, storage, mongod)
    if engine == "inMemory" and mongodb.source == "embedded":
        yield Finding(path, "inMemory is part of MongoDB Enterprise, the embedded mongod is the Community edition")


def _own_engine(kind: Kind, storage: Storage, mongod: dict[str, Any] | None) -> Iterator[Finding]:
    """Compressor and cache of engines that take others than WiredTiger."""
    taken = _ENGINE_COMPRESSORS.get(storage.engine)
    own: Any = mongod
    for key in ("storage", "tokumx", "setParameter"):
        own = own.get(key) if isinstance(own, dict) else None
    given = storage.engine == "tokumx" and isinstance(own, dict) and "defaultCompression" in own
    if taken and not given and storage.block_compressor not in taken:
        message = f"{storage.engine} does not compress with {storage.block_compressor}, but with {' or '.join(taken)}"
        if storage.engine == "tokumx":
            message += "; for quicklz or lzma set defaultCompression in topology.mongod.storage.tokumx.setParameter"
        yield Finding(("topology", "storage", "block_compressor"), message)
    cache = storage.cache
    if storage.engine == "rocksdb" and cache.policy == "per_process_mb" and cache.value % 1024:
        # storage.rocksdb.cacheSizeGB is a whole number.
        yield Finding(
            ("topology", "storage", "cache", "value"), "rocksdb takes its cache in whole GiB: multiples of 1024"
        )
    if storage.engine == "tokumx" and kind == "sharded":
        yield Finding(("topology", "kind"), "TokuMX is laid out as standalone or replica_set, not sharded")


@_shared
def _compressors(mongodb: MongoDB, storage: Storage, members: Members) -> Iterator[Finding]:
    version = _version(mongodb)
    if version is None:
        return
    needed = _BLOCK_COMPRESSORS.get(storage.block_compressor)
    if needed is not None and version < needed:
        message = f"{storage.block_compressor} came with MongoDB {_shown(needed)}; {_here(mongodb, version)}"
        yield Finding(("topology", "storage", "block_compressor"), message)
    for path, member in members:
        first = _BLOCK_COMPRESSORS.get(member.block_compressor or "none")
        if first is not None and version < first:
            message = f"{member.block_compressor} came with MongoDB {_shown(first)}; {_here(mongodb, version)}"
            yield Finding(("topology", *path, "block_compressor"), message)


@_shared
def _wire_compressors(kind: Kind, mongodb: MongoDB, network: Network) -> Iterator[Finding]:
    for key in ("compressors", "mongos_compressors"):
        yield from _on_the_wire(mongodb, network, key)
    if kind != "sharded" and network.mongos_compressors is not None:
        why = f"has no effect: kind: {kind} has no mongos"
        yield Finding(("topology", "network", "mongos_compressors"), why, "warning")


def _on_the_wire(mongodb: MongoDB, network: Network, key: str) -> Iterator[Finding]:
    names, version = getattr(network, key) or [], _version(mongodb)
    for index, compressor in enumerate(names):
        path: KeyPath = ("topology", "network", key, index)
        first = _NETWORK_COMPRESSORS.get(compressor)
        if first is None:
            yield Finding(path, "none is not a compressor of the wire; an empty list switches compression off")
        elif compressor in names[:index]:
            yield Finding(path, f"{compressor} is there twice")
        elif version is not None and version < first:
            message = f"{compressor} on the wire came with MongoDB {_shown(first)}; {_here(mongodb, version)}"
            if key not in network.model_fields_set:
                path, message = ("topology", "mongodb", "version"), f"{message}; set topology.network.{key}: []"
            yield Finding(path, message)


def _without_effect(topology: Topology) -> Iterator[Finding]:
    """Keys that were given and change nothing. Warnings, since a sweep may pass over them on its way."""

    def warn(path: KeyPath, why: str) -> Finding:
        return Finding(("topology", *path), f"has no effect: {why}", "warning")

    kind = topology.kind
    if kind != "sharded":
        for key in ONLY_SHARDED:
            if key in topology.model_fields_set:
                yield warn((key,), f"kind: {kind} has none")
    if kind != "replica_set" and "replica_set" in topology.model_fields_set:
        yield warn(("replica_set",), f"kind: {kind} has none")
    storage = topology.storage
    if storage.engine == "mmapv1":
        if "block_compressor" in storage.model_fields_set and storage.block_compressor != "none":
            yield warn(("storage", "block_compressor"), "mmapv1 does not compress")
        if "index_prefix_compression" in storage.model_fields_set and storage.index_prefix_compression:
            yield warn(("storage", "index_prefix_compression"), "mmapv1 does not compress")
        if "cache" in storage.model_fields_set:
            yield warn(("storage", "cache"), "mmapv1 maps its files and has no cache of its own")


@_shared
def _misplaced(kind: Kind, shards: Shards, collections: list[Collection], zones: list[Zone]) -> Iterator[Finding]:
    for path, message in misplaced(shards, collections, zones) if kind == "sharded" else ():
        yield Finding(("topology", *path), message)


@_shared
def _presplit(
    collections: list[Collection], shards: Shards, workload: list[WorkloadStep], balanced: bool
) -> Iterator[Finding]:
    for index, collection in enumerate(collections):
        path: KeyPath = ("topology", "collections", index, "presplit")
        presplit = collection.presplit
        for key, owner in (
            ("ranges_per_shard", "key_ranges"),
            ("points", "split_points"),
            ("chunks_per_shard", "hashed"),
        ):
            if presplit.policy != owner and key in presplit.model_fields_set:
                message = f"has no effect: it belongs to policy {owner}, not to {presplit.policy}"
                yield Finding((*path, key), message, "warning")
        if presplit.policy != "none" and balanced:
            yield Finding(path, "the balancer is enabled and may move what is pre-split here", "warning")
        if presplit.policy != "key_ranges":
            continue
        ranges = presplit.ranges_per_shard * (shards.initial or shards.count)
        for step_index, step in enumerate(workload):
            phase = step.phase
            if not isinstance(phase, InsertPhase) or phase.namespace != collection.namespace:
                continue
            if isinstance(phase.processes, int) and phase.processes > ranges:
                message = (
                    f"{phase.processes} loaders for {ranges} key ranges: {phase.processes - ranges} have nothing to do"
                )
                yield Finding(("workload", step_index, step.kind, "processes"), message, "warning")


def _workload(experiment: Experiment) -> Iterator[Finding]:
    topology = experiment.topology
    sharded = {c.namespace for c in topology.collections}
    for index, step in enumerate(experiment.workload):
        phase, target = step.phase, step.phase.target()
        path: KeyPath = ("workload", index, step.kind)
        if topology.kind == "sharded" and target is not None and target not in sharded:
            where = "namespace" if "namespace" in phase.model_fields_set else "engine"
            message = f"{target} is not among topology.collections, so it lies unsharded on one shard"
            yield Finding((*path, where), message, "warning")
        for below, message, severity in phase.findings(topology, step.kind):
            yield Finding((*path, *below), message, severity)
