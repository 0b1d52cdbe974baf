"""The evidence for a verdict: telemetry of one phase by host, shard, router, client and volume."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.model.ec2_facts import EbsOfInstance, baseline_share, ebs_types
from microshard.model.plan import Point
from microshard.model.result import PhaseResult
from microshard.model.telemetry import HostUse, ProcessUse, ServerUse, TelemetrySummary
from microshard.plan.hosts import host_volumes

MIB = 1024 * 1024

# Who a process works for, by its role in the plan. The embedded router's own mongod is named "NAME/router".
ROLES = dict.fromkeys(("shard", "member", "standalone"), "shards")
ROLES |= {"mongos": "router", "config": "config", "client": "client"}


@dataclass(frozen=True, slots=True)
class ProcessLoad:
    """CPU of a process: cores used, cores it could have used, threads that a quota kept from running."""

    name: str
    cpu: float
    limit: float | None = None
    held: float = 0.0
    throttled: float = 0.0  # share of the quota's periods
    faults: float = 0.0  # major page faults a second
    rss: float = 0.0  # bytes, the most
    memory_limit: float | None = None  # bytes


@dataclass(frozen=True, slots=True)
class HostLoad:
    """A host: shares are 0 to 1, `roles` are mean cores, swapping is bytes a second, segments are a second."""

    name: str
    cores: float
    busy: float  # user + sys
    iowait: float
    roles: Mapping[str, float]  # shards, router, config, client, others (background load)
    stall: Mapping[str, float] = field(default_factory=dict)  # cpu, io, memory: share of time in which a task waited
    swap: float = 0.0
    steal: float = 0.0
    instance_type: str = ""
    ebs: EbsOfInstance | None = None
    segments: float = 0.0
    segments_again: float = 0.0

    @property
    def baseline(self) -> float | None:
        """Share of its cores that a burstable instance has without CPU credits; None elsewhere."""
        return baseline_share(self.instance_type)

    @property
    def place(self) -> str:
        """What a sentence calls it: the machine of a run without hosts has no name but `local`."""
        return "the machine" if self.name == "local" else self.name

    @property
    def waiting_for_disk(self) -> float:
        """Share of the time in which a task waited for I/O; where the kernel does not say, of the idle cores'."""
        return self.stall.get("io", self.iowait)


@dataclass(frozen=True, slots=True)
class MongodLoad:
    """A data-bearing mongod: its CPU, and what kept its operations waiting."""

    use: ProcessLoad
    host: str
    operation_time: float = 0.0  # operations being served, on average (seconds a second)
    stall: float = 0.0  # operations busy with the cache (seconds a second)
    evicted: float = 0.0  # pages operations had to evict themselves
    queue: float = 0.0  # operations waiting for a lock or ticket, on average
    no_ticket: float | None = None  # share of the time without a ticket left; None: the server reports no tickets
    cache_max: float = 0.0  # bytes
    cache_read: float = 0.0  # bytes in the window
    dirty: float = 0.0  # bytes, the most
    waits: Mapping[str, float] = field(default_factory=dict)  # lock, flow_control, write_concern: operations on average
    checkpoint_loss: float | None = None  # share of its operations
    lag: float | None = None  # s behind its primary, the most


@dataclass(frozen=True, slots=True)
class VolumeLoad:
    """A volume with data or journals of shards: requests and bytes a second, and what it may do where that is known."""

    name: str
    host: str
    figures: Mapping[str, float]  # r_ios, w_ios, r_bytes, w_bytes, util, queue
    limits: Mapping[str, float]  # of r_ios, w_ios, r_bytes, w_bytes; ios, bytes: of reads and writes together, as EBS
    shards: tuple[str, ...] = ()  # whose files it holds

    def rate(self, key: str) -> float:
        """Requests or bytes a second of one of the limits."""
        return sum(self.figures.get(name, 0.0) for name in ([key] if "_" in key else [f"r_{key}", f"w_{key}"]))

    @property
    def request_bytes(self) -> float:
        """Mean size of a request; 0 without any."""
        requests = self.rate("ios")
        return self.rate("bytes") / requests if requests else 0.0


@dataclass(frozen=True, slots=True)
class InterfaceLoad:
    """A network interface: bytes a second either way, and its speed where the driver knows it."""

    name: str
    rate: float
    speed: float | None
    shaped: Mapping[str, float] = field(default_factory=dict)  # share of its packets, by allowance of EC2


@dataclass(frozen=True, slots=True)
class Evidence:
    """One phase of one step."""

    seconds: float  # of the phase
    records: int  # whole records of hosts in it
    hosts: tuple[HostLoad, ...] = ()
    shards: tuple[MongodLoad, ...] = ()
    shard_of: Mapping[str, str] = field(default_factory=dict)  # mongod → its replica set
    routers: tuple[ProcessLoad, ...] = ()
    client: ProcessLoad | None = None  # of several clients the one nearest to its limit
    volumes: tuple[VolumeLoad, ...] = ()
    interfaces: tuple[InterfaceLoad, ...] = ()
    exceeded: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # EBS device → limit → share of the time
    pools: Mapping[str, float] = field(default_factory=dict)  # mongos → share of the time without a free connection
    delays: Mapping[str, float] = field(default_factory=dict)  # member → s it is to be behind
    concurrency: int | None = None  # operations the client keeps in flight
    response: float | None = None  # s an operation takes, as the client sees it
    round_trip: float = 0.0  # s: client to server and back; through a router also router to shard

    def host(self, name: str) -> HostLoad | None:
        """The host of this name."""
        return next((host for host in self.hosts if host.name == name), None)


def gather(
    phase: PhaseResult,
    summary: TelemetrySummary,
    point: Point,
    types: Mapping[str, str] | None = None,
    ebs_of: Callable[[str], EbsOfInstance | None] = lambda _: None,
) -> Evidence:
    """The evidence for a phase of a result; `summary` is the telemetry of its interval.

    `types`: host → its EC2 instance type, `ebs_of`: what the EBS volumes of such a type may do together.
    """
    roles = {p.name: ROLES[p.role] for p in point.processes}
    hosts = {p.name: p.host for p in point.processes}
    seconds = max(phase.ended - phase.started, 0.0)
    parameters: Mapping[str, Any] = next((p.parameters for p in point.phases if p.name == phase.name), {})
    concurrency = in_flight(parameters)
    loads = {name: _process(name, use) for name, use in summary.processes.items()}
    owners = {name: name.split("/", 1)[0] for name in loads}
    clients = [load for name, load in loads.items() if owners[name] == "client"]
    return Evidence(
        seconds=seconds,
        records=min((host.records for host in summary.hosts.values()), default=0),
        hosts=tuple(
            _host(name, host, summary, roles, kind := (types or {}).get(name, ""), ebs_of(kind) if kind else None)
            for name, host in summary.hosts.items()
        ),
        shards=tuple(
            _mongod(load, hosts[name], summary.servers.get(name, ServerUse()))
            for name, load in loads.items()
            if roles.get(name) == "shards"
        ),
        shard_of={p.name: p.replica_set for p in point.processes if p.replica_set},
        routers=tuple(load for name, load in loads.items() if roles.get(owners[name]) == "router"),
        client=max(clients, key=lambda load: load.cpu / (load.limit or math.inf), default=None),
        volumes=tuple(_volumes(summary, roles, point)),
        interfaces=tuple(
            InterfaceLoad(
                name,
                max(net.rx_bytes, net.tx_bytes) / seconds,
                net.speed,
                {kind: packets / max(net.packets, 1.0) for kind, packets in net.shaped.items()},
            )
            for name, net in summary.net.items()
            if seconds and name.rsplit(":", 1)[-1] != "lo"
        ),
        exceeded={
            device: shares
            for device, figures in summary.disk.items()
            if (shares := {k[: -len(_EXCEEDED)]: share for k, share in figures.items() if k.endswith(_EXCEEDED)})
        },
        pools={n: s.pool_full_share for n, s in summary.servers.items() if s.pool_full_share is not None},
        delays={m.process: float(m.delay_seconds) for rs in point.replica_sets for m in rs.members},
        concurrency=concurrency,
        response=response(phase, seconds, concurrency, parameters),
        round_trip=sum(_round_trip(summary.servers, roles, role) for role in ("router", "shards")),
    )


_EXCEEDED = "_exceeded_mean"


def _process(name: str, use: ProcessUse) -> ProcessLoad:
    held, throttled = use.held_mean or 0.0, use.throttled_mean or 0.0
    return ProcessLoad(
        name, use.cpu_mean, use.limit, held, throttled, use.faults_mean or 0.0, use.rss_max, use.memory_limit
    )


def _host(
    name: str, host: HostUse, summary: TelemetrySummary, roles: Mapping[str, str], kind: str, ebs: EbsOfInstance | None
) -> HostLoad:
    busy = host.cpu.get("user", 0.0) + host.cpu.get("sys", 0.0)
    used = cores_by_role({process: summary.processes[process] for process in host.processes}, roles)
    used["others"] = max(busy * host.cores - sum(used.values()), 0.0)
    return HostLoad(
        name=name,
        cores=host.cores,
        busy=busy,
        iowait=host.cpu.get("iowait", 0.0),
        roles=used,
        stall=host.stall,
        swap=host.vm.get("swap_in", 0.0) + host.vm.get("swap_out", 0.0),
        steal=host.cpu.get("steal", 0.0),
        instance_type=kind,
        ebs=ebs,
        segments=host.tcp.get("out", 0.0),
        segments_again=host.tcp.get("again", 0.0),
    )


def cores_by_role(processes: Mapping[str, ProcessUse], roles: Mapping[str, str]) -> dict[str, float]:
    """Mean cores by role, summed over its processes. `roles`: process → role, of all but clients."""
    used: dict[str, float] = {}
    for name, use in processes.items():
        owner = name.split("/", 1)[0]
        if role := "client" if owner == "client" else roles.get(owner):
            used[role] = used.get(role, 0.0) + use.cpu_mean
    return used


def _mongod(load: ProcessLoad, host: str, server: ServerUse) -> MongodLoad:
    return MongodLoad(
        use=load,
        host=host,
        operation_time=server.operation_time_mean,
        stall=server.cache_stall_mean,
        evicted=server.evicted_by_operations,
        queue=server.queue_mean,
        no_ticket=server.no_ticket_share,
        cache_max=server.cache_max or 0.0,
        cache_read=server.cache_read_bytes,
        dirty=server.dirty_bytes_max or 0.0,
        waits=server.waits,
        checkpoint_loss=server.checkpoint_loss,
        lag=server.lag_max,
    )


def _volumes(summary: TelemetrySummary, roles: Mapping[str, str], point: Point) -> Iterator[VolumeLoad]:
    """The volumes of the shards' data and journals. Limits of several control groups on a device add up."""
    hosts = {p.name: p.host for p in point.processes}
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    provisioned: dict[str, dict[str, float]] = {}
    for process, places in summary.devices.items():
        for kind, place in places.items() if roles.get(process) == "shards" else ():
            found.setdefault(place.device, {})[process] = place.limits
            provisioned[place.device] = _provisioned(host_volumes(point, hosts[process]).get(kind))
    for name, limits in found.items():
        figures = {key.removesuffix("_mean"): value for key, value in summary.disk.get(name, {}).items()}
        allowed = provisioned[name] | _limits(list(limits.values()))
        yield VolumeLoad(name, hosts[next(iter(limits))], figures, allowed, tuple(limits))


def _provisioned(volume: Mapping[str, Any] | None) -> dict[str, float]:
    """What an EBS volume of the plan may do, reads and writes together; empty for other volumes."""
    limits = ebs_types().get(volume["type"]) if volume else None
    if volume is None or limits is None:
        return {}
    size, iops = volume["size_gib"], volume["iops"]
    devices = volume["count"] if volume["policy"] == "raid0" else 1
    mibps = limits.mibps_of(size, iops, volume["throughput_mibps"])
    return {"ios": float(limits.iops_of(size, iops) * devices), "bytes": mibps * MIB * devices}


def _limits(given: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Processes of one control group share its limits, and equal limits are taken to be of one group."""
    keys = {key for limits in given for key in limits}
    return {key: sum({limits[key] for limits in given}) for key in keys if all(key in limits for limits in given)}


def _round_trip(servers: Mapping[str, ServerUse], roles: Mapping[str, str], role: str) -> float:
    """The shortest round trip to a process of a role; 0 where none is known."""
    times = [
        s.round_trip_min for name, s in servers.items() if roles.get(name) == role and s.round_trip_min is not None
    ]
    return min(times, default=0.0)


def in_flight(parameters: Mapping[str, Any]) -> int | None:
    """Operations a phase keeps in flight: connections, threads or loader processes; None if it does not say."""
    for name in ("connections", "threads", "processes"):
        count = parameters.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            clients = parameters.get("clients")
            return count * (clients if isinstance(clients, int) and clients > 0 else 1)
    return None


def operations(phase: PhaseResult, parameters: Mapping[str, Any]) -> float | None:
    """How many operations a phase did, by its windows, counters, or batches of documents; None if unknown."""
    if phase.windows is not None and phase.windows.values:
        return math.fsum(phase.windows.values)
    for name in ("operations", "queries"):
        if phase.counters.get(name):
            return float(phase.counters[name])
    if phase.counters.get("documents") and parameters.get("batch_size"):
        return float(math.ceil(phase.counters["documents"] / parameters["batch_size"]))
    return None


def response(
    phase: PhaseResult, seconds: float, concurrency: int | None, parameters: Mapping[str, Any]
) -> float | None:
    """Seconds an operation takes: the median sample, else Little's law: operations in flight / operations a second."""
    if phase.metric is not None and phase.metric.unit == "s" and phase.samples:
        return statistics.median(phase.samples)
    done = operations(phase, parameters)
    if not done or concurrency is None or not seconds:
        return None
    return concurrency * seconds / done
