"""Why something cannot be done on a host, and how a module reports it."""

from __future__ import annotations

import time
from typing import Any, Callable


class HostError(Exception):
    """What could not be done and why, as a message for people; `details` become part of the module's result."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details


def call_main(main: Callable[..., dict[str, Any]], parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The result of a module's `main`, with `failed` and a message where it raises, and with its duration."""
    began = time.monotonic()
    try:
        result = main(parameters, check=check)
    except (HostError, OSError) as error:
        details = error.details if isinstance(error, HostError) else {}
        result = {"failed": True, "msg": str(error), **details}
    return {"changed": False, **result, "seconds": round(time.monotonic() - began, 3)}
