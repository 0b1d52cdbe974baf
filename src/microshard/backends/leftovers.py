"""What a run left behind, found by its ledger and removed: processes first, then their volumes and data."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from microshard.hostlib import emulated_volumes as emulated
from microshard.records.run_folder import DiskError, RunFolder

_PATIENCE = 10.0  # seconds a process has to go after SIGTERM, and again after SIGKILL


@dataclass(frozen=True, slots=True)
class Running:
    """A process that belongs to a run."""

    pid: int
    command: str


def running(folder: RunFolder) -> list[Running]:
    """Processes of the kinds a run starts whose command line names a path inside the run's folder.

    The run's folder has a random name, and no other mongod's command line carries it: this is the identity
    check, and no signal is ever sent without it. The own process and its ancestors are left out.
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
            if _is_kind_of_ours(words[0]) and any(mark in word for mark in marks for word in words):
                found.append(Running(int(entry.name), " ".join(words).strip()))
    return found


def _is_kind_of_ours(program: str) -> bool:
    """Mongods, and Python for everything else; somebody's `tail -f` on a log of the run is not ours to end."""
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
    """A playbook outlives the runner that was killed: it must not make what is being removed."""
    for process in running(folder):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == process.pid:  # as run.ansible_process starts it, with all it started itself
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
                os.kill(process.pid, signal.SIGCONT)  # a parked process hears SIGTERM only when it runs
                os.kill(process.pid, number)
        deadline = time.monotonic() + _PATIENCE
        while running(folder) and time.monotonic() < deadline:
            time.sleep(0.02)
    left = [f"process {p.pid}: {p.command[:160]}" for p in running(folder)]
    left += emulated.absent(folder.path)[1]
    for name in ("deployments", "tmp", "secrets"):
        path = folder / name
        if path.exists():
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():
                left.append(f"folder {path}")
    with contextlib.suppress(DiskError):  # what is gone is gone, with or without a line on a full disk
        folder.ledger.append(kind="run", state="clean" if not left else "not clean", left=left)
    return left
