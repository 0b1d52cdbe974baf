"""The plan: everything that is decided before anything is created.

It is computed by pure functions from an experiment and a few facts about the hosts, and can be printed, stored and
compared. Paths are relative to the run folder; units are in the names (MiB, bytes, seconds).
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from microshard.model import OPTIONAL
from microshard.model.run_records import FORMAT

FIRST_PORT = 27100  # the first port tried for base_port: auto; a MongoDB of the user may have 27017
HOST_GROUPS = ("shard_hosts", "other_shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")

Role = Literal["standalone", "member", "shard", "config", "mongos"]
PhaseKind = Literal["load", "warm_up", "measure"]
Purpose = Literal["measure", "drift"]
Redeploy = Literal["per_point", "per_repetition"]


@dataclass(frozen=True, slots=True)
class Host:
    """A machine of the run. On the local backend every group lives on the one host `local`."""

    name: str
    address: str = ""  # as the other hosts reach it; on the local backend loopback
    groups: tuple[str, ...] = ()
    cores: int = 1
    ram_mib: float | None = None
    free_disk_bytes: int | None = None  # on the filesystem of the run folder
    numa_nodes: tuple[int, ...] | None = None  # None: not known, the host itself looks when processes are started
    numactl: bool = True


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a plan needs to know about the place where it is to run.

    Either the hosts, with their facts, or, where everything is one machine, that machine's cores, RAM and disk.
    """

    cores: int = 1
    ram_mib: float | None = None
    free_disk_bytes: int | None = None
    numa_nodes: tuple[int, ...] | None = None
    numactl: bool = True
    base_port: int = FIRST_PORT  # used where the experiment says auto
    pipelines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # by name
    backend: str = "local"
    where: str = "this machine"  # the place in messages, for example the inventory
    hosts: tuple[Host, ...] = ()
    folder: Path | None = None  # of the experiment file, for the files it names
    # Labels of the points by their names, where they are some of an experiment's; else p01, p02 …
    names: Mapping[str, str] = field(default_factory=dict)
    most_ports: int | None = None  # that may be used at one time on a host; None: no limit
    no_volumes: str | None = None  # why no volume can be emulated here; None when it can

    @property
    def all_hosts(self) -> tuple[Host, ...]:
        """The hosts, or this machine as one."""
        facts = (self.cores, self.ram_mib, self.free_disk_bytes, self.numa_nodes, self.numactl)
        return self.hosts or (Host("local", "127.0.0.1", HOST_GROUPS, *facts),)


@dataclass(frozen=True, slots=True)
class Process:
    """One mongod or mongos: what it is called, where it lives and how it is configured."""

    name: str  # unique within its point: shard01, shard01-2, config1, mongos1, rs0-1, mongod1
    role: Role
    host: str  # Host.name
    address: str
    port: int
    folder: str  # deployments/POINT/NAME, holds conf, log, pid and dbPath
    db_path: str | None  # None for mongos
    log_path: str
    config_path: str
    pid_path: str
    replica_set: str | None
    cache_mib: float | None  # WiredTiger cache; None for mongos
    cpu_share: float  # host's cores divided by the data-bearing processes on it (no limit)
    options: dict[str, Any]  # the configuration file in MongoDB's YAML form, with the experiment's options
    limits: dict[str, float] = field(default_factory=dict, metadata=OPTIONAL)  # of topology.limits

    @property
    def endpoint(self) -> str:
        """`address:port`, as the other processes reach it."""
        return f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """A member of a replica set, by the name of its process."""

    process: str
    endpoint: str
    priority: float = 1
    votes: int = 1
    hidden: bool = False
    delay_seconds: int = 0
    arbiter: bool = False
    initial: bool = True  # False: its process runs, a phase makes it a member
    added: bool = field(default=False, metadata={"optional": True})  # not initial, and made one by `add-member`


@dataclass(frozen=True, slots=True)
class PlannedReplicaSet:
    """A replica set to initiate; every shard and the config servers are one."""

    name: str
    role: Role  # member, shard or config
    members: tuple[PlannedMember, ...]  # the first leads
    initial: bool = True  # False: a shard that a phase adds

    @property
    def connection(self) -> str:
        """`name/host:port,…`, the form addShard and --configdb take."""
        return f"{self.name}/{self.addresses}"

    @property
    def addresses(self) -> str:
        """`host:port,…` of the members from the start."""
        return ",".join(m.endpoint for m in self.members if m.initial)


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A range of the shard key's first field on a shard before the load. None is MinKey or MaxKey."""

    shard: str  # replica set name
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class PlannedCollection:
    """A sharded collection and where its chunks are before the first document."""

    namespace: str
    shard_key: dict[str, Any]  # field → 1 or "hashed"
    unique: bool
    chunks: tuple[PlannedChunk, ...]  # empty: hashed initial chunks, or one chunk on the primary shard
    primary_shard: str | None = None  # replica set name; None is the first
    initial_chunks: int | None = None  # of a hashed key, over all shards
    options: dict[str, Any] = field(default_factory=dict, metadata=OPTIONAL)  # of the command create


@dataclass(frozen=True, slots=True)
class PlannedZoneRange:
    """A range of a collection's shard key; values of its first fields, None is MinKey or MaxKey."""

    namespace: str
    lower: dict[str, Any] | None
    upper: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class PlannedZone:
    """Shards, by the names of their replica sets, that alone hold these ranges."""

    name: str
    shards: tuple[str, ...]
    ranges: tuple[PlannedZoneRange, ...]


@dataclass(frozen=True, slots=True)
class PlannedPhase:
    """One step of the workload with all its parameters explicit."""

    name: str  # unique within the workload
    kind: PhaseKind
    engine: str
    parameters: dict[str, Any]
    question: Any = None  # decides the answer together with the data; equal questions must have equal answers
    data: Any = None  # decides which documents the phase leaves behind; None when it leaves none
    restarts: int = 0  # how often it has mongods restarted


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What a host has to give a point, estimated."""

    disk_bytes: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class EmulatedVolume:
    """A throttled loop device for the files of a point, on the local backend; paths are relative to the run."""

    name: str  # data, journal or log
    image: str  # the sparse file behind it
    mount: str
    size_gib: int
    filesystem: str
    lazy_init: bool
    iops: int | None  # limit of reads and, for itself, of writes; None is no limit
    throughput_mibps: int | None
    readahead_sectors: int | None  # None leaves the kernel's


@dataclass(frozen=True, slots=True)
class CacheBudget:
    """How the WiredTiger caches of the data-bearing processes of one host add up."""

    policy: str
    processes: int
    per_process_mib: float
    total_mib: float
    ram_mib: float | None  # None when the host's RAM is not known
    through_config_string: bool  # below 0.25 GB, mongod's own option refuses the value
    own_mib: float = 0.0  # of members with a fixed cache, which are not among `processes`; part of the total
    host: str = "local"


@dataclass(frozen=True, slots=True)
class DataImagePolicy:
    """Whether the data of a point are kept as a data image, and restored from one."""

    mode: Literal["never", "use", "only"] = "never"
    refused: str = ""  # why they are loaded all the same
    first: bool = False  # measurements change the data: the image is made before the first one, which is restored too
    not_empty: str = ""  # why the point has no image of its empty cluster either


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of all axes: a topology and a workload."""

    id: str  # p01, p02 … in the order of the matrix
    axes: dict[str, Any]  # dotted key → value
    label: str  # "4 shards", for tables and pictures
    topology: Literal["standalone", "replica_set", "sharded"]
    shards: int  # 0 unless sharded
    hosts: tuple[Host, ...]
    processes: tuple[Process, ...]
    replica_sets: tuple[PlannedReplicaSet, ...]
    collections: tuple[PlannedCollection, ...]
    balancer: dict[str, Any]  # enabled, chunk_size_mb, secondary_throttle, …
    phases: tuple[PlannedPhase, ...]
    mongodb: dict[str, Any]  # source, version, path
    network_compressors: tuple[str, ...]
    cache: CacheBudget  # of the first data-bearing host; `caches` has those of all
    disk_bytes: int  # estimate: data, indexes, oplog and journal of all processes
    memory_mib: int  # estimate of resident memory of all processes
    deploy_seconds: float  # estimates
    load_seconds: float
    measure_seconds: float  # of one repetition
    zones: tuple[PlannedZone, ...] = ()
    client_hosts: tuple[str, ...] = ()  # names of the hosts whose clients do the phases; the first forms the topology
    security: dict[str, bool] = field(default_factory=dict)  # authorization, tls
    process_manager: str = "auto"  # auto: the place decides
    numa: dict[str, dict[str, Any]] = field(default_factory=dict)  # host → policy, nodes, reserved_cores, if any
    caches: tuple[CacheBudget, ...] = ()  # one a host that bears data
    needs: dict[str, HostNeeds] = field(default_factory=dict)  # host → its part of disk_bytes and memory_mib
    # Group → volumes and kernel of its hosts, as in the definition; empty on local, where no host is prepared.
    machines: dict[str, Any] = field(default_factory=dict)
    volumes: tuple[EmulatedVolume, ...] = ()  # none where the files are on the filesystems of the machine
    gates: dict[str, Any] = field(default_factory=dict)  # limits by name, None: not checked; all of "auto" decided
    driver: str | None = None  # client.driver of the experiment; None: that of microshard
    data_image: DataImagePolicy = DataImagePolicy()
    image_bytes: int = 0  # estimate of its data image: disk_bytes without journals

    def question(self, phase: str) -> str:
        """What decides the answer of a phase: the data loaded and the query, never the topology.

        Equal questions must have equal answers at all points. Plans that do not state it are read by the parameters of
        the engines of that time.
        """
        query = next((p.question for p in self.phases if p.name == phase), None)
        data = [p.data for p in self.phases if p.data is not None]
        if query is None:
            loads = [p.parameters for p in self.phases if p.kind == "load"]
            data = [[load.get(key) for key in ("dataset", "namespace", "documents", "seed")] for load in loads]
            keys = ("namespace", "pipeline", "pipeline_name")
            query = [[p.parameters.get(key) for key in keys] for p in self.phases if p.name == phase]
        return json.dumps([data, phase, query], sort_keys=True, default=str)

    @property
    def most_ports(self) -> int:
        """Ports it takes on the host that has most of its processes."""
        return max(Counter(process.host for process in self.processes).values())

    @property
    def connection_string(self) -> str:
        """The URI a client uses for this point."""
        # Clients do not connect to a hidden member, an arbiter or one that is added later.
        excluded = {m.process for rs in self.replica_sets for m in rs.members if m.hidden or m.arbiter or not m.initial}
        entry_points = [p for p in self.processes if p.role == "mongos"] or [
            p for p in self.processes if p.role in {"member", "standalone"} and p.name not in excluded
        ]
        names = ",".join(p.endpoint for p in entry_points)
        if self.topology == "replica_set":
            return f"mongodb://{names}/?replicaSet={self.replica_sets[0].name}"
        return f"mongodb://{names}/"


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement of a point, in its place in the order."""

    index: int  # from 0
    point: str  # Point.id
    repetition: int  # from 1
    purpose: Purpose
    deploy: bool  # the topology is deployed and loaded before this step
    undeploy: bool  # nothing needs it after this step
    attempt: int = 1  # a plan has first attempts only; an invalid measurement is repeated as the next one

    @property
    def name(self) -> str:
        """r1, r2 … or drift; a later attempt adds its number: r2-3."""
        first = "drift" if self.purpose == "drift" else f"r{self.repetition}"
        return first if self.attempt == 1 else f"{first}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class PlanOutline:
    """Hosts and steps of plan.json alone, for lists of runs: reading all points takes a hundred times as long."""

    hosts: tuple[Host, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole experiment, ready to be executed."""

    name: str
    title: str
    backend: str
    redeploy: Redeploy
    repetitions: int
    hosts: tuple[Host, ...]
    points: tuple[Point, ...]
    steps: tuple[Step, ...]
    teardown: str
    warnings: tuple[str, ...] = ()
    estimate_seconds: float = 0.0
    disk_bytes: int = 0  # most that is on disk at one time, on all hosts together
    memory_mib: int = 0  # most that is resident at one time, on all hosts together
    facts: dict[str, Any] = field(default_factory=dict)  # cores, ram_mib, free_disk_bytes of all data-bearing hosts
    needs: dict[str, HostNeeds] = field(default_factory=dict)  # host → most it has to give at one time
    images_gb: float = 0.0  # disk space of all data images; 0: none are kept
    assumptions: tuple[str, ...] = ()  # measured rates the estimates of time rest on, with their sources
    format: int = FORMAT  # of plan.json

    def point(self, point_id: str) -> Point:
        """The point with this id; KeyError if there is none."""
        for point in self.points:
            if point.id == point_id:
                return point
        raise KeyError(point_id)
