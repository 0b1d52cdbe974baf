"""Module emulated_volumes: loop devices with the limits of a volume, mounted in a run's folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import throttle
from .block_devices import mounts
from .errors import HostError
from .files import make_run_folder, require_run_folder, run_command, write_atomically
from .mongo_config import complete

BUSY_SECONDS = 5.0  # seconds for a filesystem that was busy a moment ago
_TOOLS = {"xfs": ("mkfs.xfs", "xfsprogs"), "ext4": ("mkfs.ext4", "e2fsprogs")}


_VOLUME = {
    "name": {"type": "str", "choices": ["data", "journal", "log"], "required": True},
    "size_gib": {"type": "int", "required": True},
    "filesystem": {"type": "str", "choices": ["xfs", "ext4"], "default": "xfs"},
    "lazy_init": {"type": "bool", "default": False},
    "iops": {"type": "int"},
    "throughput_mibps": {"type": "int"},
    "readahead_sectors": {"type": "int"},
    "image": {"type": "path"},
    "mount": {"type": "path"},
}
ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "deployment": {"type": "str", "required": True},
    "volumes": {"type": "list", "elements": "dict", "options": _VOLUME, "default": []},
    "processes": {"type": "list", "elements": "dict", "default": []},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Make, mount and limit the volumes of a point, or remove all traces of them."""
    if parameters["state"] == "present" and not check:
        make_run_folder(parameters["run_folder"])
    folder, deployment = Path(require_run_folder(parameters["run_folder"])), parameters["deployment"]
    if parameters["state"] == "absent":
        changed, left = absent(folder, deployment, check=check)
        if left:
            raise HostError("; ".join(left), changed=changed)
        return {"changed": changed}
    volumes = [_planned(volume, folder, deployment) for volume in parameters["volumes"]]
    name = group(folder, deployment)
    changed, found = present(volumes, name, check=check)
    if not check:
        # A port is no matter here.
        processes = [complete({"port": 0, **process}, str(folder), deployment) for process in parameters["processes"]]
        changed |= link_processes(volumes, processes)
        (folder / "points" / deployment).mkdir(parents=True, exist_ok=True)
        write_atomically(str(folder / "points" / deployment / "volumes.json"), json.dumps(found, indent=1) + "\n")
    return {"changed": changed, "volumes": found, "cgroup": str(throttle.controller().group(name))}


def _planned(volume: Mapping[str, Any], folder: Path, deployment: str) -> LoopVolume:
    """A volume with its paths: data lies where the processes have their folders."""
    name, images = volume["name"], folder / "volumes" / deployment
    mount = folder / "deployments" / deployment if name == "data" else images / name
    paths = {"image": Path(volume["image"] or images / f"{name}.img"), "mount": Path(volume["mount"] or mount)}
    return LoopVolume(**{**volume, **paths})


@dataclass(frozen=True)
class LoopVolume:
    """An emulated volume as planned, with absolute paths."""

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
    except HostError as error:
        return f"emulated volumes need their limits kept, and {error}"
    for filesystem in filesystems:
        tool, package = _TOOLS[filesystem]
        if shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            other = "ext4" if filesystem == "xfs" else "xfs"
            return f"{tool} is not installed; install {package}, or set filesystem: {other}"
    return None


def present(volumes: Sequence[LoopVolume], group: str, *, check: bool = False) -> tuple[bool, list[dict[str, Any]]]:
    """Make, mount and limit the volumes; whether anything changed, and each volume as it is, read back."""
    control = throttle.controller()
    changed = False
    for volume in volumes:
        changed |= _make(volume, control, group, check=check)
    return changed, [] if check else [facts(volume, control, group) for volume in volumes]


def _make(volume: LoopVolume, control: throttle.Controller, group: str, *, check: bool) -> bool:
    mounted = str(volume.mount) in mounts_below(volume.mount.parent)
    if mounted:
        (loop,) = [loop for loop in loop_devices(volume.image.parent) if loop.file == str(volume.image)]
        right = control.limits(loop.number, group) == volume.limits.by_key()
        if not right and not check:
            control.limit(loop.number, volume.limits, group)
        return not right
    if check:
        return True
    volume.image.parent.mkdir(parents=True, exist_ok=True)
    with volume.image.open("wb") as file:
        file.truncate(volume.size_gib * 2**30)  # sparse: only what is written takes space
    for stale in loop_devices(volume.image.parent):
        if stale.file == str(volume.image):
            detach(stale)  # of an attempt that was cut off before it mounted anything
    loop = attach(volume.image)
    run_command(*_mkfs(volume), loop.device)
    volume.mount.mkdir(parents=True, exist_ok=True)
    # noatime: reading must not write (MongoDB production notes).
    run_command("mount", "-t", volume.filesystem, "-o", "noatime", loop.device, str(volume.mount))
    if volume.readahead_sectors is not None:
        run_command("blockdev", "--setra", str(volume.readahead_sectors), loop.device)
    control.limit(loop.number, volume.limits, group)  # last: the filesystem is made at full speed
    return True


def _mkfs(volume: LoopVolume) -> list[str]:
    if volume.filesystem == "xfs":
        return ["mkfs.xfs", "-q", "-L", volume.label]
    lazy = int(volume.lazy_init)  # 0: no thread of the kernel writes inode tables during the measurement
    return ["mkfs.ext4", "-q", "-L", volume.label, "-E", f"lazy_itable_init={lazy},lazy_journal_init={lazy}"]


def facts(volume: LoopVolume, control: throttle.Controller, group: str) -> dict[str, Any]:
    """A mounted volume with its device, filesystem, limits and readahead as the kernel has them."""
    device = mounts_below(volume.mount.parent)[str(volume.mount)]
    loop = next(loop for loop in loop_devices(volume.image.parent) if loop.device == device)
    sectors = int(run_command("blockdev", "--getra", device))
    usage = os.statvfs(volume.mount)
    return {
        "name": volume.name,
        "type": "emulated",
        "device": device,
        "filesystem": volume.filesystem,
        "label": volume.label,
        "mount": str(volume.mount),
        "size_bytes": volume.size_gib * 2**30,
        "usable_bytes": usage.f_frsize * usage.f_bavail,
        "limits": control.limits(loop.number, group),
        "limited_by": f"cgroup v{control.version}",
        "readahead_sectors": sectors,
        "readahead_kib": sectors / 2,
    }


def link_processes(volumes: Sequence[LoopVolume], processes: Sequence[Mapping[str, Any]]) -> bool:
    """Put journals and logs on their volumes by symbolic links, before the first start; whether a link was made."""
    targets = {volume.name: volume.mount for volume in volumes}
    changed = False
    for process in processes:
        if process["db_path"] and "journal" in targets:
            changed |= _link(Path(process["db_path"]) / "journal", targets["journal"] / process["name"], folder=True)
        if "log" in targets:
            changed |= _link(Path(process["log_path"]), targets["log"] / f"{process['name']}.log", folder=False)
    return changed


def _link(link: Path, target: Path, *, folder: bool) -> bool:
    if link.is_symlink() and link.readlink() == target:
        return False
    if link.exists() or link.is_symlink():
        raise HostError(f"{link} exists already and is no link to {target}; nothing was moved")
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder:
        target.mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(target)
    return True


def absent(folder: Path, point: str | None = None, *, check: bool = False) -> tuple[bool, list[str]]:
    """Remove every emulated volume of a run, or of one of its points.

    The kernel shows which there are below the run's folder. Returns whether there was any, and what could not be
    removed, one sentence each.
    """
    images = folder / "volumes" / point if point else folder / "volumes"
    # A folder of the run may be a link; the kernel knows real paths.
    images = images.resolve()
    mine = loop_devices(images)
    devices = {loop.device for loop in mine}
    mounted = {mount: source for mount, source in mounts_below(folder.resolve()).items() if source in devices}
    exists = bool(mine or mounted or images.is_dir())
    if check or not exists:
        return exists, []
    left = [*_unmounted(list(reversed(mounted))), *_released(folder, images)]
    left += _dissolved([group(folder, name) for name in ([point] if point else _names(images))])
    if not left:
        shutil.rmtree(images, ignore_errors=True)
    return True, left


def _unmounted(points: Sequence[str]) -> Iterator[str]:
    for at in points:
        try:
            unmount(at)
        except HostError as error:
            yield f"mount {at}: {error}"


def _released(folder: Path, images: Path) -> Iterator[str]:
    """Lift the limits of loop devices that are mounted no more and detach them; yields what kept one."""
    for loop in loop_devices(images):
        if loop.device in mounts_below(folder.resolve()).values():
            continue  # reported already; detaching it now would only take effect later
        try:
            with contextlib.suppress(throttle.NoControllerError):
                throttle.controller().lift(loop.number, group(folder, Path(loop.file).parent.name))
            detach(loop)
        except (HostError, OSError) as error:
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


@dataclass(frozen=True)
class LoopDevice:
    """A loop device and the file behind it."""

    device: str  # /dev/loop0
    number: str  # MAJOR:MINOR
    file: str


def loop_devices(below: Path) -> list[LoopDevice]:
    """LoopDevice devices whose file lies below a folder, also when the file has been deleted."""
    found = []
    for entry in Path("/sys/block").glob("loop*"):
        with contextlib.suppress(OSError):
            file = (entry / "loop" / "backing_file").read_text(encoding="utf-8").rstrip("\n")
            if file.startswith(f"{below}/"):
                number = (entry / "dev").read_text(encoding="ascii").strip()
                found.append(LoopDevice(f"/dev/{entry.name}", number, file.removesuffix(" (deleted)")))
    return found


def mounts_below(folder: Path) -> dict[str, str]:
    """Mount points below a folder with what is mounted there, in the order of mounting."""
    return {point: mount["source"] for point, mount in mounts().items() if point.startswith(f"{folder}/")}


def attach(file: Path) -> LoopDevice:
    """A loop device on a file. The page cache under it is bypassed where the filesystem below allows."""
    try:
        run_command("losetup", "--direct-io=on", "--find", str(file))
    except HostError:
        for loop in loop_devices(file.parent):
            if loop.file == str(file):
                return loop  # attached, only without direct I/O
        run_command("losetup", "--find", str(file))
    return next(loop for loop in loop_devices(file.parent) if loop.file == str(file))


def detach(loop: LoopDevice) -> None:
    """Detach the loop device from its file."""
    run_command("losetup", "--detach", loop.device)


def unmount(point: str) -> None:
    """Unmount; a filesystem that is busy is waited for a little."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            run_command("umount", point)
        except HostError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
