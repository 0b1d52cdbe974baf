"""Module host_facts: what a plan and a run need to know of a host."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

from .numa import host_cores
from .ports import listeners
from .systemd import is_running as systemd_is_running

ARGUMENTS = {"folder": {"type": "path", "required": True}, "client_python": {"type": "str", "default": ""}}

# The newest that has wheels first.
_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")
_PACKAGE_MANAGERS = ("apt-get", "dnf", "yum", "zypper")
_PRINT_VERSION = "import sys; print(sys.executable, *sys.version_info[:3])"


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:  # noqa: ARG001 - nothing is changed either way
    """The facts of this host."""
    existing = _existing(parameters["folder"])
    sudo = os.geteuid() == 0 or _may_sudo()
    memory = _memory()
    facts = {
        "user": getpass.getuser(),
        "system": _system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_mib": round(memory["MemTotal"] / 1024),
        "available_mib": round(memory["MemAvailable"] / 1024),
        "free_disk_bytes": shutil.disk_usage(existing).free,
        "listening": sorted({port for _, port, _ in listeners()}),
        "numa_nodes": list(host_cores().by_node),
        # Role host_packages installs it.
        "numactl": _has("numactl") or (sudo and any(map(_has, _PACKAGE_MANAGERS))),
        "python": platform.python_version(),
        "client_python": _client_python(parameters["client_python"]),
        "writable": os.access(existing, os.W_OK | os.X_OK),
        "sudo": sudo,
        "systemd": systemd_is_running(),
    }
    return {"facts": facts, "msg": f"{facts['system']}, {facts['cores']} cores, {facts['ram_mib']} MiB of RAM"}


def _has(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin") is not None


def _existing(folder: str) -> str:
    """The folder, or the nearest one above it that exists."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _memory() -> dict[str, int]:
    """/proc/meminfo in KiB."""
    with open("/proc/meminfo", encoding="ascii") as file:
        return {line.split(":")[0]: int(line.split()[1]) for line in file}


def _system() -> str:
    try:
        with open("/etc/os-release", encoding="utf-8") as file:
            pairs = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    except OSError:
        return platform.system()
    return pairs.get("PRETTY_NAME", platform.system()).strip('"')


def _client_python(named: str) -> dict[str, Any]:
    """The interpreter for microshard itself: the one named, or the first of the usual names that is installed."""
    for name in [named] if named else _PYTHONS:
        path = shutil.which(name)
        if path:
            output = subprocess.run(
                [path, "-c", _PRINT_VERSION], capture_output=True, text=True, check=False
            ).stdout.split()
            if len(output) == 4:
                return {"path": output[0], "version": [int(part) for part in output[1:]]}
    return {"path": named or sys.executable, "version": list(sys.version_info[:3]) if not named else [0, 0, 0]}


def _may_sudo() -> bool:
    try:
        return subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
