"""Block devices: found by serial number or path, never by guess; what is on them and who uses them."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from dataclasses import dataclass
from typing import Any

from .errors import HostError
from .files import read_value, run_command

SECTOR = 512  # bytes; sysfs counts these whatever the device's own sector is
# The model AWS gives an instance's own NVMe disks (EC2 user guide, "SSD instance store volumes").
INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"
_NO_DISK = re.compile(r"(loop|ram|zram|sr|fd|md|dm-)\d+")


@dataclass(frozen=True)
class Device:
    """A block device as this host shows it."""

    path: str  # /dev/nvme1n1, links resolved
    name: str  # nvme1n1
    serial: str  # "" when it has none
    model: str
    bytes: int

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"{self.path} (serial {self.serial})" if self.serial else self.path

    def facts(self) -> dict[str, Any]:
        """For the record."""
        queue = f"/sys/class/block/{self.name}/queue"
        return {
            "path": self.path,
            "serial": self.serial,
            "model": self.model,
            "size_bytes": self.bytes,
            "scheduler": read_value(f"{queue}/scheduler"),
            "rotational": read_value(f"{queue}/rotational") == "1",
        }


def normal(serial: str) -> str:
    """A serial number as NVMe devices carry it: EBS leaves the dash of a volume's id out."""
    return "vol" + serial[4:] if serial.startswith("vol-") else serial


def at(path: str) -> Device:
    """The device behind a path, which may be a link such as those in /dev/disk/by-id."""
    real = os.path.realpath(path)
    try:
        mode = os.stat(real).st_mode
    except OSError:
        raise HostError(f"device {path} is missing; there is {_list(disks())}") from None
    if not stat.S_ISBLK(mode):
        raise HostError(f"{path} is not a block device")
    return _device(os.path.basename(real), real)


def by_serial(serial: str) -> Device:
    """The disk with a serial number."""
    found = [disk for disk in disks() if disk.serial and disk.serial == normal(serial)]
    if not found:
        raise HostError(f"no device has the serial number {serial}; there is {_list(disks())}")
    if len(found) > 1:
        raise HostError(f"several devices have the serial number {serial}: {_list(found)}; name one by its path")
    return found[0]


def instance_store() -> list[Device]:
    """The instance's own disks, by their model, in the order of their serial numbers."""
    return sorted((disk for disk in disks() if disk.model == INSTANCE_STORE), key=lambda disk: disk.serial)


def disks() -> list[Device]:
    """All disks, without partitions, loop devices, arrays and the like."""
    names = sorted(name for name in os.listdir("/sys/block") if not _NO_DISK.fullmatch(name))
    return [_device(name, f"/dev/{name}") for name in names]


def _device(name: str, path: str) -> Device:
    base = f"/sys/class/block/{name}"
    serial = read_value(f"{base}/serial") or read_value(f"{base}/device/serial") or _scsi_serial(path)
    return Device(path, name, serial, read_value(f"{base}/device/model"), int(read_value(f"{base}/size") or 0) * SECTOR)


def _scsi_serial(path: str) -> str:
    if not os.path.basename(path).startswith(("sd", "xvd")):
        return ""
    return run_command("lsblk", "--nodeps", "--noheadings", "--output", "SERIAL", path, accept=(0, 1, 32)).strip()


def _list(found: list[Device]) -> str:
    return ", ".join(f"{disk.label}, {disk.bytes / 2**30:.1f} GiB" for disk in found) or "no disk"


def signatures(device: Device) -> list[dict[str, str]]:
    """What a device carries, as wipefs sees it: type, label and UUID of filesystems, arrays, partition tables …"""
    text = run_command("wipefs", "--no-act", "--json", device.path, package="util-linux")
    found = json.loads(text)["signatures"] if text.strip() else []
    return [{key: str(entry.get(key) or "") for key in ("type", "label", "uuid")} for entry in found]


def holders(device: Device) -> list[str]:
    """Devices made of this one (arrays, device mapper)."""
    try:
        return sorted(os.listdir(f"/sys/class/block/{device.name}/holders"))
    except OSError:
        return []


def use(device: Device) -> str:
    """Who uses the device right now; "" when nobody does."""
    above = holders(device)
    if above:
        return f"is part of {', '.join(above)}"
    base = f"/sys/class/block/{device.name}"
    parts = [name for name in sorted(os.listdir(base)) if os.path.exists(f"{base}/{name}/partition")]
    if parts:
        return f"has partitions ({', '.join(parts)})"
    number = read_value(f"{base}/dev")
    for point, mount in mounts().items():
        if mount["number"] == number:
            return f"is mounted at {point}"
    if any(line.split()[0] == device.path for line in read_value("/proc/swaps").splitlines()):
        return "is swap space"
    try:
        os.close(os.open(device.path, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return "is held by another program"
        raise
    return ""


def mounts() -> dict[str, dict[str, str]]:
    """What is mounted, by mount point in the order of mounting: device number, type, source and options."""
    found = {}
    for line in read_value("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), fields[4])  # a blank is \040 there
        found[point] = {"number": fields[2], "type": rest[0], "source": rest[1], "options": fields[5]}
    return found
