"""What hosts are given by the controller: MongoDB's binaries and, for client hosts, microshard itself as wheels."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from microshard.backends.binaries import Binaries, digest
from microshard.backends.this_machine import project_root
from microshard.embedded import binary
from microshard.errors import PlaceError
from microshard.model.plan import Point

OLDEST_CLIENT = (3, 11)  # pyproject.toml: requires-python
_KEEP_WHEELS = 86400.0  # s since a run asked for them
_SOURCES = ("pyproject.toml", "requirements/run.in", "requirements/client.lock", "requirements/pip.lock", "src")


def on_hosts(point: Point, base: str, client_folder: str) -> Binaries:
    """The binaries of a point as paths on the hosts, and how they get there. Raises PlaceError."""
    wish = point.mongodb
    source, version = wish["source"], wish["version"] or ""
    if source == "path":
        folder = Path(wish["path"])
        return Binaries(folder / "mongod", folder / "mongos", False, version)
    if source == "packages":
        install = {"kind": "packages", "version": version}
        return Binaries(Path("/usr/bin/mongod"), Path("/usr/bin/mongos"), False, version, install=install)
    if source == "tarball":
        return _tarball(point, base)
    return _embedded(point, base, client_folder)


def _embedded(point: Point, base: str, client_folder: str) -> Binaries:
    try:
        mongod = binary.find_mongod()
        version = binary.version(mongod).text
    except binary.BinaryError as error:
        raise PlaceError(str(error)) from error
    wanted = point.mongodb["version"]
    if wanted and not f"{version}.".startswith(f"{wanted}."):
        raise PlaceError(f"{mongod} is MongoDB {version}, the experiment asks for {wanted} (topology.mongodb.version)")
    sha256 = digest(mongod)
    there = f"{base}/software/mongodb-{version}-{sha256[:12]}"
    install = {"kind": "file", "source": str(mongod), "sha256": sha256, "folder": there}
    mongos = Path(client_folder, "bin", "mongos") if point.topology == "sharded" else None
    return Binaries(Path(there, "mongod"), mongos, mongos is not None, version, sha256, install)


def _tarball(point: Point, base: str) -> Binaries:
    wish = point.mongodb
    sha256 = wish["sha256"]
    archive = _archive(wish["tarball"], sha256)
    folder = Path(base, "software", f"mongodb-{wish['version']}-{sha256[:12]}")
    servers = _servers(archive)
    needed = ["mongod", *(["mongos"] if point.topology == "sharded" else [])]
    missing = [name for name in needed if name not in servers]
    if missing:
        raise PlaceError(f"{archive}: there is no bin/{missing[0]} in it; MongoDB's server archives have one")
    install = {"kind": "tarball", "source": str(archive), "sha256": sha256, "folder": str(folder)}
    mongos = folder / "bin" / "mongos" if "mongos" in servers else None
    return Binaries(folder / "bin" / "mongod", mongos, False, wish["version"], install=install)


def _archive(wish: str, sha256: str) -> Path:
    """The archive on this machine, fetched once where it has an address; its SHA-256 is that of the experiment."""
    if "://" in wish:
        archive = cache_folder() / "archives" / f"{sha256}.tgz"
        with _alone():
            if not archive.is_file():
                _fetch(wish, archive)
    else:
        archive = Path(wish).expanduser().absolute()
        if not archive.is_file():
            raise PlaceError(f"{archive} is not there (topology.mongodb.tarball)")
    found = digest(archive)
    if found != sha256:
        if "://" in wish:
            archive.unlink()
        raise PlaceError(f"{wish} has the SHA-256 {found}, not {sha256} (topology.mongodb.sha256)")
    return archive


def _fetch(url: str, target: Path) -> None:
    if not url.startswith("https://"):
        raise PlaceError(f"{url}: archives are fetched by https:// only (topology.mongodb.tarball)")
    target.parent.mkdir(exist_ok=True)
    draft = target.with_suffix(".new")
    try:
        with urllib.request.urlopen(url, timeout=30) as answer, draft.open("wb") as file:  # noqa: S310 - https only
            shutil.copyfileobj(answer, file, 1 << 20)
        draft.rename(target)
    except OSError as error:
        raise PlaceError(f"{url} cannot be fetched: {error}; fetch it elsewhere and name the file") from error
    finally:
        draft.unlink(missing_ok=True)


def _servers(archive: Path) -> set[str]:
    """Names of the programs in bin/ of an archive of MongoDB's. Raises PlaceError."""
    try:
        with tarfile.open(archive) as tar:
            return {Path(m.name).name for m in tar if m.isreg() and Path(m.name).parent.name == "bin"}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise PlaceError(f"{archive} is not a tar archive: {error} (topology.mongodb.tarball)") from error


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other run changes the cache meanwhile."""
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path:
    """Where the controller keeps what it gives to hosts: MICROSHARD_CACHE, else below the user's cache folder."""
    given = os.environ.get("MICROSHARD_CACHE")
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "microshard"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.lru_cache
def client_key() -> str:
    """What the client's software is made of, as twelve hexadecimal digits."""
    root, total = project_root(), hashlib.sha256()
    for name in _SOURCES:
        path = root / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts and ".egg-info" not in str(file):
                total.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()[:12]


def wheels_folder() -> Path:
    """The wheels of the client hosts' environment, microshard's own and pip among them."""
    return cache_folder() / f"wheels-{client_key()}"


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
    folder = wheels_folder()
    with _alone():  # two runs must not build the same
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as draft:
                _collect(Path(draft), ".".join(map(str, version[:2])), machine)
                shutil.copytree(draft, folder)
        os.utime(folder)  # in use
        _forget_old()
    return folder


def _forget_old() -> None:
    """Wheels nobody asked for in a day belong to sources of yesterday; younger ones may be another run's."""
    for old in cache_folder().glob("wheels-*"):
        if time.time() - old.stat().st_mtime > _KEEP_WHEELS:
            shutil.rmtree(old, ignore_errors=True)


def _collect(folder: Path, version: str, machine: str) -> None:
    """microshard's own wheel, and the libraries beside it."""
    root = project_root()
    with tempfile.TemporaryDirectory() as copy:
        # setuptools leaves build/ and an egg-info beside the sources; a copy takes them along when it goes.
        for name in ("pyproject.toml", "requirements/run.in", "README.md"):
            target = Path(copy, name)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(root / name, target)
        shutil.copytree(root / "src", Path(copy, "src"), ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        _pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder), copy)
    for wheel in _libraries(version, machine).iterdir():
        shutil.copy2(wheel, folder)


def _libraries(version: str, machine: str) -> Path:
    """Wheels of what microshard needs on a client host; downloaded anew only when the lock files change."""
    locks = [project_root() / "requirements" / f"{name}.lock" for name in ("client", "pip")]
    told = f"{version} {machine} ".encode() + b"".join(lock.read_bytes() for lock in locks)
    folder = cache_folder() / f"wheels-libraries-{hashlib.sha256(told).hexdigest()[:12]}"
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
        raise PlaceError(f"what client hosts need could not be put together: pip {words[0]}: {end}")
