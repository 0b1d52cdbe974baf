"""What the rules look at: the telemetry of one phase, by host, shard, router, client and device."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Who a process works for, by its role in the plan. The embedded router's own mongod is named "NAME/router".
ROLES = {
    "shard": "shards",
    "member": "shards",
    "standalone": "shards",
    "mongos": "router",
    "config": "config",
    "client": "client",
}


@dataclass(frozen=True, slots=True)
class Use:
    """CPU of a process: cores used, cores it could have used, threads that a quota kept from running."""

    name: str
    cpu: float
    limit: float | None = None
    held: float = 0.0
    faults: float = 0.0  # major page faults a second


@dataclass(frozen=True, slots=True)
class Host:
    """A host: shares are 0 to 1, `roles` are mean cores, swapping is bytes a second, segments are a second."""

    name: str
    cores: float
    busy: float  # user + sys
    iowait: float
    roles: Mapping[str, float]  # shards, router, config, client, others
    stall: Mapping[str, float] = field(default_factory=dict)  # cpu, io, memory: share of time in which a task waited
    swap: float = 0.0
    segments: float = 0.0
    segments_again: float = 0.0

    @property
    def waiting_for_disk(self) -> float:
        """Share of the time in which a task waited for I/O; where the kernel does not say, of the idle cores'."""
        return self.stall.get("io", self.iowait)


@dataclass(frozen=True, slots=True)
class Mongod:
    """A data-bearing mongod: its CPU, and what its operations did instead of their work."""

    use: Use
    host: str
    operation_time: float = 0.0  # operations being served, on average (seconds a second)
    stall: float = 0.0  # operations busy with the cache (seconds a second)
    evicted: float = 0.0  # pages operations had to evict themselves
    queue: float = 0.0  # operations waiting for a lock or ticket, on average
    no_ticket: float = 0.0  # share of the time without a ticket left
    cache_max: float = 0.0  # bytes
    cache_read: float = 0.0  # bytes in the window


@dataclass(frozen=True, slots=True)
class Device:
    """A volume with data or journals of shards: requests and bytes a second, and what it may do where that is known."""

    name: str
    host: str
    figures: Mapping[str, float]  # r_ios, w_ios, r_bytes, w_bytes, util, queue
    limits: Mapping[str, float]  # of r_ios, w_ios, r_bytes, w_bytes
    shards: tuple[str, ...] = ()  # whose files it holds

    @property
    def request_bytes(self) -> float:
        """Mean size of a request; 0 without any."""
        requests = self.figures.get("r_ios", 0.0) + self.figures.get("w_ios", 0.0)
        return (self.figures.get("r_bytes", 0.0) + self.figures.get("w_bytes", 0.0)) / requests if requests else 0.0


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface: bytes a second either way, and its speed where the driver knows it."""

    name: str
    rate: float
    speed: float | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One phase of one step."""

    seconds: float  # of the phase
    records: int  # whole records of hosts in it
    hosts: tuple[Host, ...] = ()
    shards: tuple[Mongod, ...] = ()
    routers: tuple[Use, ...] = ()
    client: Use | None = None  # of several the one that is nearest to its limit
    devices: tuple[Device, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    concurrency: int | None = None  # operations the client keeps in flight
    response: float | None = None  # s an operation takes, as the client sees it
    way: float = 0.0  # s: client to server and back; through a router also router to shard

    def host(self, name: str) -> Host | None:
        """The host of this name."""
        return next((host for host in self.hosts if host.name == name), None)


def gather(phase: Mapping[str, Any], summary: Mapping[str, Any], point: Mapping[str, Any]) -> Evidence:
    """The evidence of a phase of a result. `summary` is telemetry.summary.summarise of it, `point` the plan's point."""
    started, ended = float(phase.get("started") or 0.0), float(phase.get("ended") or 0.0)
    roles = {str(p["name"]): ROLES.get(str(p["role"]), "") for p in point.get("processes", [])}
    places = {str(p["name"]): str(p.get("host", "")) for p in point.get("processes", [])}
    processes: Mapping[str, Mapping[str, float]] = summary.get("processes", {})
    servers: Mapping[str, Mapping[str, Any]] = summary.get("servers", {})
    seconds = max(ended - started, 0.0)
    parameters: Mapping[str, Any] = next(
        (p.get("parameters", {}) for p in point.get("phases", []) if p.get("name") == phase.get("name")), {}
    )
    concurrency = in_flight(parameters)
    clients = [_use(name, use) for name, use in processes.items() if name.split("/", 1)[0] == "client"]
    return Evidence(
        seconds=seconds,
        records=min((int(host["records"]) for host in summary.get("hosts", {}).values()), default=0),
        hosts=tuple(_host(name, host, summary, roles) for name, host in summary.get("hosts", {}).items()),
        shards=tuple(
            _mongod(_use(name, use), places.get(name, ""), servers.get(name, {}))
            for name, use in processes.items()
            if roles.get(name) == "shards"
        ),
        routers=tuple(_use(n, use) for n, use in processes.items() if roles.get(n.split("/", 1)[0]) == "router"),
        client=max(clients, key=lambda use: use.cpu / (use.limit or math.inf), default=None),
        devices=tuple(_devices(summary, roles, places)),
        interfaces=tuple(_interfaces(summary, seconds)),
        concurrency=concurrency,
        response=response(phase, seconds, concurrency, parameters),
        way=_way(servers, roles),
    )


def _use(name: str, use: Mapping[str, float]) -> Use:
    limit = use.get("limit")
    return Use(name, use.get("cpu_mean", 0.0), limit, use.get("held_mean", 0.0), use.get("faults_mean", 0.0))


def _host(name: str, host: Mapping[str, Any], summary: Mapping[str, Any], roles: Mapping[str, str]) -> Host:
    cpu: Mapping[str, float] = host.get("cpu", {})
    cores = float(host.get("cores", 0))
    busy = cpu.get("user", 0.0) + cpu.get("sys", 0.0)
    used: dict[str, float] = {}
    for process in host.get("processes", []):
        owner = process.split("/", 1)[0]
        role = "client" if owner == "client" else roles.get(owner, "")
        if role:
            used[role] = used.get(role, 0.0) + float(summary["processes"].get(process, {}).get("cpu_mean", 0.0))
    used["others"] = max(busy * cores - sum(used.values()), 0.0)
    vm, tcp = host.get("vm", {}), host.get("tcp", {})
    return Host(
        name=name,
        cores=cores,
        busy=busy,
        iowait=cpu.get("iowait", 0.0),
        roles=used,
        stall=dict(host.get("stall", {})),
        swap=vm.get("swap_in", 0.0) + vm.get("swap_out", 0.0),
        segments=tcp.get("out", 0.0),
        segments_again=tcp.get("again", 0.0),
    )


def _mongod(use: Use, host: str, server: Mapping[str, Any]) -> Mongod:
    return Mongod(
        use=use,
        host=host,
        operation_time=float(server.get("operation_time_mean", 0.0)),
        stall=float(server.get("cache_stall_mean", 0.0)),
        evicted=float(server.get("evicted_by_operations", 0.0)),
        queue=float(server.get("queue_mean", 0.0)),
        no_ticket=float(server.get("no_ticket_share", 0.0)),
        cache_max=float(server.get("cache_max", 0.0)),
        cache_read=float(server.get("cache_read_bytes", 0.0)),
    )


def _devices(summary: Mapping[str, Any], roles: Mapping[str, str], places: Mapping[str, str]) -> list[Device]:
    """The devices of the shards' data and journals. Of several limits on a device the control groups' add up."""
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for process, kinds in summary.get("devices", {}).items():
        for place in kinds.values() if roles.get(process) == "shards" else ():
            found.setdefault(str(place["device"]), {})[process] = place.get("limits", {})
    disks: Mapping[str, Mapping[str, float]] = summary.get("disk", {})
    return [
        Device(
            name=name,
            host=places.get(next(iter(limits)), ""),
            figures={key.removesuffix("_mean"): value for key, value in disks.get(name, {}).items()},
            limits=_limits(list(limits.values())),
            shards=tuple(limits),
        )
        for name, limits in found.items()
    ]


def _limits(given: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Processes of one control group share its limits, and equal limits are taken to be of one group."""
    keys = {key for limits in given for key in limits}
    return {key: sum({float(limits[key]) for limits in given}) for key in keys if all(key in lim for lim in given)}


def _interfaces(summary: Mapping[str, Any], seconds: float) -> list[Interface]:
    """All but loopback, which has no speed of its own."""
    return [
        Interface(name, max(net.get("rx_bytes", 0.0), net.get("tx_bytes", 0.0)) / seconds, net.get("speed"))
        for name, net in summary.get("net", {}).items()
        if seconds and name.rsplit(":", 1)[-1] != "lo"
    ]


def _way(servers: Mapping[str, Mapping[str, Any]], roles: Mapping[str, str]) -> float:
    """The least time an operation spends on the wire: to the nearest door and, behind a router, on to a shard."""

    def least(role: str) -> float:
        ways = [s["round_trip_min"] for name, s in servers.items() if roles.get(name) == role and "round_trip_min" in s]
        return float(min(ways, default=0.0))

    return least("router") + least("shards")


def in_flight(parameters: Mapping[str, Any]) -> int | None:
    """Operations a phase keeps in flight: its connections, or threads, or loader processes; None if it does not say."""
    for name in ("connections", "threads", "processes"):
        count = parameters.get(name)
        if isinstance(count, int) and not isinstance(count, bool) and count > 0:
            clients = parameters.get("clients")
            return count * (clients if isinstance(clients, int) and clients > 0 else 1)
    return None


def operations(phase: Mapping[str, Any], parameters: Mapping[str, Any]) -> float | None:
    """How many operations a phase did: of its windows, its counters, or batches of documents; None if unknown."""
    values = (phase.get("windows") or {}).get("values")
    if values:
        return float(math.fsum(values))
    counters = phase.get("counters") or {}
    for name in ("operations", "queries"):
        if counters.get(name):
            return float(counters[name])
    if counters.get("documents") and parameters.get("batch_size"):
        return float(math.ceil(counters["documents"] / parameters["batch_size"]))
    return None


def response(
    phase: Mapping[str, Any], seconds: float, concurrency: int | None, parameters: Mapping[str, Any]
) -> float | None:
    """Seconds an operation takes: the median sample, else Little's law: operations in flight / operations a second."""
    metric = phase.get("metric") or {}
    samples = phase.get("samples") or []
    if metric.get("unit") == "s" and samples:
        return float(statistics.median(samples))
    done = operations(phase, parameters)
    if not done or concurrency is None or not seconds:
        return None
    return concurrency * seconds / done
