"""Taking up a run that broke off: what is finished stays, the first step that is not comes next."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard.definition.load import load
from microshard.differences import differences
from microshard.errors import EXIT_DEFINITION, EXIT_LEFT, MicroshardError, PlaceError
from microshard.plan.model import Plan, Step
from microshard.run import secrets
from microshard.run.backend import Backend, of_run
from microshard.run.budget import Meter
from microshard.run.execute import report
from microshard.run.folder import RunFolder, read_object, write_json
from microshard.run.measured import worth_another
from microshard.run.prepare import Prepared, prepared, write_variables
from microshard.run.progress import Progress
from microshard.run.runner import Runner
from microshard.stopping import Stopped

# Parts of a plan that may be others when it is made again: where things are, not what is measured.
_ELSEWHERE = ("hosts", "facts", "warnings", "estimate_seconds", "disk_bytes", "memory_mib", "points")


class ChangedError(MicroshardError):
    """The experiment is not the one the run was begun with."""

    exit_code = EXIT_DEFINITION


class CannotResumeError(PlaceError):
    """The run has nothing to go on from."""


class StillThereError(MicroshardError):
    """Something of the broken-off run cannot be removed, so nothing new is started beside it."""

    exit_code = EXIT_LEFT


@dataclass(frozen=True, slots=True)
class Taken:
    """An attempt at a step whose result is whole."""

    step: Step
    result: dict[str, Any]


def resume(run: RunFolder, console: Console, *, as_begun: bool = False) -> int:
    """Execute what is left of a run. Returns the exit code.

    Raises ChangedError when the definition, or what this version of microshard makes of it, is another one than the
    run was begun with; `as_begun` takes the copy in the run's folder whatever became of the original.
    """
    with run.held():
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
    if backend.name == "ec2":
        raise CannotResumeError(
            f"{run.run_id}: hosts on EC2 are made for one run and removed with it, so it is not taken up again. "
            "What it has measured stays (microshard report). Remove what is left of it (microshard gc --on ec2, "
            "first with --dry-run) and start it again: microshard run FILE --on ec2"
        )
    if not as_begun:
        _refuse_a_changed_file(asked, lock)
    _clear(run, backend, console)
    folder = Path(asked["file"]).parent
    with prepared(
        run / "experiment.yml",
        scale=asked["scale"],
        overrides=asked["overrides"],
        runs=run.path.parent,
        backend=backend,
        folder=folder if folder.is_dir() else run.path,
    ) as ready:
        _refuse_another_plan(run, ready, lock)
        return _go_on(run, ready, console)


def _go_on(run: RunFolder, ready: Prepared, console: Console) -> int:
    plan = ready.plan
    for word in damaged(run, plan):
        console.print(f"[yellow]damaged:[/yellow] {word}", highlight=False, soft_wrap=True)
    taken = list(finished(run, plan))
    left = remaining(plan, taken)
    console.print(f"{run.run_id}: {len(plan.steps) - len(left)} of {len(plan.steps)} measured, {len(left)} to go")
    run.journal.append(event="resumed", remaining=len(left))
    ready.backend.check_room(plan)
    found = ready.backend.binaries(plan)
    write_json(run / "plan.json", dataclasses.asdict(plan))
    for name in ("tmp", "deployments", "points"):
        (run / name).mkdir(exist_ok=True)
    if any(any(point.security.values()) for point in plan.points):
        secrets.make(run / "secrets", sorted({host.address for host in plan.hosts}))
    for point in plan.points:
        write_variables(run, point, found[point.id], step=None, backend=ready.backend)
    rest = dataclasses.replace(plan, steps=left)
    with Progress(run, plan, console) as progress:
        meter = Meter(ready.loaded.experiment.budget.max_hours)
        runner = Runner(run, rest, found, progress, backend=ready.backend, meter=meter)
        runner.measured.first_index = len(plan.steps) - len(left)
        for item in taken:
            runner.take_over(item.step, item.result)
        outcome = runner.run()
    report(run, outcome, console)
    return outcome.exit_code


def finished(run: RunFolder, plan: Plan) -> Iterator[Taken]:
    """Every attempt whose result is there as a whole and judged, in the order they were taken.

    The journal says what was finished. A result that was judged and written, and whose line in the journal was lost
    with the runner, is as good: it is written in one piece, and after everything that belongs to it.
    """
    journaled = _journaled(run)
    found = []
    for step in plan.steps:
        attempt = step
        while (result := _result(run, attempt)) is not None:
            if (step.point, attempt.name) not in journaled:
                run.journal.append(
                    event="step done", step=step.index, point=step.point, name=attempt.name, recovered=True
                )
            found.append(Taken(attempt, result))
            attempt = dataclasses.replace(attempt, attempt=attempt.attempt + 1)
    yield from sorted(found, key=lambda taken: float(taken.result.get("order", 0)))


def damaged(run: RunFolder, plan: Plan) -> Iterator[str]:
    """A sentence for every record or result that was written and is not whole."""
    for file in (run.journal, run.ledger):
        if torn := file.torn():
            yield f"{file.path.name}: {torn} line(s) are no whole record and are passed over"
    points = {step.point for step in plan.steps}
    for point, name in sorted(_journaled(run)):
        path = run / "results" / point / f"{name}.json"
        if point in points and "gates" not in read_object(path):
            yield f"{path.relative_to(run.path)} was measured and cannot be read; it is measured again"


def _journaled(run: RunFolder) -> set[tuple[str, str]]:
    """Point and name of every attempt the journal says is finished."""
    return {(str(r.get("point")), str(r.get("name"))) for r in run.journal.records() if r.get("event") == "step done"}


def remaining(plan: Plan, taken: list[Taken]) -> tuple[Step, ...]:
    """The steps that are not finished, counted anew; each point is deployed before its first one."""
    last: dict[tuple[str, int, str], Taken] = {}
    for item in taken:
        key = (item.step.point, item.step.repetition, item.step.purpose)
        if key not in last or item.step.attempt > last[key].step.attempt:
            last[key] = item
    left = []
    for step in plan.steps:
        done = last.get((step.point, step.repetition, step.purpose))
        if done is None:
            left.append(step)
        elif not done.result["valid"] and worth_another(plan.point(step.point), done.step.attempt, done.result):
            left.append(dataclasses.replace(step, attempt=done.step.attempt + 1))
    always = plan.redeploy == "per_repetition"
    final = {step.point: index for index, step in enumerate(left)}
    seen: set[str] = set()
    renumbered = []
    for index, step in enumerate(left):
        deploy = always or step.point not in seen
        renumbered.append(
            dataclasses.replace(step, index=index, deploy=deploy, undeploy=always or final[step.point] == index)
        )
        seen.add(step.point)
    return tuple(renumbered)


def _result(run: RunFolder, step: Step) -> dict[str, Any] | None:
    """The result of an attempt when it is whole: judged by the runner, and not only left by the engine."""
    result = read_object(run / "results" / step.point / f"{step.name}.json")
    whole = isinstance(result.get("phases"), list) and isinstance(result.get("valid"), bool) and "gates" in result
    return result if whole and not any("error" in phase for phase in result["phases"]) else None


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


def _refuse_another_plan(run: RunFolder, ready: Prepared, lock: Mapping[str, Any]) -> None:
    """This version must plan the same points and steps; where it does not, results would be mixed."""
    changed = [str(d) for d in differences(lock["definition"], ready.loaded.experiment.model_dump(mode="json"))]
    old, new = (_comparable(plan) for plan in (read_object(run / "plan.json"), dataclasses.asdict(ready.plan)))
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
        done = _journaled(run)
        if (
            isinstance(steps, list)
            and not all(_first_name(step) in done for step in steps)
            and "asked" in read_object(run / "lock.json")
        ):
            found.append(run)
    return found
