"""Module host_volumes: which devices a volume is on, whether they may be formatted, and what the mounted volume is."""

from __future__ import annotations

import grp
import os
import pwd
import uuid
from dataclasses import dataclass, field
from typing import Any

from . import block_devices as devices
from .block_devices import Device
from .errors import HostError
from .files import read_text, read_value, run_command

ARGUMENTS = {
    "volumes": {"type": "dict", "required": True},
    "known": {"type": "list", "elements": "dict", "default": []},
    "mounts": {"type": "dict", "default": {}},
    "root": {"type": "path", "default": "/srv/microshard"},
    "owner": {"type": "str", "default": ""},
    "group": {"type": "str", "default": ""},
    "mode": {"type": "str", "default": ""},
    "readahead_sectors": {"type": "int"},
    "state": {"choices": ["found", "checked", "mounted"], "default": "checked"},
    "record": {"type": "path"},  # of the action plugin
}
FSTAB = "/etc/fstab"
PREFIX = "ms-"  # of every label of ours: with "data-01" it is within the 12 bytes XFS allows
_ROOM = 0.99  # a disk sold as n GiB may lack a little


@dataclass
class DeviceVolume:
    """One filesystem on one device or array."""

    name: str  # data, journal, log; data-01 … with policy per_shard
    kind: str
    filesystem: str
    lazy_init: bool
    mount: str
    devices: list[Device]
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

    @property
    def device(self) -> Device | None:
        """The device with its filesystem; None for an array that does not run."""
        return _array(self) if self.is_array else self.devices[0]

    @property
    def assembles(self) -> bool:
        """Whether its devices are an array that does not run."""
        return self.is_array and self.device is None and all(_is_member(self, device) for device in self.devices)

    def uuid(self) -> str:
        """Of the filesystem it has, or the one it is to be given; it is mounted by this, for devices change names."""
        if self.formats:
            return str(uuid.uuid4())
        found = devices.signatures(self.device) if self.device else []
        return next((s["uuid"] for s in found if s["type"] == self.filesystem), "")

    def plan(self, owned: str) -> dict[str, Any]:
        """For the tasks that format and mount it; `owned` is what its mount point shall have, as of _owner."""
        device, known = self.device, self.uuid()
        block = f"/sys/class/block/{self.devices[0].name}" + ("/holders/md*" if self.is_array else "")
        mounted = devices.mounts().get(self.mount)
        in_fstab = bool(known) and f"UUID={known} {self.mount} " in read_text(FSTAB)
        is_ours = bool(mounted and device and mounted["number"] == read_value(f"/sys/class/block/{device.name}/dev"))
        return {
            "name": self.name,
            "label": self.label,
            "filesystem": self.filesystem,
            "lazy_init": self.lazy_init,
            "mount": self.mount,
            "members": [member.path for member in self.devices],
            "is_array": self.is_array,
            "wipes": [d.path for d in self.devices if self.formats and not (self.is_array and device) and _carries(d)],
            "device": device.path if device else f"/dev/md/{self.label}",
            "exists": device is not None,
            "readahead": {"name": self.name, "path": f"{block}/queue/read_ahead_kb"},
            "uuid": known,
            "assembles": self.assembles,
            "formats": self.formats,
            "mounted": is_ours,
            "is_owned": is_ours and _owner(self.mount) == owned,
            "remounts": is_ours and "noatime" not in (mounted or {})["options"].split(","),
            "in_fstab": in_fstab,
            "is_right": is_ours and in_fstab,
        }


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:  # noqa: ARG001 - nothing is changed either way
    """Find the volumes, check that they may be used as planned, or read the mounted ones back."""
    found = resolve(parameters["volumes"], parameters["known"], parameters["root"], parameters["mounts"])
    if parameters["state"] == "mounted":
        return {"record": [_facts(volume, parameters["readahead_sectors"]) for volume in found]}
    uid, gid = _ids(parameters["owner"], parameters["group"])
    if parameters["state"] == "checked":
        problems = [problem for volume in found if (problem := _problem(volume))]
        if problems:
            raise HostError("; ".join(problems) + ". Nothing was formatted")
    owned = f"{uid}:{gid}:{int(parameters['mode'] or '0755', 8):04o}"
    return {"volumes": [volume.plan(owned) for volume in found], "group": gid}


def resolve(
    definitions: dict[str, Any], known: list[dict[str, Any]], root: str, mounts: dict[str, str] | None = None
) -> list[DeviceVolume]:
    """The volumes of this host with their devices. HostError with all problems, such as devices that are missing.

    `definitions` are infrastructure.GROUP.volumes of the experiment, `known` the host's own devices from the inventory.
    A volume is mounted as `mounts` says, else below `root`.
    """
    found: list[DeviceVolume] = []
    problems = []
    for name, definition in definitions.items():
        if not definition:
            continue
        try:
            named = _named(name, definition, known, [device for volume in found for device in volume.devices])
            if definition.get("policy") == "per_shard":
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


def _volume(name: str, definition: dict[str, Any], named: list[Device], mount: str) -> DeviceVolume:
    planned = definition.get("size_gib") or 0
    for device in named:
        if device.bytes < planned * 2**30 * _ROOM:
            raise HostError(
                f"device {device.label} has {device.bytes / 2**30:.1f} GiB, planned are {planned} GiB; "
                "give it a larger device or the experiment a smaller size_gib"
            )
    return DeviceVolume(
        name=name,
        kind=definition.get("type") or "existing",
        filesystem=definition.get("filesystem") or "xfs",
        lazy_init=bool(definition.get("lazy_init")),
        mount=mount,
        devices=named,
        overwrite=[devices.normal(serial) for serial in definition.get("overwrite") or []],
    )


def _named(name: str, definition: dict[str, Any], known: list[dict[str, Any]], taken: list[Device]) -> list[Device]:
    """The devices of a volume: what the inventory says of this host, then the definition, then the disk's model.

    Disks of one model are all alike: a volume gets the first ones that no earlier volume has `taken`.
    """
    count = definition.get("count") or 1
    of_host = [entry for entry in known if entry["purpose"] == name]
    if of_host:
        found = [devices.by_serial(e["serial"]) if e.get("serial") else devices.at(e["device"]) for e in of_host]
    elif definition.get("devices"):
        found = [
            devices.by_serial(device[len("serial:") :]) if device.startswith("serial:") else devices.at(device)
            for device in definition["devices"]
        ]
    elif definition.get("type") == "instance_store":
        found = [disk for disk in devices.instance_store() if disk not in taken][:count]
    else:
        found = []
    if len(found) != count:
        raise HostError(
            f"devices needed: {count}, named: {len(found)}; name them in microshard_volumes of "
            "the host (inventory) or in devices of the volume"
        )
    return found


def _ids(owner: str, group: str) -> tuple[int, int]:
    """UID and GID of the mount points' owner, each by name or number. HostError where the host has no such user."""
    try:
        user = pwd.getpwuid(int(owner)) if owner.isdigit() else pwd.getpwnam(owner or "root")
        gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid if group else user.pw_gid
    except KeyError as missing:
        raise HostError(
            f"the mount points belong to {owner}{':' if group else ''}{group}, and this host has no such user or group "
            f"({missing.args[0]}); create it first. Nothing was formatted"
        ) from None
    return user.pw_uid, gid


def _owner(path: str) -> str:
    """UID, GID and mode of a folder as uid:gid:0755."""
    found = os.stat(path)
    return f"{found.st_uid}:{found.st_gid}:{found.st_mode & 0o7777:04o}"


def _problem(volume: DeviceVolume) -> str:
    """Decide whether the volume has to be formatted; why it cannot be used as planned, or ""."""
    try:
        volume.formats = not volume.assembles and not _exists(volume)
        _require_place(volume)
    except HostError as problem:
        return f"volume {volume.name}: {problem}"
    return ""


def _exists(volume: DeviceVolume) -> bool:
    """Whether the filesystem is on its devices already. HostError when it is not and they may not be formatted."""
    device = volume.device
    if device is None or (volume.is_array and not all(_is_member(volume, member) for member in volume.devices)):
        for member in volume.devices:
            _may_format(volume, member)
        return False
    if [(s["type"], s["label"]) for s in devices.signatures(device)] == [(volume.filesystem, volume.label)]:
        return True
    _may_format(volume, device)
    return False


def _may_format(volume: DeviceVolume, device: Device) -> None:
    user = devices.use(device)
    if user:
        raise HostError(f"device {device.label} {user}; free it, or name another")
    foreign = [s for s in devices.signatures(device) if not _short(s).startswith(PREFIX)]
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


def _carries(device: Device) -> bool:
    """Whether anything is on it that mkfs and mdadm may leave."""
    return bool(devices.signatures(device))


def _short(signature: dict[str, str]) -> str:
    """Its label. An array's name has the host in front of it: "host:ms-data"."""
    return signature["label"].rpartition(":")[2]


def _is_member(volume: DeviceVolume, device: Device) -> bool:
    found = devices.signatures(device)
    return any(s["type"] == "linux_raid_member" and _short(s) == volume.label for s in found)


def _array(volume: DeviceVolume) -> Device | None:
    """The array of exactly these devices, where it runs."""
    above = {tuple(devices.holders(device)) for device in volume.devices}
    names = above.pop() if len(above) == 1 else ()
    if len(names) != 1 or not names[0].startswith("md"):
        return None
    members = set(os.listdir(f"/sys/block/{names[0]}/slaves"))
    return devices.at(f"/dev/{names[0]}") if members == {device.name for device in volume.devices} else None


def _require_place(volume: DeviceVolume) -> None:
    """HostError when another device is mounted there, or files lie there, which the filesystem would hide.

    Software that runs without volumes have left may be hidden: it is brought again, and is there again afterwards.
    """
    mounted = devices.mounts().get(volume.mount)
    if mounted is None:
        if os.path.isdir(volume.mount) and set(os.listdir(volume.mount)) - {"software"}:
            raise HostError(f"{volume.mount} has files and nothing is mounted there; move them away")
        return
    number = read_value(f"/sys/class/block/{volume.device.name}/dev") if volume.device else "none yet"
    if mounted["number"] != number:
        other = f"another device mounted ({mounted['number']}) than {volume.name}'s, {number}"
        raise HostError(f"{volume.mount} has {other}")


def _facts(volume: DeviceVolume, readahead_sectors: int | None) -> dict[str, Any]:
    """The volume as it is, read back. HostError when it is not mounted or has another readahead."""
    device, mounted = volume.device, devices.mounts().get(volume.mount)
    if device is None or mounted is None or mounted["number"] != read_value(f"/sys/class/block/{device.name}/dev"):
        raise HostError(f"volume {volume.name} is not mounted at {volume.mount}, although mount reported no error")
    sectors = int(run_command("blockdev", "--getra", device.path))
    if readahead_sectors not in {None, sectors}:
        raise HostError(
            f"volume {volume.name}: readahead of {device.path} was set to {readahead_sectors} sectors and is {sectors}"
        )
    usage = os.statvfs(volume.mount)
    return {
        "name": volume.name,
        "type": volume.kind,
        "device": device.path,
        "devices": [member.facts() for member in volume.devices],
        "raid": {"level": 0, "chunk_kib": int(read_value(f"/sys/block/{device.name}/md/chunk_size") or 0) // 1024}
        if volume.is_array
        else None,
        "filesystem": mounted["type"],
        "label": volume.label,
        "uuid": volume.uuid(),
        "mount": volume.mount,
        "options": mounted["options"],
        "size_bytes": usage.f_frsize * usage.f_blocks,
        "usable_bytes": usage.f_frsize * usage.f_bavail,
        "readahead_sectors": sectors,
        "readahead_kib": sectors / 2,
    }
