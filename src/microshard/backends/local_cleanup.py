"""What runs that are over have left on this machine or on hosts of one's own: found by their folders and ledgers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from microshard.backends.base import of_run
from microshard.errors import MicroshardError, RunFolderError
from microshard.hostlib import emulated_volumes as emulated
from microshard.records.run_folder import RunFolder
from microshard.run.gc import Found, Removed, RunBook, Wish

_FOLDERS = ("deployments", "tmp", "secrets")


class Here:
    """Collects by the run folders of this machine; a run that is executed, kept or up is left alone."""

    def __init__(self, wish: Wish) -> None:
        self.book = RunBook(wish.runs)

    def look(self) -> list[Found]:
        """What each run that is over has left."""
        found = []
        for run in self._over():
            things, where = left_by(run)
            if things:
                found.append(Found(run.run_id, where, "over", things))
        return found

    def collect(self) -> list[Removed]:
        """Stop and remove it, and look again."""
        done = []
        for run in self._over():
            things, where = left_by(run)
            if not things:
                continue
            try:
                with run.lock():
                    backend = of_run(run)
                    left = backend.clean(run, backend.playbooks(run, lambda _: None, backend.limit_of(run)))
            except RunFolderError:
                continue  # somebody has taken it up since: not over
            except MicroshardError as error:
                done.append(Removed(run.run_id, where, (), things, (str(error),)))
                continue
            done.append(Removed(run.run_id, where, () if left else things, tuple(left)))
        return done

    def _over(self) -> Iterator[RunFolder]:
        for run in self.book.folders.values():
            if "imported" not in run.marker() and self.book.over(run.run_id):
                yield run


def left_by(run: RunFolder) -> tuple[tuple[str, ...], str]:
    """What is there of a run that is over, and where; of hosts only what their ledger does not call clean."""
    backend = of_run(run)
    if backend.name == "ec2":
        return (), backend.where  # by the account's tags, in its own collector
    if backend.name == "hosts":
        ledger = list(run.ledger.records())
        closed = not ledger or (ledger[-1].get("kind"), ledger[-1].get("state")) == ("run", "clean")
        return (() if closed else ("processes and folders",)), backend.where
    things = [f"process {command[:80]}" for command in backend.running(run)]
    if emulated.absent(run.path, check=True)[0]:
        things.append("volumes")
    for name in _FOLDERS:
        with contextlib.suppress(OSError):
            if (run / name).is_dir():
                things.append(f"folder {name}")
    return tuple(things), backend.where
