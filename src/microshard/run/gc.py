"""What finished, killed and forgotten runs have left behind, and its removal.

One collector looks at the run folders of this machine (below); another one, of microshard.backends.ec2, at an account.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from microshard.errors import MicroshardError, RunFolderError
from microshard.hostlib import proc
from microshard.records.run_folder import RunFolder, find_runs
from microshard.run.backend import BackendOf
from microshard.run.catalog import stays_up


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
    left: tuple[str, ...]  # not empty: the removal has failed
    errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GcRequest:
    """What `microshard gc` looks for, and where."""

    runs: Path
    owner: str
    regions: tuple[str, ...] = ()  # in addition to those of the AWS configuration and of the ledgers
    explicit: bool = False  # the place was named: what keeps it from being looked at is an error


class Collector(Protocol):
    """Finds and removes leftovers at one kind of place."""

    def look(self) -> list[Found]:
        """What is left; touches nothing. Raises MicroshardError."""

    def collect(self) -> list[Removed]:
        """Remove it. Raises MicroshardError."""


@dataclass(slots=True)
class RunBook:
    """The runs below a folder by their ids, and which of them are over."""

    runs: Path
    folders: dict[str, RunFolder] = field(init=False)

    def __post_init__(self) -> None:
        runs = find_runs(self.runs)
        self.folders = {folder.run_id: folder for run in runs for folder in (run, *run.fleets())}

    def over(self, run: str) -> bool:
        """Whether a run has ended, or the process that ran it is gone; a run that was kept or is up is not over."""
        folder = self.folders.get(run)
        if folder is None:
            return False  # of another machine or another folder: only its expiry says
        return not stays_up(folder.journal.records()) and not _alive(folder)


def _alive(folder: RunFolder) -> bool:
    """Whether a process executes the run, or the microshard process that created the folder still runs."""
    if folder.is_executed():
        return True
    with contextlib.suppress(OSError, RunFolderError):
        process = proc.find(folder.marker().pid or 0)
        return process is not None and "microshard" in process.command_line
    return False


class RunFolderCollector:
    """Collects by the run folders of this machine, from this machine and from hosts reached by SSH."""

    def __init__(self, request: GcRequest, backend_of: BackendOf) -> None:
        self.book = RunBook(request.runs)
        self.backend_of = backend_of

    def look(self) -> list[Found]:
        """What each run that is over has left; a run that is executed, kept or up is left alone."""
        return [Found(run.run_id, where, "over", things) for run, where, things in self._leftovers()]

    def collect(self) -> list[Removed]:
        """Stop and remove it, and look again."""
        done = []
        for run, where, things in self._leftovers():
            try:
                with run.lock():
                    left = self.backend_of(run).clean(run)
            except RunFolderError:
                continue  # another process has resumed it since: not over
            except (MicroshardError, OSError) as error:
                done.append(Removed(run.run_id, where, (), things, (str(error),)))
                continue
            done.append(Removed(run.run_id, where, () if left else things, tuple(left)))
        return done

    def _leftovers(self) -> Iterator[tuple[RunFolder, str, tuple[str, ...]]]:
        for run in self.book.folders.values():
            imported = True  # a run that cannot be read is left alone
            with contextlib.suppress(OSError, RunFolderError):
                imported = run.marker().imported is not None
            if not imported and self.book.over(run.run_id):
                backend = self.backend_of(run)
                if things := backend.leftovers(run):
                    yield run, backend.where, things
