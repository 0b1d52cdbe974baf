"""Reading a run's folder as it is: complete, failed half-way, still going, or damaged.

A missing or damaged file raises nothing; it is named in `RunFiles.unreadable`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from microshard.model.advice import Advice
from microshard.model.plan import Plan
from microshard.model.result import StepResult
from microshard.model.run_records import JournalEvent, LogSummary, RunLock, RunMarker
from microshard.records.codec import DamagedFileError, read_file
from microshard.records.run_folder import ADVICE, LOCK, PLAN, RunFolder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of a run."""

    marker: RunMarker
    lock: RunLock
    plan: Plan | None
    results: dict[tuple[str, str], StepResult]  # by point and step
    events: tuple[JournalEvent, ...]  # the journal
    unreadable: tuple[str, ...]  # file: reason
    logs: dict[str, dict[str, LogSummary]] = field(default_factory=dict)  # point → process
    advice: Advice | None = None  # of a search


def read_run(folder: Path) -> RunFiles:
    """Read a run's folder. Raises RunFolderError when it is not a run, or one of a newer format."""
    run = RunFolder.open(Path(folder))
    unreadable: list[str] = []

    def load(kind: type[T], path: Path) -> T | None:
        try:
            return read_file(kind, path)
        except FileNotFoundError:
            return None
        except DamagedFileError as error:
            unreadable.append(str(error).replace(f"{run.path}/", ""))
            return None

    results = {}
    for path in sorted((run / "results").glob("*/*.json")):
        if (result := load(StepResult, path)) is not None:
            results[path.parent.name, path.stem] = result
    logs = {
        path.parent.name: load(dict[str, LogSummary], path) or {}
        for path in sorted((run / "logs").glob("*/summary.json"))
    }
    unreadable += run.journal.unread()
    unreadable += [f"{name}: not there" for name in (PLAN, LOCK) if not (run / name).exists()]
    return RunFiles(
        marker=run.marker(),
        lock=load(RunLock, run / LOCK) or RunLock(),
        plan=load(Plan, run / PLAN),
        results=results,
        events=tuple(run.journal.records()),
        unreadable=tuple(unreadable),
        logs=logs,
        advice=load(Advice, run / ADVICE),
    )
