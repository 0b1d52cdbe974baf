"""Taking up a run that broke off: what is finished stays, the first step that is not comes next."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard.backends.base import Backend, of_run
from microshard.errors import EXIT_DEFINITION, EXIT_LEFT, MicroshardError, PlaceError
from microshard.experiment.load import LoadedExperiment, load
from microshard.interrupts import Stopped
from microshard.model.plan import Plan
from microshard.records.differences import differences
from microshard.records.run_folder import RunFolder, read_object, write_json
from microshard.run.budget import Meter
from microshard.run.completed_steps import completed_steps, journaled
from microshard.run.execute import report
from microshard.run.prepare import Prepared, prepared, write_points
from microshard.run.progress import Progress
from microshard.run.runner import Runner

# Parts of a plan that may be others when it is made again: where things are, not what is measured.
_ELSEWHERE = ("hosts", "facts", "warnings", "estimate_seconds", "disk_bytes", "memory_mib", "needs", "points")


class ChangedError(MicroshardError):
    """The experiment is not the one the run was begun with."""

    exit_code = EXIT_DEFINITION


class CannotResumeError(PlaceError):
    """The run has nothing to go on from."""


class StillThereError(MicroshardError):
    """Something of the broken-off run cannot be removed, so nothing new is started beside it."""

    exit_code = EXIT_LEFT


def resume(run: RunFolder, console: Console, *, as_begun: bool = False) -> int:
    """Execute what is left of a run. Returns the exit code.

    Raises ChangedError when the definition, or what this version of microshard makes of it, is another one than the
    run was begun with; `as_begun` takes the copy in the run's folder whatever became of the original.
    """
    with run.lock():
        try:
            return _resume(run, console, as_begun=as_begun)
        except Stopped:  # before the runner had it in hand: what broke off may still be there
            with contextlib.suppress(MicroshardError):
                _clear(run, of_run(run), console)
            raise


def _resume(run: RunFolder, console: Console, *, as_begun: bool) -> int:
    lock = read_object(run / "lock.json")
    asked = lock.get("asked")
    if not isinstance(asked, dict) or "definition" not in lock or "steps" not in read_object(run / "plan.json"):
        raise CannotResumeError(
            f"{run.run_id} has no plan that can be read: it broke off too early, or lock.json or plan.json is "
            "damaged. Remove what is left (microshard gc) and start it again: microshard run FILE"
        )
    backend = of_run(run)
    if not as_begun:
        _refuse_a_changed_file(asked, lock)
    _clear(run, backend, console)
    for name in ("tmp", "deployments", "points"):
        (run / name).mkdir(exist_ok=True)
    file, scale, overrides = run / "experiment.yml", asked["scale"], asked["overrides"]
    beside = Path(asked["file"]).parent
    folder = beside if beside.is_dir() else run.path
    if backend.name == "ec2":
        # boto3 only where EC2 is meant.
        from microshard.backends.ec2.ec2_plan import plan_ec2  # noqa: PLC0415
        from microshard.backends.ec2.execute import go_on_on_ec2  # noqa: PLC0415

        seen = plan_ec2(file, scale=scale, overrides=overrides, folder=folder)
        _refuse_another_plan(run, seen.loaded, seen.plan, lock)
        return go_on_on_ec2(run, seen, console)
    with prepared(
        file, scale=scale, overrides=overrides, runs=run.path.parent, backend=backend, folder=folder
    ) as ready:
        _refuse_another_plan(run, ready.loaded, ready.plan, lock)
        return _go_on(run, ready, console)


def _go_on(run: RunFolder, ready: Prepared, console: Console) -> int:
    plan = ready.plan
    (stock,) = completed_steps(run, [plan], console)
    ready.backend.check_room(plan)
    found = ready.backend.binaries(plan)
    write_json(run / "plan.json", dataclasses.asdict(plan))
    write_points(run, plan, found, ready.backend)
    with Progress(run, plan, console) as progress:
        meter = Meter(ready.loaded.experiment.budget.max_hours)
        rest = dataclasses.replace(plan, steps=stock.left)
        runner = Runner(run, rest, found, progress, backend=ready.backend, meter=meter)
        runner.outcome.take_over([stock])
        runner.measured.take_over(stock.taken, len(plan.steps) - len(stock.left))
        for item in stock.taken:
            progress.step_done(item.step, item.result)
        outcome = runner.run()
    report(run, outcome, console)
    return outcome.exit_code


def _refuse_a_changed_file(asked: Mapping[str, Any], lock: Mapping[str, Any]) -> None:
    """The file the run was begun with, where it still is, must say what it said."""
    path = Path(asked["file"])
    if not path.is_file():
        return
    now = load(path, scale=asked["scale"], overrides=asked["overrides"]).experiment.model_dump(mode="json")
    changed = [str(d) for d in differences(lock["definition"], now)]
    if changed:
        raise ChangedError(
            f"{path} has been changed since the run was begun:\n  " + "\n  ".join(changed[:20]) + "\n"
            "Begin a new run, or go on as it was with --as-begun."
        )


def _refuse_another_plan(run: RunFolder, loaded: LoadedExperiment, plan: Plan, lock: Mapping[str, Any]) -> None:
    """This version must plan the same points and steps; where it does not, results would be mixed."""
    changed = [str(d) for d in differences(lock["definition"], loaded.experiment.model_dump(mode="json"))]
    old, new = (_comparable(whole) for whole in (read_object(run / "plan.json"), dataclasses.asdict(plan)))
    changed += [str(d) for d in differences(old, new)]
    if changed:
        raise ChangedError(
            f"{run.run_id} was planned otherwise, by microshard {lock.get('microshard')}:\n  "
            + "\n  ".join(changed[:20])
            + "\nBegin a new run."
        )


def _comparable(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What decides which measurement is which: steps in their order, and axes, topology and phases of each point."""
    whole = json.loads(json.dumps(plan, default=str))
    kept = {key: value for key, value in whole.items() if key not in _ELSEWHERE}
    kept["points"] = [
        {key: point.get(key) for key in ("id", "axes", "label", "topology", "shards", "phases")}
        for point in whole.get("points", [])
    ]
    return kept


def _clear(run: RunFolder, backend: Backend, console: Console) -> None:
    """Whatever the broken-off run left running goes first. Raises StillThereError."""
    there = backend.running(run)
    if there:
        console.print(f"{len(there)} processes of the broken-off run are still there; they are stopped first")
    left = backend.clean(run, backend.playbooks(run, lambda _: None, backend.limit_of(run)))
    if left:
        raise StillThereError("cannot be removed, so nothing is started beside it:\n  " + "\n  ".join(left))


def _first_name(step: Mapping[str, Any]) -> tuple[str, str]:
    """Point and name of the first attempt at a step of plan.json."""
    return str(step["point"]), "drift" if step["purpose"] == "drift" else f"r{step['repetition']}"


def broken_off(runs: list[RunFolder]) -> list[RunFolder]:
    """The runs that have steps left: stopped, broken off, or failed at a point."""
    found = []
    for run in runs:
        steps = read_object(run / "plan.json").get("steps")
        done = journaled(run)
        if (
            isinstance(steps, list)
            and not all(_first_name(step) in done for step in steps)
            and "asked" in read_object(run / "lock.json")
        ):
            found.append(run)
    return found
