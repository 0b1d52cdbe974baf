"""The volumes of a host: found, formatted where that is allowed, mounted, with their readahead."""

from __future__ import annotations

import grp
import json
import os
import pwd
from typing import Any

from ..refused import Refused
from ..storage import devices, table, volumes
from ..storage.commands import read, run
from ..storage.volumes import Volume

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
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The volumes are there as asked for, or mounted no more (what is on them stays)."""
    definitions = {
        name: {**volume, "readahead_sectors": wanted["readahead_sectors"]}
        for name, volume in wanted["volumes"].items()
        if volume
    }
    found = volumes.wanted(definitions, wanted["known"], wanted["root"], wanted["mounts"])
    return (_present if wanted["state"] == "present" else _absent)(found, wanted, check=check)


def _present(found: list[Volume], wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    volumes.check(found)
    for volume in found:
        if table.mounted(volume.mount) is None:
            table.require_free(volume.mount)
    did: list[str] = []
    diffs: list[dict[str, str]] = []
    for volume in found:
        if volume.formats:
            did.append(f"{volume.name} formatted as {volume.filesystem}")
            diffs.append(_formatted(volume))
            if not check:
                volumes.make(volume)
    if check and did:
        return {"changed": True, "msg": ", ".join(did) + " (check mode)", "did": did, "diff": diffs}
    volumes.settle()
    written = _tables(found, check=check)
    diffs += written
    for volume in found:
        did += _mounted(volume, wanted, check=check)
        did += _readahead(volume, wanted["state_folder"], check=check)
    did += [f"{diff['before_header']} written" for diff in written]
    result = {"changed": bool(did), "msg": ", ".join(did) or "as they should be", "did": did, "diff": diffs}
    if not check:
        result["volumes"] = [volumes.facts(volume, _at(volume)) for volume in found]
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
    entries = [(volumes.uuid(v), v.mount, v.filesystem) for v in found]
    ahead = [(volumes.uuid(v), v.readahead_sectors) for v in found if v.readahead_sectors is not None]
    diffs = []
    for path, text in (
        (table.FSTAB, table.fstab(table.whole(table.FSTAB), entries)),
        (table.RULES, table.rules(ahead)),
    ):
        diff = table.changed(path, text)
        if diff:
            diffs.append(diff)
            if not check:
                table.write(path, text)
    return diffs


def _mounted(volume: Volume, wanted: dict[str, Any], *, check: bool) -> list[str]:
    did = []
    there = table.mounted(volume.mount)
    if there is None:
        did.append(f"{volume.name} mounted")
        if not check:
            os.makedirs(volume.mount, exist_ok=True)
            run("mount", volume.mount)
    if check and there is None:
        return did
    is_now = _at(volume)
    number = read(f"/sys/class/block/{volumes.device(volume).name}/dev")
    if is_now["number"] != number:
        raise Refused(f"{volume.mount} has another device mounted ({is_now['number']}) than {volume.name}'s, {number}")
    if "noatime" not in is_now["options"].split(","):
        did.append(f"{volume.name} mounted again with noatime")
        if not check:
            run("mount", "-o", "remount,noatime", volume.mount)
    return did + _owned(volume.mount, wanted, check=check)


def _at(volume: Volume) -> dict[str, str]:
    there = table.mounted(volume.mount)
    if there is None:
        raise Refused(f"volume {volume.name} is not mounted at {volume.mount}, although mount said nothing")
    return there


def _owned(path: str, wanted: dict[str, Any], *, check: bool) -> list[str]:
    try:
        user = pwd.getpwnam(wanted["owner"])
        owner = (user.pw_uid, grp.getgrnam(wanted["group"]).gr_gid if wanted["group"] else user.pw_gid)
    except KeyError:
        raise Refused(f"user {wanted['owner']} or group {wanted['group']} is not on this host") from None
    is_now, mode = os.stat(path), int(wanted["mode"], 8)
    if (is_now.st_uid, is_now.st_gid, is_now.st_mode & 0o7777) == (*owner, mode):
        return []
    if not check:
        os.chown(path, *owner)
        os.chmod(path, mode)
    return [f"{path} owned by {wanted['owner']}"]


def _readahead(volume: Volume, state_folder: str, *, check: bool) -> list[str]:
    """At once; the rule of udev does it after a reboot. What it was before is kept for the way back."""
    sectors = volume.readahead_sectors
    before = volumes.readahead(volumes.device(volume))
    if sectors is None or before == sectors:
        return []
    if not check:
        known = _remembered(state_folder)
        known.setdefault(volume.name, before)
        _remember(state_folder, known)
        volumes.set_readahead(volume, sectors)
    return [f"{volume.name} readahead {before} to {sectors} sectors"]


def _absent(found: list[Volume], wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    did, diffs = [], []
    before = _remembered(wanted["state_folder"])
    for volume in found:
        there = table.mounted(volume.mount)
        if there is None:
            continue
        did.append(f"{volume.name} unmounted")
        if check:
            continue
        if volume.name in before:
            volumes.set_readahead(volume, before[volume.name])
        run("umount", volume.mount)
        volumes.stop_array(volume)
    for path, text in ((table.FSTAB, table.fstab(table.whole(table.FSTAB), [])), (table.RULES, "")):
        diff = table.changed(path, text)
        if diff:
            diffs.append(diff)
            if not check:
                table.write(path, text)
    if not check:
        _remember(wanted["state_folder"], {})
    return {"changed": bool(did or diffs), "msg": ", ".join(did) or "none is mounted", "did": did, "diff": diffs}


def _state(folder: str) -> str:
    return os.path.join(folder, "readahead.json")


def _remembered(folder: str) -> dict[str, int]:
    return dict(json.loads(table.whole(_state(folder)) or "{}"))


def _remember(folder: str, values: dict[str, int]) -> None:
    table.write(_state(folder), json.dumps(values, indent=1) + "\n" if values else "")
