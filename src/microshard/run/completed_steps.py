"""The steps earlier parts of a run have completed, and the remaining ones."""

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console

from microshard.model.plan import Plan, Point, Step
from microshard.model.result import StepResult
from microshard.model.run_records import JournalEvent
from microshard.plan.order import join_plans
from microshard.records.codec import DamagedFileError
from microshard.records.run_folder import RunFolder


def deserves_repetition(point: Point, attempt: int, result: StepResult) -> bool:
    """Whether an invalid result may be repeated: attempts are left, and every failed gate may hold next time."""
    failed = [check for check in result.gates or [] if not check.held]
    left = attempt <= int(point.gates.get("max_repeats", 0))
    return left and bool(failed) and all(check.repeatable for check in failed)


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """An attempt at a step whose result is complete."""

    step: Step
    result: StepResult


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far the execution of a plan has come."""

    completed: tuple[CompletedStep, ...] = ()  # in the order of their execution
    remaining: tuple[Step, ...] = ()


def completed_steps(run: RunFolder, plans: Sequence[Plan], console: Console) -> list[RunProgress]:
    """How far each of a run's plans has come; damaged files and the number of remaining steps are printed."""
    for sentence in damaged(run, join_plans(plans)):
        console.print(f"[yellow]damaged:[/yellow] {sentence}", highlight=False, soft_wrap=True)
    found = []
    for plan in plans:
        completed = tuple(finished(run, plan))
        found.append(RunProgress(completed, remaining(plan, completed)))
    steps, left = sum(len(plan.steps) for plan in plans), sum(len(progress.remaining) for progress in found)
    console.print(f"{run.run_id}: {steps - left} of {steps} measured, {left} to go")
    run.journal.append(JournalEvent("resumed", remaining=left))
    return found


def finished(run: RunFolder, plan: Plan) -> Iterator[CompletedStep]:
    """Every attempt with a complete, judged result, in the order of their execution.

    The journal names them. A result whose line of the journal was lost with the runner counts as well: it is written
    atomically, and after all other files of its measurement.
    """
    known = journaled(run)
    found = []
    for step in plan.steps:
        attempt = step
        while (result := _result(run, attempt)) is not None:
            if (step.point, attempt.name) not in known:
                run.journal.append(
                    JournalEvent("step done", step=step.index, point=step.point, name=attempt.name, recovered=True)
                )
            found.append(CompletedStep(attempt, result))
            attempt = dataclasses.replace(attempt, attempt=attempt.attempt + 1)
    yield from sorted(found, key=lambda item: item.result.order or 0)


def damaged(run: RunFolder, plan: Plan) -> Iterator[str]:
    """A sentence for every record or result that was written and is incomplete."""
    for file in (run.journal, run.ledger):
        for sentence in file.unread():
            yield f"{sentence}; it is ignored"
    points = {step.point for step in plan.steps}
    for point, name in sorted(journaled(run)):
        if point in points and _judged(run, point, name) is None:
            path = run.result_path(point, name).relative_to(run.path)
            yield f"{path} was measured and cannot be read; it is measured again"


def journaled(run: RunFolder) -> set[tuple[str, str]]:
    """Point and name of every attempt the journal says is finished."""
    return {(str(e.point), str(e.name)) for e in run.journal.records() if e.event == "step done"}


def remaining(plan: Plan, completed: Sequence[CompletedStep]) -> tuple[Step, ...]:
    """The steps that are not finished, renumbered; each point is deployed before its first one."""
    last: dict[tuple[str, int, str], CompletedStep] = {}
    for item in completed:
        key = (item.step.point, item.step.repetition, item.step.purpose)
        if key not in last or item.step.attempt > last[key].step.attempt:
            last[key] = item
    left = []
    for step in plan.steps:
        done = last.get((step.point, step.repetition, step.purpose))
        if done is None:
            left.append(step)
        elif not done.result.valid and deserves_repetition(plan.point(step.point), done.step.attempt, done.result):
            left.append(dataclasses.replace(step, attempt=done.step.attempt + 1))
    always = plan.redeploy == "per_repetition"
    first = {step.point: index for index, step in reversed(list(enumerate(left)))}
    final = {step.point: index for index, step in enumerate(left)}
    return tuple(
        dataclasses.replace(
            step,
            index=index,
            deploy=always or first[step.point] == index,
            undeploy=always or final[step.point] == index,
        )
        for index, step in enumerate(left)
    )


def _result(run: RunFolder, step: Step) -> StepResult | None:
    """The result of an attempt when it is complete and no phase failed."""
    result = _judged(run, step.point, step.name)
    return None if result is None or any(phase.error for phase in result.phases) else result


def _judged(run: RunFolder, point: str, step: str) -> StepResult | None:
    """A result that the runner has judged, not only the engine written."""
    with contextlib.suppress(FileNotFoundError, DamagedFileError):
        result = run.result(point, step)
        return result if result.gates is not None else None
    return None
