"""The binaries of a run: brought where they are not, then tried."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..refused import Refused

ARGUMENTS = {
    "mongod": {"type": "path", "required": True},
    "mongos": {"type": "path", "default": ""},
    "version": {"type": "str", "default": ""},
    "install": {"type": "dict", "default": {}},
    "arrived": {"type": "path", "default": ""},
}

_BINARIES = ("mongod", "mongos")  # what of a tarball is kept


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The binaries are there, execute and have their version; `there` is false where they have to be sent first."""
    install, changed = wanted["install"], False
    if install.get("kind") in {"file", "tarball"} and not os.path.isdir(install["folder"]):
        if check or not wanted["arrived"]:
            return {"there": False, "changed": True, "msg": f"{install['folder']} is to be made"}
        _put(install, wanted["arrived"])
        changed = True
    paths = {name: wanted[name] for name in _BINARIES if wanted[name]}
    with ThreadPoolExecutor(len(paths)) as pool:
        versions = dict(zip(paths, pool.map(_ask, paths.values())))
    _require_version(paths["mongod"], versions["mongod"], wanted["version"])
    return {"there": True, "changed": changed, "versions": versions, "msg": "; ".join(versions.values())}


def _put(install: dict[str, Any], arrived: str) -> None:
    """Make the folder of what arrived; it gets its name, which has the checksum in it, only when it is complete."""
    folder = install["folder"]
    draft = f"{folder}.{os.getpid()}.new"
    try:
        found = _sha256(arrived)
        if found != install["sha256"]:
            raise Refused(f"what was sent to {arrived} has the SHA-256 {found}, not {install['sha256']}; run it again")
        os.makedirs(draft)
        if install["kind"] == "file":
            shutil.move(arrived, os.path.join(draft, "mongod"))
            os.chmod(os.path.join(draft, "mongod"), 0o755)  # noqa: S103 - systemd runs it as another user
        else:
            _unpack(arrived, os.path.join(draft, "bin"))
        try:
            os.rename(draft, folder)
        except OSError:
            if not os.path.isdir(folder):  # another run was faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if os.path.exists(arrived):
            os.unlink(arrived)


def _unpack(archive: str, folder: str) -> None:
    """MongoDB's tarballs have one folder with bin/ in it; nothing of them is written but the servers."""
    os.makedirs(folder)
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = member.name.split("/")
            if member.isreg() and parts[-2:-1] == ["bin"] and parts[-1] in _BINARIES:
                source, path = tar.extractfile(member), os.path.join(folder, parts[-1])
                with open(path, "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)  # type: ignore[arg-type]  # a regular file has one
                os.chmod(path, 0o755)  # noqa: S103 - as above


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def _ask(path: str) -> str:
    """The first line of `path --version`."""
    if not os.path.isfile(path):
        raise Refused(f"{path} is not there. Set it up again, or point to another with topology.mongodb.path")
    if not os.access(path, os.X_OK):
        raise Refused(f"{path} may not be executed: chmod +x {path}")
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise Refused(f"{path} cannot be executed on this machine: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{path} --version did not end within 30 s") from None
    if answer.returncode == -signal.SIGILL:
        raise Refused(f"{path} needs instructions this processor lacks (mongod since 5.0 needs AVX)")
    if answer.returncode != 0 or not answer.stdout.strip():
        words = (answer.stderr or answer.stdout).strip()[-500:] or "it said nothing"
        raise Refused(f"{path} --version ended with exit code {answer.returncode}: {words}")
    return answer.stdout.splitlines()[0]


def _require_version(path: str, line: str, wanted: str) -> None:
    found = re.search(r"v(\d+\.\d+\.\d+)", line)
    if not found:
        raise Refused(f"{path} is not a mongod: it says {line!r}")
    if wanted and not f"{found[1]}.".startswith(f"{wanted}."):
        raise Refused(f"{path} is MongoDB {found[1]}, the run was planned for {wanted}")
