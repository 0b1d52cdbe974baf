"""Loop devices and what is mounted, as the kernel shows them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from microshard.hostlib.volume_errors import VolumeError

_PATIENCE = 5.0  # seconds for a filesystem that was busy a moment ago


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop device and the file behind it."""

    device: str  # /dev/loop0
    number: str  # MAJOR:MINOR
    file: str


def loops(below: Path) -> list[Loop]:
    """Loop devices whose file lies below a folder, also when the file has been deleted."""
    found = []
    for entry in Path("/sys/block").glob("loop*"):
        with contextlib.suppress(OSError):
            file = (entry / "loop" / "backing_file").read_text(encoding="utf-8").rstrip("\n")
            if file.startswith(f"{below}/"):
                number = (entry / "dev").read_text(encoding="ascii").strip()
                found.append(Loop(f"/dev/{entry.name}", number, file.removesuffix(" (deleted)")))
    return found


def mounts(below: Path) -> dict[str, str]:
    """Mount points below a folder with what is mounted there (/proc/self/mountinfo), in the order of mounting."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4].encode().decode("unicode_escape")  # a blank stands there as \040
        if point.startswith(f"{below}/"):
            found[point] = rest.split()[1]
    return found


def attach(file: Path) -> Loop:
    """A loop device on a file. The page cache under it is bypassed where the filesystem below allows."""
    try:
        run("losetup", "--direct-io=on", "--find", str(file))
    except VolumeError:
        for loop in loops(file.parent):
            if loop.file == str(file):
                return loop  # attached, only without direct I/O
        run("losetup", "--find", str(file))
    return next(loop for loop in loops(file.parent) if loop.file == str(file))


def detach(loop: Loop) -> None:
    """The loop device has no file any more."""
    run("losetup", "--detach", loop.device)


def unmount(point: str) -> None:
    """Nothing is mounted there; a filesystem that is busy is waited for a little."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            run("umount", point)
        except VolumeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def run(*command: str) -> str:
    """What a command of the system says. Raises VolumeError with its own words when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise VolumeError(f"{command[0]} is not installed; emulated volumes need it") from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise VolumeError(f"{' '.join(command)}: {words}")
    return done.stdout
