"""Starting and ending one process that outlives the module that starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from . import proc
from .run_folder import write_atomically

# Ansible's and the runner's own variables are nobody's business in a process that outlives them.
_PRIVATE = ("ANSIBLE_", "MICROSHARD_EVENTS_FD")


def within(cgroup: str, argv: list[str]) -> list[str]:
    """The command that becomes `argv` in a cgroup (its folder); `argv` itself where there is none.

    A process joins before it executes its program, so that none of its I/O and none of its children escape.
    """
    if not cgroup:
        return argv
    return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(cgroup, "cgroup.procs"), *argv]


def spawn(argv: list[str], *, folder: str, output: str, pid_path: str, cgroup: str = "") -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own, output appended to a file, and record its pid."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_PRIVATE)}
    with open(output, "ab") as file:
        child = subprocess.Popen(
            within(cgroup, argv),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    write_atomically(pid_path, f"{child.pid}\n")
    return child


def end(leader: proc.Seen, *, grace: float, population: list[proc.Seen] | None = None) -> str:
    """End a process and all below it; "terminated" when SIGTERM was enough within `grace` seconds, else "killed".

    With grace 0 nothing is asked: SIGKILL at once. A stopped process is continued first, or it could not hear SIGTERM.
    `population` is everyone, for those who end many processes: looking at all of /proc takes milliseconds.
    """
    members = proc.family(leader, population)
    if grace > 0:
        for member in members:
            if member.stopped:
                proc.send(member, signal.SIGCONT)
        proc.send(leader, signal.SIGTERM)
        if proc.wait_gone(leader, time.monotonic() + grace):
            _kill(members[1:])
            return "terminated"
        members += proc.family(leader)  # what it started while it had its time
    _kill(members)
    return "killed"


def _kill(members: list[proc.Seen]) -> None:
    for member in members:
        proc.send(member, signal.SIGKILL)
    deadline = time.monotonic() + 10
    for member in members:
        if not proc.wait_gone(member, deadline):
            raise TimeoutError(f"pid {member.pid} ({' '.join(member.command)[:200]}) did not end 10 s after SIGKILL")
