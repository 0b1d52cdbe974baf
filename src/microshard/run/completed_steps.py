"""What earlier parts of a run have measured, and which steps are left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from microshard.model.plan import Plan, Point, Step
from microshard.plan.merge import merged
from microshard.records.run_folder import RunFolder, read_object


def worth_another(point: Point, attempt: int, result: Mapping[str, Any]) -> bool:
    """Whether an invalid result deserves another attempt: there is one left, and every gate may hold next time."""
    broken = [check for check in result.get("gates", []) if not check["held"]]
    within = attempt <= int(point.gates.get("max_repeats", 0))
    return within and bool(broken) and all(check["repeatable"] for check in broken)


@dataclass(frozen=True, slots=True)
class CompletedStep:
    """An attempt at a step whose result is whole."""

    step: Step
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a plan has come."""

    taken: tuple[CompletedStep, ...] = ()  # in the order they were taken
    left: tuple[Step, ...] = ()


def completed_steps(run: RunFolder, plans: Sequence[Plan], console: Console) -> list[RunProgress]:
    """How far each of a run's plans has come; what is damaged, and what is to go, is told and journaled."""
    for word in damaged(run, merged(plans)):
        console.print(f"[yellow]damaged:[/yellow] {word}", highlight=False, soft_wrap=True)
    found = []
    for plan in plans:
        taken = list(finished(run, plan))
        found.append(RunProgress(tuple(taken), remaining(plan, taken)))
    steps, left = sum(len(plan.steps) for plan in plans), sum(len(stock.left) for stock in found)
    console.print(f"{run.run_id}: {steps - left} of {steps} measured, {left} to go")
    run.journal.append(event="resumed", remaining=left)
    return found


def finished(run: RunFolder, plan: Plan) -> Iterator[CompletedStep]:
    """Every attempt whose result is there as a whole and judged, in the order they were taken.

    The journal says what was finished. A result that was judged and written, and whose line in the journal was lost
    with the runner, is as good: it is written in one piece, and after everything that belongs to it.
    """
    known = journaled(run)
    found = []
    for step in plan.steps:
        attempt = step
        while (result := _result(run, attempt)) is not None:
            if (step.point, attempt.name) not in known:
                run.journal.append(
                    event="step done", step=step.index, point=step.point, name=attempt.name, recovered=True
                )
            found.append(CompletedStep(attempt, result))
            attempt = dataclasses.replace(attempt, attempt=attempt.attempt + 1)
    yield from sorted(found, key=lambda taken: float(taken.result.get("order", 0)))


def damaged(run: RunFolder, plan: Plan) -> Iterator[str]:
    """A sentence for every record or result that was written and is not whole."""
    for file in (run.journal, run.ledger):
        if torn := file.torn():
            yield f"{file.path.name}: {torn} line(s) are no whole record and are passed over"
    points = {step.point for step in plan.steps}
    for point, name in sorted(journaled(run)):
        path = run / "results" / point / f"{name}.json"
        if point in points and "gates" not in read_object(path):
            yield f"{path.relative_to(run.path)} was measured and cannot be read; it is measured again"


def journaled(run: RunFolder) -> set[tuple[str, str]]:
    """Point and name of every attempt the journal says is finished."""
    return {(str(r.get("point")), str(r.get("name"))) for r in run.journal.records() if r.get("event") == "step done"}


def remaining(plan: Plan, taken: Sequence[CompletedStep]) -> tuple[Step, ...]:
    """The steps that are not finished, counted anew; each point is deployed before its first one."""
    last: dict[tuple[str, int, str], CompletedStep] = {}
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
