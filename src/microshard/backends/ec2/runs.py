"""A whole run on EC2, and the rest of one that was interrupted: planned, announced, executed, reported."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard.backends.ec2.backend import Ec2Backend
from microshard.backends.ec2.bring_up import check
from microshard.backends.ec2.cost_estimate import estimate_remaining
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.execute import Ec2Run
from microshard.backends.ec2.parallel import ParallelRun
from microshard.backends.ec2.render import show
from microshard.errors import EXIT_OK
from microshard.model.advice import SearchRequest
from microshard.records.run_folder import RunFolder, write_json
from microshard.report.checks import hosts_cost
from microshard.run.backend import Backend
from microshard.run.completed_steps import RunProgress, completed_steps
from microshard.run.execute import announce, report, tell
from microshard.run.prepare import write_request
from microshard.run.progress import Progress
from microshard.run.resume import ResumeRequest


def run_on_ec2(
    file: Path,
    scale: str | None,
    overrides: Mapping[str, Any],
    runs: Path,
    console: Console,
    *,
    parallel: int = 1,
    search: SearchRequest | None = None,
) -> int:
    """Plan, launch, measure and terminate, up to `parallel` fleets at a time. Returns the exit code.

    `search` chooses steps of the plan instead of executing all. Raises MicroshardError for what keeps the run from
    starting at all; nothing is created then.
    """
    plan = plan_ec2(file, scale=scale, overrides=overrides, parallel=parallel, search=search)
    cidrs = check(plan)  # known before a folder is made
    folder = RunFolder.create(runs, plan.plan.name)
    with folder.lock():
        write_request(folder, plan.request)
        write_json(folder / "plan.json", plan.plan)
        Ec2Backend.of(folder, plan.estimate.fleets[0].region).record(folder)
        announce(plan.plan, plan.loaded.warnings, folder, console, search)
        return _execute(plan, [RunProgress((), each.steps) for each in plan.plans], folder, cidrs, console)


def resume_on_ec2(request: ResumeRequest, _backend: Backend, console: Console) -> int:
    """Launch new hosts for the remaining steps of a run and execute them. Returns the exit code.

    Whatever the earlier session has created is gone already. Raises MicroshardError as `run_on_ec2` does.
    """
    plan = plan_ec2(
        request.experiment,
        scale=request.scale,
        overrides=request.overrides,
        folder=request.folder,
        parallel=request.parallel,
        search=request.lock.request.search if request.lock.request else None,
    )
    request.refuse_another_plan(plan.loaded, plan.plan)
    return execute_remaining(request.run, plan, console)


def execute_remaining(folder: RunFolder, plan: Ec2Plan, console: Console) -> int:
    """Execute the remaining steps of a planned run on new hosts. Returns the exit code."""
    progress = completed_steps(folder, plan.plans, console)
    if plan.request.search is None:
        estimate = estimate_remaining(plan.estimate, plan.plans, [each.remaining for each in progress])
        plan = dataclasses.replace(plan, estimate=estimate)
    return _execute(plan, progress, folder, check(plan), console)


def _execute(
    plan: Ec2Plan,
    progress: Sequence[RunProgress],
    folder: RunFolder,
    cidrs: Mapping[str, tuple[str, ...]],
    console: Console,
) -> int:
    estimate = plan.estimate
    if estimate.fleets:
        show(estimate, console)
    kind = ParallelRun if estimate.parallel > 1 and len(estimate.fleets) > 1 else Ec2Run
    with Progress(folder, plan.plan, console) as display:
        if estimate.fleets:
            display.clock.side_by_side = sum(fleet.seconds for fleet in estimate.fleets) / estimate.seconds
        run = kind(plan, folder, display, cidrs, progress)
        run.execute()
    advice = run.search.conclude(folder) if run.search else None
    report(folder, run.outcome, console)
    for cost in list(hosts_cost(folder.journal.records()))[-1:]:
        console.print(f"{cost[0].upper()}{cost[1:]}.", highlight=False, soft_wrap=True)
    if run.outcome.kept:
        console.print(Ec2Backend.recorded_as(folder.backend()).cost(folder), highlight=False, soft_wrap=True)
    return (tell(run.search, advice, console) if run.search else EXIT_OK) or run.outcome.exit_code
