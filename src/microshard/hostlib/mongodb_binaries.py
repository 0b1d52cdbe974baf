"""Module mongodb_binaries: install the binaries of a run where they are missing, then check that they execute."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .errors import HostError
from .files import sha256

ARGUMENTS = {
    "mongod": {"type": "path", "required": True},
    "mongos": {"type": "path", "default": ""},
    "version": {"type": "str", "default": ""},
    "install": {"type": "dict", "default": {}},
    "archive": {"type": "path", "default": ""},
}

_BINARIES = ("mongod", "mongos")  # what of a tarball is kept


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Install and check the binaries; `exists` is false where the controller has to send them first."""
    install, changed = parameters["install"], False
    if install.get("kind") in {"file", "tarball"} and not os.path.isdir(install["folder"]):
        if check or not parameters["archive"]:
            return {"exists": False, "changed": True, "msg": f"{install['folder']} has to be created"}
        _install(install, parameters["archive"])
        changed = True
    paths = {name: parameters[name] for name in _BINARIES if parameters[name]}
    with ThreadPoolExecutor(len(paths)) as pool:
        versions = dict(zip(paths, pool.map(_version_line, paths.values())))
    _require_version(paths["mongod"], versions["mongod"], parameters["version"])
    return {"exists": True, "changed": changed, "versions": versions, "msg": "; ".join(versions.values())}


def _install(install: dict[str, Any], archive: str) -> None:
    """Create the folder from what was sent; it is renamed to its name, which has the checksum, when it is complete."""
    folder = install["folder"]
    draft = f"{folder}.{os.getpid()}.new"
    try:
        found = sha256(archive)
        if found != install["sha256"]:
            raise HostError(f"{archive} has the SHA-256 {found}, not {install['sha256']}; run it again")
        os.makedirs(draft)
        if install["kind"] == "file":
            shutil.move(archive, os.path.join(draft, "mongod"))
            os.chmod(os.path.join(draft, "mongod"), 0o755)  # noqa: S103 - systemd runs it as another user
        else:
            _unpack(archive, os.path.join(draft, "bin"))
        try:
            os.rename(draft, folder)
        except OSError:
            if not os.path.isdir(folder):  # another run was faster
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if os.path.exists(archive):
            os.unlink(archive)


def _unpack(archive: str, folder: str) -> None:
    """Extract only the servers, from bin/ in the one folder of MongoDB's tarball."""
    os.makedirs(folder)
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = member.name.split("/")
            if member.isreg() and parts[-2:-1] == ["bin"] and parts[-1] in _BINARIES:
                source, path = tar.extractfile(member), os.path.join(folder, parts[-1])
                with open(path, "wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)  # type: ignore[arg-type]  # a regular file has one
                os.chmod(path, 0o755)  # noqa: S103 - as above


def _version_line(path: str) -> str:
    """The first line of `path --version`."""
    if not os.path.isfile(path):
        raise HostError(f"{path} does not exist. Run the setup again, or name another with topology.mongodb.path")
    if not os.access(path, os.X_OK):
        raise HostError(f"{path} may not be executed: chmod +x {path}")
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise HostError(f"{path} cannot be executed on this machine: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise HostError(f"{path} --version did not end within 30 s") from None
    if answer.returncode == -signal.SIGILL:
        raise HostError(f"{path} needs instructions this processor lacks (mongod since 5.0 needs AVX)")
    if answer.returncode != 0 or not answer.stdout.strip():
        words = (answer.stderr or answer.stdout).strip()[-500:] or "(no output)"
        raise HostError(f"{path} --version ended with exit code {answer.returncode}: {words}")
    return answer.stdout.splitlines()[0]


def _require_version(path: str, line: str, parameters: str) -> None:
    found = re.search(r"v(\d+\.\d+\.\d+)", line)
    if not found:
        raise HostError(f"{path} is not a mongod: it prints {line!r}")
    if parameters and not f"{found[1]}.".startswith(f"{parameters}."):
        raise HostError(f"{path} is MongoDB {found[1]}, the run was planned for {parameters}")
