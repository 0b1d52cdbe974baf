"""The settings there are: where each stands in the kernel, and how it is kept over a reboot."""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass

from ..refused import Refused

_HUGE = "/sys/kernel/mm/transparent_hugepage"


@dataclass(frozen=True)
class Setting:
    """A value of the kernel behind one or several files with the same content."""

    name: str
    pattern: str  # of the files; several where each CPU has its own
    sysctl: str = ""  # its name for sysctl.d; "" where a unit of systemd writes the files at boot
    absent: str = ""  # what it means that there is no such file

    def paths(self) -> list[str]:
        """The files it stands in."""
        return sorted(glob.glob(self.pattern))

    def value(self) -> str | None:
        """What it is now, None where the host has no such setting. The chosen word of a list stands in brackets."""
        values = set()
        for path in self.paths():
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
            chosen = re.search(r"\[([^]]+)\]", text)
            values.add(chosen.group(1) if chosen else text)
        return ", ".join(sorted(values)) if values else None

    def set(self, value: str) -> None:
        """Write it and read it back. Refused when the kernel will not have it."""
        try:
            for path in self.paths():
                with open(path, "w", encoding="ascii") as file:
                    file.write(f"{value}\n")
        except OSError as error:
            raise Refused(f"{self.name}: {error.filename} does not take {value}: {error.strerror}") from None
        found = self.value()
        if found != value:
            raise Refused(f"{self.name} was set to {value} and is {found} ({self.pattern})")

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


def is_numa() -> bool:
    """Whether the host has more than one NUMA node."""
    return len(glob.glob("/sys/devices/system/node/node[0-9]*")) > 1


def describe() -> dict[str, str | None]:
    """All settings as they are, whoever set them."""
    return {name: setting.value() for name, setting in SETTINGS.items()}


def release() -> str:
    """The kernel's release."""
    return os.uname().release
