"""CPU use of the clients, and of the routers and servers that run on their host, while the clients are measured."""

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from microshard.hostlib import proc
from microshard.hostlib.host_counters import TICKS, children, parse_cpu, parse_stat, read
from microshard.model.job import ProcessInfo
from microshard.workloads.servers import process_of

CLIENT_SHARE = 0.8  # of its host's cores; above it threads of the client wait for each other
ROUTER_SHARE = 0.9  # of the cores a router can use
HOST_SHARE = 0.95  # of a host that clients, routers and servers share: then the largest user is the limit
OURS_SHARE = 0.7  # of a busy host's cores; when clients, routers and servers use less, other programs use the rest

Limit = Literal["client", "router", "host"]


def client_side_limit(cpu: Mapping[str, Any]) -> Limit | None:
    """What limited a figure other than the servers; None when they did, or when nothing is known.

    `cpu` in cores: `client`, `routers` {name: cores}, `servers`; `cores` of the client's host, `busy` (share of them).
    The front of an embedded mongos (there is a NAME/router) cannot use more than one core. A busy host that all share
    has no cores left: then the part that uses most is the limit, unless that is the servers. "host": other programs
    keep it busy.
    """
    cores = cpu["cores"]
    routers: Mapping[str, float] = cpu["routers"]
    if cpu["client"] >= CLIENT_SHARE * cores:
        return "client"
    for name, used in routers.items():
        usable = 1 if f"{name}/router" in routers else cores
        if "/" not in name and used >= ROUTER_SHARE * usable:
            return "router"
    if cpu["busy"] >= HOST_SHARE:
        if cpu["client"] + sum(routers.values()) + cpu["servers"] < OURS_SHARE * cores:
            return "host"
        parts = {"client": cpu["client"], "router": sum(routers.values()), "servers": cpu["servers"]}
        most = max(parts, key=lambda name: parts[name])
        return None if most == "servers" else "client" if most == "client" else "router"
    return None


@dataclass(slots=True)
class CounterSamples:
    """Samples of a counter that only grows."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, now: float, value: float) -> None:
        """Add a sample."""
        self.times.append(now)
        self.values.append(value)

    def at(self, when: float) -> float:
        """The value at a time, interpolated between two samples; before the first and after the last, the nearest."""
        after = bisect_left(self.times, when)
        if after == 0:
            return self.values[0]
        if after == len(self.times):
            return self.values[-1]
        (t0, t1), (v0, v1) = self.times[after - 1 : after + 1], self.values[after - 1 : after + 1]
        return v0 + (v1 - v0) * (when - t0) / (t1 - t0)

    def rate(self, started: float, ended: float) -> float:
        """Growth a second between two times."""
        return (self.at(ended) - self.at(started)) / (ended - started) if ended > started and self.times else 0.0


class CpuSampler:
    """Samples CPU seconds of the clients, and of the routers and servers that run on this host."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._roles: dict[str, str] = {}
        self._ticks: dict[str, CounterSamples] = {}
        self._busy, self._all = CounterSamples(), CounterSamples()
        self.cores = 1

    def add_servers(self, processes: Sequence[ProcessInfo]) -> None:
        """Sample those of these processes that run on this host."""
        for process in processes:
            if found := process_of(process):
                self._add(process.name, found.pid, "router" if process.role == "mongos" else process.role)
                if process.role == "mongos":
                    for child in children(found.pid):
                        self._add(f"{process.name}/router", child, "router")

    def _add(self, name: str, pid: int, role: str) -> None:
        self._pids[name], self._roles[name], self._ticks[name] = pid, role, CounterSamples()

    def add_client(self, name: str, pid: int) -> None:
        """Sample a client that was started, too."""
        self._add(name, pid, "client")

    def sample(self) -> None:
        """Read every counter once; a process that has ended keeps its last value."""
        now = time.time()
        times, self.cores = parse_cpu(read("/proc/stat") or "cpu 0 0 0 0 0 0 0 0\n")
        self._all.add(now, sum(times.values()))
        self._busy.add(now, sum(times.values()) - times["idle"] - times["iowait"])
        for name, pid in self._pids.items():
            text = read(f"/proc/{pid}/stat")
            if text is not None:
                self._ticks[name].add(now, parse_stat(text)["ticks"])

    def ended_processes(self) -> list[str]:
        """Processes of the point that have ended since the beginning."""
        return [name for name, pid in self._pids.items() if self._roles[name] != "client" and proc.find(pid) is None]

    def between(self, started: float, ended: float) -> dict[str, Any]:
        """Mean CPU in an interval, in cores, as `client_side_limit` reads it."""
        used = {name: ticks.rate(started, ended) / TICKS for name, ticks in self._ticks.items()}

        def of(*roles: str) -> dict[str, float]:
            return {name: round(cores, 4) for name, cores in used.items() if self._roles[name] in roles}

        every = self._all.rate(started, ended)
        servers = of("standalone", "member", "shard")
        return {
            "client": round(sum(of("client").values()), 4),
            "routers": of("router"),
            "servers": round(sum(servers.values()), 4),
            "by_server": servers,
            "cores": self.cores,
            "busy": round(self._busy.rate(started, ended) / every, 4) if every else 0.0,
        }
