"""Module run_secrets: write the secrets of a run on a host that is not the controller, for their owner alone."""

from __future__ import annotations

import os
import pwd
import stat
from typing import Any

from .errors import HostError
from .files import require_run_folder

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "owner": {"type": "str", "default": ""},
    "files": {"type": "dict", "required": True, "no_log": True},
}


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Write these files into `secrets/` of the run's folder, for their owner alone."""
    folder = os.path.join(parameters["run_folder"], "secrets")
    if check and not os.path.isdir(parameters["run_folder"]):
        return {"changed": True, "msg": f"{folder} would be created"}
    require_run_folder(parameters["run_folder"])
    if os.path.islink(folder):
        raise HostError(f"{folder} is a link, which microshard never creates. Nothing was written")
    owner = _owner(parameters["owner"])
    files = parameters["files"]
    for name in files:
        if os.path.basename(name) != name:
            raise HostError(f"{name} is not the name of a file among the secrets")
    stale = [name for name, text in files.items() if not _has(os.path.join(folder, name), text, owner)]
    changed = bool(stale) or not _is_owned(folder, owner, 0o700)
    if changed and not check:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        _set_owner(folder, owner, 0o700)
        for name in stale:
            _write(os.path.join(folder, name), files[name], owner)
    return {"changed": changed, "msg": f"{len(files)} files, {len(stale)} of them written"}


def _owner(name: str) -> tuple[int, int]:
    """User and group who own the secrets; those of this process when none is named."""
    if not name:
        return os.geteuid(), os.getegid()
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise HostError(f"there is no user {name}, to own the secrets of the run") from None
    return found.pw_uid, found.pw_gid


def _is_owned(path: str, owner: tuple[int, int], mode: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_uid == owner[0] and stat.S_IMODE(found.st_mode) == mode


def _has(path: str, text: str, owner: tuple[int, int]) -> bool:
    if not _is_owned(path, owner, 0o600):
        return False
    with open(path, encoding="utf-8") as file:
        return file.read() == text


def _set_owner(path: str, owner: tuple[int, int], mode: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, *owner, follow_symlinks=False)
    os.chmod(path, mode)


def _write(path: str, text: str, owner: tuple[int, int]) -> None:
    """Write atomically; at no moment can anybody else read it."""
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        _set_owner(new, owner, 0o600)
        file.write(text)
    os.replace(new, path)
