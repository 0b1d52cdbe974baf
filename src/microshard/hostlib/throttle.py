"""Limits of a block device by the kernel's block I/O controller, cgroup version 1 or 2.

Version 1 (`blkio`): the limits stand in the root of the hierarchy. Reads, `fsync` and O_DIRECT writes of processes
there fall under them, and so does buffered writeback, which kernel threads of the root do: nothing escapes. Measured at
150 IOPS: 150 random reads/s, and 129 writes/s reached the device while a process dirtied 500,000 pages/s.
Version 2 (`io`): the root takes no limits, so the processes get a group of their own. Writeback is charged to it where
the filesystem supports that (ext4, XFS, btrfs, and with the memory controller); what journalling threads write is not.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .errors import HostError
from .host_counters import LIMITS, device_limits


class NoControllerError(HostError):
    """There is no block I/O controller, or it may not be written."""


_V1_FILES = {
    "rbps": "blkio.throttle.read_bps_device",
    "wbps": "blkio.throttle.write_bps_device",
    "riops": "blkio.throttle.read_iops_device",
    "wiops": "blkio.throttle.write_iops_device",
}
_GROUP = "microshard"


@dataclass(frozen=True)
class Limits:
    """Limits of a device; None is no limit. Reads and writes are limited separately, to the same value."""

    iops: int | None
    bytes_per_second: int | None

    def by_key(self) -> dict[str, int | None]:
        """By the names of `io.max`."""
        return {"rbps": self.bytes_per_second, "wbps": self.bytes_per_second, "riops": self.iops, "wiops": self.iops}


@dataclass(frozen=True)
class Controller:
    """The block I/O controller of this machine."""

    version: int
    root: Path

    def group(self, name: str) -> Path:
        """The folder of the cgroup for the processes of `name`."""
        return self.root if self.version == 1 else self.root / f"{_GROUP}.{name}"

    def limit(self, device: str, limits: Limits, name: str) -> None:
        """Set the limits of the device MAJOR:MINOR and read them back. Raises HostError when they differ."""
        group = self.group(name)
        wanted = limits.by_key()
        try:
            if self.version == 1:
                for key, value in wanted.items():
                    (group / _V1_FILES[key]).write_text(f"{device} {value or 0}\n", encoding="ascii")
            else:
                for controller in ("io", "memory"):
                    (self.root / "cgroup.subtree_control").write_text(f"+{controller}\n", encoding="ascii")
                group.mkdir(exist_ok=True)
                words = " ".join(f"{key}={value or 'max'}" for key, value in wanted.items())
                (group / "io.max").write_text(f"{device} {words}\n", encoding="ascii")
        except OSError as error:
            raise HostError(f"the limits of device {device} cannot be set in {group}: {error.strerror}") from error
        found = self.limits(device, name)
        if found != wanted:
            raise HostError(f"device {device} was given the limits {wanted} in {group}, the kernel has {found}")

    def limits(self, device: str, name: str) -> dict[str, int | None]:
        """The limits the kernel has for a device, by the names of `io.max`; None is no limit."""
        groups = {"blkio" if self.version == 1 else "": str(self.group(name))}
        found = device_limits(groups).get(device, {})
        return {key: found.get(name) for key, name in LIMITS.items()}

    def lift(self, device: str, name: str) -> None:
        """Remove the limits: a loop device keeps its number, and its next user must not inherit them."""
        if self.group(name).is_dir():
            self.limit(device, Limits(None, None), name)

    def dissolve(self, name: str) -> None:
        """Remove the group of `name`; its processes must have ended."""
        if self.version == 2 and self.group(name).is_dir():
            self.group(name).rmdir()


def controller(mounts: str | None = None) -> Controller:
    """The block I/O controller. Raises NoControllerError when there is none that this user may write.

    `mounts` is the text of /proc/self/mounts.
    """
    if mounts is None:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8")
    fields = [line.split() for line in mounts.splitlines()]
    found: Controller | None = None
    for _, point, kind, options, *_ in fields:
        if kind == "cgroup" and "blkio" in options.split(","):
            found = Controller(1, Path(point))
        elif kind == "cgroup2" and found is None and "io" in _controllers(Path(point)):
            found = Controller(2, Path(point))
    if found is None:
        raise NoControllerError("the kernel has no block I/O controller: neither cgroup v1 blkio nor io in cgroup v2")
    if found.version == 1 and not (found.root / _V1_FILES["riops"]).exists():
        raise NoControllerError(f"{found.root} has no blkio.throttle files: the kernel lacks CONFIG_BLK_DEV_THROTTLING")
    probe = found.root / (_V1_FILES["riops"] if found.version == 1 else "cgroup.subtree_control")
    if not os.access(probe, os.W_OK):
        raise NoControllerError(f"{probe} is not writable here (a container, or not root)")
    return found


def _controllers(root: Path) -> list[str]:
    try:
        return (root / "cgroup.controllers").read_text(encoding="ascii").split()
    except OSError:
        return []
