"""The secrets of a run in its folder on a host that is not the controller, for their owner alone."""

from __future__ import annotations

import os
import pwd
import stat
from typing import Any

from ..refused import Refused
from ..run_folder import require_run_folder

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "source": {"type": "path", "required": True},
    "names": {"type": "list", "elements": "str", "required": True},
    "owner": {"type": "str", "default": ""},
    "files": {"type": "dict", "no_log": True},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """`secrets/` of the run's folder has these files, and their owner alone may read them."""
    folder = os.path.join(wanted["run_folder"], "secrets")
    if check and not os.path.isdir(wanted["run_folder"]):
        return {"changed": True, "msg": f"{folder} would be made"}
    require_run_folder(wanted["run_folder"])
    if os.path.islink(folder):
        raise Refused(f"{folder} is a link, which no run makes. Nothing was written")
    owner = _owner(wanted["owner"])
    files = wanted["files"] or {}
    for name in files:
        if os.path.basename(name) != name:
            raise Refused(f"{name} is not the name of a file among the secrets")
    stale = [name for name, text in files.items() if not _is_so(os.path.join(folder, name), text, owner)]
    changed = bool(stale) or not _is_owned(folder, owner, 0o700)
    if changed and not check:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _give(folder, owner, 0o700)
        for name in stale:
            _write(os.path.join(folder, name), files[name], owner)
    return {"changed": changed, "msg": f"{len(files)} files, {len(stale)} of them written"}


def _owner(name: str) -> tuple[int, int]:
    """User and group who own the secrets; the one who works here when none is named."""
    if not name:
        return os.geteuid(), os.getegid()
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise Refused(f"there is no user {name}, who is to own the secrets of the run") from None
    return found.pw_uid, found.pw_gid


def _is_owned(path: str, owner: tuple[int, int], mode: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_uid == owner[0] and stat.S_IMODE(found.st_mode) == mode


def _is_so(path: str, text: str, owner: tuple[int, int]) -> bool:
    if not _is_owned(path, owner, 0o600):
        return False
    with open(path, encoding="utf-8") as file:
        return file.read() == text


def _give(path: str, owner: tuple[int, int], mode: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, *owner, follow_symlinks=False)
    os.chmod(path, mode)


def _write(path: str, text: str, owner: tuple[int, int]) -> None:
    """Whole or not at all, and at no moment readable for anybody else."""
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        _give(new, owner, 0o600)
        file.write(text)
    os.replace(new, path)
