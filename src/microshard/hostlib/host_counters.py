"""Counters and settings of a host and its processes, as /proc and /sys have them.

Sent to hosts beside host_telemetry.py, so it imports nothing of its package.
"""

from __future__ import annotations

import array
import fcntl
import os
import re
import socket
import struct
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECTOR = 512  # bytes; /proc/diskstats counts these whatever the device's own sector is
LIMITS = {"rbps": "r_bytes", "wbps": "w_bytes", "riops": "r_ios", "wiops": "w_ios"}  # keys of io.max
NO_DISK = re.compile(r"ram\d+|zram\d+|sr\d+|fd\d+")


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


# ioctl SIOCETHTOOL with these commands names a driver's own counters and reads them (linux/ethtool.h).
_SIOCETHTOOL, _COUNT, _NAMES, _VALUES, _COUNTERS = 0x8946, 0x37, 0x1B, 0x1D, 1
ALLOWANCE = "_allowance_exceeded"  # what Amazon's ENA calls the packets it queued or dropped beyond an allowance

# The log page of an EBS volume on Nitro (AWS, "Amazon EBS detailed performance statistics"; nvme-cli, amzn-nvme.c).
_NVME_ADMIN, _GET_LOG_PAGE, _EBS_PAGE, _EBS_MAGIC, _EBS_PAGE_BYTES = 0xC0484E41, 0x02, 0xD0, 0x3C23B510, 4096
EBS_EXCEEDED = ("volume_iops", "volume_throughput", "instance_iops", "instance_throughput")


def driver_counters(interface: str) -> dict[str, int]:
    """The counters of an interface's driver, as `ethtool -S` prints them; none where it has none."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

            def ask(buffer: array.array[int]) -> bytes:
                request = struct.pack("16sP", interface.encode()[:15], buffer.buffer_info()[0])
                fcntl.ioctl(control, _SIOCETHTOOL, request)
                return buffer.tobytes()

            reply = ask(array.array("B", struct.pack("=IIQI", _COUNT, 0, 1 << _COUNTERS, 0)))
            count = struct.unpack_from("=QI", reply, 8)[1] if struct.unpack_from("=Q", reply, 8)[0] else 0
            if not count:
                return {}
            names = ask(array.array("B", struct.pack("=III", _NAMES, _COUNTERS, count) + bytes(32 * count)))
            values = ask(array.array("B", struct.pack("=II", _VALUES, count) + bytes(8 * count)))
    except OSError:
        return {}
    found = [names[12 + 32 * n : 44 + 32 * n].split(b"\0")[0].decode("ascii", "replace") for n in range(count)]
    return dict(zip(found, struct.unpack_from(f"={count}Q", values, 8)))


def parse_ebs_page(page: bytes) -> list[int]:
    """µs in which demand was above the IOPS or throughput of a volume, and of its instance: EBS_EXCEEDED.

    Empty where the page is no EBS volume's.
    """
    if struct.unpack_from("<I", page)[0] != _EBS_MAGIC:
        return []
    return list(struct.unpack_from("<4Q", page, 56))


def ebs_exceeded(device: str) -> list[int]:
    """`parse_ebs_page` of a block device; empty where it is no EBS volume on NVMe, or this user may not ask."""
    if "Elastic Block Store" not in (read(f"/sys/block/{device}/device/model") or ""):
        return []
    page = array.array("B", bytes(_EBS_PAGE_BYTES))
    words = (_EBS_PAGE_BYTES // 4 - 1) << 16 | _EBS_PAGE
    command = struct.pack("=BBHIQQQIIIIIIIIII", _GET_LOG_PAGE, 0, 0, 1, 0, 0, page.buffer_info()[0], 0, _EBS_PAGE_BYTES,
                          words, 0, 0, 0, 0, 0, 0, 0)  # fmt: skip
    try:
        descriptor = os.open(f"/dev/{device}", os.O_RDONLY)
    except OSError:
        return []
    try:
        fcntl.ioctl(descriptor, _NVME_ADMIN, command)
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return parse_ebs_page(page.tobytes())


def instance_type() -> str | None:
    """The EC2 instance type this host is, as Nitro's firmware says; None elsewhere."""
    where = "/sys/devices/virtual/dmi/id"
    if (read(f"{where}/sys_vendor") or "").strip() != "Amazon EC2":
        return None
    return (read(f"{where}/product_name") or "").strip() or None


def parse_network(text: str) -> dict[str, list[int]]:
    """/proc/net/dev: per interface bytes received and sent, and packets either way, since boot."""
    found = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        fields = rest.split()
        found[name.strip()] = [int(fields[0]), int(fields[8]), int(fields[1]) + int(fields[9])]
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
    found = {}
    for line in text.splitlines():
        device, *rest = line.split()
        pairs = (part.split("=") for part in rest)
        found[device] = {LIMITS[key]: int(value) for key, value in pairs if key in LIMITS and value != "max"}
    return found


def parse_stat(text: str) -> dict[str, Any]:
    """/proc/PID/stat: state, parent, session, CPU ticks (of all threads), start time, resident bytes, major faults."""
    # The name in parentheses may hold spaces and parentheses itself: fields count from the last one.
    fields = text.rpartition(")")[2].split()
    return {
        "state": fields[0],
        "parent": int(fields[1]),
        "session": int(fields[3]),
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


def read(path: str, errors: str = "replace") -> str | None:
    """The text of a file, None when it is gone or may not be read."""
    try:
        with open(path, encoding="utf-8", errors=errors) as file:
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
            mark = "" if name else "cgroup.controllers"  # beside version 1 the first is no group
            root = next((r for r in roots if os.path.exists(os.path.join(r, mark))), None)
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


def memory_limit(groups: dict[str, str]) -> int | None:
    """Bytes a control group may use; None: no limit."""
    name = "memory.limit_in_bytes" if "memory" in groups else "memory.max"
    found = (read(f"{groups.get('memory', groups.get(''))}/{name}") or "max").strip()
    # Version 1 says the largest number of whole pages.
    return int(found) if found != "max" and int(found) < 1 << 60 else None


def memory_kills(groups: dict[str, str]) -> int:
    """How many processes of a control group the kernel has killed because it needed more memory than its limit."""
    name = "memory.oom_control" if "memory" in groups else "memory.events"
    return parse_words(read(f"{groups.get('memory', groups.get(''))}/{name}") or "", "oom_kill")[0]


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
    instance = instance_type()
    return {
        **({"instance_type": instance} if instance else {}),
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
