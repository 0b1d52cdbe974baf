"""Module collected_logs: compress logs and diagnostic data (FTDC) of processes into the folder of the run."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from .files import require_below, require_own, require_run_folder
from .mongo_config import on_host

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "folder": {"type": "path", "required": True},
    "processes": {"type": "list", "elements": "dict", "required": True},
    "host": {"type": "str", "default": ""},
    "deployment": {"type": "str", "default": "by-hand"},
}

# Speed before size: logs are collected while the next point waits.
_LEVEL = 1


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Compress the logs that exist and changed since; their names."""
    run_folder = require_run_folder(parameters["run_folder"])
    require_below(run_folder, parameters["folder"])
    processes = on_host(parameters["processes"], parameters["host"], run_folder, parameters["deployment"])
    for process in processes:
        require_own(run_folder, process["log_path"])
        if process.get("db_path"):
            require_own(run_folder, process["db_path"])
    if not check:
        os.makedirs(parameters["folder"], exist_ok=True)
    # zlib releases the interpreter's lock, so threads compress in parallel.
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        kept = list(pool.map(partial(_keep, parameters["folder"], check=check), processes))
        kept += pool.map(partial(_keep_diagnostics, parameters["folder"], check=check), processes)
    names = [name for name in kept if name]
    return {"changed": bool(names), "logs": names, "msg": f"{len(names)} logs and diagnostics kept"}


def _keep(folder: str, process: dict[str, Any], *, check: bool) -> str:
    """The process's name if its log had to be compressed, else ""."""
    target = os.path.join(folder, f"{process['name']}.log.gz")
    try:
        stamp = os.stat(process["log_path"]).st_mtime_ns
    except FileNotFoundError:
        return ""
    if os.path.exists(target) and os.stat(target).st_mtime_ns == stamp:
        return ""
    if not check:
        draft = f"{target}.new"
        with open(process["log_path"], "rb") as log, gzip.open(draft, "wb", compresslevel=_LEVEL) as file:
            shutil.copyfileobj(log, file, 1 << 20)
        os.utime(draft, ns=(stamp, stamp))
        os.replace(draft, target)
    return str(process["name"])


def _keep_diagnostics(folder: str, process: dict[str, Any], *, check: bool) -> str:
    """The name of the archive of a process's diagnostic.data if it had to be written, else ""."""
    source = os.path.join(process.get("db_path") or "", "diagnostic.data")
    if not process.get("db_path") or not os.path.isdir(source):
        return ""
    target = os.path.join(folder, f"{process['name']}.diagnostic.tar.gz")
    stamp = max([os.stat(entry.path).st_mtime_ns for entry in os.scandir(source)], default=0)
    if not stamp or (os.path.exists(target) and os.stat(target).st_mtime_ns == stamp):
        return ""
    if not check:
        draft = f"{target}.new"
        with tarfile.open(draft, "w:gz", compresslevel=_LEVEL) as archive:
            archive.add(source, arcname=f"{process['name']}/diagnostic.data")
        os.utime(draft, ns=(stamp, stamp))
        os.replace(draft, target)
    return f"{process['name']} (diagnostics)"
