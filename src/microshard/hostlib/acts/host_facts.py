"""What a host is and has, as far as a plan and a run need to know it."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import subprocess
import sys
from typing import Any

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "client_python": {"type": "str", "default": ""},
}

# The newest that has wheels first.
_PYTHONS = ("python3.14", "python3.13", "python3.12", "python3.11", "python3")
_ASK = "import sys; print(sys.executable, *sys.version_info[:3])"
_LISTEN = "0A"


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:  # noqa: ARG001 - nothing is changed either way
    """The facts of this host."""
    there = _existing(wanted["folder"])
    memory = _memory()
    facts = {
        "user": getpass.getuser(),
        "system": _system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "ram_mib": round(memory["MemTotal"] / 1024),
        "available_mib": round(memory["MemAvailable"] / 1024),
        "free_disk_bytes": shutil.disk_usage(there).free,
        "listening": sorted(_listening()),
        "numa_nodes": _numa_nodes(),
        "numactl": shutil.which("numactl", path=f"{os.environ.get('PATH', '')}:/usr/bin:/bin") is not None,
        "python": platform.python_version(),
        "client_python": _client_python(wanted["client_python"]),
        "writable": os.access(there, os.W_OK | os.X_OK),
        "sudo": os.geteuid() == 0 or _may_sudo(),
        "systemd": os.path.isdir("/run/systemd/system"),  # as sd_booted(3)
    }
    return {"facts": facts, "msg": f"{facts['system']}, {facts['cores']} cores, {facts['ram_mib']} MiB of RAM"}


def _existing(folder: str) -> str:
    """The folder, or the nearest one above it that is there."""
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


def _listening() -> set[int]:
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        ports |= {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN}
    return ports


def _numa_nodes() -> list[int]:
    """Numbers of the NUMA nodes; a kernel without NUMA has node 0."""
    try:
        names = os.listdir("/sys/devices/system/node")
    except OSError:
        return [0]
    return sorted(int(name[4:]) for name in names if name[:4] == "node" and name[4:].isdigit()) or [0]


def _client_python(named: str) -> dict[str, Any]:
    """The interpreter for microshard itself: the one named, or the first of the usual names that is there."""
    for name in [named] if named else _PYTHONS:
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, check=False).stdout.split()
            if len(said) == 4:
                return {"path": said[0], "version": [int(part) for part in said[1:]]}
    return {"path": named or sys.executable, "version": list(sys.version_info[:3]) if not named else [0, 0, 0]}


def _may_sudo() -> bool:
    try:
        return subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
