"""The processes of a run on this machine: found, explained when they died, and removed with their data."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from microshard.hostlib import emulated_volumes
from microshard.model.plan import Point, Process
from microshard.records.run_folder import DiskError, RunFolder

FOLDERS = ("deployments", "tmp", "secrets")  # of a run's folder; they go with its processes
_GRACE = 10.0  # seconds a process has to end after SIGTERM, and again after SIGKILL
_LINES = 5  # of a log that are shown
_SEARCHED = 400  # lines from the end of a log; a backtrace has about a hundred
_LONGEST = 300  # characters of a line


@dataclass(frozen=True, slots=True)
class RunProcess:
    """A process that belongs to a run."""

    pid: int
    command: str


def running(folder: RunFolder) -> list[RunProcess]:
    """Processes of the kinds a run starts whose command line names a path inside the run's folder.

    The run's folder has a random name, and no other mongod's command line carries it: this is the identity
    check, and no signal is ever sent without it. This process and its ancestors are left out.
    """
    marks = tuple(
        f"{folder.path}/{name}/" for name in ("deployments", "points", "results", "telemetry", "tmp", "hosts")
    )
    spared = _ancestors()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if _is_started_by_runs(words[0]) and any(mark in word for mark in marks for word in words):
                found.append(RunProcess(int(entry.name), " ".join(words).strip()))
    return found


def _is_started_by_runs(program: str) -> bool:
    """Mongods, and Python for everything else; a user's `tail -f` on a log of the run is left alone."""
    name = Path(program).name
    return name in {"mongod", "mongos"} or name.startswith("python")


def _ancestors() -> set[int]:
    pids = set()
    pid = os.getpid()
    while pid > 1:
        pids.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return pids


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
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes = running(folder)
        if not processes:
            break
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGCONT)  # a process stopped by SIGSTOP handles SIGTERM only when it runs
                os.kill(process.pid, number)
        deadline = time.monotonic() + _GRACE
        while running(folder) and time.monotonic() < deadline:
            time.sleep(0.02)
    left = [f"process {p.pid}: {p.command[:160]}" for p in running(folder)]
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
    commands = [p.command for p in running(folder)]
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
