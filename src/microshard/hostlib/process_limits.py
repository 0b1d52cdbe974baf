"""What single mongods may use: cores, memory and I/O, by control groups of their own (cgroup version 1 or 2).

Groups are made below those this process is in, so nothing leaves limits that hold already. Processes of systemd get the
same limits as properties of their unit instead. Either way they are read back from the groups of the running process.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Mapping

from . import host_counters as kernel
from .errors import HostError

PERIOD_MICROSECONDS = 100_000  # the kernel's and systemd's default
MIB = 1 << 20
_PREFIX = "microshard-"

# Limit → its key in io.max and in host_counters.device_limits, file of cgroup version 1, property of a unit, unit.
_IO = {
    "read_iops": ("riops", "r_ios", "read_iops", "IOReadIOPSMax", 1),
    "write_iops": ("wiops", "w_ios", "write_iops", "IOWriteIOPSMax", 1),
    "read_mibps": ("rbps", "r_bytes", "read_bps", "IOReadBandwidthMax", MIB),
    "write_mibps": ("wbps", "w_bytes", "write_bps", "IOWriteBandwidthMax", MIB),
}
_CONTROLLER = {"cpus": "cpu", "memory_mb": "memory", **dict.fromkeys(_IO, "blkio")}  # by their names of version 1

Limits = Mapping[str, float]  # by their keys in the experiment; those that are not set are absent


def groups_of(folder: str, limits: Limits, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The control groups, by controller, of the process with this folder, RUN/deployments/POINT/NAME. HostError."""
    known = kernel.control_groups(os.getpid()) if known is None else known
    parts = [part for part in folder.split("/") if part and part != "deployments"]
    groups = {}
    for key in limits:
        controller = _CONTROLLER[key]
        root = known.get(controller) or known.get("")
        if root is None:
            raise HostError(f"limits.{key}: the kernel has no controller for it, neither cgroup v1 nor v2")
        groups[controller] = os.path.join(root, f"{_PREFIX}{'-'.join(parts[-3:])}")
    return groups


def is_unified(group: str) -> bool:
    """Whether this is a group of cgroup version 2, of which a process is in one alone."""
    return os.path.exists(os.path.join(group, "cgroup.controllers"))


def device_of(path: str) -> str:
    """The whole disk, MAJOR:MINOR, on which a folder lies. HostError where it lies on none."""
    number = os.stat(path).st_dev
    entry = os.path.realpath(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if os.path.exists(os.path.join(entry, "partition")):
        entry = os.path.dirname(entry)
    found = kernel.read(os.path.join(entry, "dev"))
    if found is None:
        raise HostError(f"limits: {path} lies on no block device whose I/O the kernel could limit")
    return found.strip()


def create(folder: str, limits: Limits, data: str = "", known: Mapping[str, str] | None = None) -> list[str]:
    """Make the groups of a process with its limits, and read them back; `data`: its dbPath, for limits of I/O.

    `known`: the groups below which they are made, by default those of this process. Raises HostError with the reason
    where that is not possible.
    """
    known = kernel.control_groups(os.getpid()) if known is None else known
    groups = groups_of(folder, limits, known)
    for key, value in limits.items():
        group = groups[_CONTROLLER[key]]
        version1 = _CONTROLLER[key] in known
        if version1 and key.startswith("write_"):
            raise HostError(
                f"limits.{key}: cgroup version 1 leaves out what the kernel writes back for a process; use version 2"
            )
        try:
            if not version1:
                controller = {"blkio": "io"}.get(_CONTROLLER[key], _CONTROLLER[key])
                _write(os.path.dirname(group), "cgroup.subtree_control", f"+{controller}")
            os.makedirs(group, exist_ok=True)
            for name, text in _settings(key, value, data, version1=version1):
                if name != "memory.swap.max" or os.path.exists(os.path.join(group, name)):  # not without swap space
                    _write(group, name, text)
        except OSError as error:
            raise HostError(f"limits.{key}: {error.filename or group} cannot be written: {error.strerror}") from None
    made = {controller if controller in known else "": group for controller, group in groups.items()}
    if wrong := _difference(limits, made, data):
        raise HostError(f"limits: a process {wrong}")
    return list(dict.fromkeys(groups.values()))


def _settings(key: str, value: float, data: str, *, version1: bool) -> list[tuple[str, str]]:
    """The files of a group and what is written to them."""
    if key == "cpus":
        quota = str(round(value * PERIOD_MICROSECONDS))
        if version1:
            return [("cpu.cfs_period_us", str(PERIOD_MICROSECONDS)), ("cpu.cfs_quota_us", quota)]
        return [("cpu.max", f"{quota} {PERIOD_MICROSECONDS}")]
    if key == "memory_mb":
        # Without the second one, what exceeds the memory would go to the swap space.
        size = str(round(value * MIB))
        if version1:
            return [("memory.limit_in_bytes", size)]
        return [("memory.max", size), ("memory.swap.max", "0")]
    name, _, file, _, unit = _IO[key]
    number = round(value * unit)
    if version1:
        return [(f"blkio.throttle.{file}_device", f"{device_of(data)} {number}")]
    return [("io.max", f"{device_of(data)} {name}={number}")]


def _write(group: str, name: str, text: str) -> None:
    with open(os.path.join(group, name), "w", encoding="ascii") as file:
        file.write(text)


def unit_properties(limits: Limits, data: str = "") -> dict[str, str]:
    """The limits as properties of a unit of systemd; those of I/O are of the disk below `data`."""
    properties = {}
    for key, value in limits.items():
        if key == "cpus":
            properties["CPUQuota"] = f"{value * 100:g}%"
        elif key == "memory_mb":
            properties |= {"MemoryMax": str(round(value * MIB)), "MemorySwapMax": "0"}
        else:
            device_of(data)  # systemd would ignore a folder without one
            properties[_IO[key][3]] = f"{data} {round(value * _IO[key][4])}"
    return properties


def difference(limits: Limits, pid: int, data: str = "") -> str:
    """How the limits of a running process differ from the planned ones; "" where they do not."""
    return _difference(limits, kernel.control_groups(pid), data)


def _difference(limits: Limits, groups: dict[str, str], data: str) -> str:
    for key, wanted in limits.items():
        found: float | None
        if key == "cpus":
            found, _ = kernel.cpu_quota(groups)
        elif key == "memory_mb":
            memory = kernel.memory_limit(groups)
            found = None if memory is None else memory / MIB
        else:
            rates = kernel.device_limits(groups).get(device_of(data), {})
            found = rates[_IO[key][1]] / _IO[key][4] if _IO[key][1] in rates else None
        if found is None or abs(found - wanted) >= 0.001:
            has = "no limit" if found is None else f"{found:g}"
            return f"has by its control group {has} as limits.{key}, planned: {wanted:g}"
    return ""


def out_of_memory(folder: str) -> str:
    """A sentence where the kernel has killed the process with this folder for its limit of memory; else ""."""
    with contextlib.suppress(HostError):
        ((_, group),) = groups_of(folder, {"memory_mb": 0}).items()
        groups = {"" if is_unified(group) else "memory": group}
        if kernel.memory_kills(groups):
            limit = (kernel.memory_limit(groups) or 0) / MIB
            return f"the kernel killed it: it needed more memory than its {limit:,.0f} MiB (limits.memory_mb)"
    return ""


def remove(folder: str, limits: Limits) -> None:
    """Remove the groups of a process that has ended, if it has some."""
    with contextlib.suppress(HostError):
        for group in groups_of(folder, limits).values():
            with contextlib.suppress(OSError):
                os.rmdir(group)


def remove_of_run(run_folder: str) -> list[str]:
    """Remove the groups of a run whose processes have ended; a sentence for each that cannot be removed."""
    left = []
    known = kernel.control_groups(os.getpid())
    roots = {root for root in map(known.get, ("", *_CONTROLLER.values())) if root is not None}
    for root in sorted(roots):
        for group in glob.glob(os.path.join(root, f"{_PREFIX}{os.path.basename(run_folder)}-*")):
            try:
                os.rmdir(group)
            except OSError as error:
                left.append(f"control group {group}: {error.strerror}")
    return left


def why_not(limits: Limits, data: str = "/") -> str:
    """Why processes started directly cannot have these limits here; "" where they can. Tries it."""
    folder = f"/probe/deployments/{os.getpid()}/probe"
    try:
        create(folder, limits, data)
    except HostError as error:
        return str(error)
    finally:
        remove(folder, limits)
    return ""
