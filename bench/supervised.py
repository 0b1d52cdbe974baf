"""A benchmark in a process of its own that ends in time and leaves nothing running.

This process becomes the one that inherits orphans (PR_SET_CHILD_SUBREAPER, prctl(2)), so that servers which a
benchmark started as daemons are its own descendants, whatever became of the benchmark, and only those are ended.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE = 45.0  # s for a benchmark that was interrupted to take its cluster down


def adopt_orphans() -> None:
    """Descendants whose parent ends become children of this process. OSError where the kernel refuses."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def run(command: Sequence[str], folder: Path, root: Path, seconds: float) -> str:
    """Run a benchmark; "" when it ended well in time, else what was wrong. Nothing of it runs afterwards.

    `folder` is where its temporary files go.
    """
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, cwd=root, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)
    problem = ""
    try:
        if code := _wait(process, seconds):
            problem = f"ended with exit code {code}"
    except subprocess.TimeoutExpired:
        problem = f"not done after {seconds:.0f} s"
    except KeyboardInterrupt:
        _interrupt(process)
        _end_orphans()
        raise
    if process.poll() is None:
        _interrupt(process)
    if left := _end_orphans():
        problem = problem or f"left {left} processes running"
    return problem


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    until = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > until:
            raise subprocess.TimeoutExpired(process.args, seconds)
        _reap_orphans(process.pid)
        time.sleep(0.05)
    # 1 says that a target is not held, which is a finding and no failure.
    return 0 if process.returncode == 1 else process.returncode


def _reap_orphans(own: int) -> None:
    """As init does: somebody may wait until an orphan's pid is free, a shell script for example."""
    for child in _children(os.getpid()):
        if child != own and _zombie(child):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C, as a person would, and time to clear up; then the end of all its group."""
    for number, patience in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience)
            return


def _end_orphans() -> int:
    """End every descendant that is left; how many there were."""
    deadline, ended = time.monotonic() + 20, set[int]()
    while time.monotonic() < deadline:
        _reap()
        left = descendants(os.getpid())
        if not left:
            break
        for pid in left:
            ended.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if ended:
        print(f"  {len(ended)} processes were left and are ended now", file=sys.stderr, flush=True)
    return len(ended)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(pid: int) -> list[int]:
    """All processes below a process that are no zombies."""
    found = []
    for child in _children(pid):
        if not _zombie(child):
            found.append(child)
        found += descendants(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text(encoding="ascii").split())
    return found


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
