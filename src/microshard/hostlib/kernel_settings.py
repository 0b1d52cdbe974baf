"""Settings of the kernel: where each is, what MongoDB's manual recommends; and the page cache."""

from __future__ import annotations

import glob
import os
import re
import subprocess
from dataclasses import dataclass
from typing import Any

from .errors import HostError

_HUGE = "/sys/kernel/mm/transparent_hugepage"


@dataclass(frozen=True)
class Setting:
    """A value of the kernel behind one or several files with the same content."""

    name: str
    pattern: str  # of the files; several where each CPU has its own
    sysctl: str = ""  # its name for sysctl.d; "" where a unit of systemd writes the files at boot
    absent: str = ""  # what it means that the file does not exist

    def paths(self) -> list[str]:
        """The files with its value."""
        return sorted(glob.glob(self.pattern))

    def value(self) -> str | None:
        """Its value now, None where the host has none. In a list of words the chosen one is in brackets."""
        values = set()
        for path in self.paths():
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
            chosen = re.search(r"\[([^]]+)\]", text)
            values.add(chosen.group(1) if chosen else text)
        return ", ".join(sorted(values)) if values else None

    def set(self, value: str) -> None:
        """Write it and read it back. HostError when the kernel does not accept it."""
        try:
            for path in self.paths():
                with open(path, "w", encoding="ascii") as file:
                    file.write(f"{value}\n")
        except OSError as error:
            raise HostError(f"{self.name}: {error.filename} does not take {value}: {error.strerror}") from None
        found = self.value()
        if found != value:
            raise HostError(f"{self.name} was set to {value} and is {found} ({self.pattern})")

    def shell(self, value: str) -> list[str]:
        """Commands of a shell that set it at boot."""
        return [f"echo {value} > {path}" for path in self.paths()]


def _sysctl(name: str, key: str) -> Setting:
    return Setting(name, f"/proc/sys/{key.replace('.', '/')}", sysctl=key, absent=f"the kernel has no {key}")


SETTINGS = {
    setting.name: setting
    for setting in (
        _sysctl("swappiness", "vm.swappiness"),
        _sysctl("max_map_count", "vm.max_map_count"),
        _sysctl("zone_reclaim_mode", "vm.zone_reclaim_mode"),
        _sysctl("overcommit_memory", "vm.overcommit_memory"),
        _sysctl("dirty_ratio", "vm.dirty_ratio"),
        _sysctl("dirty_background_ratio", "vm.dirty_background_ratio"),
        _sysctl("tcp_keepalive_s", "net.ipv4.tcp_keepalive_time"),
        _sysctl("somaxconn", "net.core.somaxconn"),
        Setting("transparent_huge_pages", f"{_HUGE}/enabled", absent="the kernel has no transparent huge pages"),
        Setting("transparent_huge_pages_defrag", f"{_HUGE}/defrag", absent="the kernel has no transparent huge pages"),
        Setting("khugepaged_max_ptes_none", f"{_HUGE}/khugepaged/max_ptes_none", absent="the kernel has no khugepaged"),
        Setting(
            "cpu_governor",
            "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
            absent="its CPUs have no governor (a virtual machine, or the firmware decides)",
        ),
        Setting("smt", "/sys/devices/system/cpu/smt/control", absent="the kernel has no SMT control"),
    )
}


def smt_problem() -> str:
    """Why SMT cannot be switched here; "" when it can."""
    found = SETTINGS["smt"].value()
    return f"SMT is {found} here" if found in {"notsupported", "notimplemented", "forceoff"} else ""


def governors() -> list[str]:
    """The governors every CPU offers."""
    offered = []
    for path in glob.glob("/sys/devices/system/cpu/cpufreq/policy*/scaling_available_governors"):
        with open(path, encoding="ascii") as file:
            offered.append(set(file.read().split()))
    return sorted(set.intersection(*offered)) if offered else []


_NOTES = "Production Notes for Self-Managed Deployments"
_CHECKLIST = "Operations Checklist for Self-Managed Deployments"
_LIMITS = "UNIX ulimit Settings for Self-Managed Deployments"
_TCMALLOC = "TCMalloc Performance Optimization for a Self-Managed Deployment"
_NO_HUGE_PAGES = "Disable Transparent Hugepages (THP)"
_KEEPALIVE = "FAQ: Diagnostics, TCP keepalive"

# Since 8.0 mongod has a TCMalloc that gains from huge pages; before, it lost by them.
_HUGE_PAGES_SINCE = (8, 0)


def recommended(version: str) -> dict[str, tuple[Any, str]]:
    """Setting → (value, page of the manual) for a MongoDB version such as 6.0.5.

    Dirty ratios, somaxconn, governor and SMT have no figure in the manual, so they stay as they are.
    """
    found: dict[str, tuple[Any, str]] = {
        "swappiness": (1, f"{_NOTES}: swappiness 0 or 1"),
        "zone_reclaim_mode": (0, f"{_NOTES}: MongoDB and NUMA hardware"),
        "max_map_count": (128000, f"{_CHECKLIST}: starting point for large systems"),
        "tcp_keepalive_s": (120, _KEEPALIVE),
        "open_files": (64000, _LIMITS),
        "time_sync": (True, f"{_NOTES}: clock synchronization"),
    }
    if tuple(int(part) for part in version.split(".")[:2]) >= _HUGE_PAGES_SINCE:
        found["transparent_huge_pages"] = ("always", _TCMALLOC)
        found["transparent_huge_pages_defrag"] = ("defer+madvise", _TCMALLOC)
        found["khugepaged_max_ptes_none"] = (0, _TCMALLOC)
        found["overcommit_memory"] = (1, _TCMALLOC)
    else:
        found["transparent_huge_pages"] = ("never", _NO_HUGE_PAGES)
        found["transparent_huge_pages_defrag"] = ("never", _NO_HUGE_PAGES)
    return found


_DROP = "/proc/sys/vm/drop_caches"


def drop_page_cache(path: str = _DROP) -> str:
    """Write dirty pages and drop the page cache, by sudo where that is needed: "dropped", or "not dropped (reason)"."""
    os.sync()
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("3\n")
    except PermissionError:
        return "dropped" if _drop_by_sudo(path) else "not dropped (not root)"
    except OSError as error:
        return f"not dropped ({error.strerror})"
    return "dropped"


def _drop_by_sudo(path: str) -> bool:
    words = ["sudo", "-n", "/bin/sh", "-c", 'echo 3 > "$0"', path]
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
