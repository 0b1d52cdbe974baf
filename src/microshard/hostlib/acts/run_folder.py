"""The folder of a run on a host that is not the controller: made, looked at, removed with all that belongs to it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import Any

from .. import daemon, logs, proc, rotation
from ..refused import Refused
from ..run_folder import on_volumes, require_run_folder, write_atomically

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "run_id": {"type": "str", "required": True},
    "files": {"type": "dict", "default": {}},
    "state": {"choices": ["present", "looked_at", "absent"], "default": "present"},
}

_PARTS = ("points", "deployments", "results", "telemetry", "logs", "tmp")
# What a run starts; somebody's `tail -f` on a log of the run is not ours to end.
_KINDS = ("mongod", "mongos", "numactl", "python")


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The folder is in the state asked for."""
    if wanted["state"] == "present":
        return _present(wanted, check=check)
    folder = wanted["folder"]
    if not os.path.isdir(folder):
        return {"msg": f"{folder} is not there", "run": {"running": [], "logs": {}}}
    require_run_folder(folder)
    return _look(folder) if wanted["state"] == "looked_at" else _absent(folder, check=check)


def _present(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    folder = wanted["folder"]
    marker = os.path.join(folder, "run.json")
    if os.path.exists(folder) and os.listdir(folder) not in ([], ["tmp"]):
        require_run_folder(folder)
    stale = [name for name, text in wanted["files"].items() if _read(os.path.join(folder, name)) != text]
    missing = [part for part in _PARTS if not os.path.isdir(os.path.join(folder, part))]
    changed = bool(stale or missing or not os.path.exists(marker))
    if not check:
        for part in _PARTS:
            os.makedirs(os.path.join(folder, part), exist_ok=True)
        if not os.path.exists(marker):
            mark = {"microshard": "host", "run_id": wanted["run_id"], "created": time.time()}
            write_atomically(marker, json.dumps(mark) + "\n")
        for name in stale:
            if os.path.basename(name) != name:
                raise Refused(f"{name} is not the name of a file in the run's folder")
            write_atomically(os.path.join(folder, name), wanted["files"][name])
    return {"changed": changed, "msg": folder}


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def _ours(folder: str) -> list[proc.Seen]:
    """Processes of the kinds a run starts with an argument inside the folder; not this module and who called it."""
    spared, pid = set(), os.getpid()
    population = {process.pid: process for process in proc.everyone()}
    while pid in population:
        spared.add(pid)
        pid = population[pid].parent
    inside = folder.rstrip("/") + "/"
    return [
        process
        for process in population.values()
        if process.pid not in spared
        and process.command
        and os.path.basename(process.command[0]).startswith(_KINDS)
        and any(inside in word for word in process.command)
    ]


def _look(folder: str) -> dict[str, Any]:
    running = [" ".join(process.command) for process in _ours(folder)]
    words = {}
    for parent, _, files in os.walk(os.path.join(folder, "deployments")):
        for name in files:
            if name in {"mongod.log", "mongos.log"} and not any(parent + "/" in command for command in running):
                words[os.path.relpath(parent, folder)] = logs.last_words(os.path.join(parent, name))
    return {"run": {"running": running, "logs": words}, "msg": f"{len(running)} processes"}


def _absent(folder: str, *, check: bool) -> dict[str, Any]:
    found = _ours(folder)
    if not check:
        for process in found:
            with contextlib.suppress(TimeoutError):
                daemon.end(process, grace=2.0)
        left = _ours(folder)
        if left:
            raise Refused("processes did not end: " + "; ".join(" ".join(p.command)[:160] for p in left))
        for path in on_volumes(folder):
            shutil.rmtree(path)
        rotation.remove(folder, check=check)
        shutil.rmtree(folder)
    return {"changed": True, "msg": f"{len(found)} processes ended, {folder} removed"}
