"""Resume a run that was stopped or aborted: finished measurements stay, the first missing one comes next."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard.errors import EXIT_DEFINITION, EXIT_LEFT, MicroshardError, PlaceError, RunFolderError
from microshard.experiment.load import LoadedExperiment, load
from microshard.interrupts import Stopped
from microshard.model.plan import Plan
from microshard.model.run_records import RequestRecord, RunLock
from microshard.records.codec import DamagedFileError, encode
from microshard.records.differences import differences
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.backend import Backend
from microshard.run.completed_steps import completed_steps, journaled
from microshard.run.execute import execute_steps
from microshard.run.prepare import prepared, write_points

# Parts of a plan that may differ when it is made again: where processes run and how long it may take, not what is
# measured. `points` are compared by some of their fields.
_PLACEMENT = (
    "hosts", "facts", "warnings", "estimate_seconds", "assumptions", "disk_bytes", "memory_mib", "needs", "points",
)  # fmt: skip


class ChangedError(MicroshardError):
    """The experiment is not the one the run was started with."""

    exit_code = EXIT_DEFINITION


class CannotResumeError(PlaceError):
    """The run has no plan to resume."""


class NotCleanError(MicroshardError):
    """Processes or files of the aborted run cannot be removed, so nothing new is started."""

    exit_code = EXIT_LEFT


@dataclasses.dataclass(frozen=True, slots=True)
class ResumeRequest:
    """A run, and what it was started with, as far as planning it again needs that."""

    run: RunFolder
    scale: str | None
    overrides: Mapping[str, Any]
    folder: Path  # of the files the experiment names
    before: Plan  # plan.json
    lock: RunLock  # lock.json
    parallel: int = 1  # fleets that may exist at a time, on EC2

    @property
    def experiment(self) -> Path:
        """The run's copy of the experiment."""
        return self.run / "experiment.yml"

    def refuse_another_plan(self, loaded: LoadedExperiment, plan: Plan) -> None:
        """Raise ChangedError where this version of microshard plans other points or steps: results would be mixed."""
        changed = [
            *differences(self.lock.definition, loaded.experiment.model_dump(mode="json")),
            *differences(_comparable(self.before), _comparable(plan)),
        ]
        if changed:
            raise ChangedError(
                f"{self.run.run_id} was planned otherwise, by microshard {self.lock.microshard}:\n  "
                + "\n  ".join(map(str, changed[:20]))
                + "\nStart a new run."
            )


def resume(
    run: RunFolder,
    backend: Backend,
    console: Console,
    *,
    as_begun: bool = False,
    remaining: Callable[[ResumeRequest, Backend, Console], int] | None = None,
) -> int:
    """Execute what is left of a run. Returns the exit code.

    `remaining` plans and executes it; by default on hosts that exist already. Raises ChangedError when the definition,
    or what this version of microshard makes of it, differs from what the run was started with; `as_begun` takes the
    copy in the run's folder whatever became of the original.
    """
    with run.lock():
        try:
            before, lock = None, RunLock()
            with contextlib.suppress(FileNotFoundError, DamagedFileError):
                before, lock = run.plan(), run.run_lock()
            original = lock.request
            if before is None or original is None:
                raise CannotResumeError(
                    f"{run.run_id} has no plan that can be read: it was aborted too early, or lock.json or plan.json "
                    "is damaged. Remove what is left (microshard gc) and start it again: microshard run FILE"
                )
            if not as_begun:
                _refuse_a_changed_file(original, lock)
            _clear(run, backend, console)
            for name in ("tmp", "deployments", "points"):
                (run / name).mkdir(exist_ok=True)
            folder = Path(original.file).parent
            folder = folder if folder.is_dir() else run.path
            request = ResumeRequest(run, original.scale, original.overrides, folder, before, lock, original.parallel)
            return (remaining or _run_remaining)(request, backend, console)
        except Stopped:  # before the runner began: processes of the aborted run may still exist
            with contextlib.suppress(MicroshardError):
                _clear(run, backend, console)
            raise


def _run_remaining(request: ResumeRequest, backend: Backend, console: Console) -> int:
    run = request.run
    with prepared(
        request.experiment,
        scale=request.scale,
        overrides=request.overrides,
        runs=run.path.parent,
        backend=backend,
        folder=request.folder,
        search=request.lock.request.search if request.lock.request else None,
    ) as ready:
        request.refuse_another_plan(ready.loaded, ready.plan)
        (done,) = completed_steps(run, [ready.plan], console)
        backend.check_room(ready.plan)
        binaries = backend.binaries(ready.plan)
        write_json(run / "plan.json", ready.plan)
        write_points(run, ready.plan, binaries, backend)
        return execute_steps(run, ready, binaries, done, console)


def _refuse_a_changed_file(original: RequestRecord, lock: RunLock) -> None:
    """The file the run was started with, where it still exists, must have the same content."""
    path = Path(original.file)
    if not path.is_file():
        return
    now = load(path, scale=original.scale, overrides=original.overrides).experiment.model_dump(mode="json")
    changed = [str(d) for d in differences(lock.definition, now)]
    if changed:
        raise ChangedError(
            f"{path} has been changed since the run was started:\n  " + "\n  ".join(changed[:20]) + "\n"
            "Start a new run, or resume this one as it was with --as-begun."
        )


def _comparable(plan: Plan) -> dict[str, Any]:
    """What decides which measurement is which: steps in their order, and axes, topology and phases of each point."""
    whole = json.loads(json.dumps(encode(plan), default=str))
    kept = {key: value for key, value in whole.items() if key not in _PLACEMENT}
    kept["points"] = [
        {key: point.get(key) for key in ("id", "axes", "label", "topology", "shards", "phases")}
        for point in whole.get("points", [])
    ]
    return kept


def _clear(run: RunFolder, backend: Backend, console: Console) -> None:
    """Remove whatever the aborted run left running. Raises NotCleanError."""
    processes = backend.running(run)
    if processes:
        console.print(f"{len(processes)} processes of the aborted run are still running; they are stopped first")
    left = backend.clean(run)
    if left:
        raise NotCleanError("cannot be removed, so nothing new is started:\n  " + "\n  ".join(left))


def unfinished(runs: list[RunFolder]) -> list[RunFolder]:
    """The runs that have steps left: stopped, aborted, or failed at a point."""
    found = []
    for run in runs:
        done = journaled(run)
        with contextlib.suppress(OSError, RunFolderError):
            missing = any((step.point, step.name) not in done for step in run.plan_outline().steps)
            if missing and run.run_lock().request is not None:
                found.append(run)
    return found
