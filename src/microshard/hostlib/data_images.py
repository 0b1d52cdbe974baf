"""Module data_images: keep the data folders of processes as a data image, or restore them from one.

An image is a folder IMAGES/NAME with `manifest.json`, and `data/PROCESS/…` as in the dbPaths. It is made in the run's
folder and renamed when it is whole, so one that has its name is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Callable

from . import image_addresses, mongo_config, proc, wire
from .errors import HostError
from .files import require_own, require_run_folder, sha256, write_atomically

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "deployment": {"type": "str", "default": "by-hand"},
    "processes": {"type": "list", "elements": "dict", "required": True},
    "replica_sets": {"type": "list", "elements": "dict", "default": []},
    "host": {"type": "str", "default": ""},
    "mongod": {"type": "path", "default": ""},
    "folder": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "manifest": {"type": "dict", "default": {}},
    "state": {"choices": ["kept", "copied", "restored"], "default": "restored"},
}

# After a clean shutdown nothing of these is needed: the journal is empty, the lock names no process.
_NOT_KEPT = ("journal", "diagnostic.data", "mongod.lock", "_tmp")
_LOCKED_IN = 30.0  # s
_BLOCK = 1 << 20
Fill = Callable[[list[dict[str, Any]], str], None]
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file (XFS, btrfs)


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Keep or restore the data of this host's processes."""
    run_folder = require_run_folder(parameters["run_folder"])
    processes = mongo_config.on_host(parameters["processes"], "", run_folder, parameters["deployment"])
    found = [p for p in processes if p["host"] in {"", parameters["host"]} or not parameters["host"]]
    data = {process["name"]: process["db_path"] for process in found if process["db_path"]}
    for path in data.values():
        require_own(run_folder, path)
    state, endpoints = parameters["state"], {p["name"]: p["endpoint"] for p in processes if p["db_path"]}
    running = [p["name"] for p in found if proc.from_pid_file(p["pid_path"], p["config_path"])]
    if running and state != "copied":
        raise HostError(f"{', '.join(running)} must not run while data folders are {state}")
    name, target = parameters["name"], os.path.join(parameters["folder"], parameters["name"])
    if os.path.basename(target) != name or name.startswith("."):
        raise HostError(f"{name} is not the name of a data image")
    if not data:
        return {"changed": False, "msg": "no process of this host bears data"}
    here = [process for process in found if process["db_path"]]
    if state != "restored":
        draft = os.path.join(run_folder, "deployments", parameters["deployment"], ".image")
        fill = _move if state == "kept" else _copy
        return _keep(here, fill, draft, target, {**parameters["manifest"], "endpoints": endpoints}, check=check)
    done, before = _restore(data, target, parameters["manifest"].get("run"), check=check)
    if check:
        return done
    if before and before != endpoints:
        sets = parameters["replica_sets"] or mongo_config.replica_sets(processes)
        image_addresses.rewrite(here, processes, sets, parameters["mongod"])
        done["msg"] += ", addresses changed"
        for path in data.values():
            _own_like(path, path)
    return done


def _keep(
    processes: list[dict[str, Any]], fill: Fill, draft: str, target: str, manifest: dict[str, Any], *, check: bool
) -> dict[str, Any]:
    """Fill an image with the data folders. One that is there already stays: the same recipe is the same data."""
    if os.path.isdir(target):
        size = sum(file["bytes"] for file in _manifest(target)["files"])
        return {"changed": False, "msg": f"{target} exists already", "image_bytes": size}
    if check:
        return {"changed": True, "msg": f"{target} would be made"}
    shutil.rmtree(draft, ignore_errors=True)
    os.makedirs(os.path.join(draft, "data"), mode=0o700)
    fill(processes, os.path.join(draft, "data"))
    files = _described(os.path.join(draft, "data"))
    manifest = {**manifest, "files": files}
    write_atomically(os.path.join(draft, "manifest.json"), json.dumps(manifest, indent=1) + "\n")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.rename(draft, target)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        if not os.path.isdir(target):  # another run may have made the same one meanwhile
            raise HostError(f"{target}: the image cannot be put there: {error.strerror}") from None
    size = sum(file["bytes"] for file in files)
    return {"changed": True, "msg": f"{target}: {len(files)} files, {size / 1e6:,.0f} MB", "image_bytes": size}


def _move(processes: list[dict[str, Any]], folder: str) -> None:
    """Move the data folders of stopped mongods, without what is not kept."""
    for process in processes:
        lock = os.path.join(process["db_path"], "mongod.lock")
        if not os.path.exists(lock) or os.path.getsize(lock):
            raise HostError(f"{process['name']} was not shut down cleanly: its data cannot become an image")
    for process in processes:
        source, target = os.path.realpath(process["db_path"]), os.path.join(folder, process["name"])
        for name in _NOT_KEPT:
            path = os.path.join(source, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)
        try:
            os.rename(source, target)
        except OSError:  # it lies on another volume
            shutil.copytree(source, target, symlinks=True)
            _own_like(source, target)


def _copy(processes: list[dict[str, Any]], folder: str) -> None:
    """Copy the data folders of mongods that run.

    fsyncLock writes a checkpoint and holds writes back. All are locked before the first is copied, so that no member of
    a set gets ahead of another.
    """
    try:
        _at_once(processes, partial(_ask, {"fsync": 1, "lock": True}))
        _at_once(processes, partial(_copy_locked, folder))
    except (OSError, ValueError) as error:
        raise HostError(f"the data cannot be copied: {error}") from None
    finally:
        _at_once(processes, _unlock)


def _at_once(processes: list[dict[str, Any]], action: Callable[[dict[str, Any]], None]) -> None:
    """Do something with every process; also after a failure nothing goes on when this has returned."""
    with ThreadPoolExecutor(len(processes)) as pool:
        list(pool.map(action, processes))


def _unlock(process: dict[str, Any]) -> None:
    with contextlib.suppress(OSError, ValueError, HostError):
        _ask({"fsyncUnlock": 1}, process)


def _ask(command: dict[str, Any], process: dict[str, Any]) -> None:
    if error := wire.error_of(process["address"], process["port"], {**command, "$db": "admin"}, _LOCKED_IN):
        raise HostError(f"{process['name']}: {next(iter(command))}: {error}")


def _copy_locked(folder: str, process: dict[str, Any]) -> None:
    target = os.path.join(folder, process["name"])
    shutil.copytree(process["db_path"], target, ignore=shutil.ignore_patterns(*_NOT_KEPT))
    _own_like(process["db_path"], target)


def _own_like(example: str, folder: str) -> None:
    """Give a folder and all in it the owner of another, where root works for the user of the processes."""
    if os.geteuid() != 0:
        return
    owner = os.stat(example)
    for where, folders, names in os.walk(folder):
        for name in (".", *folders, *names):
            os.chown(os.path.join(where, name), owner.st_uid, owner.st_gid, follow_symlinks=False)


def _described(folder: str) -> list[dict[str, Any]]:
    """Path, size and checksum of every file below a folder."""
    paths = sorted(
        os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names
    )

    def described(path: str) -> dict[str, Any]:
        whole = os.path.join(folder, path)
        return {"path": path, "bytes": os.path.getsize(whole), "sha256": sha256(whole)}

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(described, paths))


def _restore(
    data: dict[str, str], image: str, run: str | None, *, check: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """Put the files of an image into the data folders, and check each; what was done, and the endpoints in the data.

    `run`: the one whose data they must be, as hosts have parts of an image.
    """
    with _in_use(image):
        manifest = _manifest(image)
        files, endpoints = manifest["files"], manifest["endpoints"]
        if run and manifest.get("run") != run:
            raise HostError(f"{image} has data of the run {manifest.get('run')}, not of {run} as on other hosts")
        found = {file["path"].partition("/")[0] for file in files}
        if found != set(data):
            raise HostError(f"{image} has the data of {', '.join(sorted(found))}, not of {', '.join(sorted(data))}")
        size = sum(file["bytes"] for file in files)
        if check:
            return {"changed": True, "msg": f"{len(files)} files would be restored"}, endpoints
        for name, path in data.items():
            if os.path.isdir(path) and os.listdir(path):
                raise HostError(f"{name}: {path} has data already")
            # As mongo_process makes them; the files in it follow its mode.
            os.makedirs(path, mode=0o700, exist_ok=True)
        os.utime(os.path.join(image, "manifest.json"))  # the last use
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            shared = sum(pool.map(partial(_put, image, data), files))
        for name, path in data.items():
            _own_like(os.path.join(image, "data", name), path)
    done = {
        "changed": True,
        "msg": f"{len(files)} files, {size / 1e6:,.0f} MB, {shared} of them by reflink",
        "bytes": size,
    }
    return done, endpoints


def _manifest(image: str) -> dict[str, Any]:
    """The manifest of an image, with `files` and the `endpoints` its processes had."""
    try:
        with open(os.path.join(image, "manifest.json"), encoding="utf-8") as file:
            manifest = dict(json.load(file))
        files, manifest["endpoints"] = list(manifest["files"]), dict(manifest.get("endpoints") or {})
        if not all({"path", "bytes", "sha256"} <= file.keys() for file in files):
            raise ValueError("a file lacks its size or its checksum")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HostError(f"{image}: the manifest of the data image cannot be read: {error}") from None
    if any(os.path.isabs(file["path"]) or ".." in file["path"].split("/") for file in files):
        raise HostError(f"{image}: a file of the data image lies outside of it")
    return manifest


@contextlib.contextmanager
def _in_use(image: str) -> Iterator[None]:
    """Nobody removes the image while the context is open (records/data_images.py). HostError when it is gone."""
    try:
        handle = os.open(image, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HostError(f"{image}: there is no such data image: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def _put(image: str, data: dict[str, str], file: dict[str, Any]) -> bool:
    """Copy one file and check it; whether it shares the blocks of the image's."""
    source = os.path.join(image, "data", file["path"])
    process, _, rest = file["path"].partition("/")
    target = os.path.join(data[process], rest)
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    try:
        with open(source, "rb") as old, open(target, "wb") as new:
            os.fchmod(new.fileno(), 0o600)
            shared = _cloned(new.fileno(), old.fileno())
            digest = hashlib.sha256()
            for block in iter(lambda: old.read(_BLOCK), b""):
                digest.update(block)
                if not shared:
                    new.write(block)
    except OSError as error:
        raise HostError(f"{source} cannot be restored to {target}: {error.strerror or error}") from None
    if os.path.getsize(target) != file["bytes"] or digest.hexdigest() != file["sha256"]:
        raise HostError(f"{source} is damaged: it is not the file that was kept")
    return shared


def _cloned(new: int, old: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.ioctl(new, _FICLONE, old)
        return True
    return False
