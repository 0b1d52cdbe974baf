"""What finished, killed and forgotten runs have left behind, and its removal: one collector for each kind of place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from microshard.errors import RunFolderError
from microshard.records.run_folder import RunFolder, find_runs


@dataclass(frozen=True, slots=True)
class Found:
    """Things of one run that should not be there."""

    run: str
    where: str  # for people: "ec2 us-east-1"
    reason: str
    things: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """What became of the things of one run."""

    run: str
    where: str
    removed: tuple[str, ...]
    left: tuple[str, ...]  # not empty: it has failed
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """What is looked for, and where."""

    runs: Path
    owner: str
    regions: tuple[str, ...] = ()  # beside those of the AWS configuration and of the ledgers
    explicit: bool = False  # the place was named: what keeps it from being looked at is an error


class Collector(Protocol):
    """Looks after one kind of place."""

    def look(self) -> list[Found]:
        """What is left; touches nothing. Raises MicroshardError."""

    def collect(self) -> list[Removed]:
        """Remove it. Raises MicroshardError."""


def _ec2(wish: Wish) -> Collector:
    from microshard.backends.ec2.leftovers import Ec2Leftovers  # noqa: PLC0415 (boto3 only where EC2 is meant)

    return Ec2Leftovers(wish)


def _here(wish: Wish) -> Collector:
    from microshard.backends.local_cleanup import Here  # noqa: PLC0415 - it uses this module

    return Here(wish)


# Place → its collector, in the order in which they are asked.
COLLECTORS: dict[str, Callable[[Wish], Collector]] = {"here": _here, "ec2": _ec2}


@dataclass(slots=True)
class RunBook:
    """What the runs below a folder say of themselves: which are over, and which may have left something."""

    runs: Path
    folders: dict[str, RunFolder] = field(init=False)

    def __post_init__(self) -> None:
        self.folders = {folder.run_id: folder for folder in find_runs(self.runs)}

    def over(self, run: str) -> bool:
        """Whether a run has ended, or the process that ran it is gone; a run that was told to stay is not over."""
        folder = self.folders.get(run)
        if folder is None:
            return False  # of another machine or another folder: only its expiry says
        stays = False
        for record in folder.journal.records():
            stays = record.get("event") in {"kept", "up"} or (stays and record.get("event") not in {"down", "resumed"})
        return not stays and not _alive(folder)


def _alive(folder: RunFolder) -> bool:
    """Whether a process executes the run, or the one that made the folder still runs: its pid, a command of ours."""
    try:
        with folder.lock():
            pass
    except RunFolderError:
        return True
    with contextlib.suppress(OSError, ValueError, KeyError):
        pid = int(folder.marker()["pid"])
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(b"microshard" in word for word in words)
    return False
