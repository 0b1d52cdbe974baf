"""Run folders: found by name, listed with their state, removed."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from microshard.errors import EXIT_LEFT, MicroshardError, RunFolderError
from microshard.model.run_records import JournalEvent, RunMarker
from microshard.records.run_folder import RunFolder, find_runs

_ENDED = {  # by exit code
    0: "done", 1: "failed", 3: "failed in part", 4: "could not run", 5: "left something",
    129: "stopped", 130: "stopped", 143: "stopped",
}  # fmt: skip


NOT_RUNNING = "not running"  # the state of a run that was to stay up


class StillRunningError(MicroshardError):
    """A run whose folder must stay: it has processes, or hosts on EC2."""

    exit_code = EXIT_LEFT


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list of runs."""

    run_id: str
    experiment: str
    created: float  # epoch seconds
    state: str  # as `state` gives it
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
        planned = len(run.plan_outline().steps)
    with contextlib.suppress(OSError, RunFolderError):
        marker = run.marker()
    return RunSummary(
        run_id=run.run_id,
        experiment=marker.experiment,
        created=marker.created or 0.0,
        state="imported" if marker.imported else state(run, processes=has_processes(run) or _unknown(run)),
        done=_measured(run),
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


def _measured(run: RunFolder) -> int:
    """Steps that are measured; of a run without a journal its result files."""
    # A step that failed has a result file too, and one that was taken again has several.
    done = [event for event in run.journal.records() if event.event == "step done"]
    steps = {(event.point, event.name) if event.step is None else event.step for event in done}
    return len(steps) or sum(1 for _ in (run / "results").glob("*/*.json"))


def remove(run: RunFolder, in_use: Callable[[RunFolder], str | None]) -> None:
    """Remove a run's folder.

    Raises StillRunningError when `in_use` gives a reason, RunFolderError when the run is being executed.
    """
    with run.lock():
        if reason := in_use(run):
            raise StillRunningError(reason)
        shutil.rmtree(run.path)


def _unknown(run: RunFolder) -> bool | None:
    """None, which is not known, for a run on other hosts, which a list does not contact."""
    return False if run.backend().backend == "local" else None


def state(run: RunFolder, *, processes: bool | None) -> str:
    """What becomes of a run; `processes`: whether it has any, None where that is not known.

    running: microshard executes it; up: its servers stay until `down`; orphaned: they run though nothing executes it.
    With no process left: down, done, stopped and the like as it ended, aborted where it was killed, or not running
    where its servers were to stay.
    """
    if run.is_executed():
        return "running"
    events = list(run.journal.records())
    last = next((event for event in reversed(events) if event.event in {"run ended", "down", "resumed"}), None)
    if stays_up(events):
        return NOT_RUNNING if processes is False else "up"
    if processes:
        return "orphaned"
    if last is None or (last.event != "down" and last.exit_code is None):
        return "aborted"
    return "down" if last.event == "down" else _ENDED.get(last.exit_code or 0, f"ended with exit code {last.exit_code}")


def stays_up(events: Iterable[JournalEvent]) -> bool:
    """Whether a run's servers are to stay: `up`, or `teardown: keep`."""
    stays = False
    for event in events:
        stays = event.event in {"kept", "up"} or (stays and event.event not in {"going down", "down", "resumed"})
    return stays
