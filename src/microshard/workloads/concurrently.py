"""Calls at the same time, on threads that do not outlive an orderly end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")


def together(calls: Sequence[Callable[[], Value]]) -> list[Value]:
    """The values of all calls, each made on a thread of its own; the first error is raised as soon as it happens.

    Not an executor: that one waits for its threads when the program ends, so that SIGTERM would have to wait for
    the slowest query or checkpoint. A single call stays on this thread.
    """
    if len(calls) == 1:
        return [calls[0]()]
    done: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    def work(number: int, call: Callable[[], Value]) -> None:
        try:
            done.put((number, call(), None))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread, which raises it
            done.put((number, None, error))

    for number, call in enumerate(calls):
        threading.Thread(target=work, args=(number, call), daemon=True).start()
    found: dict[int, Value] = {}
    for _ in calls:
        number, value, error = done.get()
        if error is not None:
            raise error
        found[number] = value
    return [found[number] for number in range(len(calls))]
