"""What the CPUs of this host did while the clients ran, and whether that is what limited them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from microshard.hostlib.host_telemetry import TICKS, children, parse_cpu, parse_process, read, read_pid
from microshard.model.job import ProcessInfo

CLIENT_SHARE = 0.8  # of its host's cores; above it threads of the client wait for each other
ROUTER_SHARE = 0.9  # of the cores a router can use
HOST_SHARE = 0.95  # of a host that clients, routers and servers share: then the largest user is the limit

OWN_SHARE = 0.7  # of a busy host's cores; when clients, routers and servers use less, something else uses the rest

Limit = Literal["client", "router", "host"]


def limited_by(cpu: Mapping[str, Any]) -> Limit | None:
    """What kept a figure down that was not the servers; None when it was them, or nobody, or nothing is known.

    `cpu` in cores: `client`, `routers` {name: cores}, `servers`; `cores` of the client's host, `busy` (share of them).
    An embedded mongos (it has a NAME/router) cannot use more than one core with its front. A host that all share has
    no cores left when it is busy: then the part that uses most is the limit, unless that is the servers. "host": work
    that is none of ours keeps it busy.
    """
    cores = cpu["cores"]
    routers: Mapping[str, float] = cpu["routers"]
    if cpu["client"] >= CLIENT_SHARE * cores:
        return "client"
    for name, used in routers.items():
        own = 1 if f"{name}/router" in routers else cores
        if "/" not in name and used >= ROUTER_SHARE * own:
            return "router"
    if cpu["busy"] >= HOST_SHARE:
        if cpu["client"] + sum(routers.values()) + cpu["servers"] < OWN_SHARE * cores:
            return "host"
        parts = {"client": cpu["client"], "router": sum(routers.values()), "servers": cpu["servers"]}
        most = max(parts, key=lambda name: parts[name])
        return None if most == "servers" else "client" if most == "client" else "router"
    return None


@dataclass(slots=True)
class Counter:
    """A rising counter, sampled."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, now: float, value: float) -> None:
        """A sample."""
        self.times.append(now)
        self.values.append(value)

    def at(self, when: float) -> float:
        """The value at a time, on the line between the samples around it; outside of all, the nearest one."""
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


class Observer:
    """Samples CPU seconds of the clients, and of the routers and servers that run on this host."""

    def __init__(self, processes: Sequence[ProcessInfo]) -> None:
        self._pids: dict[str, int] = {}
        self._roles: dict[str, str] = {}
        for process in processes:
            pid = read_pid(process.pid_path)
            # The pid file may be another host's, or of a process long gone: its command line names its folder.
            command = read(f"/proc/{pid}/cmdline") if pid else None
            if pid and command and str(Path(process.pid_path).parent) in command:
                self._watch(process.name, pid, "router" if process.role == "mongos" else process.role)
                if process.role == "mongos":
                    for child in children(pid):
                        self._watch(f"{process.name}/router", child, "router")
        self.counters: dict[str, Counter] = {name: Counter() for name in self._pids}
        self._busy, self._all = Counter(), Counter()
        self.cores = 1

    def _watch(self, name: str, pid: int, role: str) -> None:
        self._pids[name], self._roles[name] = pid, role

    def watch_client(self, name: str, pid: int) -> None:
        """A client was started."""
        self._watch(name, pid, "client")
        self.counters[name] = Counter()

    def sample(self) -> None:
        """Read every counter once; a process that is gone keeps its last value."""
        now = time.time()
        times, self.cores = parse_cpu(read("/proc/stat") or "cpu 0 0 0 0 0 0 0 0\n")
        self._all.add(now, sum(times.values()))
        self._busy.add(now, sum(times.values()) - times["idle"] - times["iowait"])
        for name, pid in self._pids.items():
            text = read(f"/proc/{pid}/stat")
            if text is not None:
                self.counters[name].add(now, parse_process(text)["ticks"] / TICKS)

    def gone(self) -> list[str]:
        """Processes of the point that were there at the beginning and are no more."""
        return [
            name
            for name, pid in self._pids.items()
            if self._roles[name] != "client" and _has_ended(read(f"/proc/{pid}/stat"))
        ]

    def between(self, started: float, ended: float) -> dict[str, Any]:
        """Mean CPU in an interval, in cores, as limited_by takes it; `client` by name in `clients`."""
        used = {name: counter.rate(started, ended) for name, counter in self.counters.items()}

        def of(role: str) -> dict[str, float]:
            return {name: round(used[name], 4) for name in used if self._roles[name] == role}

        every = self._all.rate(started, ended)
        servers = {n: round(used[n], 4) for n in used if self._roles[n] in {"standalone", "member", "shard"}}
        return {
            "client": round(sum(of("client").values()), 4),
            "routers": of("router"),
            "servers": round(sum(servers.values()), 4),
            "by_server": servers,
            "cores": self.cores,
            "busy": round(self._busy.rate(started, ended) / every, 4) if every else 0.0,
        }


def _has_ended(stat: str | None) -> bool:
    """Whether /proc/PID/stat is not there, or is a zombie's."""
    return stat is None or stat.rpartition(")")[2].split()[:1] == ["Z"]
