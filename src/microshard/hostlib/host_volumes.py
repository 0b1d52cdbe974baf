"""Module host_volumes: find the volumes of a host, format them where that is allowed, mount them, set readahead."""

from __future__ import annotations

import grp
import os
import pwd
from typing import Any

from . import block_devices as devices
from . import volumes
from .block_devices import mounts
from .errors import HostError
from .files import load_state, put_file, read_text, read_value, run_command, save_state
from .systemd import is_running as has_systemd
from .volumes import Volume

ARGUMENTS = {
    "volumes": {"type": "dict", "required": True},
    "known": {"type": "list", "elements": "dict", "default": []},
    "mounts": {"type": "dict", "default": {}},
    "root": {"type": "path", "default": "/srv/microshard"},
    "readahead_sectors": {"type": "int"},
    "owner": {"type": "str", "default": "root"},
    "group": {"type": "str", "default": ""},
    "mode": {"type": "str", "default": "0755"},
    "state_folder": {"type": "path", "default": "/etc/microshard"},
    "state": {"choices": ["present", "absent"], "default": "present"},
    "record": {"type": "path"},  # of the action plugin
}

FSTAB = "/etc/fstab"
RULES = "/etc/udev/rules.d/99-microshard-readahead.rules"
_MARK = "# microshard: "
# noatime: reading must not write (MongoDB production notes). nofail: a host whose volume is gone stays reachable.
OPTIONS = "noatime,nofail"
_STATE = "readahead.json"


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Format and mount the volumes, or unmount them (their data stays)."""
    definitions = {
        name: {**volume, "readahead_sectors": parameters["readahead_sectors"]}
        for name, volume in parameters["volumes"].items()
        if volume
    }
    found = volumes.resolve(definitions, parameters["known"], parameters["root"], parameters["mounts"])
    return (_present if parameters["state"] == "present" else _absent)(found, parameters, check=check)


def _present(found: list[Volume], parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    volumes.check(found)
    for volume in found:
        if mounts().get(volume.mount) is None:
            require_free(volume.mount)
    did: list[str] = []
    diffs: list[dict[str, str]] = []
    for volume in found:
        if volume.formats:
            did.append(f"{volume.name} formatted as {volume.filesystem}")
            diffs.append(_formatted(volume))
            if not check:
                volumes.format_volume(volume)
    if check and did:
        return {"changed": True, "msg": ", ".join(did) + " (check mode)", "did": did, "diff": diffs}
    if os.path.exists("/run/udev/control"):  # udev has to have seen the new filesystems
        run_command("udevadm", "settle", "--timeout=10", accept=(0, 1))
    written = _tables(found, check=check)
    diffs += written
    for volume in found:
        did += _mounted(volume, parameters, check=check)
        did += _readahead(volume, parameters["state_folder"], check=check)
    did += [f"{diff['before_header']} written" for diff in written]
    result = {"changed": bool(did), "msg": ", ".join(did) or "as they should be", "did": did, "diff": diffs}
    if not check:
        result["record"] = [volumes.facts(volume, _at(volume)) for volume in found]
    return result


def _formatted(volume: Volume) -> dict[str, str]:
    """What is on the devices, and what comes in its place."""
    is_on = [f"{s['type']} {s['label']}".strip() for device in volume.devices for s in devices.signatures(device)]
    labels = ", ".join(device.label for device in volume.devices)
    kind = "RAID 0, " if volume.is_array else ""
    return {
        "before_header": labels,
        "after_header": labels,
        "before": "".join(f"{line}\n" for line in is_on),
        "after": f"{kind}{volume.filesystem} {volume.label}, mounted at {volume.mount}\n",
    }


def _tables(found: list[Volume], *, check: bool) -> list[dict[str, str]]:
    """Write our lines of /etc/fstab and the rule of udev, or with no volumes remove them; the differences."""
    entries = [(volumes.uuid(v), v.mount, v.filesystem) for v in found]
    readahead = [(volumes.uuid(v), v.readahead_sectors) for v in found if v.readahead_sectors is not None]
    table = put_file(FSTAB, fstab(read_text(FSTAB), entries), check=check)
    rule = put_file(RULES, rules(readahead), check=check)
    if table and not check and has_systemd():
        run_command("systemctl", "daemon-reload")
    if rule and not check and os.path.exists("/run/udev/control"):
        run_command("udevadm", "control", "--reload")
    return [diff for diff in (table, rule) if diff]


def _mounted(volume: Volume, parameters: dict[str, Any], *, check: bool) -> list[str]:
    did = []
    mount = mounts().get(volume.mount)
    if mount is None:
        did.append(f"{volume.name} mounted")
        if not check:
            os.makedirs(volume.mount, exist_ok=True)
            run_command("mount", volume.mount)
    if check and mount is None:
        return did
    is_now = _at(volume)
    number = read_value(f"/sys/class/block/{volumes.device(volume).name}/dev")
    if is_now["number"] != number:
        raise HostError(
            f"{volume.mount} has another device mounted ({is_now['number']}) than {volume.name}'s, {number}"
        )
    if "noatime" not in is_now["options"].split(","):
        did.append(f"{volume.name} mounted again with noatime")
        if not check:
            run_command("mount", "-o", "remount,noatime", volume.mount)
    return did + _owned(volume.mount, parameters, check=check)


def _at(volume: Volume) -> dict[str, str]:
    mount = mounts().get(volume.mount)
    if mount is None:
        raise HostError(f"volume {volume.name} is not mounted at {volume.mount}, although mount said nothing")
    return mount


def _owned(path: str, parameters: dict[str, Any], *, check: bool) -> list[str]:
    try:
        user = pwd.getpwnam(parameters["owner"])
        owner = (user.pw_uid, grp.getgrnam(parameters["group"]).gr_gid if parameters["group"] else user.pw_gid)
    except KeyError:
        raise HostError(f"user {parameters['owner']} or group {parameters['group']} is not on this host") from None
    is_now, mode = os.stat(path), int(parameters["mode"], 8)
    if (is_now.st_uid, is_now.st_gid, is_now.st_mode & 0o7777) == (*owner, mode):
        return []
    if not check:
        os.chown(path, *owner)
        os.chmod(path, mode)
    return [f"{path} owned by {parameters['owner']}"]


def _readahead(volume: Volume, state_folder: str, *, check: bool) -> list[str]:
    """At once; the rule of udev does it after a reboot. What it was before is kept for the way back."""
    sectors = volume.readahead_sectors
    before = volumes.readahead(volumes.device(volume))
    if sectors is None or before == sectors:
        return []
    if not check:
        known = load_state(state_folder, _STATE)
        known.setdefault(volume.name, before)
        save_state(state_folder, _STATE, known)
        volumes.set_readahead(volume, sectors)
    return [f"{volume.name} readahead {before} to {sectors} sectors"]


def _absent(found: list[Volume], parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    did = []
    before = load_state(parameters["state_folder"], _STATE)
    for volume in found:
        mount = mounts().get(volume.mount)
        if mount is None:
            continue
        did.append(f"{volume.name} unmounted")
        if check:
            continue
        if volume.name in before:
            volumes.set_readahead(volume, before[volume.name])
        run_command("umount", volume.mount)
        volumes.stop_array(volume)
    diffs = _tables([], check=check)
    if not check:
        save_state(parameters["state_folder"], _STATE, {})
    return {"changed": bool(did or diffs), "msg": ", ".join(did) or "none is mounted", "did": did, "diff": diffs}


def fstab(before: str, entries: list[tuple[str, str, str]]) -> str:
    """The table with exactly these (uuid, mount, filesystem) as our lines; all other lines stay as they are."""
    lines = iter(before.splitlines())
    kept = []
    for line in lines:
        if line.startswith(_MARK):
            next(lines, None)
        else:
            kept.append(line)
    for uuid, mount, filesystem in entries:
        kept.append(f"{_MARK}noatime, since reading must not write; by UUID, since devices change their names")
        # No fsck at boot: XFS has none, and ext4 replays its journal when it is mounted.
        kept.append(f"UUID={uuid} {mount} {filesystem} {OPTIONS} 0 0")
    return "\n".join(kept) + "\n" if kept else ""


def rules(entries: list[tuple[str, int]]) -> str:
    """udev's rules that set readahead (sectors) for filesystems by their UUID, when a device appears."""
    if not entries:
        return ""
    lines = [f"{_MARK}readahead in KiB, half of what `blockdev --setra` calls sectors"]
    for uuid, sectors in entries:
        match = f'ACTION=="add|change", SUBSYSTEM=="block", ENV{{ID_FS_UUID}}=="{uuid}"'
        lines.append(f'{match}, ATTR{{queue/read_ahead_kb}}="{sectors // 2}"')
    return "\n".join(lines) + "\n"


def require_free(mount: str) -> None:
    """HostError when files lie where a filesystem is to be mounted: it would hide them.

    Software that runs without volumes have left may be hidden: it is brought again, and is there again afterwards.
    """
    if os.path.isdir(mount) and set(os.listdir(mount)) - {"software"}:
        raise HostError(f"{mount} has files and nothing is mounted there; move them away. Nothing was formatted")
