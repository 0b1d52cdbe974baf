"""The processes of a run on this machine: found, explained when they died, and removed with their data."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from microshard.hostlib import emulated_volumes, proc
from microshard.hostlib.proc import LiveProcess
from microshard.model.plan import Point, Process
from microshard.records.run_folder import DiskError, RunFolder

FOLDERS = ("deployments", "tmp", "secrets")  # of a run's folder; they go with its processes
_GRACE = 10.0  # seconds a process has to end after SIGTERM
_CONCURRENTLY = 64  # processes ended at the same time
_LINES = 5  # of a log that are shown
_SEARCHED = 400  # lines from the end of a log; a backtrace has about a hundred
_LONGEST = 300  # characters of a line


def running(folder: RunFolder) -> list[LiveProcess]:
    """Processes of the kinds a run starts whose command line names a path inside the run's folder.

    The run's folder has a random name, and no other mongod's command line carries it: this is the identity
    check, and no signal is ever sent without it. This process and its ancestors are left out, and so is a user's
    `tail -f` on a log.
    """
    parts = ("deployments", "points", "results", "telemetry", "tmp", "hosts")
    return proc.of_folder([f"{folder.path}/{part}" for part in parts], ("mongod", "mongos", "python"))


def end_playbooks(folder: RunFolder) -> None:
    """Kill playbooks that outlived their runner: they would create again what is being removed."""
    for process in running(folder):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:  # a playbook is the leader of its session
                os.killpg(process.pid, signal.SIGKILL)


def clean(folder: RunFolder) -> list[str]:
    """Stop every process of the run and remove its data and temporary files.

    Returns what could not be removed, one sentence each; empty when nothing is left.
    """
    processes = proc.all_processes()

    def end(process: LiveProcess) -> None:
        with contextlib.suppress(TimeoutError, PermissionError):  # it is listed as left
            proc.terminate(process, grace=_GRACE, processes=processes)

    with ThreadPoolExecutor(_CONCURRENTLY) as pool:
        list(pool.map(end, running(folder)))
    left = [f"process {p.pid}: {p.command_line[:160]}" for p in running(folder)]
    left += emulated_volumes.absent(folder.path)[1]
    for name in FOLDERS:
        path = folder / name
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():
                left.append(f"folder {path}")
    with contextlib.suppress(DiskError):  # what is gone is gone, with or without a line on a full disk
        folder.ledger.append(kind="run", state="clean" if not left else "not clean", left=left)
    return left


def missing(folder: RunFolder, point: Point) -> list[str]:
    """A sentence for every planned process that does not run, with the end of its log."""
    commands = [p.command_line for p in running(folder)]
    return [
        f"{process.name} ({process.endpoint}) is not running any more{_log_end(folder, process)}"
        for process in point.processes
        if not any(str(folder / process.config_path) in command for command in commands)
    ]


def _log_end(folder: RunFolder, process: Process) -> str:
    lines = last_lines(folder / process.log_path)
    if not lines:
        return "; it left no log"
    return "; the end of its log:\n" + "\n".join(f"    {line}" for line in lines)


def last_lines(path: Path) -> list[str]:
    """What a mongod's log says at its end: its last errors, or where there are none its last lines.

    A mongod that dies writes a backtrace after the reason, so the end alone would not tell it.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip() for line in deque(file, maxlen=_SEARCHED)]
    except OSError:
        return []
    errors = [line for line in lines if '"s":"E"' in line or '"s":"F"' in line]
    return [_readable(line) for line in (errors[:_LINES] or lines[-_LINES:])]


def _readable(line: str) -> str:
    try:
        entry = json.loads(line)
        text = f"{entry['t']['$date']} {entry['s']} {entry['c']} {entry['msg']}"
        if "attr" in entry:
            text += f" {json.dumps(entry['attr'], default=str)}"
    except (ValueError, KeyError, TypeError):
        text = line
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
