"""What single mongods may use: cores, memory and I/O, by control groups of their own (cgroup version 1 or 2).

Version 1: groups are made below those this process is in, so nothing leaves limits that hold already. Version 2 lets
only groups without processes have groups with limits ("no internal processes", admin-guide/cgroup-v2.rst): they are
made at the top of the hierarchy, as TOP/microshard-RUN/microshard-RUN-POINT-NAME, which takes root; or in the group of
this process where systemd has delegated that to its user, whose processes then move to a group below it.
Processes of systemd get the same limits as properties of their unit instead. Either way they are read back from the
groups of the running process.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import time
from collections.abc import Mapping

from . import host_counters as kernel
from .errors import HostError

PERIOD_MICROSECONDS = 100_000  # the kernel's and systemd's default
MIB = 1 << 20
_PREFIX = "microshard-"
_THREADS_END = 2.0  # s that threads of a killed process are given to leave its group
_MOVED = f"{_PREFIX}itself"  # the group of the processes of a delegated scope
_ENABLED = "user.microshard.enabled"  # attribute of a run's group: the controllers that were enabled for it at the top

# Limit → its key in io.max and in host_counters.device_limits, file of cgroup version 1, property of a unit, unit.
_IO = {
    "read_iops": ("riops", "r_ios", "read_iops", "IOReadIOPSMax", 1),
    "write_iops": ("wiops", "w_ios", "write_iops", "IOWriteIOPSMax", 1),
    "read_mibps": ("rbps", "r_bytes", "read_bps", "IOReadBandwidthMax", MIB),
    "write_mibps": ("wbps", "w_bytes", "write_bps", "IOWriteBandwidthMax", MIB),
}
_CONTROLLER = {"cpus": "cpu", "memory_mb": "memory", **dict.fromkeys(_IO, "blkio")}  # by their names of version 1

_NEXT_STEPS = {
    errno.EACCES: "; run it as root, or as systemd-run --user --scope -p Delegate=yes microshard …",
    errno.EBUSY: "; processes are in that group itself: start this container with --cgroupns=host",
    errno.EROFS: "; start this container with --privileged --cgroupns=host",
}

Limits = Mapping[str, float]  # by their keys in the experiment; those that are not set are absent


def groups_of(folder: str, limits: Limits, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """The control groups, by controller, of the process with this folder, RUN/deployments/POINT/NAME. HostError."""
    known = kernel.control_groups(os.getpid()) if known is None else known
    parts = [part for part in folder.split("/") if part and part != "deployments"]
    groups = {}
    for key in limits:
        controller = _CONTROLLER[key]
        name = f"{_PREFIX}{'-'.join(parts[-3:])}"
        if controller in known:
            groups[controller] = os.path.join(known[controller], name)
        elif "" in known:
            groups[controller] = os.path.join(_place(known[""]), f"{_PREFIX}{parts[-3]}", name)
        else:
            raise HostError(f"limits.{key}: the kernel has no controller for it, neither cgroup v1 nor v2")
    return groups


def _place(own: str) -> str:
    """The group of version 2 in which a run's group is made, of a process that is in `own`."""
    top = own
    while is_unified(os.path.dirname(top)):
        top = os.path.dirname(top)
    if os.access(os.path.join(top, "cgroup.subtree_control"), os.W_OK):
        return top
    return os.path.dirname(own) if os.path.basename(own) == _MOVED else own


def is_unified(group: str) -> bool:
    """Whether this is a group of cgroup version 2, of which a process is in one alone."""
    return os.path.exists(os.path.join(group, "cgroup.controllers"))


def device_of(path: str) -> str:
    """The whole disk, MAJOR:MINOR, on which a folder lies. HostError where it lies on none."""
    found = kernel.device_of(path)
    if found is None:
        raise HostError(f"limits: {path} lies on no block device whose I/O the kernel could limit")
    return found[1]


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
                # What the kernel writes back is charged to groups that have both controllers.
                wanted = ["io", "memory"] if _CONTROLLER[key] == "blkio" else [_CONTROLLER[key]]
                _enable(key, os.path.dirname(group), wanted)
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


def _enable(key: str, run_group: str, controllers: list[str]) -> None:
    """Make a run's group of version 2 and enable controllers for its groups. OSError, HostError with the next step."""
    place = os.path.dirname(run_group)
    there = (kernel.read(os.path.join(place, "cgroup.controllers")) or "").split()
    lacking = [controller for controller in controllers if controller not in there]
    # What may not be written is refused below: a group that is not delegated has no controllers either.
    if lacking and (os.access(os.path.join(place, "cgroup.subtree_control"), os.W_OK) or not is_unified(place)):
        raise HostError(
            f"limits.{key}: {place} has no controller {' and '.join(lacking)} (cgroup.controllers): it is disabled in "
            "the kernel, belongs to cgroup version 1, or is not delegated (systemctl edit user@.service, Delegate=yes)"
        )
    words = " ".join(f"+{controller}" for controller in controllers)
    try:
        before = _enabled(place)
        _move_processes(place)
        _write(place, "cgroup.subtree_control", words)
    except OSError as error:
        next_step = _NEXT_STEPS.get(error.errno or 0, "")
        raise HostError(f"limits.{key}: {place} cannot have groups: {error.strerror}{next_step}") from None
    os.makedirs(run_group, exist_ok=True)
    new = _recorded(place) | (set(_enabled(place)) - set(before))
    with contextlib.suppress(OSError):  # before Linux 5.7; they stay enabled then
        os.setxattr(run_group, _ENABLED, " ".join(sorted(new)).encode())
    _write(run_group, "cgroup.subtree_control", words)


def _enabled(group: str) -> list[str]:
    return (kernel.read(os.path.join(group, "cgroup.subtree_control")) or "").split()


def _recorded(place: str) -> set[str]:
    """The controllers that were enabled there for the runs that are there now."""
    found: set[str] = set()
    for group in glob.glob(os.path.join(place, f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            found |= set(os.getxattr(group, _ENABLED).decode().split())
    return found


def _move_processes(group: str) -> None:
    """Move the processes of a delegated group to one below it, as its owner may; OSError of a container's root.

    With some in it the kernel would enable cpu all the same, and groups below it could have no process of their own.
    The top of the hierarchy has no cgroup.type, and may have both.
    """
    pids = (kernel.read(os.path.join(group, "cgroup.procs")) or "").split()
    if not pids or not os.path.exists(os.path.join(group, "cgroup.type")):
        return
    if os.geteuid() == 0:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), group)
    moved = os.path.join(group, _MOVED)
    os.makedirs(moved, exist_ok=True)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            _write(moved, "cgroup.procs", pid)


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
                _remove(group)


def _remove(group: str) -> None:
    """Remove a group, and that of its run after the last one; what was enabled for it is disabled. OSError."""
    deadline = time.monotonic() + _THREADS_END
    while True:
        try:
            os.rmdir(group)
            break
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.02)
    run_group = os.path.dirname(group)
    if not is_unified(run_group) or not os.path.basename(run_group).startswith(_PREFIX):
        return
    place = os.path.dirname(run_group)
    enabled = _recorded(place)
    with contextlib.suppress(OSError):  # the run has other groups
        os.rmdir(run_group)
        if not glob.glob(os.path.join(place, f"{_PREFIX}*")):
            # The kernel refuses that where others have come to use them.
            _write(place, "cgroup.subtree_control", " ".join(f"-{controller}" for controller in sorted(enabled)))


def remove_of_run(run_folder: str) -> list[str]:
    """Remove the groups of a run whose processes have ended; a sentence for each that cannot be removed."""
    left = []
    known = kernel.control_groups(os.getpid())
    name = f"{_PREFIX}{os.path.basename(run_folder)}"
    places = {os.path.join(root, f"{name}-*") for root in map(known.get, set(_CONTROLLER.values())) if root is not None}
    if "" in known:
        places.add(os.path.join(_place(known[""]), name, f"{name}-*"))
    for group in [group for place in sorted(places) for group in glob.glob(place)]:
        try:
            _remove(group)
        except OSError as error:
            left.append(f"control group {group}: {error.strerror}")
    return left


def why_not(limits: Limits, data: str = "/") -> str:
    """Why processes started directly cannot have these limits here; "" where they can. Tries it."""
    folder = f"/probe{os.getpid()}/deployments/probe/probe"
    try:
        create(folder, limits, data)
    except HostError as error:
        return str(error)
    finally:
        remove(folder, limits)
    return ""
