"""/etc/fstab, the rules of udev, and what is mounted."""

from __future__ import annotations

import os
import re

from ..refused import Refused
from ..run_folder import write_atomically
from ..storage.commands import read, run

FSTAB = "/etc/fstab"
RULES = "/etc/udev/rules.d/99-microshard-readahead.rules"
_MARK = "# microshard: "
# noatime: reading must not write (MongoDB production notes). nofail: a host whose volume is gone stays reachable.
OPTIONS = "noatime,nofail"


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


def changed(path: str, text: str) -> dict[str, str] | None:
    """The difference a file would have, None when it has this text already ("" is no file)."""
    before = whole(path)
    if before == text:
        return None
    return {"before_header": path, "after_header": path, "before": before, "after": text}


def whole(path: str) -> str:
    """The text of a file as it is; "" when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def write(path: str, text: str) -> None:
    """Put the text there, or with none remove the file."""
    if text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, text)
    elif os.path.exists(path):
        os.unlink(path)
    if path == FSTAB and os.path.isdir("/run/systemd/system"):
        run("systemctl", "daemon-reload")
    if path == RULES and os.path.exists("/run/udev/control"):
        run("udevadm", "control", "--reload")


def mounted(mount: str) -> dict[str, str] | None:
    """What is mounted at a place: device number, filesystem type, options; None when nothing is."""
    found = None
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), fields[4]) == mount:
            found = {"number": fields[2], "type": rest[0], "options": fields[5]}
    return found


def require_free(mount: str) -> None:
    """Refused when files lie where a filesystem is to be mounted: it would hide them.

    Software that runs without volumes have left may be hidden: it is brought again, and is there again afterwards.
    """
    if os.path.isdir(mount) and set(os.listdir(mount)) - {"software"}:
        raise Refused(f"{mount} has files and nothing is mounted there; move them away. Nothing was formatted")
