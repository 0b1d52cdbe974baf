"""Processes as /proc shows them, and signals that reach only the process that was looked at."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass

_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True)
class Seen:
    """A live process at the moment it was looked at."""

    pid: int
    parent: int
    session: int
    state: str  # R, S, D, T …; a zombie is not seen
    started: int  # clock ticks after boot: with the pid it names a process for good
    command: tuple[str, ...]

    @property
    def stopped(self) -> bool:
        """Whether SIGSTOP holds it."""
        return self.state in {"T", "t"}


def look(pid: int) -> Seen | None:
    """The process with this pid; None if there is none or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The command's name stands in parentheses and may itself contain blanks and parentheses.
            fields = file.read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = tuple(os.fsdecode(part) for part in file.read().split(b"\0")[:-1])
    except _GONE:
        return None
    if fields[0] in {"Z", "X"}:
        return None
    return Seen(pid, int(fields[1]), int(fields[3]), fields[0], int(fields[19]), command)


def everyone() -> list[Seen]:
    """All live processes."""
    found = (look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process]


def recorded(pid_path: str, argument: str) -> Seen | None:
    """The process a pid file names, if it is really that one.

    A pid file outlives its process and a pid is given out again: the process counts only when `argument`
    (the path of its configuration file) is one of its command line's arguments.
    """
    try:
        with open(pid_path, encoding="ascii") as file:
            pid = int(file.read().strip() or 0)
    except (OSError, ValueError):
        return None
    process = look(pid) if pid > 1 else None
    return process if process and argument in process.command else None


def family(leader: Seen, population: list[Seen] | None = None) -> list[Seen]:
    """The process and all below it: children of children, and what stayed in its session when a parent died."""
    population = everyone() if population is None else population
    pids = {leader.pid}
    while True:
        more = {p.pid for p in population if p.parent in pids or p.session == leader.pid} - pids
        if not more:
            return [leader, *(p for p in population if p.pid in pids and p.pid != leader.pid)]
        pids |= more


def send(process: Seen, number: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone, also when its pid has been given to another."""
    try:
        handle = os.pidfd_open(process.pid)
    except (AttributeError, ProcessLookupError, OSError):
        return _send_by_pid(process, number)
    try:
        now = look(process.pid)
        if now is None or now.started != process.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def _send_by_pid(process: Seen, number: signal.Signals) -> bool:
    """For kernels before 5.3, where a small gap between looking and signalling cannot be closed."""
    now = look(process.pid)
    if now is None or now.started != process.started:
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_gone(process: Seen, deadline: float) -> bool:
    """Whether the process ended before `deadline` (time.monotonic seconds)."""
    with contextlib.suppress(AttributeError, OSError):
        handle = os.pidfd_open(process.pid)
        try:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            if _same(process):
                poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(handle)
    while _same(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def _same(process: Seen) -> bool:
    now = look(process.pid)
    return now is not None and now.started == process.started
