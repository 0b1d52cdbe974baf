"""One fleet of a run, in a process and a run folder of its own; its argument is that folder.

Points, results, telemetry and logs of points are the run's own folders, by links; hosts, ledger, journal, keys and
everything in the account belong to the fleet alone. So one fleet's end, however it comes, is nothing to the others.
"""

import dataclasses
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard.backends.ec2.backend import Ec2Backend
from microshard.backends.ec2.bring_up import check
from microshard.backends.ec2.cost_estimate import estimate_remaining
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.execute import Ec2Run
from microshard.errors import MicroshardError
from microshard.experiment.errors import DefinitionError
from microshard.hostlib.proc import die_with_parent
from microshard.interrupts import Stopped, signals
from microshard.model.advice import OtherFleets, SearchRequest
from microshard.model.run_records import RunMarker
from microshard.records import codec
from microshard.records.run_folder import MARKER, RunFolder, write_json
from microshard.run.completed_steps import RunProgress, finished, remaining
from microshard.run.outcome import Outcome
from microshard.run.prepare import write_request
from microshard.run.progress import Progress

ORDER, OUTCOME = "fleet.json", "outcome.json"  # in the fleet's folder: FleetOrder, Outcome
_SHARED = ("points", "results", "telemetry")


@dataclass(frozen=True, slots=True)
class FleetOrder:
    """What a fleet's process executes."""

    file: str  # the run's copy of the experiment
    scale: str | None
    overrides: dict[str, Any]
    folder: str  # of the files the experiment names
    name: str  # fleet1, fleet2 …
    points: list[str]  # all of the fleet, those without remaining steps too
    first: int  # index of the fleet's first remaining step among all steps of the run
    expires_at: int  # epoch seconds
    max_hours: float | None  # what is left of the run's budget
    max_cost_usd: float | None  # the fleet's part of it
    parent: int  # pid of the run's process
    search: SearchRequest | None = None
    others: OtherFleets | None = None  # of a search


def fleet_folder(run: RunFolder, plan: Ec2Plan, order: FleetOrder, region: str) -> RunFolder:
    """Make the folder of a fleet below that of its run, or take that of an earlier session."""
    folder = RunFolder(run / "fleets" / f"{run.run_id}-{order.name}")
    for name in ("deployments", "hosts", "logs", "report", "tmp"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    links = {name: run / name for name in _SHARED} | {f"logs/{p}": run / "logs" / p for p in order.points}
    for name, target in links.items():
        target.mkdir(exist_ok=True)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(os.path.relpath(target, (folder / name).parent))
    for pattern in (f"{order.name}.json", f"{order.name}-*.json"):  # of earlier sessions
        for path in (run / "hosts").glob(pattern):
            shutil.copy2(path, folder / "hosts")
    if not (folder / MARKER).exists():
        of_run = run.marker()
        marker = RunMarker(of_run.microshard, folder.run_id, of_run.experiment, of_run.created, os.getpid())
        write_json(folder / MARKER, marker)
    (folder / OUTCOME).unlink(missing_ok=True)
    write_request(folder, plan.request)
    write_json(folder / ORDER, order)
    Ec2Backend.of(folder, region).record(folder)
    return folder


def execute_fleet(folder: RunFolder, order: FleetOrder) -> Outcome:
    """Launch the fleet, execute its remaining steps and terminate it. Never raises for what EC2 or a point does."""
    run = None
    try:
        plan = plan_ec2(
            Path(order.file),
            scale=order.scale,
            overrides=order.overrides,
            folder=Path(order.folder),
            only=lambda whole: dataclasses.replace(
                whole, points=tuple(point for point in whole.points if point.id in order.points)
            ),
            search=order.search,
        )
        completed = tuple(finished(folder, plan.plan))
        progress = RunProgress(completed, remaining(plan.plan, completed))
        estimate = plan.estimate
        if order.search is None:
            estimate = estimate_remaining(estimate, plan.plans, [progress.remaining])
        budget = {"max_hours": order.max_hours, "max_cost_usd": order.max_cost_usd}
        estimate = dataclasses.replace(
            estimate,
            fleets=tuple(dataclasses.replace(fleet, name=order.name) for fleet in estimate.fleets),
            budget=estimate.budget.model_copy(update=budget),
        )
        plan = dataclasses.replace(plan, estimate=estimate)
        cidrs = check(plan)
        write_json(folder / "plan.json", plan.plan)
        with Progress(folder, plan.plan, Console(soft_wrap=True)) as display:
            run = Ec2Run(plan, folder, display, cidrs, [progress], order.others)
            run.expires_at = order.expires_at
            run.first = order.first - run.first_step(0)
            run.outcome.done = 0  # the run knows what it has measured before
            run.execute()
    except (MicroshardError, DefinitionError) as error:
        outcome = run.outcome if run is not None else Outcome()
        outcome.failed |= {point: str(error) for point in order.points if point not in outcome.failed}
        outcome.unprepared = outcome.unprepared or f"{order.name}: {error}"
        return outcome
    return run.outcome


def main() -> None:
    """Execute the fleet of the folder named on the command line; ends as the run's process does."""
    folder = RunFolder.open(Path(sys.argv[1]))
    order = codec.read_file(FleetOrder, folder / ORDER)
    try:
        with signals(last=True):
            die_with_parent(order.parent, signal.SIGTERM)  # nobody else would terminate the hosts
            with folder.lock():
                write_json(folder / OUTCOME, execute_fleet(folder, order))
    except Stopped as stopped:
        sys.exit(stopped.exit_code)


if __name__ == "__main__":
    main()
