"""Cores that single processes may use, by control groups of their own: cgroup version 1 or 2.

A group is made below the one this process is in, so nothing leaves limits that hold already. Processes of systemd get
the same limit as `CPUQuota` of their unit instead.
"""

from __future__ import annotations

import contextlib
import glob
import os

from . import host_counters as kernel
from .errors import HostError

PERIOD_MICROSECONDS = 100_000  # the kernel's and systemd's default
_PREFIX = "microshard-"


def group_of(folder: str, groups: dict[str, str] | None = None) -> str:
    """The control group of the process with this folder, RUN/deployments/POINT/NAME. HostError where there is none."""
    parts = [part for part in folder.split("/") if part and part != "deployments"]
    return os.path.join(_root(groups), f"{_PREFIX}{'-'.join(parts[-3:])}")


def _root(groups: dict[str, str] | None = None) -> str:
    known = kernel.control_groups(os.getpid()) if groups is None else groups
    root = known.get("cpu") or known.get("")
    if root is None:
        raise HostError("limits.cpus: the kernel has no CPU controller, neither cgroup v1 cpu nor cgroup v2")
    return root


def is_unified(group: str) -> bool:
    """Whether this is a group of cgroup version 2, of which a process is in one alone."""
    return os.path.exists(os.path.join(group, "cgroup.controllers"))


def create(group: str, cpus: float) -> None:
    """Make the group with its limit, and read it back. Raises HostError with the reason where that is not possible."""
    version1 = os.path.exists(os.path.join(os.path.dirname(group), "cpu.cfs_quota_us"))
    quota = round(cpus * PERIOD_MICROSECONDS)
    try:
        if not version1:
            _write(os.path.dirname(group), "cgroup.subtree_control", "+cpu")
        os.makedirs(group, exist_ok=True)
        if version1:
            _write(group, "cpu.cfs_period_us", str(PERIOD_MICROSECONDS))
            _write(group, "cpu.cfs_quota_us", str(quota))
        else:
            _write(group, "cpu.max", f"{quota} {PERIOD_MICROSECONDS}")
    except OSError as error:
        raise HostError(f"limits.cpus: {error.filename or group} cannot be written: {error.strerror}") from None
    found, _ = kernel.cpu_quota({"cpu": group} if version1 else {"": group})
    if found != quota / PERIOD_MICROSECONDS:
        raise HostError(f"limits.cpus: {group} was given {cpus:g} cores, the kernel has {found}")


def _write(group: str, name: str, text: str) -> None:
    with open(os.path.join(group, name), "w", encoding="ascii") as file:
        file.write(text)


def difference(cpus: float | None, pid: int) -> str:
    """How the quota of a running process differs from the planned one; "" where it does not."""
    found, _ = kernel.cpu_quota(kernel.control_groups(pid))
    if cpus is None or (found is not None and abs(found - cpus) < 0.001):
        return ""
    return f"may use {found if found is not None else 'all'} cores by its control group, planned: {cpus:g}"


def remove(folder: str) -> None:
    """Remove the group of a process that has ended, if it has one."""
    with contextlib.suppress(HostError, OSError):
        os.rmdir(group_of(folder))


def remove_of_run(run_folder: str) -> list[str]:
    """Remove the groups of a run whose processes have ended; a sentence for each that cannot be removed."""
    left = []
    with contextlib.suppress(HostError):
        for group in glob.glob(os.path.join(_root(), f"{_PREFIX}{os.path.basename(run_folder)}-*")):
            try:
                os.rmdir(group)
            except OSError as error:
                left.append(f"control group {group}: {error.strerror}")
    return left


def why_not() -> str:
    """Why processes started directly cannot be limited here; "" where they can. Tries it."""
    try:
        group = group_of(f"/probe/deployments/{os.getpid()}/probe")
        create(group, 1.0)
    except HostError as error:
        return str(error)
    os.rmdir(group)
    return ""
