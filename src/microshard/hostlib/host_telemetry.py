#!/usr/bin/env python3
"""Samples /proc once an interval and writes a JSON line: CPU, memory, disks, network, and each process of a file.

`python3 host.py --out FILE [--interval 1] [--host NAME] [--processes FILE] [--client-pid-file FILE]`

Needs nothing but Python's standard library (3.9 or newer) and Linux, and is one file because it is sent to hosts.
FILE of --processes is a JSON list of {"name", "pid_path", "db_path"}; it and the pid files are read again when they
change, so processes may come later. Children of a process without db_path (a router in front of its own mongod) are
reported as NAME/router. The process in --client-pid-file is reported as "client", with all its descendants added. The
first record says what the host is ("environment"), every fifth how large the dbPaths are, on which devices, and how
fast those may be. Ends on SIGTERM; every line is whole. What a kernel does not report is left out of the records.
Measured with 20 processes: 0.4 % of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECTOR = 512  # bytes; /proc/diskstats counts these whatever the device's own sector is
DB_PATH_EVERY = 5  # records: walking a dbPath costs a stat a file
LIMITS_EVERY = 15  # records: affinity and control groups of a process seldom change
LEAST = 0.1  # s: over less, ticks of 10 ms say little of how busy a core was
ACTIVE = 0.05  # cores: an interpreter that uses less does not count as one that could use a whole core
NO_DISK = re.compile(r"ram\d+|zram\d+|sr\d+|fd\d+")

Identity = tuple[int, int]  # pid and start time: a pid alone may be another process a moment later


# --- parsers: text of a /proc file in, numbers out -------------------------------------------------------------------


def parse_cpu(text: str) -> tuple[dict[str, int], int]:
    """/proc/stat: ticks of all cores by kind since boot, and the number of cores."""
    lines = text.splitlines()
    user, nice, system, idle, iowait, irq, softirq, steal = (int(field) for field in lines[0].split()[1:9])
    cores = sum(1 for line in lines if re.match(r"cpu\d", line))
    times = {"user": user + nice, "sys": system + irq + softirq, "iowait": iowait, "idle": idle, "steal": steal}
    return times, cores


def parse_memory(text: str) -> dict[str, int]:
    """/proc/meminfo: bytes in all and bytes available."""
    found = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {
        name: int(found[key].split()[0]) * 1024 for name, key in (("total", "MemTotal"), ("available", "MemAvailable"))
    }


def parse_disks(text: str) -> dict[str, list[int]]:
    """/proc/diskstats: per device reads, bytes read, writes, bytes written, ms busy, ms of waiting requests.

    Devices that never did anything are left out; partitions are in (the caller knows which are).
    """
    found = {}
    for line in text.splitlines():
        fields = line.split()
        reads, read_sectors, writes, write_sectors, busy, waited = (int(fields[n]) for n in (3, 5, 7, 9, 12, 13))
        if (reads or writes) and not NO_DISK.fullmatch(fields[2]):
            found[fields[2]] = [reads, read_sectors * SECTOR, writes, write_sectors * SECTOR, busy, waited]
    return found


def parse_network(text: str) -> dict[str, list[int]]:
    """/proc/net/dev: per interface bytes received and sent since boot."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        found[name.strip()] = [int(fields[0]), int(fields[8])]
    return found


def parse_words(text: str, *names: str) -> list[int]:
    """`name value` lines (/proc/vmstat, cpu.stat): the values of these names, 0 for one that is missing."""
    found = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
    return [int(found.get(name, 0)) for name in names]


def parse_tcp(text: str) -> list[int]:
    """/proc/net/snmp: TCP segments sent and sent again since boot."""
    rows = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(rows) < 2:
        return [0, 0]
    found = dict(zip(rows[0], rows[1]))
    return [int(found["OutSegs"]), int(found["RetransSegs"])]


def parse_pressure(text: str) -> int:
    """/proc/pressure/…: µs since boot in which at least one task waited for the resource."""
    return int(text.splitlines()[0].rpartition("total=")[2])


def parse_limits(text: str) -> dict[str, dict[str, int]]:
    """A control group's io.max: limits per device "major:minor", operations or bytes a second."""
    names = {"rbps": "r_bytes", "wbps": "w_bytes", "riops": "r_ios", "wiops": "w_ios"}
    found = {}
    for line in text.splitlines():
        device, *rest = line.split()
        pairs = (part.split("=") for part in rest)
        found[device] = {names[key]: int(value) for key, value in pairs if key in names and value != "max"}
    return found


def parse_process(text: str) -> dict[str, int]:
    """/proc/PID/stat: parent, CPU ticks (user and system of all its threads), start time, resident bytes, faults."""
    # The name in parentheses may hold spaces and parentheses itself: fields count from the last one.
    fields = text.rpartition(")")[2].split()
    return {
        "parent": int(fields[1]),
        "ticks": int(fields[11]) + int(fields[12]),
        "started": int(fields[19]),
        "rss": int(fields[21]) * PAGE,
        "faults": int(fields[9]),
    }


def parse_io(text: str) -> list[int]:
    """/proc/PID/io: bytes read from and written to storage."""
    found = dict(line.split(": ") for line in text.splitlines() if ": " in line)
    return [int(found["read_bytes"]), int(found["write_bytes"])]


def grown(now: list[int], before: list[int]) -> list[int]:
    """How much each counter grew; one that was reset did not."""
    return [max(new - old, 0) for new, old in zip(now, before)]


# --- reading ----------------------------------------------------------------------------------------------------------


def read(path: str) -> str | None:
    """The text of a file, None when it is gone or not for us."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def read_pid(path: str) -> int | None:
    """The pid in a pid file, None when there is none yet."""
    try:
        return int(read(path) or "")
    except ValueError:
        return None


def children(pid: int) -> list[int]:
    """The children of a process, started by any of its threads."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        found += [int(child) for child in (read(f"/proc/{pid}/task/{thread}/children") or "").split()]
    return found


def allocated_bytes(folder: str) -> int:
    """Allocated bytes of all files below a folder; what vanishes meanwhile is skipped."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        total += allocated_bytes(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                except OSError:
                    continue
    except OSError:
        return total
    return total


def device_of(path: str) -> tuple[str, str] | None:
    """The whole block device a path is on: its name and "major:minor"; None where there is none (overlay, tmpfs)."""
    try:
        number = os.stat(path).st_dev
        place = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    except OSError:
        return None
    if os.path.exists(f"{place}/partition"):
        place = os.path.dirname(place)
    numbers = read(f"{place}/dev")
    return (os.path.basename(place), numbers.strip()) if numbers else None


def control_groups(pid: int) -> dict[str, str]:
    """The folders of a process's control groups by controller; "" is the unified hierarchy."""
    found = {}
    for line in (read(f"/proc/{pid}/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            roots = (f"/sys/fs/cgroup/{name}",) if name else ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
            root = next((r for r in roots if os.path.isdir(r)), None)
            if root is not None:
                found[name] = f"{root}{path}".rstrip("/")
    return found


def cpu_quota(groups: dict[str, str]) -> tuple[float | None, str]:
    """Cores a control group may use (None: no quota) and the file that counts how long it was held back."""
    if "cpu" in groups:
        folder = groups["cpu"]
        quota, period = read(f"{folder}/cpu.cfs_quota_us"), read(f"{folder}/cpu.cfs_period_us")
    else:
        folder = groups.get("", "")
        quota, _, period = (read(f"{folder}/cpu.max") or "max 1").partition(" ")
    try:
        cores = int(quota or "") / int(period or "")
    except (ValueError, ZeroDivisionError):
        return None, ""
    return (cores, f"{folder}/cpu.stat") if cores > 0 else (None, "")


def device_limits(groups: dict[str, str]) -> dict[str, dict[str, int]]:
    """What a control group allows a process per device "major:minor", operations or bytes a second."""
    if "blkio" not in groups:
        return parse_limits(read(f"{groups.get('', '')}/io.max") or "")
    found: dict[str, dict[str, int]] = {}
    for key, file in (
        ("r_ios", "read_iops"),
        ("w_ios", "write_iops"),
        ("r_bytes", "read_bps"),
        ("w_bytes", "write_bps"),
    ):
        for line in (read(f"{groups['blkio']}/blkio.throttle.{file}_device") or "").splitlines():
            device, value = line.split()
            if int(value) > 0:
                found.setdefault(device, {})[key] = int(value)
    return found


def environment(paths: list[str]) -> dict[str, Any]:
    """What must be alike wherever figures are compared: kernel, settings, readahead of the devices of `paths`."""
    pages = "/sys/kernel/mm/transparent_hugepage"

    def chosen(path: str) -> str | None:
        found = re.search(r"\[(\w+)\]", read(path) or "")
        return found.group(1) if found else None

    governors = set()
    for core in os.sched_getaffinity(0):
        governors.add((read(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor") or "none").strip())
    models = re.findall(r"^model name\s*:\s*(.+)$", read("/proc/cpuinfo") or "", re.MULTILINE)
    devices = sorted({device[0] for path in paths if (device := device_of(path))})
    return {
        "kernel": os.uname().release,
        "cpu": models[0] if models else os.uname().machine,
        "cores": os.cpu_count(),
        "transparent_huge_pages": chosen(f"{pages}/enabled"),
        "transparent_huge_pages_defrag": chosen(f"{pages}/defrag"),
        "governor": " ".join(sorted(governors)),
        "swappiness": (read("/proc/sys/vm/swappiness") or "").strip(),
        "zone_reclaim_mode": (read("/proc/sys/vm/zone_reclaim_mode") or "").strip(),
        "clock": (read("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "").strip(),
        "readahead_kib": {name: (read(f"/sys/block/{name}/queue/read_ahead_kb") or "").strip() for name in devices},
    }


class Allowance:
    """How many cores a process may use, and how long its control group held it back; read now and then."""

    def __init__(self, pid: int) -> None:
        try:
            self.affinity = float(len(os.sched_getaffinity(pid)))
            interpreter = os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python")
        except OSError:
            self.affinity, interpreter = float(os.cpu_count() or 1), False
        self.groups = control_groups(pid)
        self.quota, self.statistics = cpu_quota(self.groups)
        # One thread at a time executes Python: such a process never uses more than a core.
        self.cores = 1.0 if interpreter else self.affinity
        self.age = 0

    def held_back(self) -> int:
        """ns for which threads of the control group were kept from running so far; 0 without a quota."""
        if not self.statistics:
            return 0
        nanoseconds, microseconds = parse_words(read(self.statistics) or "", "throttled_time", "throttled_usec")
        return nanoseconds or microseconds * 1000


class Listing:
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
                found = json.loads(read(self._path) or "")
                self._entries = [entry for entry in found if entry["name"] and entry["pid_path"]]
                self._version = version
            except (ValueError, KeyError, TypeError):
                pass
        return self._entries


class Sampler:
    """Keeps the counters of the last sample and turns them into rates."""

    def __init__(self, host: str, listing: Listing, client_pid_file: str | None) -> None:
        self.host = host
        self._listing = listing
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
        self._allowances: dict[Identity, Allowance] = {}
        self._speeds: dict[str, int | None] = {}
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
        uptime = float((read("/proc/uptime") or "0").split()[0])
        born_after, self._boot_ticks = self._boot_ticks, int(uptime * TICKS)

        times, cores = parse_cpu(read("/proc/stat") or "")
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
            "mem": parse_memory(read("/proc/meminfo") or ""),
            "disk": self._disk_rates(seconds),
            "net": self._network_rates(seconds),
            "proc": self._process_rates(seconds, born_after),
            **self._pressures(seconds),
        }
        self._processes = self._seen
        self._allowances = {who: self._allowances[who] for who in self._seen if who in self._allowances}
        paths = {e["name"]: e["db_path"] for e in self._listing.entries() if e.get("db_path")}
        if self._records == 0:
            record["environment"] = environment(list(paths.values()))
        if self._records % DB_PATH_EVERY == 0:
            record["db_path_bytes"] = {name: allocated_bytes(path) for name, path in paths.items()}
            record["devices"] = self._devices(paths)
        self._records += 1
        return record

    def _growth(self, name: str, now: list[int], seconds: float) -> list[float]:
        """What counters grew by a second; 0 at first."""
        before, self._counters[name] = self._counters.get(name, now), now
        return [count / seconds for count in grown(now, before)]

    def _pressures(self, seconds: float) -> dict[str, Any]:
        """Shares of time in which tasks waited for CPU, disk and memory; swapping (bytes/s); TCP segments a second."""
        found: dict[str, Any] = {}
        stalls = {}
        for kind in ("cpu", "io", "memory"):
            text = read(f"/proc/pressure/{kind}")
            if text:
                (rate,) = self._growth(f"pressure/{kind}", [parse_pressure(text)], seconds)
                stalls[kind] = round(min(rate / 1e6, 1.0), 4)
        if stalls:
            found["stall"] = stalls
        words = parse_words(read("/proc/vmstat") or "", "pgmajfault", "pswpin", "pswpout")
        faults, swap_in, swap_out = self._growth("vmstat", words, seconds)
        found["vm"] = {
            "faults": round(faults, 2),
            "swap_in": round(swap_in * PAGE, 1),
            "swap_out": round(swap_out * PAGE, 1),
        }
        sent, again = self._growth("tcp", parse_tcp(read("/proc/net/snmp") or ""), seconds)
        found["tcp"] = {"out": round(sent, 1), "again": round(again, 2)}
        return found

    def _devices(self, paths: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Per process the devices of its data and, where that is another, its journal, with what it may do there."""
        found: dict[str, dict[str, Any]] = {}
        pids = {entry["name"]: read_pid(entry["pid_path"]) for entry in self._listing.entries()}
        for name, path in paths.items():
            pid = pids.get(name)
            limits = device_limits(control_groups(pid)) if pid else {}
            for kind, place in (("data", path), ("journal", f"{path}/journal")):
                device = device_of(place)
                if device is not None and device[0] not in [known["device"] for known in found.get(name, {}).values()]:
                    allowed = {"limits": limits[device[1]]} if limits.get(device[1]) else {}
                    found.setdefault(name, {})[kind] = {"device": device[0], **allowed}
        return found

    def _disk_rates(self, seconds: float) -> dict[str, dict[str, float]]:
        counters = parse_disks(read("/proc/diskstats") or "")
        found = {}
        for name, now in counters.items():
            before = self._disks.get(name, now)
            reads, read_bytes, writes, write_bytes, busy, waited = grown(now, before)
            if os.path.isdir(f"/sys/block/{name}"):
                found[name] = {
                    "r_ios": round(reads / seconds, 2),
                    "w_ios": round(writes / seconds, 2),
                    "r_bytes": round(read_bytes / seconds, 1),
                    "w_bytes": round(write_bytes / seconds, 1),
                    "util": round(min(busy / 1000 / seconds, 1.0), 4),
                    "queue": round(waited / 1000 / seconds, 3),
                }
        self._disks = counters
        return found

    def _network_rates(self, seconds: float) -> dict[str, dict[str, float]]:
        counters = parse_network(read("/proc/net/dev") or "")
        found = {}
        for name, now in counters.items():
            received, sent = grown(now, self._network.get(name, now))
            found[name] = {"rx_bytes": round(received / seconds, 1), "tx_bytes": round(sent / seconds, 1)}
            speed = self._speed(name)
            if speed:
                found[name]["speed"] = speed
        self._network = counters
        return found

    def _speed(self, interface: str) -> int | None:
        """Bytes a second an interface can send as its driver says; None where it does not know."""
        if interface not in self._speeds:
            try:
                megabits = int(read(f"/sys/class/net/{interface}/speed") or "")
            except ValueError:
                megabits = 0
            self._speeds[interface] = megabits * 125_000 if megabits > 0 else None
        return self._speeds[interface]

    def _process_rates(self, seconds: float, born_after: int) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for entry in self._listing.entries():
            pid = read_pid(entry["pid_path"])
            below = children(pid) if pid and not entry.get("db_path") else []
            for name, pids in ((entry["name"], [pid] if pid else []), (f"{entry['name']}/router", below)):
                usage = self._usage(name, pids, seconds, born_after)
                if usage is not None:
                    found[name] = usage
        client = read_pid(self._client_pid_file) if self._client_pid_file else None
        if client:
            family = [client]
            for pid in family:  # grows while it is walked: descendants of descendants
                family += children(pid)
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
        quotas: dict[str, tuple[float, int]] = {}
        for pid in pids:
            text = read(f"/proc/{pid}/stat")
            if not text:
                continue
            status = parse_process(text)
            io = parse_io(read(f"/proc/{pid}/io") or "read_bytes: 0\nwrite_bytes: 0")
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
            allowance = self._allowance(identity)
            affinity = max(affinity, allowance.affinity)
            single = max(single, allowance.cores)
            if spent / TICKS / seconds >= ACTIVE:
                usable += allowance.cores
            if allowance.quota is not None:
                quotas[allowance.statistics] = (allowance.quota, allowance.held_back())
        if first is None:
            return None
        limit = min([usable or single, affinity, *([sum(quota for quota, _ in quotas.values())] if quotas else [])])
        usage = {
            "pid": first,
            "cpu": round(ticks / TICKS / seconds, 4),
            "limit": round(limit, 3),
            "rss": rss,
            "r_bytes": round(read_bytes / seconds, 1),
            "w_bytes": round(write_bytes / seconds, 1),
            "faults": round(faults / seconds, 2),
        }
        if quotas:
            (held,) = self._growth(f"held/{name}", [sum(count for _, count in quotas.values())], seconds)
            usage["held"] = round(held / 1e9, 4)
        return usage

    def _allowance(self, identity: Identity) -> Allowance:
        known = self._allowances.get(identity)
        if known is None or known.age >= LIMITS_EVERY:
            known = self._allowances[identity] = Allowance(identity[0])
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
        run(Sampler(given.host, Listing(given.processes), given.client_pid_file), out, given.interval, ends)
    except OSError as error:
        print(f"host.py: {given.out}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
