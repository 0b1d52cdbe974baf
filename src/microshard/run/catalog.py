"""The runs there are: what state each is in, and how one is removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from microshard.backends import leftovers
from microshard.errors import EXIT_LEFT, MicroshardError
from microshard.records.run_folder import RunFolder, find_runs, read_object

_ENDED = {0: "done", 3: "failed in part", 5: "left something", 130: "stopped", 143: "stopped"}  # by exit code


class StillRunningError(MicroshardError):
    """A run whose folder must stay, for processes of it run or something of it stands outside."""

    exit_code = EXIT_LEFT


@dataclass(frozen=True, slots=True)
class Entry:
    """A run in a list."""

    run_id: str
    experiment: str
    created: float  # epoch seconds
    state: str  # running, imported, done, failed, stopped, broken off …
    done: int  # steps with a result
    planned: int
    bytes: int

    @property
    def when(self) -> str:
        """Local time it was made."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.created))

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


def entries(runs: Path) -> list[Entry]:
    """All runs below a folder, the newest last."""
    return sorted((entry(run) for run in find_runs(runs)), key=lambda e: e.created)


def entry(run: RunFolder) -> Entry:
    """One run; what of its files cannot be read counts as not there."""
    marker = read_object(run / "run.json")
    steps = read_object(run / "plan.json").get("steps")
    return Entry(
        run_id=run.run_id,
        experiment=str(marker.get("experiment", "")),
        created=float(marker.get("created") or 0.0),
        state=_state(run, marker),
        done=sum(1 for _ in (run / "results").glob("*/*.json")),
        planned=len(steps) if isinstance(steps, list) else 0,
        bytes=_bytes(run.path),
    )


def _bytes(folder: Path) -> int:
    """Of all files below a folder, but those that a run which is being executed removes meanwhile."""
    size = 0
    for where, _, names in os.walk(folder):  # passes over a folder that is gone
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(where, name).lstat().st_size
    return size


def remove(run: RunFolder) -> None:
    """Remove a run's folder.

    Raises StillRunningError when something of the run is still there, RunFolderError when it is being executed.
    """
    from microshard.backends.ec2.leftovers import regions_of  # noqa: PLC0415 - a list of runs needs nothing of EC2

    with run.lock():
        if regions := regions_of(run):
            raise StillRunningError(
                f"{run.run_id} has made hosts on EC2 ({', '.join(sorted(regions))}) that were not seen gone, and "
                f"without its folder nobody finds them before they expire; first: microshard down {run.run_id}, or "
                "where it broke off microshard gc --on ec2"
            )
        if leftovers.running(run):
            raise StillRunningError(f"{run.run_id} has processes; first: microshard down {run.run_id}")
        shutil.rmtree(run.path)


def _state(run: RunFolder, marker: dict[str, Any]) -> str:
    if "imported" in marker:
        return "imported"
    if leftovers.running(run):
        return "running"
    ended: dict[str, Any] = {}
    last = "made"
    for record in run.journal.records():
        last = str(record.get("event", last))
        if last in {"run ended", "down"}:
            ended = record
    if ended.get("event") == "down":
        return "down"
    code = ended.get("exit_code")
    if code is None:
        return f"broken off ({last})"
    return _ENDED.get(code, f"exit {code}")
