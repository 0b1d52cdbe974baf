"""Processes that run beside a measurement, started or ended."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import daemon, logs, proc
from ..refused import Refused
from ..run_folder import require_below, require_run_folder, write_atomically

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
    "patience": {"type": "float", "default": 3},
}

# Seconds a helper must survive to count as started: one that cannot import or open its files ends sooner.
_SURVIVE = 0.15

Wanted = dict[str, Any]


def act(wanted: Wanted, *, check: bool) -> dict[str, Any]:
    """The processes run, or run no more."""
    run_folder = require_run_folder(wanted["run_folder"])
    for path in (wanted["folder"], wanted["output_folder"], *(file["path"] for file in wanted["files"])):
        if path:
            require_below(run_folder, path)
    changed = (_start if wanted["state"] == "started" else _stop)(wanted, check=check)
    return {
        "changed": bool(changed),
        "msg": f"{', '.join(changed)} {wanted['state']}" if changed else "as they should be",
    }


def _paths(wanted: Wanted, process: dict[str, Any]) -> tuple[str, str]:
    base = os.path.join(wanted["folder"], process["name"])
    return f"{base}.pid", f"{base}.out"


def _start(wanted: Wanted, *, check: bool) -> list[str]:
    running = {p["name"]: proc.recorded(_paths(wanted, p)[0], p["marker"]) for p in wanted["processes"]}
    missing = [p for p in wanted["processes"] if not _runs_as_wanted(running[p["name"]], p)]
    if check or not missing:
        return [process["name"] for process in missing]
    folder = wanted["folder"]
    for path in (folder, wanted["output_folder"]):
        if path:
            os.makedirs(path, exist_ok=True)
    for file in wanted["files"]:
        write_atomically(file["path"], file["content"])
    for process in missing:
        other = running[process["name"]]
        if other:  # left over from a step that was interrupted
            daemon.end(other, grace=wanted["patience"])
    children = []
    for process in missing:
        pid_path, output = _paths(wanted, process)
        children.append(daemon.spawn(process["argv"], folder=folder, output=output, pid_path=pid_path))
    time.sleep(_SURVIVE)
    for process, child in zip(missing, children):
        code = child.poll()
        if code is not None:
            words = "\n    ".join(logs.last_words(_paths(wanted, process)[1])) or "it said nothing"
            raise Refused(f"{process['name']} ended at once with exit code {code}:\n    {words}")
    return [process["name"] for process in missing]


def _runs_as_wanted(seen: proc.Seen | None, process: dict[str, Any]) -> bool:
    return seen is not None and list(seen.command) == process["argv"]


def _stop(wanted: Wanted, *, check: bool) -> list[str]:
    found = []
    for process in wanted["processes"]:
        seen = proc.recorded(_paths(wanted, process)[0], process["marker"])
        if seen:
            found.append((process["name"], seen))
    if found and not check:
        with ThreadPoolExecutor(len(found)) as pool:
            list(pool.map(lambda pair: daemon.end(pair[1], grace=wanted["patience"]), found))
    return [name for name, _ in found]
