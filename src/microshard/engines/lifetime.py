"""How a process of ours ends: with its parent, or orderly on SIGTERM."""

from __future__ import annotations

import ctypes
import os
import signal
from types import FrameType

PR_SET_PDEATHSIG = 1  # prctl(2)


class Terminated(BaseException):
    """SIGTERM or SIGINT arrived. Not an Exception: no handler for errors may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def end_orderly_on_signals() -> None:
    """Turn SIGTERM and SIGINT into Terminated in the main thread, once; a second signal changes nothing."""

    def handler(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handler)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends. Linux only.

    `parent` is the pid the parent says it has: if it is gone already, the signal would never come.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
