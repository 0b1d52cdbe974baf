"""The wheels client hosts install: microshard itself and the libraries it needs."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import microshard
from microshard.errors import PlaceError
from microshard.this_machine import cache_folder, cache_lock, project_root

OLDEST_CLIENT = (3, 11)  # pyproject.toml: requires-python
_KEEP_WHEELS = 86400.0  # s since a run used them
_PACKAGE = Path(microshard.__file__).parent
_CONTROLLER_ONLY = {"__pycache__", "collections", "shipped"}  # folders of the package that no client host needs


@functools.lru_cache
def client_key() -> str:
    """The first twelve hexadecimal digits of a digest of the client's software."""
    total = hashlib.sha256()
    for name, content in _wheel_files().items():
        total.update(name.encode() + b"\0" + content)
    for lock in _locks():
        total.update(lock.read_bytes())
    return total.hexdigest()[:12]


def wheels_archive() -> Path:
    """The tar archive of all wheels for the client hosts' environment, those of microshard and pip included."""
    return cache_folder() / f"wheels-{client_key()}.tar"


def client_wheels(clients: Mapping[str, Mapping[str, Any]]) -> Path:
    """Build and download the wheels once; `clients` are the client hosts' facts. Raises PlaceError."""
    versions = {(tuple(facts["client_python"]["version"]), facts["machine"]) for facts in clients.values()}
    for host, facts in clients.items():
        found = facts["client_python"]
        if tuple(found["version"]) < OLDEST_CLIENT:
            raise PlaceError(
                f"{host}: a client host needs Python 3.11 or newer, {found['path']} is "
                f"{'.'.join(map(str, found['version']))}; install one and name it in the inventory "
                "(microshard_client_python)"
            )
    if len(versions) != 1:
        raise PlaceError(f"client hosts must have the same Python and processor, not {sorted(versions)}")
    ((version, machine),) = versions
    archive = wheels_archive()
    with cache_lock():  # two runs must not build the same
        if not archive.is_file():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as draft:
                wheels = Path(draft, "wheels")
                wheels.mkdir()
                _build(wheels, ".".join(map(str, version[:2])), machine)
                with tarfile.open(f"{draft}/wheels.tar", "w") as tar:
                    tar.add(wheels, arcname="wheels")
                Path(draft, "wheels.tar").rename(archive)
        os.utime(archive)  # in use
        _remove_old()
    return archive


def _remove_old() -> None:
    """Remove wheels that were not used for a day; another run may use younger ones."""
    for old in cache_folder().glob("wheels-*"):
        if time.time() - old.stat().st_mtime > _KEEP_WHEELS:
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.unlink()


def _build(folder: Path, version: str, machine: str) -> None:
    """Write the wheel of microshard, and copy those of the libraries."""
    files = _wheel_files()
    info = f"microshard-{metadata.version('microshard')}"
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}.dist-info/RECORD"] = "\n".join([*record, f"{info}.dist-info/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / f"{info}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    for library in _libraries(version, machine).iterdir():
        shutil.copy2(library, folder)


def _wheel_files() -> dict[str, bytes]:
    """The files of a wheel of this microshard without what only a controller needs, by name; RECORD is missing.

    Written without a build tool: where microshard was installed from a wheel there is none, and no source.
    https://packaging.python.org/en/latest/specifications/binary-distribution-format/
    """
    files = {}
    for path in sorted(_PACKAGE.rglob("*")):
        inside = path.relative_to(_PACKAGE)
        if path.is_file() and not _CONTROLLER_ONLY.intersection(inside.parts) and not inside.name.startswith("."):
            files[f"microshard/{inside}"] = path.read_bytes()
    installed = metadata.distribution("microshard")
    info = f"microshard-{installed.version}.dist-info"
    for name in ("METADATA", "entry_points.txt"):
        files[f"{info}/{name}"] = (installed.read_text(name) or "").encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: microshard\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return files


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _locks() -> list[Path]:
    return [project_root() / "requirements" / f"{name}.lock" for name in ("client", "pip")]


def _libraries(version: str, machine: str) -> Path:
    """The folder of the libraries' wheels; downloaded again only when the lock files change."""
    locks = _locks()
    key = f"{version} {machine} ".encode() + b"".join(lock.read_bytes() for lock in locks)
    folder = cache_folder() / f"wheels-libraries-{hashlib.sha256(key).hexdigest()[:12]}"
    if not folder.is_dir():
        platforms = [f"manylinux_2_{glibc}_{machine}" for glibc in (28, 27, 24, 17)] + [f"manylinux2014_{machine}"]
        with tempfile.TemporaryDirectory(dir=cache_folder()) as draft:
            _pip(
                "download",
                *("--require-hashes", "--no-deps", "--only-binary=:all:", "--dest", draft),
                *(word for lock in locks for word in ("-r", str(lock))),
                *("--python-version", version, "--implementation", "cp"),
                *(word for platform in platforms for word in ("--platform", platform)),
            )
            shutil.copytree(draft, folder)
    os.utime(folder)
    return folder


def _pip(*words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        end = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise PlaceError(f"the wheels for client hosts could not be collected: pip {words[0]}: {end}")
