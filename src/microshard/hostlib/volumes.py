"""Volumes of a host, brought from a definition to a mounted filesystem."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from . import block_devices as devices
from .block_devices import Device
from .errors import HostError
from .files import read_value, run_command

PREFIX = "ms-"  # of every label of ours: with "data-01" it is within the 12 bytes XFS allows
_ROOM = 0.99  # a disk sold as n GiB may lack a little


@dataclass
class Volume:
    """One filesystem on one device or array."""

    name: str  # data, journal, log; data-01 … with policy per_shard
    kind: str
    filesystem: str
    lazy_init: bool
    mount: str
    devices: list[Device]
    readahead_sectors: int | None
    overwrite: list[str] = field(default_factory=list)
    formats: bool = False  # whether it has to be formatted, decided before anything is changed

    @property
    def label(self) -> str:
        """Of its filesystem, and the name of its array."""
        return PREFIX + self.name

    @property
    def is_array(self) -> bool:
        """Whether its filesystem lies on RAID 0."""
        return len(self.devices) > 1


def resolve(
    definitions: dict[str, Any], known: list[dict[str, Any]], root: str, mounts: dict[str, str] | None = None
) -> list[Volume]:
    """The volumes of this host with their devices. HostError with all problems, such as devices that are missing.

    `definitions` are infrastructure.GROUP.volumes of the experiment, `known` the host's own devices from the inventory.
    A volume is mounted as `mounts` says, else below `root`.
    """
    found, problems = [], []
    for name, definition in definitions.items():
        if not definition:
            continue
        try:
            named = _named(name, definition, known)
            if definition.get("policy", "single") == "per_shard":
                for number, device in enumerate(named, 1):
                    label = f"{name}-{number:02d}"
                    found.append(_volume(label, definition, [device], os.path.join(root, label)))
            else:
                mount = (mounts or {}).get(name) or os.path.join(root, name)
                found.append(_volume(name, definition, named, mount))
        except HostError as problem:
            problems.append(f"volume {name}: {problem}")
    paths = [device.path for volume in found for device in volume.devices]
    problems += [f"device {path} is named for two volumes" for path in sorted({p for p in paths if paths.count(p) > 1})]
    if problems:
        raise HostError("; ".join(problems) + ". Nothing was formatted")
    return found


def _volume(name: str, definition: dict[str, Any], named: list[Device], mount: str) -> Volume:
    for device in named:
        least = definition["size_gib"] * 2**30
        if device.bytes < least * _ROOM:
            raise HostError(
                f"device {device.label} has {device.bytes / 2**30:.1f} GiB, planned are {definition['size_gib']} GiB; "
                "give it a larger device or the experiment a smaller size_gib"
            )
    return Volume(
        name=name,
        kind=definition["type"],
        filesystem=definition["filesystem"],
        lazy_init=definition["lazy_init"],
        mount=mount,
        devices=named,
        readahead_sectors=definition.get("readahead_sectors"),
        overwrite=[devices.normal(serial) for serial in definition.get("overwrite", [])],
    )


def _named(name: str, definition: dict[str, Any], known: list[dict[str, Any]]) -> list[Device]:
    """The devices of a volume: what the inventory says of this host, then the definition, then the disk's model."""
    of_host = [entry for entry in known if entry["purpose"] == name]
    if of_host:
        found = [devices.by_serial(e["serial"]) if e.get("serial") else devices.at(e["device"]) for e in of_host]
    elif definition.get("devices"):
        found = [
            devices.by_serial(device[len("serial:") :]) if device.startswith("serial:") else devices.at(device)
            for device in definition["devices"]
        ]
    elif definition["type"] == "instance_store":
        found = devices.instance_store()[: definition["count"]]
    else:
        found = []
    if len(found) != definition["count"]:
        raise HostError(
            f"{definition['count']} device(s) are needed and {len(found)} named; name them in microshard_volumes of "
            "the host (inventory) or in devices of the volume"
        )
    return found


def check(volumes: list[Volume]) -> None:
    """Decide which volumes have to be formatted. HostError when a device is in use or has foreign data."""
    problems = [problem for volume in volumes if (problem := _problem(volume))]
    if problems:
        raise HostError("; ".join(problems) + ". Nothing was formatted")


def _problem(volume: Volume) -> str:
    """Decide whether the volume has to be formatted; why it cannot be, or ""."""
    try:
        volume.formats = not _exists(volume)
    except HostError as problem:
        return f"volume {volume.name}: {problem}"
    return ""


def _exists(volume: Volume) -> bool:
    """Whether the filesystem is on its devices already. HostError when it is not and they may not be formatted."""
    if volume.is_array and all(_is_member(volume, device) for device in volume.devices):
        array = _array(volume) or _assembled(volume)
        volume.overwrite.append(array.serial)
        return _has_filesystem(volume, array)
    if not volume.is_array:
        return _has_filesystem(volume, volume.devices[0])
    for device in volume.devices:
        _may_format(volume, device)
    return False


def _has_filesystem(volume: Volume, device: Device) -> bool:
    found = devices.signatures(device)
    if [(s["type"], s["label"]) for s in found] == [(volume.filesystem, volume.label)]:
        return True
    _may_format(volume, device)
    return False


def _may_format(volume: Volume, device: Device) -> None:
    user = devices.use(device)
    if user:
        raise HostError(f"device {device.label} {user}; free it, or name another")
    foreign = [s for s in devices.signatures(device) if not _is_ours(s)]
    if foreign and not (device.serial and device.serial in volume.overwrite):
        what = ", ".join(f"{s['type']}{' ' + repr(s['label']) if s['label'] else ''}" for s in foreign)
        how = (
            f"name its serial number in overwrite ({device.serial})"
            if device.serial
            else f"it has no serial number, so empty it yourself (wipefs --all {device.path})"
        )
        raise HostError(
            f"device {device.label} carries {what}, which is not microshard's. To use it all the same, {how}"
        )


def _is_ours(signature: dict[str, str]) -> bool:
    # An array's name has the host in front of it: "host:ms-data".
    return signature["label"].rpartition(":")[2].startswith(PREFIX)


def _is_member(volume: Volume, device: Device) -> bool:
    return any(
        s["type"] == "linux_raid_member" and s["label"].rpartition(":")[2] == volume.label
        for s in devices.signatures(device)
    )


def _array(volume: Volume) -> Device | None:
    """The array of exactly these devices, where it runs."""
    above = {tuple(devices.holders(device)) for device in volume.devices}
    if len(above) != 1:
        return None
    (names,) = above
    if len(names) != 1 or not names[0].startswith("md"):
        return None
    members = set(os.listdir(f"/sys/block/{names[0]}/slaves"))
    return devices.at(f"/dev/{names[0]}") if members == {device.name for device in volume.devices} else None


def _assembled(volume: Volume) -> Device:
    """The array, started from members that carry it."""
    path = f"/dev/md/{volume.label}"
    run_command("mdadm", "--assemble", "--run", path, *[d.path for d in volume.devices], package="mdadm")
    array = _array(volume)
    if array is None:
        raise HostError(f"array {path} was assembled, but is not made of {', '.join(d.path for d in volume.devices)}")
    return array


def device(volume: Volume) -> Device:
    """The device with the volume's filesystem."""
    if not volume.is_array:
        return volume.devices[0]
    array = _array(volume)
    if array is None:
        raise HostError(f"volume {volume.name}: its array is not assembled")
    return array


def format_volume(volume: Volume) -> None:
    """Make the volume's array and filesystem. What was there is lost; `check` has made sure that it may be."""
    for member in volume.devices:
        run_command("wipefs", "--all", "--quiet", member.path)
    if volume.is_array:
        # RAID 0 in chunks of 256 KiB: a WiredTiger page of 32 KiB is read from one disk, and disks take turns.
        create = ["mdadm", "--create", f"/dev/md/{volume.label}", "--run", "--level=0", "--chunk=256"]
        count = [f"--raid-devices={len(volume.devices)}", f"--name={volume.label}"]
        run_command(*create, *count, *[d.path for d in volume.devices], package="mdadm")
    target = device(volume).path
    if volume.filesystem == "xfs":
        # -f: what an array had on it before may show through; it was checked above.
        run_command("mkfs.xfs", "-q", "-f", "-L", volume.label, target, package="xfsprogs")
    else:
        # Full initialisation unless lazy_init is set: else a kernel thread writes for minutes during the measurement.
        lazy = f"lazy_itable_init={int(volume.lazy_init)},lazy_journal_init={int(volume.lazy_init)}"
        run_command("mkfs.ext4", "-q", "-F", "-L", volume.label, "-E", lazy, target, package="e2fsprogs")


def uuid(volume: Volume) -> str:
    """The UUID of its filesystem; it is mounted by this, for devices may change their names at a reboot."""
    found = [s["uuid"] for s in devices.signatures(device(volume)) if s["type"] == volume.filesystem]
    if not found:
        raise HostError(f"volume {volume.name}: no {volume.filesystem} is on {device(volume).label}")
    return found[0]


def readahead(target: Device) -> int:
    """Readahead of a device in sectors of 512 bytes, as `blockdev --getra`."""
    return int(run_command("blockdev", "--getra", target.path))


def set_readahead(volume: Volume, sectors: int) -> None:
    """`blockdev --setra`, read back."""
    target = device(volume)
    run_command("blockdev", "--setra", str(sectors), target.path)
    found = readahead(target)
    if found != sectors:
        raise HostError(f"volume {volume.name}: readahead of {target.path} was set to {sectors} sectors and is {found}")


def stop_array(volume: Volume) -> None:
    """Stop the array of an unmounted volume; its data stays."""
    if volume.is_array and _array(volume) is not None:
        run_command("mdadm", "--stop", device(volume).path, package="mdadm")


def facts(volume: Volume, mounted: dict[str, str]) -> dict[str, Any]:
    """The volume as it is, read back."""
    target = device(volume)
    usage = os.statvfs(volume.mount)
    sectors = readahead(target)
    return {
        "name": volume.name,
        "type": volume.kind,
        "device": target.path,
        "devices": [member.facts() for member in volume.devices],
        "raid": {"level": 0, "chunk_kib": int(read_value(f"/sys/block/{target.name}/md/chunk_size") or 0) // 1024}
        if volume.is_array
        else None,
        "filesystem": mounted["type"],
        "label": volume.label,
        "uuid": uuid(volume),
        "mount": volume.mount,
        "options": mounted["options"],
        "size_bytes": usage.f_frsize * usage.f_blocks,
        "usable_bytes": usage.f_frsize * usage.f_bavail,
        "readahead_sectors": sectors,
        "readahead_kib": sectors / 2,
    }
