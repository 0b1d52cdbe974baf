"""Module run_folder: create, inspect or remove the folder of a run on a host that is not the controller."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import Any

from . import logs, proc, process_limits, systemd
from .errors import HostError
from .files import on_volumes, read_text, require_run_folder, write_atomically

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "run_id": {"type": "str", "required": True},
    "files": {"type": "dict", "default": {}},
    "state": {"choices": ["present", "inspected", "absent"], "default": "present"},
}

_PARTS = ("points", "deployments", "results", "telemetry", "logs", "tmp")
# Programs that a run starts; a `tail -f` on one of its logs is not ended.
_PROGRAMS = ("mongod", "mongos", "numactl", "python")


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Create the folder, list what of the run is on the host, or remove both."""
    if parameters["state"] == "present":
        return _present(parameters, check=check)
    folder = parameters["folder"]
    if not os.path.isdir(folder):
        return {"msg": f"{folder} does not exist", "run": {"running": [], "logs": {}}}
    require_run_folder(folder)
    return _inspect(folder) if parameters["state"] == "inspected" else _absent(folder, check=check)


def _present(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    folder = parameters["folder"]
    marker = os.path.join(folder, "run.json")
    if os.path.exists(folder) and os.listdir(folder) not in ([], ["tmp"]):
        require_run_folder(folder)
    stale = [name for name, text in parameters["files"].items() if read_text(os.path.join(folder, name)) != text]
    missing = [part for part in _PARTS if not os.path.isdir(os.path.join(folder, part))]
    changed = bool(stale or missing or not os.path.exists(marker))
    if not check:
        for part in _PARTS:
            os.makedirs(os.path.join(folder, part), exist_ok=True)
        if not os.path.exists(marker):
            mark = {"microshard": "host", "run_id": parameters["run_id"], "created": time.time()}
            write_atomically(marker, json.dumps(mark) + "\n")
        for name in stale:
            if os.path.basename(name) != name:
                raise HostError(f"{name} is not the name of a file in the run's folder")
            write_atomically(os.path.join(folder, name), parameters["files"][name])
    return {"changed": changed, "msg": folder}


def _inspect(folder: str) -> dict[str, Any]:
    running = [process.command_line for process in proc.of_folder([folder], _PROGRAMS)]
    lines = {}
    for parent, _, files in os.walk(os.path.join(folder, "deployments")):
        for name in files:
            if name in {"mongod.log", "mongos.log"} and not any(parent + "/" in command for command in running):
                killed = process_limits.out_of_memory(parent) or systemd.out_of_memory(parent)
                words = logs.last_lines(os.path.join(parent, name))
                lines[os.path.relpath(parent, folder)] = [killed, *words] if killed else words
    return {"run": {"running": running, "logs": lines}, "msg": f"{len(running)} processes"}


def _absent(folder: str, *, check: bool) -> dict[str, Any]:
    found = proc.of_folder([folder], _PROGRAMS)
    if not check:
        for process in found:
            with contextlib.suppress(TimeoutError):
                proc.terminate(process, grace=2.0)
        left = proc.of_folder([folder], _PROGRAMS)
        if left:
            raise HostError("processes did not end: " + "; ".join(p.command_line[:160] for p in left))
        if groups := process_limits.remove_of_run(folder):
            raise HostError("; ".join(groups))
        for path in on_volumes(folder):
            shutil.rmtree(path)
        logs.remove_rotation(folder, check=check)
        shutil.rmtree(folder)
    return {"changed": True, "msg": f"{len(found)} processes ended, {folder} removed"}
