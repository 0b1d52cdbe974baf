"""What is asked of the same objects at many points is answered once: points share the sections no axis varies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

# Answers kept by each function. Points differ in a few sections of a few hundred values; a wrong guess costs time only.
KEPT = 4096


def memoize_by_identity(function: F) -> F:
    """A pure function's answer for the same arguments, by identity, kept with its arguments; the last ones at least.

    Sections are frozen but not hashable, and comparing them would cost what is saved. A list is the same when its items
    are: every point has lists of its own. The answer is shared: nobody may change it.
    """
    kept: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = {}

    @functools.wraps(function)
    def asked(*arguments: Any) -> Any:
        key = tuple([tuple(map(id, one)) if type(one) is list else id(one) for one in arguments])
        if known := kept.get(key):
            return known[1]
        if len(kept) >= KEPT:
            kept.clear()
        answer = function(*arguments)
        kept[key] = (arguments, answer)  # while an argument is kept, no other object has its identity
        return answer

    return cast("F", asked)
