"""SIGINT, SIGTERM and SIGHUP as an exception, so that everything is torn down on the way out."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

from microshard.errors import EXIT_INTERRUPTED

Handler = Callable[[int, FrameType | None], None] | signal.Handlers
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP."""
        return EXIT_INTERRUPTED if self.number == signal.SIGINT else 128 + self.number


_AGAIN = 0.05  # seconds after which a signal that came to nothing comes again


class Arrived:
    """The signal that has come, if any: what the interpreter was doing may have made another exception of Stopped."""

    number: int | None = None


_contexts: list[Arrived] = []  # those that are open, the outermost first


@contextlib.contextmanager
def signals(*, last: bool = False) -> Iterator[Arrived]:
    """Turn SIGINT, SIGTERM and SIGHUP into Stopped, once; a second one while cleaning up is ignored.

    What was set before comes back at the end, also where contexts are nested; after the `last` one the process only
    ends, and signals are ignored: its exit code says how the work ended. Where the interpreter drops Stopped, as
    it does with all that is raised in `__del__` and in callbacks of weak references (imports have some), the signal
    comes again a moment later.
    """

    arrived = Arrived()

    def handler(number: int, _frame: FrameType | None) -> None:
        arrived.number = number
        _set_all(signal.SIG_IGN)
        raise Stopped(number)

    def dropped(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, Stopped):
            hook(what)
            return
        _set_all(handler)
        _later(what.exc_value.number)

    hook, sys.unraisablehook = sys.unraisablehook, dropped
    _contexts.append(arrived)
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield arrived
    finally:
        _contexts.remove(arrived)
        sys.unraisablehook = hook
        for number, previous in before.items():
            signal.signal(number, signal.SIG_IGN if last else previous)


def raise_if_interrupted() -> None:
    """Raise Stopped where something new would begin although a signal has come.

    Some C code drops whatever is raised below it without a word (PyObject_HasAttr, PyDict_GetItem; the compiler).
    """
    for arrived in _contexts:
        if arrived.number is not None:
            _set_all(signal.SIG_IGN)
            raise Stopped(arrived.number)


def _set_all(handler: Handler) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


def _later(number: int) -> None:
    from threading import Timer  # noqa: PLC0415 - a start has no time for it

    again = Timer(_AGAIN, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()
