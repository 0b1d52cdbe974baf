"""What every part raises when it will not or cannot do what it is asked."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """Something that was not done and why, in words for people; `details` go into the module's result."""

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.details = details
