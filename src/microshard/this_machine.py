"""The machine microshard runs on: the facts a plan is made for and a lock file keeps, and where the project is."""

import contextlib
import fcntl
import getpass
import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from microshard.errors import PlaceError
from microshard.hostlib import host_counters


def project_root() -> Path:
    """The folder with ansible.cfg, experiments/, inventories/ and schema/: of the checkout, or as it was installed.

    `shipped` has links to the checkout's or, from a wheel, the files. Raises PlaceError on a client host, without both.
    """
    settings = Path(__file__).parent / "shipped" / "ansible.cfg"
    if not settings.is_file():
        raise PlaceError(f"{settings} is missing: only the engines of microshard are installed here")
    return settings.resolve().parent


def collection_root() -> Path:
    """The folder of the Ansible collection microshard.lab: roles/, playbooks/ and plugins/."""
    return Path(__file__).parent / "collections" / "ansible_collections" / "microshard" / "lab"


def memory_mib(key: str = "MemTotal") -> float:
    """A line of /proc/meminfo in MiB, capped by the limits of the control group and of those above it."""
    value = float("inf")
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123 - not a file on disk
        for line in file:
            if line.startswith(key + ":"):
                value = int(line.split()[1]) / 1024
    groups = host_counters.control_groups(os.getpid())
    controller = "memory" if "memory" in groups else ""
    group = Path(groups.get(controller, "/"))
    limits = [host_counters.memory_limit({controller: str(folder)}) for folder in (group, *group.parents)]
    return min([value, *(limit / 2**20 for limit in limits if limit is not None)])


def user() -> str:
    """The user's name, with only the characters an EC2 tag may have: the default owner of what runs create."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, in a container
        name = f"uid-{os.getuid()}"
    return re.sub(r"[^A-Za-z0-9._@+-]", "-", name)[:64]


def cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def free_disk_bytes(folder: Path) -> int:
    """Free bytes on the volume where `folder` is or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def describe() -> dict[str, Any]:
    """This machine, for the lock file: CPU, cores, RAM, kernel, system, Python."""
    model = ""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    system = platform.system()
    with contextlib.suppress(OSError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    huge_pages = ""
    with contextlib.suppress(OSError):
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="ascii")
        huge_pages = text[text.index("[") + 1 : text.index("]")]
    return {
        "cpu": model,
        "cores": cores(),
        "ram_mib": round(memory_mib()),
        "kernel": platform.release(),
        "system": system,
        "machine": platform.machine(),
        "transparent_huge_pages": huge_pages,
        "python": platform.python_version(),
    }


def packages() -> dict[str, str]:
    """Versions of the libraries results depend on."""
    return {name: metadata.version(name) for name in ("ansible", "ansible-core", "pymongo", "numpy", "scipy", "uvloop")}


@contextlib.contextmanager
def cache_lock() -> Iterator[None]:
    """Keep other runs from changing the cache while the context is open."""
    with (cache_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path:
    """The controller's folder for what hosts are to install: MICROSHARD_CACHE, else in the user's cache folder."""
    given = os.environ.get("MICROSHARD_CACHE")
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "microshard"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
