"""The processes of a run on this machine: found, explained when they died, and removed with their data."""

import contextlib
import os
import shutil
import signal
import time

from microshard.hostlib import emulated_volumes, proc, process_limits
from microshard.hostlib.logs import last_lines
from microshard.model.plan import Point
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import DiskError, RunFolder

FOLDERS = ("deployments", "tmp", "secrets")  # of a run's folder; they go with its processes
_PROGRAMS = ("mongod", "mongos", "python")  # a user's `tail -f` on a log of the run is left alone
_GRACE = 10.0  # seconds a process has to end after SIGTERM, and again after SIGKILL


def running(folder: RunFolder) -> list[proc.LiveProcess]:
    """Processes of the programs a run starts whose command line names a path inside the run's folder.

    The run's folder has a random name, and no other mongod's command line has it: this is the identity check, and no
    signal is ever sent without it.
    """
    names = ("deployments", "points", "results", "telemetry", "tmp", "hosts")
    return proc.of_folder([f"{folder.path}/{name}" for name in names], _PROGRAMS)


def end_playbooks(folder: RunFolder) -> None:
    """Kill playbooks that outlived their runner: they would create again what is being removed."""
    for process in running(folder):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.session == process.pid:  # a playbook is the leader of its session
                os.killpg(process.pid, signal.SIGKILL)


def clean(folder: RunFolder) -> list[str]:
    """Stop every process of the run and remove its data and temporary files.

    Returns what could not be removed, one sentence each; empty when nothing is left.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        processes = running(folder)
        for process in processes:
            with contextlib.suppress(PermissionError):
                proc.send_signal(process, number)
                proc.send_signal(process, signal.SIGCONT)  # a process stopped by SIGSTOP ends only when it runs
        deadline = time.monotonic() + _GRACE
        for process in processes:
            proc.wait_until_gone(process, deadline)
    left = [f"process {process.pid}: {process.command_line[:160]}" for process in running(folder)]
    left += emulated_volumes.absent(folder.path)[1]
    left += process_limits.remove_of_run(str(folder.path))
    for path in (folder / name for name in FOLDERS):
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            left.append(f"folder {path}")
    with contextlib.suppress(DiskError):  # what is gone is gone, with or without a line on a full disk
        folder.ledger.append(LedgerRecord("run", "clean" if not left else "not clean", left=left))
    return left


def missing(folder: RunFolder, point: Point) -> list[str]:
    """A sentence for every planned process that does not run, with the end of its log."""
    commands = [process.command_line for process in running(folder)]
    sentences = []
    for process in point.processes:
        if not any(str(folder / process.config_path) in command for command in commands):
            lines = last_lines(str(folder / process.log_path))
            end = (
                "; the end of its log:\n" + "\n".join(f"    {line}" for line in lines) if lines else "; it left no log"
            )
            killed = process_limits.out_of_memory(str((folder / process.config_path).parent))
            end = f": {killed}{end}" if killed else end
            sentences.append(f"{process.name} ({process.endpoint}) is not running any more{end}")
    return sentences
