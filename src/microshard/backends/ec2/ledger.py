"""Every outside thing is written down before it is made."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Protocol


class Ledger(Protocol):
    """What the EC2 code needs of a run's ledger; `run.folder.JsonLines` is one."""

    def append(self, **record: Any) -> None:
        """Add a record; it is safe on disk when this returns."""

    def records(self) -> Iterable[dict[str, Any]]:
        """All records so far, each with `t`, its time in epoch seconds."""


class Memory:
    """A ledger that lives as long as the process: for `gc`, whose runs have no folder here any more, and for tests."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []

    def append(self, **record: Any) -> None:
        """Add a record."""
        self._records.append({"t": time.time(), **record})

    def records(self) -> Iterable[dict[str, Any]]:
        """All records so far."""
        return tuple(self._records)


def creating(ledger: Ledger, what: str, name: str, **more: Any) -> None:
    """Write that something is about to be made."""
    ledger.append(kind="ec2", state="creating", what=what, name=name, **more)


def made(ledger: Ledger, what: str, name: str, ids: Iterable[str]) -> None:
    """Write under which ids it was made."""
    ledger.append(kind="ec2", state="made", what=what, name=name, ids=list(ids))


def known_ids(ledger: Ledger, what: str) -> set[str]:
    """Ids of everything of this kind the ledger has seen."""
    found: set[str] = set()
    for record in ledger.records():
        if record.get("kind") == "ec2" and record.get("state") == "made" and record.get("what") == what:
            found.update(record.get("ids", ()))
    return found


def unanswered_since(ledger: Ledger) -> float | None:
    """Time (epoch seconds) of the last creation whose result was never written; None when all are known.

    The answer may have been lost, and the thing may show itself only after a while.
    """
    waiting: dict[tuple[str, str], float] = {}
    for record in ledger.records():
        if record.get("kind") == "ec2":
            key = (str(record.get("what")), str(record.get("name")))
            if record.get("state") == "creating":
                waiting[key] = float(record.get("t", 0.0))
            elif record.get("state") == "made":
                waiting.pop(key, None)
    return max(waiting.values(), default=None)
