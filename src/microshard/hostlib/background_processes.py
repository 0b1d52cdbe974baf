"""Module background_processes: start or end processes that run during a measurement, such as telemetry."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import logs, proc
from .errors import HostError
from .files import require_below, require_run_folder, write_atomically

_FILE = {"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}}
_PROCESS = {
    "name": {"type": "str", "required": True},
    "argv": {"type": "list", "elements": "str", "required": True},
    "marker": {"type": "str", "required": True},
}
ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "folder": {"type": "path", "required": True},
    "output_folder": {"type": "path"},
    "files": {"type": "list", "elements": "dict", "default": [], "options": _FILE},
    "processes": {"type": "list", "elements": "dict", "required": True, "options": _PROCESS},
    "state": {"choices": ["started", "stopped"], "default": "started"},
    "stop_timeout": {"type": "float", "default": 3},
}

# Seconds a process must live to count as started: one that cannot import or open its files ends sooner.
_MINIMUM_LIFE = 0.15

Parameters = dict[str, Any]


def main(parameters: Parameters, *, check: bool) -> dict[str, Any]:
    """Start or stop the processes; which ones had to be."""
    run_folder = require_run_folder(parameters["run_folder"])
    for path in (parameters["folder"], parameters["output_folder"], *(file["path"] for file in parameters["files"])):
        if path:
            require_below(run_folder, path)
    changed = (_start if parameters["state"] == "started" else _stop)(parameters, check=check)
    return {
        "changed": bool(changed),
        "msg": f"{', '.join(changed)} {parameters['state']}" if changed else f"already {parameters['state']}",
    }


def _paths(parameters: Parameters, process: dict[str, Any]) -> tuple[str, str]:
    base = os.path.join(parameters["folder"], process["name"])
    return f"{base}.pid", f"{base}.out"


def _start(parameters: Parameters, *, check: bool) -> list[str]:
    running = {p["name"]: proc.from_pid_file(_paths(parameters, p)[0], p["marker"]) for p in parameters["processes"]}
    missing = [p for p in parameters["processes"] if not _has_argv(running[p["name"]], p["argv"])]
    if check or not missing:
        return [process["name"] for process in missing]
    folder = parameters["folder"]
    for path in (folder, parameters["output_folder"]):
        if path:
            os.makedirs(path, exist_ok=True)
    for file in parameters["files"]:
        write_atomically(file["path"], file["content"])
    for process in missing:
        other = running[process["name"]]
        if other:  # left over from a step that was interrupted
            proc.terminate(other, grace=parameters["stop_timeout"])
    children = []
    for process in missing:
        pid_path, output = _paths(parameters, process)
        children.append(proc.spawn(process["argv"], folder=folder, output=output, pid_path=pid_path))
    time.sleep(_MINIMUM_LIFE)
    for process, child in zip(missing, children):
        code = child.poll()
        if code is not None:
            lines = "\n    ".join(logs.last_lines(_paths(parameters, process)[1])) or "(no output)"
            raise HostError(f"{process['name']} ended at once with exit code {code}:\n    {lines}")
    return [process["name"] for process in missing]


def _has_argv(process: proc.LiveProcess | None, argv: list[str]) -> bool:
    return process is not None and list(process.command) == argv


def _stop(parameters: Parameters, *, check: bool) -> list[str]:
    found = []
    for process in parameters["processes"]:
        live = proc.from_pid_file(_paths(parameters, process)[0], process["marker"])
        if live:
            found.append((process["name"], live))
    if found and not check:
        with ThreadPoolExecutor(len(found)) as pool:
            list(pool.map(lambda pair: proc.terminate(pair[1], grace=parameters["stop_timeout"]), found))
    return [name for name, _ in found]
