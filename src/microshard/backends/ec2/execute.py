"""Execute or resume a whole run on EC2: fleet by fleet, hosts launched, the usual steps, hosts terminated."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard import this_machine
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.backend import Ec2Backend, create_hosts, created_region, remove_hosts
from microshard.backends.ec2.cost_estimate import GRACE_SECONDS, FleetEstimate, estimate_remaining
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.network import controller_cidrs
from microshard.backends.ec2.render import show
from microshard.backends.ec2.resources import is_gone
from microshard.backends.ec2.spec import fleet_spec
from microshard.backends.ec2.tables import fleet_price
from microshard.errors import MicroshardError, PlaceError
from microshard.experiment.errors import DefinitionError
from microshard.interrupts import Stopped, signals
from microshard.model.plan import Plan, Point
from microshard.model.run_records import JournalEvent
from microshard.plan.order import join_plans
from microshard.plan.render import count
from microshard.records.codec import DamagedFileError
from microshard.records.run_folder import RunFolder, read_object, write_json
from microshard.run.ansible import Playbooks
from microshard.run.backend import Backend
from microshard.run.completed_steps import RunProgress, completed_steps
from microshard.run.execute import announce, report
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import lock_binaries, write_points, write_request
from microshard.run.progress import Progress
from microshard.run.result_recorder import AnswerBook
from microshard.run.resume import ResumeRequest
from microshard.run.runner import Runner


def run_on_ec2(file: Path, scale: str | None, overrides: Mapping[str, Any], runs: Path, console: Console) -> int:
    """Plan, launch, measure and terminate. Returns the exit code.

    Raises MicroshardError for what keeps the run from starting at all; nothing is created then.
    """
    plan = plan_ec2(file, scale=scale, overrides=overrides)
    cidrs = _check(plan)  # known before a folder is made
    folder = RunFolder.create(runs, plan.plan.name)
    with folder.lock():
        write_request(folder, plan.request)
        write_json(folder / "plan.json", plan.plan)
        Ec2Backend.of(folder, plan.estimate.fleets[0].region).record(folder)
        announce(plan.plan, plan.loaded.warnings, folder, console)
        return _execute(plan, [RunProgress((), each.steps) for each in plan.plans], folder, cidrs, console)


def resume_on_ec2(request: ResumeRequest, _backend: Backend, console: Console) -> int:
    """Launch new hosts for the remaining steps of a run and execute them. Returns the exit code.

    Whatever the earlier session has created is gone already. Raises MicroshardError as `run_on_ec2` does.
    """
    plan = plan_ec2(request.experiment, scale=request.scale, overrides=request.overrides, folder=request.folder)
    request.refuse_another_plan(plan.loaded, plan.plan)
    return execute_remaining(request.run, plan, console)


def execute_remaining(folder: RunFolder, plan: Ec2Plan, console: Console) -> int:
    """Execute the remaining steps of a planned run on new hosts. Returns the exit code."""
    progress = completed_steps(folder, plan.plans, console)
    estimate = estimate_remaining(plan.estimate, plan.plans, [each.remaining for each in progress])
    plan = dataclasses.replace(plan, estimate=estimate)
    return _execute(plan, progress, folder, _check(plan), console)


def _check(plan: Ec2Plan) -> dict[str, tuple[str, ...]]:
    """Return fleet → networks that may reach its hosts. Raises MicroshardError for what EC2 would refuse."""
    plan.raise_on_violations()
    plan.raise_on_unsupported()
    for region in dict.fromkeys(fleet.region for fleet in plan.estimate.fleets):
        Api(region).caller()  # without a login nothing will work
    return {fleet.name: controller_cidrs(fleet.infrastructure.ec2) for fleet in plan.estimate.fleets}


def _execute(
    plan: Ec2Plan,
    progress: Sequence[RunProgress],
    folder: RunFolder,
    cidrs: Mapping[str, tuple[str, ...]],
    console: Console,
) -> int:
    if plan.estimate.fleets:
        show(plan.estimate, console)
    with Progress(folder, plan.plan, console) as display:
        run = Ec2Run(plan, folder, display, cidrs, progress)
        run.execute()
    report(folder, run.outcome, console)
    return run.outcome.exit_code


def most_ports(plan: Plan) -> int:
    """Return how many ports a host may need at once, when the clusters of all points run side by side."""
    return sum(point.most_ports for point in plan.points)


def reprice(meter: Meter, fleet: FleetEstimate, created: Mapping[str, Any]) -> Iterator[str]:
    """Charge from now on for what was launched, which may be another type than the first that was listed."""
    types = {host["group"]: host["instance_type"] for host in created["hosts"]}
    groups = [dataclasses.replace(group, instance_types=(types[group.name],)) for group in fleet.groups]
    price = fleet_price(groups, fleet.region, public_addresses=fleet.infrastructure.ec2.public_addresses)
    if price.hourly_usd is not None:
        meter.reprice(price.hourly_usd)
    elif fleet.price.hourly_usd is not None:
        yield f"there is no price of {', '.join(price.unknown)}; the cost is that of the types listed first"


class Ec2Run:
    """The fleets of a run that have steps left, one after the other."""

    def __init__(
        self,
        plan: Ec2Plan,
        folder: RunFolder,
        display: Progress,
        cidrs: Mapping[str, tuple[str, ...]],
        progress: Sequence[RunProgress],  # one a plan
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.display = display
        self.cidrs = cidrs
        self.progress = progress
        self.outcome = Outcome()
        self.answers = AnswerBook()
        self.record = PlanRecord(folder, plan.plans)
        self.playbooks = Playbooks(folder, display.event)
        budget = plan.estimate.budget
        self.meter = Meter(budget.max_hours, budget.max_cost_usd)
        self.expires_at = int(time.time() + (budget.max_hours or 0) * 3600 + GRACE_SECONDS)
        # What earlier sessions have measured counts, and later answers are compared with it.
        self.outcome.add_completed(progress)
        for item in (item for each in progress for item in each.completed):
            self.answers.difference(plan.plan.point(item.step.point), item.result)
            display.step_done(item.step, item.result)

    def execute(self) -> None:
        """Execute every fleet; whatever happens, its hosts are terminated unless they are to be kept."""
        started = time.monotonic()
        with signals():
            try:
                for fleet in self.plan.estimate.fleets:
                    self.outcome.over_budget = self.meter.exhausted()
                    if self.outcome.over_budget:
                        break
                    self.meter.reprice(fleet.price.hourly_usd)
                    self._execute_fleet(fleet)
                    self.meter.reprice(0.0)
                    if self.outcome.stopped_by is not None or self.outcome.over_budget or self.outcome.left:
                        break
            except Stopped as stopped:
                self.outcome.stopped_by = stopped.number
                self.folder.journal.append(JournalEvent("stopped", signal=stopped.number))
                self.playbooks.stop()
            finally:
                self._remove_hosts()
        self.outcome.seconds = time.monotonic() - started
        self.folder.journal.append(JournalEvent("hosts ended", hours=round(self.meter.hours, 3), usd=self.meter.usd))

    def _execute_fleet(self, fleet: FleetEstimate) -> None:
        plans = self.plan.plans
        number = next(n for n, plan in enumerate(plans) if fleet.points[0] in {p.id for p in plan.points})
        progress = self.progress[number]
        try:
            backend = self.launch(fleet, progress)
            inputs = backend.inputs(self.folder.path.parent)
            with backend.ports(most_ports(plans[number])) as base:
                points = [point.id for point in plans[number].points]
                plan = self.plan.replan(points, dataclasses.replace(inputs, base_port=base))
            backend.check_room(plan)
            binaries = backend.binaries(plan)
            self.record.update(number, plan)
            lock_binaries(self.folder, self.plan.request, binaries)
            write_points(self.folder, plan, binaries, backend)
            rest = dataclasses.replace(plan, steps=progress.remaining)
            runner = Runner(
                self.folder, rest, binaries, self.display, backend=backend, meter=self.meter, answers=self.answers
            )
            # The first step's index among all steps of the run, those of earlier sessions before it.
            first = sum(len(each.steps) for each in plans) - sum(len(each.remaining) for each in self.progress[number:])
            runner.recorder.restore(progress.completed, first)
            self.outcome.add(runner.run())
        except (MicroshardError, DefinitionError) as error:
            self.outcome.failed |= dict.fromkeys(fleet.points, str(error))
            message = str(error) if len(self.plan.estimate.fleets) == 1 else f"{fleet.name}: {error}"
            self.outcome.unprepared = "\n".join(filter(None, [self.outcome.unprepared, message]))
            self.folder.journal.append(JournalEvent("fleet failed", fleet=fleet.name, message=str(error)))
            self._remove_hosts()  # the next fleet must not reuse these hosts

    def launch(self, fleet: FleetEstimate, progress: RunProgress) -> Ec2Backend:
        """Launch the hosts of a fleet and wait until they answer; say where they differ from the plan.

        Raises PlaceError.
        """
        spec = fleet_spec(
            fleet.infrastructure,
            run=self.folder.run_id,
            owner=this_machine.user(),
            experiment=self.plan.plan.name,
            expires_at=self.expires_at,
            controller_cidrs=self.cidrs[fleet.name],
        )
        variables = {
            "microshard_run": {"id": self.folder.run_id, "folder": str(self.folder.path)},
            "ec2_fleet_region": fleet.region,
            **{f"ec2_fleet_{key}": value for key, value in dataclasses.asdict(spec).items() if key != "run"},
        }
        self.display.stage(None, "hosts")
        self.playbooks = Playbooks(self.folder, self.display.event)
        created = create_hosts(self.folder, new_fleet_record(self.folder, fleet.name), variables, self.playbooks)
        notes = [
            *created["notes"],
            *reprice(self.meter, fleet, created),
            *earlier_hosts_notes(self.folder, fleet.name, created, len(progress.completed)),
        ]
        remarks = [f"{fleet.name}: {note}" for note in notes]
        self.folder.journal.append(JournalEvent("hosts made", fleet=fleet.name, zone=created["zone"], remarks=remarks))
        for remark in remarks:
            self.display.console.print(f"[yellow]warning:[/yellow] {remark}", highlight=False, soft_wrap=True)
        backend = Ec2Backend.of(self.folder, fleet.region)
        self.playbooks = backend.playbooks(self.folder, self.display.event, backend.names)
        try:
            self.playbooks.run("wait_for_ssh", None)
        except MicroshardError as error:
            raise PlaceError(f"hosts on EC2 do not answer: {error}") from None
        return backend

    def _remove_hosts(self) -> None:
        """Terminate the hosts where the runner did not get to it."""
        region = created_region(self.folder)
        if region is None or self.outcome.kept or is_gone(self.folder):
            return
        if not self.outcome.left:  # else the runner has tried and reported it
            self.display.stage(None, "terminating hosts")
            self.outcome.left = remove_hosts(self.folder, region, self.display.event)


class PlanRecord:
    """plan.json: points of fleets that were launched are recorded with their hosts, the others as planned."""

    def __init__(self, folder: RunFolder, plans: Sequence[Plan]) -> None:
        self.folder = folder
        self.plans = list(plans)  # one a fleet
        self.launched: dict[str, Point] = {}  # by the point's id
        self.before: dict[str, Point] = {}
        with contextlib.suppress(FileNotFoundError, DamagedFileError):
            self.before = {point.id: point for point in folder.plan().points}

    def update(self, number: int, plan: Plan) -> None:
        """Record the plan of a fleet whose hosts run. Raises DiskError."""
        self.plans[number] = plan
        self.launched |= {point.id: point for point in plan.points}
        whole = join_plans(self.plans)
        points = tuple(self.launched.get(p.id) or self.before.get(p.id, p) for p in whole.points)
        hosts = tuple(dict.fromkeys(host for point in points for host in point.hosts))
        made = (event for event in self.folder.journal.records() if event.event == "hosts made")
        remarks = [remark for event in made for remark in event.remarks or ()]
        warnings = tuple(dict.fromkeys([*remarks, *whole.warnings]))
        write_json(self.folder / "plan.json", dataclasses.replace(whole, points=points, hosts=hosts, warnings=warnings))


def new_fleet_record(folder: RunFolder, fleet: str) -> Path:
    """Return the file for a fleet's hosts; the one of an earlier session is renamed to hosts/FLEET-N.json."""
    path = folder / "hosts" / f"{fleet}.json"
    if path.exists():
        path.rename(next(p for n in range(1, 10_000) if not (p := path.with_stem(f"{fleet}-{n}")).exists()))
    return path


def earlier_hosts_notes(folder: RunFolder, fleet: str, created: Mapping[str, Any], measured: int) -> Iterator[str]:
    """Yield a note where some of the fleet's measurements were made on the hosts of an earlier session."""
    earlier = sorted((folder / "hosts").glob(f"{fleet}-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    if measured and earlier:
        yield (
            f"resumed on new hosts, {_describe_hosts(created)}; {count(measured, 'earlier measurement')} made on "
            f"others ({'; '.join(f'{path.name}: {_describe_hosts(read_object(path))}' for path in earlier)})"
        )


def _describe_hosts(created: Mapping[str, Any]) -> str:
    counts = Counter((host["group"], host["instance_type"], host["market"]) for host in created.get("hosts", []))
    kinds = [f"{group}: {count} x {kind} {market}" for (group, kind, market), count in counts.items()]
    return f"{', '.join(kinds) or 'unknown'} in {created.get('zone', 'an unknown zone')}"
