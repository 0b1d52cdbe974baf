"""How a process of ours ends: with its parent, orderly on SIGTERM, and at once when its work is done."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # prctl(2)


class Terminated(BaseException):
    """SIGTERM or SIGINT arrived. Not an Exception: no handler for errors may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def orderly_end() -> Iterator[None]:
    """Turn the first SIGTERM or SIGINT into Terminated in the main thread; later ones change nothing."""
    ends = (signal.SIGTERM, signal.SIGINT)

    def handler(number: int, _frame: FrameType | None) -> None:
        for each in ends:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    before = [signal.signal(each, handler) for each in ends]
    try:
        yield
    finally:
        for each, old in zip(ends, before, strict=True):
            signal.signal(each, old)


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


def leave(code: int) -> NoReturn:
    """End this process with an exit code. At an exit of Python's, PyMongo waits half a second for its idle threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads any more
            stream.flush()
    os._exit(code)
