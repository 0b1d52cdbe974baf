"""SIGINT, SIGTERM and SIGHUP as an exception, so that everything is torn down on the way out."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from microshard.errors import EXIT_INTERRUPTED

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """SIGINT, SIGTERM or SIGHUP was received."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
        return EXIT_INTERRUPTED if self.number == signal.SIGINT else 128 + self.number


_RETRY_SECONDS = 0.05  # after which a signal whose exception was dropped is sent again


class Received:
    """The signal that was received, if any: the interpreter may have replaced Stopped by another exception."""

    number: int | None = None


_contexts: list[Received] = []  # that are open, the outermost first


@contextlib.contextmanager
def signals(*, last: bool = False) -> Iterator[Received]:
    """Turn SIGINT, SIGTERM and SIGHUP into Stopped, once; a second one while cleaning up is ignored.

    The previous handlers come back at the end. After the `last` context the process only ends, and signals are
    ignored: its exit code says how the work ended.
    """
    received = Received()

    def handler(number: int, _frame: FrameType | None) -> None:
        received.number = number
        _set_all(signal.SIG_IGN)
        raise Stopped(number)

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, Stopped):
            hook(what)
            return
        from threading import Timer  # noqa: PLC0415 - the start of a command has no time for it

        _set_all(handler)
        retry = Timer(_RETRY_SECONDS, os.kill, (os.getpid(), what.exc_value.number))
        retry.daemon = True
        retry.start()

    # The interpreter drops what is raised in `__del__` and in callbacks of weak references, which imports have.
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    _contexts.append(received)
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield received
    finally:
        _contexts.remove(received)
        sys.unraisablehook = hook
        for number, previous in before.items():
            signal.signal(number, signal.SIG_IGN if last else previous)


def raise_if_interrupted() -> None:
    """Raise Stopped before something new begins when a signal was received.

    Some C code silently drops whatever is raised below it (PyObject_HasAttr, PyDict_GetItem, the compiler).
    """
    for received in _contexts:
        if received.number is not None:
            _set_all(signal.SIG_IGN)
            raise Stopped(received.number)


def _set_all(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)
