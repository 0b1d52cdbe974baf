"""Module data_images: keep the data folders of stopped processes as a data image, or restore them from one.

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
from typing import Any

from . import mongo_config, proc
from .errors import HostError
from .files import require_own, require_run_folder, sha256, write_atomically

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "deployment": {"type": "str", "default": "by-hand"},
    "processes": {"type": "list", "elements": "dict", "required": True},
    "host": {"type": "str", "default": ""},
    "folder": {"type": "path", "required": True},
    "name": {"type": "str", "required": True},
    "manifest": {"type": "dict", "default": {}},
    "state": {"choices": ["kept", "restored"], "default": "restored"},
}

# After a clean shutdown nothing of these is needed: the journal is empty, the lock names no process.
_NOT_KEPT = ("journal", "diagnostic.data", "mongod.lock", "_tmp")
_BLOCK = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file (XFS, btrfs)


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Keep or restore the data of this host's processes."""
    run_folder = require_run_folder(parameters["run_folder"])
    found = mongo_config.on_host(parameters["processes"], parameters["host"], run_folder, parameters["deployment"])
    data = {process["name"]: process["db_path"] for process in found if process["db_path"]}
    for path in data.values():
        require_own(run_folder, path)
    running = [p["name"] for p in found if proc.from_pid_file(p["pid_path"], p["config_path"])]
    if running:
        raise HostError(f"{', '.join(running)} must not run while data folders are {parameters['state']}")
    name, target = parameters["name"], os.path.join(parameters["folder"], parameters["name"])
    if os.path.basename(target) != name or name.startswith("."):
        raise HostError(f"{name} is not the name of a data image")
    if not data:
        return {"changed": False, "msg": "no process of this host bears data"}
    if parameters["state"] == "kept":
        draft = os.path.join(run_folder, "deployments", parameters["deployment"], ".image")
        return _keep(data, draft, target, parameters["manifest"], check=check)
    return _restore(data, target, check=check)


def _keep(data: dict[str, str], draft: str, target: str, manifest: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Move the data folders into an image. An image that is there already stays: the same recipe is the same data."""
    if os.path.isdir(target):
        return {"changed": False, "msg": f"{target} exists already"}
    if check:
        return {"changed": True, "msg": f"{target} would be made"}
    shutil.rmtree(draft, ignore_errors=True)
    for name, path in data.items():
        lock = os.path.join(path, "mongod.lock")
        if not os.path.exists(lock) or os.path.getsize(lock):
            raise HostError(f"{name} was not shut down cleanly: its data cannot become an image")
    os.makedirs(os.path.join(draft, "data"), mode=0o700)
    for name, path in data.items():
        _move(os.path.realpath(path), os.path.join(draft, "data", name))
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
    return {"changed": True, "msg": f"{target}: {len(files)} files, {size / 1e6:,.0f} MB", "bytes": size}


def _move(source: str, target: str) -> None:
    """Move a data folder without what is not kept."""
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


def _restore(data: dict[str, str], image: str, *, check: bool) -> dict[str, Any]:
    """Put the files of an image into the data folders, and check each. What was put there before stays no longer."""
    with _in_use(image):
        files = _planned_files(image, data)
        size = sum(file["bytes"] for file in files)
        if check:
            return {"changed": True, "msg": f"{len(files)} files would be restored"}
        for name, path in data.items():
            if os.path.isdir(path) and os.listdir(path):
                raise HostError(f"{name}: {path} has data already")
            # As mongo_process makes them; the files in it follow its mode.
            os.makedirs(path, mode=0o700, exist_ok=True)
        os.utime(os.path.join(image, "manifest.json"))  # the last use
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            shared = sum(pool.map(partial(_put, image, data), files))
    return {
        "changed": True,
        "msg": f"{len(files)} files, {size / 1e6:,.0f} MB, {shared} of them by reflink",
        "bytes": size,
    }


def _planned_files(image: str, data: dict[str, str]) -> list[dict[str, Any]]:
    try:
        with open(os.path.join(image, "manifest.json"), encoding="utf-8") as file:
            files = list(json.load(file)["files"])
        found = {file["path"].partition("/")[0] for file in files}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HostError(f"{image}: the manifest of the data image cannot be read: {error}") from None
    if found != set(data):
        raise HostError(f"{image} has the data of {', '.join(sorted(found))}, not of {', '.join(sorted(data))}")
    if any(os.path.isabs(file["path"]) or ".." in file["path"].split("/") for file in files):
        raise HostError(f"{image}: a file of the data image lies outside of it")
    return files


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
