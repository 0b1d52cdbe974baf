"""Run folders: found by name, listed with their state, removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from microshard.errors import EXIT_LEFT, MicroshardError, RunFolderError
from microshard.model.run_records import RunMarker
from microshard.records.run_folder import RunFolder, find_runs

_ENDED = {0: "done", 3: "failed in part", 5: "left something", 130: "stopped", 143: "stopped"}  # by exit code


class StillRunningError(MicroshardError):
    """A run whose folder must stay: it has processes, or hosts on EC2."""

    exit_code = EXIT_LEFT


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list of runs."""

    run_id: str
    experiment: str
    created: float  # epoch seconds
    state: str  # running, imported, done, failed, stopped, aborted …
    done: int  # steps with a result
    planned: int
    bytes: int

    @property
    def when(self) -> str:
        """Local time it was made."""
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(self.created))


def named(runs: Path, names: Sequence[str]) -> list[RunFolder]:
    """Runs by their names below a folder, or by their paths. Raises RunFolderError."""
    return [RunFolder.open(Path(name) if Path(name).is_dir() else runs / name) for name in names]


def named_or_latest(runs: Path, name: str | None) -> RunFolder:
    """The run of this name or path, or the newest one. Raises RunFolderError."""
    if name:
        return named(runs, [name])[0]
    found = find_runs(runs)
    if not found:
        raise RunFolderError(f"{runs}: no runs yet")
    return found[-1]


def summaries(runs: Path, has_processes: Callable[[RunFolder], bool]) -> list[RunSummary]:
    """All runs below a folder, the newest last."""
    return sorted((summary(run, has_processes) for run in find_runs(runs)), key=lambda run: run.created)


def summary(run: RunFolder, has_processes: Callable[[RunFolder], bool]) -> RunSummary:
    """One run; files of it that cannot be read count as missing."""
    marker, planned = RunMarker("", run.run_id), 0
    with contextlib.suppress(OSError, RunFolderError):
        marker = run.marker()
        planned = len(run.plan_outline().steps)
    return RunSummary(
        run_id=run.run_id,
        experiment=marker.experiment,
        created=marker.created or 0.0,
        state="running" if not marker.imported and has_processes(run) else _state(run, marker),
        done=sum(1 for _ in (run / "results").glob("*/*.json")),
        planned=planned,
        bytes=_bytes(run.path),
    )


def _bytes(folder: Path) -> int:
    """The size of all files below a folder; files that disappear meanwhile are left out."""
    size = 0
    for where, _, names in os.walk(folder):  # passes over a folder that is gone
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(where, name).lstat().st_size
    return size


def remove(run: RunFolder, in_use: Callable[[RunFolder], str | None]) -> None:
    """Remove a run's folder.

    Raises StillRunningError when `in_use` gives a reason, RunFolderError when the run is being executed.
    """
    with run.lock():
        if reason := in_use(run):
            raise StillRunningError(reason)
        shutil.rmtree(run.path)


def _state(run: RunFolder, marker: RunMarker) -> str:
    if marker.imported:
        return "imported"
    events = list(run.journal.records())
    ended = next((event for event in reversed(events) if event.event in {"run ended", "down"}), None)
    if ended is not None and ended.event == "down":
        return "down"
    if ended is None or ended.exit_code is None:
        return f"aborted ({events[-1].event if events else 'made'})"
    return _ENDED.get(ended.exit_code, f"exit {ended.exit_code}")
