"""The emulated volumes of a point: made, looked at, removed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.hostlib import loop_devices as loops
from microshard.hostlib import throttle
from microshard.hostlib.volume_errors import VolumeError

_TOOLS = {"xfs": ("mkfs.xfs", "xfsprogs"), "ext4": ("mkfs.ext4", "e2fsprogs")}


@dataclass(frozen=True, slots=True)
class Wish:
    """An emulated volume as it is to be; paths are absolute."""

    name: str  # data, journal or log
    image: Path
    mount: Path
    size_gib: int
    filesystem: str
    lazy_init: bool
    iops: int | None
    throughput_mibps: int | None
    readahead_sectors: int | None

    @property
    def limits(self) -> throttle.Limits:
        """For the controller."""
        mibps = self.throughput_mibps
        return throttle.Limits(self.iops, None if mibps is None else mibps * 2**20)

    @property
    def label(self) -> str:
        """Of the filesystem; 12 bytes at most, which is XFS's limit."""
        return f"ms-{self.name}"


def why_not(filesystems: Sequence[str] = ()) -> str | None:
    """Why no volume can be emulated on this machine by this user; None when it can."""
    if os.geteuid() != 0:
        return "emulated volumes need root: loop devices, mounts and cgroup limits are the system's"
    if not Path("/dev/loop-control").exists():
        return "emulated volumes need loop devices, and there is no /dev/loop-control (a container?)"
    try:
        throttle.controller()
    except VolumeError as error:
        return f"emulated volumes need their limits kept, and {error}"
    for filesystem in filesystems:
        tool, package = _TOOLS[filesystem]
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            other = "ext4" if filesystem == "xfs" else "xfs"
            return f"{tool} is not there; install {package}, or set filesystem: {other}"
    return None


def present(wishes: Sequence[Wish], group: str, *, check: bool = False) -> tuple[bool, list[dict[str, Any]]]:
    """The volumes are there, mounted and limited. Returns whether anything changed, and what is, read back."""
    control = throttle.controller()
    changed = False
    for wish in wishes:
        changed |= _make(wish, control, group, check=check)
    return changed, [] if check else [facts(wish, control, group) for wish in wishes]


def _make(wish: Wish, control: throttle.Controller, group: str, *, check: bool) -> bool:
    mounted = str(wish.mount) in loops.mounts(wish.mount.parent)
    if mounted:
        (loop,) = [loop for loop in loops.loops(wish.image.parent) if loop.file == str(wish.image)]
        right = control.limits(loop.number, group) == wish.limits.by_key()
        if not right and not check:
            control.limit(loop.number, wish.limits, group)
        return not right
    if check:
        return True
    wish.image.parent.mkdir(parents=True, exist_ok=True)
    with wish.image.open("wb") as file:
        file.truncate(wish.size_gib * 2**30)  # sparse: only what is written takes space
    for stale in loops.loops(wish.image.parent):
        if stale.file == str(wish.image):
            loops.detach(stale)  # of an attempt that was cut off before it mounted anything
    loop = loops.attach(wish.image)
    loops.run(*_mkfs(wish), loop.device)
    wish.mount.mkdir(parents=True, exist_ok=True)
    # noatime: reading must not write (MongoDB production notes).
    loops.run("mount", "-t", wish.filesystem, "-o", "noatime", loop.device, str(wish.mount))
    if wish.readahead_sectors is not None:
        loops.run("blockdev", "--setra", str(wish.readahead_sectors), loop.device)
    control.limit(loop.number, wish.limits, group)  # last: the filesystem is made at full speed
    return True


def _mkfs(wish: Wish) -> list[str]:
    if wish.filesystem == "xfs":
        return ["mkfs.xfs", "-q", "-L", wish.label]
    lazy = int(wish.lazy_init)  # 0: no thread of the kernel writes inode tables beside the measurement
    return ["mkfs.ext4", "-q", "-L", wish.label, "-E", f"lazy_itable_init={lazy},lazy_journal_init={lazy}"]


def facts(wish: Wish, control: throttle.Controller, group: str) -> dict[str, Any]:
    """What a mounted volume is: device, filesystem, limits and readahead as the kernel has them."""
    device = loops.mounts(wish.mount.parent)[str(wish.mount)]
    loop = next(loop for loop in loops.loops(wish.image.parent) if loop.device == device)
    sectors = int(loops.run("blockdev", "--getra", device))
    usage = os.statvfs(wish.mount)
    return {
        "name": wish.name,
        "type": "emulated",
        "device": device,
        "filesystem": wish.filesystem,
        "label": wish.label,
        "mount": str(wish.mount),
        "size_bytes": wish.size_gib * 2**30,
        "usable_bytes": usage.f_frsize * usage.f_bavail,
        "limits": control.limits(loop.number, group),
        "limited_by": f"cgroup v{control.version}",
        "readahead_sectors": sectors,
        "readahead_kib": sectors / 2,
    }


def lay_out(wishes: Sequence[Wish], processes: Sequence[Mapping[str, Any]]) -> bool:
    """Journals and logs are on their own volumes, by symbolic links made before the first start; whether any was."""
    mounts = {wish.name: wish.mount for wish in wishes}
    changed = False
    for process in processes:
        if process["db_path"] and "journal" in mounts:
            changed |= _link(Path(process["db_path"]) / "journal", mounts["journal"] / process["name"], folder=True)
        if "log" in mounts:
            changed |= _link(Path(process["log_path"]), mounts["log"] / f"{process['name']}.log", folder=False)
    return changed


def _link(link: Path, target: Path, *, folder: bool) -> bool:
    if link.is_symlink() and link.readlink() == target:
        return False
    if link.exists() or link.is_symlink():
        raise VolumeError(f"{link} is there already and no link to {target}; nothing was moved")
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder:
        target.mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(target)
    return True


def absent(folder: Path, point: str | None = None, *, check: bool = False) -> tuple[bool, list[str]]:
    """No emulated volume of a run, or of one of its points, is there.

    Goes by what the kernel shows below the run's folder, so that nothing has to be remembered. Returns whether anything
    was there, and what could not be removed, one sentence each.
    """
    images = folder / "volumes" / point if point else folder / "volumes"
    # A folder of the run may be a link; the kernel knows real paths.
    images = images.resolve()
    mine = loops.loops(images)
    devices = {loop.device for loop in mine}
    mounted = {at: what for at, what in loops.mounts(folder.resolve()).items() if what in devices}
    there = bool(mine or mounted or images.is_dir())
    if check or not there:
        return there, []
    left = [*_unmounted(list(reversed(mounted))), *_released(folder, images)]
    left += _dissolved([group(folder, name) for name in ([point] if point else _names(images))])
    if not left:
        shutil.rmtree(images, ignore_errors=True)
    return True, left


def _unmounted(points: Sequence[str]) -> Iterator[str]:
    for at in points:
        try:
            loops.unmount(at)
        except VolumeError as error:
            yield f"mount {at}: {error}"


def _released(folder: Path, images: Path) -> Iterator[str]:
    """Lift the limits of loop devices that are mounted no more and detach them; yields what kept one."""
    for loop in loops.loops(images):
        if loop.device in loops.mounts(folder.resolve()).values():
            continue  # told already; detaching it now would only take effect later
        try:
            with contextlib.suppress(throttle.NoControllerError):
                throttle.controller().lift(loop.number, group(folder, Path(loop.file).parent.name))
            loops.detach(loop)
        except (VolumeError, OSError) as error:
            yield f"loop device {loop.device} ({loop.file}): {error}"


def _dissolved(groups: Sequence[str]) -> Iterator[str]:
    with contextlib.suppress(throttle.NoControllerError):
        control = throttle.controller()
        for name in groups:
            try:
                control.dissolve(name)
            except OSError as error:
                yield f"cgroup {control.group(name)}: {error.strerror}"


def _names(images: Path) -> list[str]:
    return [entry.name for entry in images.iterdir()] if images.is_dir() else []


def group(folder: Path, point: str) -> str:
    """The name of a point's cgroup."""
    return f"{folder.name}.{point}"
