"""Samples /proc at an interval and writes a JSON line each: CPU, memory, disks, network, and the processes of a file.

`python3 host_telemetry.py --out FILE [--interval 1] [--host NAME] [--processes FILE] [--client-pid-file FILE]`

Needs host_counters.py in the same folder, Python 3.9 and Linux: both files are sent to hosts.
FILE of --processes is a JSON list of {"name", "pid_path", "db_path"}; it and the pid files are read again when they
change, so processes may be added later. Children of a process without db_path (a mongos in front of its router mongod)
are reported as NAME/router. The process in --client-pid-file is reported as "client" together with its descendants. The
first record, and one after other data folders are there, describes the host ("environment"), every fifth the size of
each dbPath, its devices and their limits. Ends on SIGTERM; every line is complete. What a kernel does not report is
left out.
Measured with 20 processes: 0.4 % of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from typing import Any

if __package__:
    from . import host_counters as kernel
else:  # on a host the two files are executed without the package
    import host_counters as kernel  # type: ignore[import-not-found,no-redef]

DB_PATH_EVERY = 5  # records: walking a dbPath costs a stat a file
LIMITS_EVERY = 15  # records: affinity and control groups of a process seldom change
LEAST = 0.1  # s: over less, ticks of 10 ms say little of how busy a core was
ACTIVE = 0.05  # cores: an interpreter that uses less does not count as one that could use a whole core

Identity = tuple[int, int]  # pid and start time: a pid alone may be another process a moment later


class CpuLimit:
    """How many cores a process may use, and how long its control group throttled it."""

    def __init__(self, pid: int) -> None:
        try:
            self.affinity = float(len(os.sched_getaffinity(pid)))
            interpreter = os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
        except OSError:
            self.affinity, interpreter = float(os.cpu_count() or 1), False
        self.groups = kernel.control_groups(pid)
        self.quota, self.statistics = kernel.cpu_quota(self.groups)
        self.memory = kernel.memory_limit(self.groups)
        # One thread at a time executes Python: such a process never uses more than a core.
        self.cores = 1.0 if interpreter else self.affinity
        self.age = 0

    def throttled(self) -> list[int]:
        """ns for which threads of the control group were kept from running so far; periods in which some were; periods
        in which it ran at all. 0 without a quota."""
        text = kernel.read(self.statistics) or "" if self.statistics else ""
        names = ("throttled_time", "throttled_usec", "nr_throttled", "nr_periods")
        nanoseconds, microseconds, throttled, periods = kernel.parse_words(text, *names)
        return [nanoseconds or microseconds * 1000, throttled, periods]


class ProcessList:
    """The list of processes in a file, read again when the file changes."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._version: tuple[int, int] | None = None
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> list[dict[str, Any]]:
        """The processes named now; a file that is half written leaves those of before."""
        if self._path is None:
            return []
        try:
            status = os.stat(self._path)
        except OSError:
            return self._entries
        version = (status.st_mtime_ns, status.st_size)
        if version != self._version:
            try:
                found = json.loads(kernel.read(self._path) or "")
                self._entries = [entry for entry in found if entry["name"] and entry["pid_path"]]
                self._version = version
            except (ValueError, KeyError, TypeError):
                pass
        return self._entries


class Sampler:
    """Keeps the counters of the last sample and turns them into rates."""

    def __init__(self, host: str, process_list: ProcessList, client_pid_file: str | None) -> None:
        self.host = host
        self._list = process_list
        self._client_pid_file = client_pid_file
        self._records = 0
        self._time = time.monotonic()
        self._boot_ticks = 0
        self._cpu: dict[str, int] = {}
        self._disks: dict[str, list[int]] = {}
        self._network: dict[str, list[int]] = {}
        self._processes: dict[Identity, list[int]] = {}
        self._seen: dict[Identity, list[int]] = {}
        self._counters: dict[str, list[int]] = {}  # of whole files, by name
        self._limits: dict[Identity, CpuLimit] = {}
        self._speeds: dict[str, int | None] = {}
        self._has_allowance: dict[str, bool] = {}
        self._described: list[str] = []  # the data folders the environment was written for
        self.record()  # the baseline
        self._records = 0

    @property
    def seconds(self) -> float:
        """How long ago the last record was."""
        return time.monotonic() - self._time

    def record(self) -> dict[str, Any]:
        """The record of the time since the last one."""
        now = time.monotonic()
        seconds = max(now - self._time, 1e-6)
        self._time = now
        # Start times in /proc/PID/stat are ticks since boot: what was born since the last record has no counters yet.
        uptime = float((kernel.read("/proc/uptime") or "0").split()[0])
        born_after, self._boot_ticks = self._boot_ticks, int(uptime * kernel.TICKS)

        times, cores = kernel.parse_cpu(kernel.read("/proc/stat") or "")
        spent = {kind: max(times[kind] - self._cpu.get(kind, 0), 0) for kind in times}
        whole = sum(spent.values()) or 1
        self._cpu = times
        self._seen = {}
        record: dict[str, Any] = {
            "t": time.time(),
            "host": self.host,
            "seconds": round(seconds, 4),
            "cpu": {kind: round(ticks / whole, 5) for kind, ticks in spent.items()},
            "cores": cores,
            "mem": kernel.parse_memory(kernel.read("/proc/meminfo") or ""),
            "disk": self._disk_rates(seconds),
            "net": self._network_rates(seconds),
            "proc": self._process_rates(seconds, born_after),
            **self._pressures(seconds),
        }
        self._processes = self._seen
        self._limits = {who: self._limits[who] for who in self._seen if who in self._limits}
        paths = {e["name"]: e["db_path"] for e in self._list.entries() if e.get("db_path")}
        # Again once the data folders are there: a first record may be older than the list of processes, or than them.
        there = [path for path in paths.values() if os.path.isdir(path)]
        if self._records == 0 or (there and there != self._described):
            record["environment"], self._described = kernel.environment(there), there
        if self._records % DB_PATH_EVERY == 0:
            record["db_path_bytes"] = {name: kernel.allocated_bytes(path) for name, path in paths.items()}
            record["devices"] = self._devices(paths)
        self._records += 1
        return record

    def _growth(self, name: str, now: list[int], seconds: float) -> list[float]:
        """What counters grew by a second; 0 at first."""
        before, self._counters[name] = self._counters.get(name, now), now
        return [count / seconds for count in kernel.grown(now, before)]

    def _pressures(self, seconds: float) -> dict[str, Any]:
        """Shares of time in which tasks waited for CPU, disk and memory; swapping (bytes/s); TCP segments a second."""
        found: dict[str, Any] = {}
        stalls = {}
        for kind in ("cpu", "io", "memory"):
            text = kernel.read(f"/proc/pressure/{kind}")
            if text:
                (rate,) = self._growth(f"pressure/{kind}", [kernel.parse_pressure(text)], seconds)
                stalls[kind] = round(min(rate / 1e6, 1.0), 4)
        if stalls:
            found["stall"] = stalls
        words = kernel.parse_words(kernel.read("/proc/vmstat") or "", "pgmajfault", "pswpin", "pswpout")
        faults, swap_in, swap_out = self._growth("vmstat", words, seconds)
        found["vm"] = {
            "faults": round(faults, 2),
            "swap_in": round(swap_in * kernel.PAGE, 1),
            "swap_out": round(swap_out * kernel.PAGE, 1),
        }
        sent, again = self._growth("tcp", kernel.parse_tcp(kernel.read("/proc/net/snmp") or ""), seconds)
        found["tcp"] = {"out": round(sent, 1), "again": round(again, 2)}
        return found

    def _devices(self, paths: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Per process the devices of its data and, where that is another, its journal, with what it may do there."""
        found: dict[str, dict[str, Any]] = {}
        pids = {entry["name"]: kernel.read_pid(entry["pid_path"]) for entry in self._list.entries()}
        for name, path in paths.items():
            pid = pids.get(name)
            limits = kernel.device_limits(kernel.control_groups(pid)) if pid else {}
            for kind, place in (("data", path), ("journal", f"{path}/journal")):
                device = kernel.device_of(place)
                if device is not None and device[0] not in [known["device"] for known in found.get(name, {}).values()]:
                    allowed = {"limits": limits[device[1]]} if limits.get(device[1]) else {}
                    found.setdefault(name, {})[kind] = {"device": device[0], **allowed}
        return found

    def _disk_rates(self, seconds: float) -> dict[str, dict[str, float]]:
        counters = kernel.parse_disks(kernel.read("/proc/diskstats") or "")
        found = {}
        for name, now in counters.items():
            before = self._disks.get(name, now)
            reads, read_bytes, writes, write_bytes, busy, waited = kernel.grown(now, before)
            if os.path.isdir(f"/sys/block/{name}"):
                found[name] = {
                    "r_ios": round(reads / seconds, 2),
                    "w_ios": round(writes / seconds, 2),
                    "r_bytes": round(read_bytes / seconds, 1),
                    "w_bytes": round(write_bytes / seconds, 1),
                    "util": round(min(busy / 1000 / seconds, 1.0), 4),
                    "queue": round(waited / 1000 / seconds, 3),
                }
                if exceeded := kernel.ebs_exceeded(name):
                    grown = self._growth(f"ebs/{name}", exceeded, seconds)
                    found[name] |= {f"{k}_exceeded": round(us / 1e6, 4) for k, us in zip(kernel.EBS_EXCEEDED, grown)}
        self._disks = counters
        return found

    def _network_rates(self, seconds: float) -> dict[str, dict[str, float]]:
        counters = kernel.parse_network(kernel.read("/proc/net/dev") or "")
        found = {}
        for name, now in counters.items():
            received, sent, packets = (n / seconds for n in kernel.grown(now, self._network.get(name, now)))
            found[name] = {"rx_bytes": round(received, 1), "tx_bytes": round(sent, 1), "packets": round(packets, 1)}
            found[name] |= self._shaped(name, seconds)
            speed = self._speed(name)
            if speed:
                found[name]["speed"] = speed
        self._network = counters
        return found

    def _shaped(self, interface: str, seconds: float) -> dict[str, float]:
        """Packets a second that EC2 queued or dropped because the instance was beyond a network allowance."""
        if self._has_allowance.get(interface) is False:
            return {}
        counters = {n: v for n, v in kernel.driver_counters(interface).items() if n.endswith(kernel.ALLOWANCE)}
        self._has_allowance[interface] = bool(counters)
        rates = self._growth(f"allowance/{interface}", list(counters.values()), seconds)
        return {name.removesuffix(kernel.ALLOWANCE) + "_shaped": round(rate, 2) for name, rate in zip(counters, rates)}

    def _speed(self, interface: str) -> int | None:
        """Bytes a second an interface can send as its driver says; None where it does not know."""
        if interface not in self._speeds:
            try:
                megabits = int(kernel.read(f"/sys/class/net/{interface}/speed") or "")
            except ValueError:
                megabits = 0
            self._speeds[interface] = megabits * 125_000 if megabits > 0 else None
        return self._speeds[interface]

    def _process_rates(self, seconds: float, born_after: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for entry in self._list.entries():
            pid = kernel.read_pid(entry["pid_path"])
            below = kernel.children(pid) if pid and not entry.get("db_path") else []
            for name, pids in ((entry["name"], [pid] if pid else []), (f"{entry['name']}/router", below)):
                usage = self._usage(name, pids, seconds, born_after)
                if usage is not None:
                    found[name] = usage
        client = kernel.read_pid(self._client_pid_file) if self._client_pid_file else None
        if client:
            family = [client]
            for pid in family:  # grows while it is walked: descendants of descendants
                family += kernel.children(pid)
            usage = self._usage("client", family, seconds, born_after)
            if usage is not None:
                found["client"] = usage
        return found

    def _usage(self, name: str, pids: list[int], seconds: float, born_after: int) -> dict[str, Any] | None:
        """CPU (cores), resident bytes, I/O (bytes/s), major faults of these processes together; None if all are gone.

        `limit` is how many cores they could have used: their affinity, their quota, one for each busy interpreter.
        `held` is how many threads a quota kept from running, on average.
        """
        first: int | None = None
        ticks = rss = read_bytes = write_bytes = faults = 0
        usable = affinity = single = 0.0
        memory: int | None = None
        quotas: dict[str, tuple[float, list[int]]] = {}
        for pid in pids:
            text = kernel.read(f"/proc/{pid}/stat")
            if not text:
                continue
            status = kernel.parse_stat(text)
            io = kernel.parse_io(kernel.read(f"/proc/{pid}/io") or "read_bytes: 0\nwrite_bytes: 0")
            now = [status["ticks"], *io, status["faults"]]
            identity = (pid, status["started"])
            unknown = [0, 0, 0, 0] if status["started"] >= born_after else now
            before = self._processes.get(identity, unknown)
            self._seen[identity] = now
            first = first or pid
            spent = now[0] - before[0]
            ticks += spent
            read_bytes += now[1] - before[1]
            write_bytes += now[2] - before[2]
            faults += now[3] - before[3]
            rss += status["rss"]
            limits = self._cpu_limit(identity)
            affinity = max(affinity, limits.affinity)
            memory = limits.memory if limits.memory is not None else memory
            single = max(single, limits.cores)
            if spent / kernel.TICKS / seconds >= ACTIVE:
                usable += limits.cores
            if limits.quota is not None:
                quotas[limits.statistics] = (limits.quota, limits.throttled())
        if first is None:
            return None
        limit = min([usable or single, affinity, *([sum(quota for quota, _ in quotas.values())] if quotas else [])])
        usage = {
            "pid": first,
            "cpu": round(ticks / kernel.TICKS / seconds, 4),
            "limit": round(limit, 3),
            "rss": rss,
            "r_bytes": round(read_bytes / seconds, 1),
            "w_bytes": round(write_bytes / seconds, 1),
            "faults": round(faults / seconds, 2),
        }
        if memory is not None:
            usage["memory_limit"] = memory
        if quotas:
            counts = [sum(each) for each in zip(*(counts for _, counts in quotas.values()))]
            held, throttled, periods = self._growth(f"held/{name}", counts, seconds)
            usage["held"] = round(held / 1e9, 4)
            usage["throttled"] = round(throttled / periods, 4) if periods else 0.0
        return usage

    def _cpu_limit(self, identity: Identity) -> CpuLimit:
        known = self._limits.get(identity)
        if known is None or known.age >= LIMITS_EVERY:
            known = self._limits[identity] = CpuLimit(identity[0])
        known.age += 1
        return known


def run(sampler: Sampler, out: int, interval: float, ends: set[signal.Signals]) -> None:
    """Write records to the file descriptor, one at each multiple of the interval, until one of these signals comes.

    They must be blocked: they wait until a record is whole. What was left of the interval then becomes a record too, so
    that a measurement shorter than the interval is not missed.
    """
    due = time.monotonic() + interval
    while signal.sigtimedwait(ends, max(due - time.monotonic(), 0)) is None:
        os.write(out, json.dumps(sampler.record(), separators=(",", ":")).encode() + b"\n")
        late = time.monotonic() - due
        due += interval * (1 + int(max(late, 0) / interval))  # after a pause: no burst of records
    if sampler.seconds >= LEAST:
        os.write(out, json.dumps(sampler.record(), separators=(",", ":")).encode() + b"\n")


def main(arguments: list[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", required=True, help="JSON lines are appended here")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between records")
    parser.add_argument("--host", default=os.uname().nodename, help="name of this host in the records")
    parser.add_argument("--processes", help="JSON list of processes to watch")
    parser.add_argument("--client-pid-file", help="pid file of the load client on this host")
    given = parser.parse_args(arguments)
    if given.interval <= 0:
        parser.error("--interval must be above 0")

    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        out = os.open(given.out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        run(Sampler(given.host, ProcessList(given.processes), given.client_pid_file), out, given.interval, ends)
    except OSError as error:
        print(f"host_telemetry: {given.out}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
