"""Where the files of a process lie: in its folder, or by links on volumes of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .refused import Refused

if TYPE_CHECKING:
    from .mongo_process import MongoProcess


def lay_out(process: MongoProcess) -> None:
    """Its folders, owned by the user it runs as; links to volumes before anything is written. Refused."""
    os.makedirs(process.folder, exist_ok=True)
    os.makedirs(os.path.dirname(process.log_path), exist_ok=True)
    folders = [process.folder, os.path.dirname(process.log_path)]
    for target in process.volumes.values():
        _require_mounted(process, target)
        os.makedirs(target, mode=0o700, exist_ok=True)
        folders.append(target)
    for link, target in _links(process):
        if link == os.path.join(process.db_path or "", "journal"):
            os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
            os.makedirs(target, mode=0o700, exist_ok=True)
            folders.append(target)
        _link(process, link, target)
    if process.db_path:
        os.makedirs(process.db_path, mode=0o700, exist_ok=True)
        folders.append(process.db_path)
    if process.manner.user_id >= 0:
        for folder in dict.fromkeys(folders):
            os.chown(folder, process.manner.user_id, process.manner.group_id)


def _links(process: MongoProcess) -> Iterator[tuple[str, str]]:
    """(link, what it leads to), the dbPath first, for the journal lies in it."""
    volumes = process.volumes
    if process.db_path and "data" in volumes:
        yield process.db_path, volumes["data"]
    if process.db_path and (process.journal_path or "journal" in volumes):
        yield os.path.join(process.db_path, "journal"), process.journal_path or volumes["journal"]
    if "log" in volumes:
        yield process.log_path, os.path.join(volumes["log"], os.path.basename(process.log_path))


def _require_mounted(process: MongoProcess, target: str) -> None:
    """MOUNT/RUN/POINT/NAME: what is not mounted would fill the root volume instead."""
    mount = target
    for _ in range(3):
        mount = os.path.dirname(mount)
    if not os.path.ismount(mount):
        raise Refused(f"{process.label}: no volume is mounted at {mount}; playbooks/prepare.yml does it")


def _link(process: MongoProcess, link: str, target: str) -> None:
    if os.path.islink(link) and os.readlink(link) == target:
        return
    if os.path.lexists(link):
        what = os.path.basename(link)
        raise Refused(
            f"{process.label}: its {what} is to lie at {target}, but {link} is there already: a {what} is moved "
            "only before the first start. Tear the point down before it is deployed differently"
        )
    os.symlink(target, link)


def places(process: MongoProcess) -> list[str]:
    """Folders and files of it that are there."""
    folders = [process.folder, *process.volumes.values(), process.journal_path, process.db_path]
    return [p for p in folders if p and os.path.isdir(p)] + [p for p in (process.log_path,) if os.path.isfile(p)]


def remove(process: MongoProcess) -> None:
    """Nothing of it is on disk. What links lead to goes first: who is interrupted here still finds it the next time."""
    for target in process.volumes.values():
        if os.path.isdir(target):
            shutil.rmtree(target)
        with contextlib.suppress(OSError):
            os.removedirs(os.path.dirname(target))  # of the point and of the run, where they are empty; no mount point
    for path in (process.journal_path, process.folder, process.db_path):
        if path and os.path.isdir(path):
            shutil.rmtree(path)
    if os.path.lexists(process.log_path):
        os.unlink(process.log_path)
