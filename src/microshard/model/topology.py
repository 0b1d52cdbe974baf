"""What is deployed: MongoDB itself, shards, members, mongos, caches, balancer, collections."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from microshard.model.base import AllowedText, Model, Namespace, Port, first_duplicate
from microshard.model.infrastructure import ProcessLimits

Kind = Literal["standalone", "replica_set", "sharded"]
Version = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}(\.[0-9]{1,3})?$"),
    AllowedText('a version in quotes such as "6.0" or "6.0.5"'),
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$"), AllowedText("64 hexadecimal digits")]
Compressor = Literal["none", "snappy", "zlib", "zstd"]


class MongoDB(Model):
    """Where MongoDB comes from."""

    source: Literal["embedded", "path", "packages", "tarball"] = "embedded"
    """embedded: a mongod of the Python packages with the embedded mongos; path: binaries you have."""
    path: str | None = None
    """source path: a folder with mongod (and, for sharded clusters, mongos), or the mongod itself."""
    version: Version | None = None
    """Version that must be found, as far as given (6.0 or 6.0.5); null takes what the source has. source
    embedded: 6.0.5 of `make setup`, or the newest of it that `make versions` fetches: 4.2.6, 4.4.2, 5.0.4, 6.0.27."""
    tarball: str | None = None
    """source tarball: one of MongoDB's .tgz archives, by https:// address or as a file of this machine."""
    sha256: Sha256 | None = None
    """source tarball: its SHA-256, as 64 hexadecimal digits; another archive is refused."""

    def _contradictions(self) -> Iterator[str]:
        for key in ("tarball", "sha256"):
            if getattr(self, key) is not None and self.source != "tarball":
                yield f"{key}: goes with source: tarball"
        if (self.source == "path") != (self.path is not None):
            yield "path: goes with source: path, and source: path needs it"
        if self.source in {"packages", "tarball"} and self.version is None:
            yield f"version: source {self.source} needs the version to install"


# MongoDB's limits, manual "Replica Set Members": 50 members, 7 of them with a vote.
_MOST_VOTES = 7


class Member(Model):
    """A member of a replica set. What it does not give is as for the others."""

    priority: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Priority in elections; null is 1, and 0 for a member that is hidden, delayed, without a vote or an arbiter."""
    votes: Annotated[int, Field(ge=0, le=1)] = 1
    """Votes in elections; a set has at most 7."""
    hidden: bool = False
    """Whether clients do not see it."""
    delay_seconds: Annotated[int, Field(ge=0, le=31_536_000, json_schema_extra={"unit": "s"})] = 0
    """How long behind the primary it stays (`secondaryDelaySecs`, before 5.0 `slaveDelay`)."""
    arbiter: bool = False
    """An arbiter votes and bears no data."""
    initial: bool = True
    """false: the process is started and is no member; a phase adds it later (initial sync)."""
    block_compressor: Compressor | None = None
    """Compressor of its collection data; null is topology.storage.block_compressor."""
    index_prefix_compression: bool | None = None
    """Prefix compression of its indexes; null is topology.storage.index_prefix_compression."""
    cache_mb: Annotated[float, Field(gt=0, json_schema_extra={"unit": "MiB"})] | None = None
    """WiredTiger cache of this member; null is its share of topology.storage.cache."""
    mongod: dict[str, Any] = Field(default={})
    """Options of mongod's configuration file for this member, merged over topology.mongod."""

    def _contradictions(self) -> Iterator[str]:
        passive = next((why for why, is_so in self._passive().items() if is_so), None)
        if passive and self.priority:
            yield f"priority: {passive} has the priority 0, not {self.priority:g}"
        if self.arbiter:
            if self.votes == 0:
                yield "votes: an arbiter has to vote"
            for key in ("hidden", "delay_seconds", "block_compressor", "index_prefix_compression", "cache_mb"):
                if getattr(self, key) not in {None, False}:
                    yield f"{key}: an arbiter bears no data and serves no clients"

    def _passive(self) -> dict[str, bool]:
        return {
            "an arbiter": self.arbiter,
            "a hidden member": self.hidden,
            "a delayed member": self.delay_seconds > 0,
            "a member without a vote": self.votes == 0,
        }

    @property
    def effective_priority(self) -> float:
        """The priority with its default."""
        if self.priority is not None:
            return self.priority
        return 0 if any(self._passive().values()) else 1


_PLAIN = Member()
MemberCount = Annotated[int, Field(ge=1, le=_MOST_VOTES)]
Members = Annotated[list[Member], Field(min_length=1, max_length=50)]


def listed(members: int | list[Member]) -> list[Member]:
    """Every member, also where only their number was given."""
    return [_PLAIN] * members if isinstance(members, int) else members


def copies(members: int | list[Member]) -> int:
    """How many members hold every document from the start."""
    return sum(m.initial and not m.arbiter for m in listed(members))


def _unelectable(members: int | list[Member]) -> Iterator[str]:
    """Why these members cannot be a set whose first member leads and goes on leading."""
    every = listed(members)
    if sum(m.votes for m in every) > _MOST_VOTES:
        yield f"members: at most {_MOST_VOTES} members vote; give the others votes: 0"
    first, *others = every
    if not first.initial or first.effective_priority == 0:
        yield "members: the first member becomes the primary, so it is initial and has a priority above 0"
    if any(m.effective_priority > first.effective_priority for m in others):
        # A member with more would take over some seconds after the deployment, during a measurement.
        yield "members: the first member becomes the primary, so no other has a higher priority"


class Shards(Model):
    """The shards of a sharded cluster."""

    count: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of shards; every one is a replica set."""
    initial: Annotated[int, Field(ge=1, le=1024)] | None = None
    """How many of them are added at once; the others are started, initiated and left to a phase. null adds all."""
    members: MemberCount | Members = 1
    """Members of each shard's replica set: their number, or a list with the settings of each."""

    def _contradictions(self) -> Iterator[str]:
        yield from _unelectable(self.members)
        if self.initial is not None and self.initial > self.count:
            yield f"initial: {self.initial} of {self.count} shards cannot be added"


class ReplicaSetSpec(Model):
    """The replica set of `kind: replica_set`."""

    members: MemberCount | Members = 3
    """Data-bearing, voting members by number, or a list with the settings of each."""

    def _contradictions(self) -> Iterator[str]:
        yield from _unelectable(self.members)


class Mongos(Model):
    """The routers."""

    count: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of mongos."""
    shards_each: Annotated[int, Field(ge=1, le=1024)] | None = None
    """One mongos for so many shards, instead of a fixed number."""
    point_operations: Literal["shard", "router_mongod"] = "shard"
    """The embedded mongos: what reads and writes one document by its whole shard key goes straight to that shard, as
    from any mongos, or through its router mongod as everything else does. Every measurement records how many operations
    went which way."""

    def _contradictions(self) -> Iterator[str]:
        if self.shards_each is not None and "count" in self.model_fields_set:
            yield "shards_each: count is given too; keep one of them"


class ConfigServers(Model):
    """The config server replica set."""

    embedded: bool = False
    """Whether the first shard is the config server too: a config shard (MongoDB 8.0 and later), one set less."""
    members: Annotated[int, Field(ge=1, le=7)] = 1
    """Members of the config server replica set."""
    cache_mb: Annotated[float, Field(gt=0, json_schema_extra={"unit": "MiB"})] = 256
    """WiredTiger cache of each config server; apart from the shards' policy, for it holds no data of the experiment."""

    def _contradictions(self) -> Iterator[str]:
        for key in ("members", "cache_mb") if self.embedded else ():
            if key in self.model_fields_set:
                yield f"{key}: with embedded: true the first shard's members are the config servers"


class Cache(Model):
    """How much WiredTiger cache the data-bearing processes get."""

    policy: Literal["per_process_mb", "host_total_mb", "fraction_of_ram"] = "host_total_mb"
    """per_process_mb measures RAM when shards are swept; host_total_mb, split equally, measures sharding."""
    value: Annotated[float, Field(gt=0, json_schema_extra={"unit": "MiB, or a share of 0 to 1 of the host's RAM"})] = (
        1024
    )
    """The amount the policy speaks of."""

    def _contradictions(self) -> Iterator[str]:
        if self.policy == "fraction_of_ram" and self.value > 1:
            yield f"value: a fraction of RAM is at most 1, not {self.value:g}"


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


_TIME = Annotated[
    str,
    StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$"),
    AllowedText('a time of day in quotes such as "23:00"'),
]


class BalancerWindow(Model):
    """When the balancer may move chunks, in the time zone of the config servers."""

    start: _TIME
    """Begin, HH:MM."""
    stop: _TIME
    """End, HH:MM; before the begin it is on the next day."""

    def _contradictions(self) -> Iterator[str]:
        if self.start == self.stop:
            yield f"stop: a window from {self.start} to {self.stop} is none"


class Balancer(Model):
    """The balancer of a sharded cluster."""

    enabled: bool = False
    """Whether chunks are moved while the workload runs."""
    window: BalancerWindow | None = None
    """When chunks may be moved; null is always."""
    chunk_size_mb: Annotated[int, Field(ge=1, le=1024, json_schema_extra={"unit": "MiB"})] = 64
    """Chunk size."""
    secondary_throttle: bool = False
    """Whether migrations wait for a secondary (`_secondaryThrottle`)."""
    write_concern: dict[Literal["w", "wtimeout"], int | str] | None = None
    """Write concern of each document a migration copies, in place of the w: 2 of secondary_throttle."""
    wait_for_delete: bool = False
    """Whether a migration ends only when the donor has deleted what it gave away (`_waitForDelete`)."""

    def _contradictions(self) -> Iterator[str]:
        if self.write_concern is not None and not self.secondary_throttle:
            yield "write_concern: goes with secondary_throttle: true"
        if self.write_concern is not None and "w" not in self.write_concern:
            yield 'write_concern: needs w, a number of members or "majority"'


class ZoneRange(Model):
    """A range of a collection's shard key that belongs to a zone."""

    namespace: Namespace
    """The sharded collection."""
    lower: dict[str, Any] | None = None
    """Values of the shard key's first fields, inclusive; null begins at MinKey."""
    upper: dict[str, Any] | None = None
    """Values of the shard key's first fields, exclusive; null ends at MaxKey."""


class Zone(Model):
    """A zone: shards that alone hold some ranges of the data."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$"), AllowedText("a name such as hot")]
    """Name of the zone."""
    shards: Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, max_length=1024)]
    """Numbers of its shards, from 1."""
    ranges: Annotated[list[ZoneRange], Field(max_length=1000)] = Field(default=[])
    """Ranges of shard keys that are kept on them."""


class Network(Model):
    """Addresses, ports and compression on the wire."""

    base_port: Port | Literal["auto"] = "auto"
    """First port of the experiment; auto takes the first free range from 27100 on."""
    compressors: Annotated[list[Compressor], Field(max_length=3)] = Field(default=["snappy"])
    """`net.compression.compressors` of every process; an empty list switches compression off."""
    mongos_compressors: Annotated[list[Compressor], Field(max_length=3)] | None = None
    """The same of the mongos alone, and so of the way between mongos and shards; null: as the others."""


class Presplit(Model):
    """Where the chunks of a collection are before the first document."""

    policy: Literal["key_ranges", "split_points", "hashed", "none"] = "none"
    """key_ranges: one range of the upper 32 bits of _id per loader, each on one shard; split_points: chunks that begin
    at given values, spread over the shards in turn; hashed: the server's own initial chunks."""
    ranges_per_shard: Annotated[int, Field(ge=1, le=1024)] = 1
    """key_ranges: loaders, and so ranges, per shard."""
    points: Annotated[list[Annotated[int, Field(ge=-(2**63), lt=2**63)]], Field(max_length=100_000)] = Field(default=[])
    """split_points: values of the first field of the shard key at which a chunk begins, ascending."""
    chunks_per_shard: Annotated[int, Field(ge=1, le=8192)] | None = None
    """hashed: initial chunks a shard (`numInitialChunks`, before 7.2); null leaves it to the server."""


class Collection(Model):
    """A sharded collection."""

    namespace: Namespace
    """Database and collection, for example vosa.mot_results."""
    shard_key: Annotated[dict[str, Literal[1, -1, "hashed"]], Field(min_length=1, max_length=32)]
    """Fields of the shard key: 1 for ranged, hashed for hashed."""
    unique: bool = False
    """Whether the shard key is unique."""
    options: dict[str, Any] = Field(default={})
    """Options of the server's `create` command, for example {storageEngine: {wiredTiger: {configString:
    block_compressor=zlib}}}; {} leaves the creation to shardCollection."""
    primary_shard: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of the shard that is the database's primary; null is the first. Without a presplit all data begins
    there. Collections of one database have one primary."""
    presplit: Presplit = Presplit()
    """Initial chunks."""

    def _contradictions(self) -> Iterator[str]:
        if self.presplit.policy == "key_ranges" and self.shard_key != {"_id": 1}:
            yield f"presplit: key_ranges needs the shard key {{_id: 1}}, not {self.shard_key}"
        points = self.presplit.points
        if self.presplit.policy == "split_points":
            if next(iter(self.shard_key.values())) == "hashed":
                yield "presplit: split_points needs a shard key whose first field is ranged"
            if not points or any(a >= b for a, b in pairwise(points)):
                yield "presplit: split_points needs points, ascending, none twice"
        if self.presplit.policy == "hashed" and "hashed" not in self.shard_key.values():
            yield f"presplit: hashed needs a hashed shard key, not {self.shard_key}"


class Security(Model):
    """Who may connect to the servers, and how. Keys, certificates, users and passwords are created for every run."""

    authorization: bool | None = None
    """Whether clients log in and members know each other by a key file. null: yes where processes can be reached over
    a network (hosts, EC2), no on this machine."""
    tls: bool | None = None
    """Whether every connection is encrypted. null: likewise."""

    def at(self, backend: str) -> dict[str, bool]:
        """Both, decided for a place."""
        by_place = backend != "local"
        return {
            "authorization": by_place if self.authorization is None else self.authorization,
            "tls": by_place if self.tls is None else self.tls,
        }


_HostName = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$"), AllowedText("a host, as shard_hosts-1")
]


class Placement(Model):
    """Which host each process is on: a name of the inventory, or GROUP-NUMBER as on EC2 (shard_hosts-1 is the first).

    What is left out is placed as without it. On several hosts only.
    """

    shards: Annotated[list[Annotated[list[_HostName], Field(min_length=1, max_length=50)]], Field(max_length=1000)] = (
        Field(default=[])
    )
    """kind sharded: of each shard the hosts of its members; of more lists than shards the first are used."""
    replica_set: Annotated[list[_HostName], Field(max_length=50)] = Field(default=[])
    """kind replica_set or standalone: the hosts of the members."""
    config_servers: Annotated[list[_HostName], Field(max_length=7)] = Field(default=[])
    """kind sharded: the hosts of the config servers."""
    mongos: Annotated[list[_HostName], Field(max_length=1000)] = Field(default=[])
    """kind sharded: the hosts of the mongos; of more hosts than mongos the first are used."""


class Topology(Model):
    """What is deployed at a point."""

    kind: Kind = "sharded"
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
    security: Security = Security()
    """Logins and encryption."""
    placement: Placement = Placement()
    """The hosts of single processes."""
    mongod: dict[str, Any] = Field(default={})
    """Any option of mongod's configuration file for the data-bearing processes, merged last, shown in the plan. The
    section of a storage engine (storage.wiredTiger, storage.tokumx …) goes to processes with that engine alone;
    TokuMX's has flat names and setParameter."""
    limits: dict[str, ProcessLimits] = Field(default={})
    """Limits of data-bearing mongods: of `all`, of a shard's members (shard02), or of one process (shard02-1, rs0-2);
    what names a process most closely decides."""
    collections: Annotated[list[Collection], Field(max_length=1000)] = Field(default=[])
    """kind sharded: the sharded collections."""
    zones: Annotated[list[Zone], Field(max_length=1000)] = Field(default=[])
    """kind sharded: zones, and which ranges of the collections belong to them."""

    def _contradictions(self) -> Iterator[str]:
        if self.kind != "sharded" and self.collections:
            yield f"collections: only a sharded cluster has sharded collections, not kind: {self.kind}"
        names = [c.namespace for c in self.collections]
        duplicate = first_duplicate(names)
        if duplicate is not None:
            yield f"collections: {duplicate} is given twice"


def mongos_count(topology: Topology) -> int:
    """How many mongos there are; 0 unless sharded."""
    if topology.kind != "sharded":
        return 0
    each = topology.mongos.shards_each
    return topology.mongos.count if each is None else -(-topology.shards.count // each)


def data_members(topology: Topology) -> int:
    """How many members hold each document, once the deployment is there."""
    if topology.kind == "standalone":
        return 1
    return copies(topology.replica_set.members if topology.kind == "replica_set" else topology.shards.members)
