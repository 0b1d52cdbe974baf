"""Processes: which one a pid is, what belongs to it, signals that reach only that one, starting and ending it.

A process is identified by pid, start time and command line, for a pid alone is given out again.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from .files import write_atomically
from .host_counters import parse_stat, read

PR_SET_PDEATHSIG = 1  # prctl(2)
_KILL_SECONDS = 10.0  # a process that is still there so long after SIGKILL is stuck in the kernel
_POLL = 0.02  # s
# Variables of Ansible and of the runner mean nothing to a process that outlives them.
_PRIVATE = ("ANSIBLE_", "MICROSHARD_EVENTS_FD")


@dataclass(frozen=True)
class LiveProcess:
    """A process at the moment it was looked up."""

    pid: int
    parent: int
    session: int
    state: str  # R, S, D, T …; never a zombie
    started: int  # clock ticks after boot: with the pid it identifies a process
    command: tuple[str, ...]

    @property
    def command_line(self) -> str:
        """Program and arguments, for people and searches."""
        return " ".join(self.command)

    @property
    def paused(self) -> bool:
        """Whether SIGSTOP holds it."""
        return self.state in {"T", "t"}

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        now = find(self.pid)
        return now is not None and now.started == self.started


def find(pid: int) -> LiveProcess | None:
    """The process with this pid; None if there is none or only its zombie."""
    text = read(f"/proc/{pid}/stat")
    command = read(f"/proc/{pid}/cmdline", errors="surrogateescape")
    if not text or command is None:
        return None
    status = parse_stat(text)
    if status["state"] in {"Z", "X"}:
        return None
    words = tuple(command.split("\0")[:-1])
    return LiveProcess(pid, status["parent"], status["session"], status["state"], status["started"], words)


def all_processes() -> list[LiveProcess]:
    """All live processes."""
    found = (find(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process]


def from_pid_file(pid_path: str, argument: str) -> LiveProcess | None:
    """The process a pid file names, if it is really that one.

    A pid file outlives its process and the pid may be another's by then: the process counts only when `argument` (the
    path of its configuration file) is one of its command line's arguments.
    """
    try:
        with open(pid_path, encoding="ascii") as file:
            pid = int(file.read().strip() or 0)
    except (OSError, ValueError):
        return None
    process = find(pid) if pid > 1 else None
    return process if process and argument in process.command else None


def of_folder(folders: Sequence[str], programs: tuple[str, ...]) -> list[LiveProcess]:
    """Processes of these programs (the start of their names) with an argument inside one of the folders.

    This process and those above it are left out.
    """
    processes = {process.pid: process for process in all_processes()}
    pid = os.getpid()
    while pid in processes:
        pid = processes.pop(pid).parent
    inside = [folder.rstrip("/") + "/" for folder in folders]
    return [
        process
        for process in processes.values()
        if process.command
        and os.path.basename(process.command[0]).startswith(programs)
        and any(folder in word for folder in inside for word in process.command)
    ]


def tree(leader: LiveProcess, processes: list[LiveProcess] | None = None) -> list[LiveProcess]:
    """The process and all below it: descendants, and what stayed in its session when a parent died.

    `processes` are all processes, for callers with many leaders: reading all of /proc takes milliseconds.
    """
    processes = all_processes() if processes is None else processes
    pids = {leader.pid}
    while True:
        more = {p.pid for p in processes if p.parent in pids or p.session == leader.pid} - pids
        if not more:
            return [leader, *(p for p in processes if p.pid in pids and p.pid != leader.pid)]
        pids |= more


def send_signal(process: LiveProcess, number: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone, also when its pid has been given to another."""
    handle = -1
    with contextlib.suppress(AttributeError, OSError):  # kernels before 5.3 leave a small gap between look and signal
        handle = os.pidfd_open(process.pid)
    try:
        if not process.is_alive():
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)
    return True


def wait_until_gone(process: LiveProcess, deadline: float) -> bool:
    """Whether the process ended before `deadline` (time.monotonic seconds)."""
    with contextlib.suppress(AttributeError, OSError):
        handle = os.pidfd_open(process.pid)
        try:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            if process.is_alive():
                poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        finally:
            os.close(handle)
    while process.is_alive():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
    return True


def terminate(leader: LiveProcess, *, grace: float, processes: list[LiveProcess] | None = None) -> str:
    """End a process and all below it; "terminated" when SIGTERM was enough within `grace` seconds, else "killed".

    With grace 0 SIGKILL is sent at once. A paused process is resumed first, for it does not react to SIGTERM.
    `processes`: as for `tree`.
    """
    members = tree(leader, processes)
    if grace > 0:
        for member in members:
            if member.paused:
                send_signal(member, signal.SIGCONT)
        send_signal(leader, signal.SIGTERM)
        if wait_until_gone(leader, time.monotonic() + grace):
            _kill(members[1:])
            return "terminated"
        members += tree(leader)  # what it started meanwhile
    _kill(members)
    return "killed"


def _kill(members: list[LiveProcess]) -> None:
    for member in members:
        send_signal(member, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_SECONDS
    for member in members:
        if not wait_until_gone(member, deadline):
            raise TimeoutError(
                f"pid {member.pid} ({member.command_line[:200]}) did not end {_KILL_SECONDS:.0f} s after SIGKILL"
            )


def in_cgroups(cgroups: Sequence[str], argv: list[str]) -> list[str]:
    """The command that executes `argv` in cgroups (their folders); `argv` itself where there are none.

    A process joins before it executes its program, so that none of its I/O and none of its children escape.
    """
    for cgroup in cgroups:
        argv = ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(cgroup, "cgroup.procs"), *argv]
    return argv


def spawn(
    argv: list[str], *, folder: str, output: str, pid_path: str, cgroups: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Start `argv` in a new session, output appended to a file, and record its pid. It outlives this process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_PRIVATE)}
    with open(output, "ab") as file:
        child = subprocess.Popen(
            in_cgroups(cgroups, argv),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    write_atomically(pid_path, f"{child.pid}\n")
    return child


# How a worker process of microshard itself ends: with its parent, orderly on SIGTERM, at once when its work is done.


class Terminated(BaseException):
    """SIGTERM or SIGINT arrived. Not an Exception: no handler for errors may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextlib.contextmanager
def orderly_end() -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT into Terminated in the main thread; later ones change nothing."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def handler(number: int, _frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    before = {each: signal.signal(each, handler) for each in numbers}
    try:
        yield
    finally:
        for each, previous in before.items():
            signal.signal(each, previous)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when the thread that started it ends. Linux only.

    `parent` is the parent's pid as the parent knows it: if it is gone already, the signal would never come.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def leave(code: int) -> NoReturn:
    """End this process with an exit code at once: an ordinary exit waits 0.5 s for PyMongo's idle threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads any more
            stream.flush()
    os._exit(code)
