"""The wheels client hosts install: microshard itself and the libraries it needs, with the driver of an experiment.

Where the data sets flights or tpch are installed on the controller (`make data`), client hosts get them as well.

On this machine another driver (client.driver) has an environment of its own in the cache: that driver from its locked
wheel, before the libraries of the environment that runs microshard.
"""

import base64
import contextlib
import functools
import hashlib
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import microshard
from microshard.errors import PlaceError
from microshard.model.datasets import TPCH_PART_ORDERS, DataError, dataset_info
from microshard.this_machine import cache_folder, cache_lock, project_root

OLDEST_CLIENT = (3, 11)  # pyproject.toml: requires-python
_KEEP_WHEELS = 86400.0  # s since a run used them
_PACKAGE = Path(microshard.__file__).parent
_CONTROLLER_ONLY = {"__pycache__", "collections", "shipped"}  # folders of the package that no client host needs


def python_of(clients: Mapping[str, Mapping[str, Any]]) -> str:
    """Python and processor of the client hosts, "3.11-x86_64", from their facts; wheels are made for one of each.

    Raises PlaceError when they differ or are too old. Empty where no facts are known.
    """
    for host, facts in clients.items():
        found = facts["client_python"]
        if tuple(found["version"]) < OLDEST_CLIENT:
            raise PlaceError(
                f"{host}: a client host needs Python 3.11 or newer, {found['path']} is "
                f"{'.'.join(map(str, found['version']))}; install one and name it in the inventory "
                "(microshard_client_python)"
            )
    versions = {
        host: f"{'.'.join(map(str, facts['client_python']['version'][:2]))}-{facts['machine']}"
        for host, facts in clients.items()
    }
    if len(set(versions.values())) > 1:
        differ = ", ".join(f"{host} has {version}" for host, version in versions.items())
        raise PlaceError(
            f"client hosts must have the same Python and processor: {differ} (microshard_client_python names another)"
        )
    return next(iter(versions.values()), "")


@functools.lru_cache
def client_key(python: str, driver: str | None = None) -> str:
    """The first twelve hexadecimal digits of a digest of the client's software for this Python, with this driver."""
    total = hashlib.sha256(python.encode())
    for name, content in _wheel_files().items():
        total.update(name.encode() + b"\0" + content)
    for lock in (*_locks(), *_driver_locks(driver), *_data_locks()):
        total.update(lock.read_bytes())
    return total.hexdigest()[:12]


def wheels_archive(python: str, driver: str | None = None) -> Path:
    """The tar archive of all wheels for the client hosts' environment, those of microshard and pip included."""
    return cache_folder() / f"wheels-{client_key(python, driver)}.tar"


def client_wheels(python: str, driver: str | None = None) -> Path:
    """Build and download the wheels once for a Python and processor ("3.11-x86_64"). Raises PlaceError."""
    version, _, machine = python.partition("-")
    archive = wheels_archive(python, driver)
    with cache_lock():  # two runs must not build the same
        if not archive.is_file():
            with tempfile.TemporaryDirectory(dir=cache_folder()) as draft:
                wheels = Path(draft, "wheels")
                wheels.mkdir()
                _build(wheels, version, machine, driver)
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


def _build(folder: Path, version: str, machine: str, driver: str | None) -> None:
    """Write the wheel of microshard, and copy those of the libraries; another driver replaces microshard's."""
    files = _wheel_files()
    info = f"microshard-{metadata.version('microshard')}"
    record = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{info}.dist-info/RECORD"] = "\n".join([*record, f"{info}.dist-info/RECORD,,", ""]).encode()
    with zipfile.ZipFile(folder / f"{info}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    if driver:
        try:
            for library in _libraries(version, machine, _driver_locks(driver)).iterdir():
                shutil.copy2(library, folder)
        except PlaceError as error:
            raise PlaceError(_no_driver(driver, f"{version} of the client hosts", error)) from error
    for library in _libraries(version, machine, _locks()).iterdir():
        if not (driver and library.name.startswith("pymongo-")):
            shutil.copy2(library, folder)
    data = _data_locks()
    for package in _libraries(version, machine, data, sources=True).iterdir() if data else ():
        shutil.copy2(package, folder)


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


def _driver_locks(driver: str | None) -> list[Path]:
    """Its lock file: pymongo==3.13 is requirements/drivers/pymongo-3.13.lock."""
    return [project_root() / "requirements" / "drivers" / f"{driver.replace('==', '-')}.lock"] if driver else []


def _data_locks() -> list[Path]:
    """The lock file of the data sets that are packages, where one of them is installed here."""
    for name in ("flights", "tpch"):
        with contextlib.suppress(DataError):
            dataset_info(name, {"documents": TPCH_PART_ORDERS}).check_available()
            return [project_root() / "requirements" / "data.lock"]
    return []


def local_environment(driver: str) -> Path:
    """The environment of this machine with another driver; whether it has been made or not."""
    (lock,) = _driver_locks(driver)
    key = hashlib.sha256(f"{sys.version} {sys.prefix} {_PACKAGE} ".encode() + lock.read_bytes()).hexdigest()[:12]
    return cache_folder() / f"driver-{lock.stem}-{key}"


def make_local_environment(driver: str) -> Path:
    """Make it where it is not there yet. Raises PlaceError with what pip or venv says."""
    folder = local_environment(driver)
    python, complete = folder / "bin" / "python", folder / "complete"
    with cache_lock():
        if complete.is_file():
            return folder
        try:
            venv.create(folder, clear=True, symlinks=True)
            options = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--no-compile")
            _pip("--python", str(python), "install", *options, "-r", str(*_driver_locks(driver)))
            packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
            # What the driver's environment lacks comes from this one, microshard itself from where it runs.
            here = [str(_PACKAGE.parent), *site.getsitepackages()]
            lines = [f"import site; site.addsitedir({path!r})" for path in here]
            Path(packages, "microshard.pth").write_text("\n".join([*lines, ""]), encoding="utf-8")
            check = [str(python), "-c", "import microshard.workloads.program"]
            tried = subprocess.run(check, capture_output=True, text=True, check=False)
            if tried.returncode:
                raise PlaceError(tried.stderr.strip().splitlines()[-1])
        except (PlaceError, OSError, subprocess.CalledProcessError) as error:
            version = ".".join(map(str, sys.version_info[:2]))
            raise PlaceError(_no_driver(driver, version, error)) from error
        complete.touch()
    return folder


def _no_driver(driver: str, python: str, error: Exception) -> str:
    return (
        f"client.driver {driver}: its environment cannot be made with Python {python}: {error}. Its wheel is "
        "downloaded once, by its locked hash, and needs Python 3.11"
    )


def _libraries(version: str, machine: str, locks: Sequence[Path], *, sources: bool = False) -> Path:
    """The folder of these lock files' wheels; downloaded again only when they change.

    `sources`: a package without a wheel is built here; it must be the same on every processor.
    """
    key = f"{version} {machine} ".encode() + b"".join(lock.read_bytes() for lock in locks)
    folder = cache_folder() / f"wheels-libraries-{hashlib.sha256(key).hexdigest()[:12]}"
    if not folder.is_dir():
        platforms = [f"manylinux_2_{glibc}_{machine}" for glibc in (28, 27, 24, 17)] + [f"manylinux2014_{machine}"]
        with tempfile.TemporaryDirectory(dir=cache_folder()) as draft:
            _pip(
                "download",
                *("--require-hashes", "--no-deps", "--dest", draft),
                "--no-build-isolation" if sources else "--only-binary=:all:",
                *(word for lock in locks for word in ("-r", str(lock))),
                *("--python-version", version, "--implementation", "cp"),
                *(word for platform in platforms for word in ("--platform", platform)),
            )
            for source in Path(draft).glob("*.tar.gz"):
                _pip("wheel", "--no-index", "--no-deps", "--no-build-isolation", "--wheel-dir", draft, str(source))
                source.unlink()
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
        verb = next(word for word in words if word in {"download", "install", "wheel"})
        raise PlaceError(f"the client's wheels could not be collected: pip {verb}: {end}")
