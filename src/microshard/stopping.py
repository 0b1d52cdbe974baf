"""SIGINT, SIGTERM and SIGHUP as an exception, so that everything is torn down on the way out."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from microshard.errors import EXIT_INTERRUPTED

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


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into Stopped, once; a second one while cleaning up is ignored.

    What was set before comes back at the end, also where contexts are nested.
    """

    def handler(number: int, _frame: FrameType | None) -> None:
        for other in SIGNALS:
            signal.signal(other, signal.SIG_IGN)
        raise Stopped(number)

    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
