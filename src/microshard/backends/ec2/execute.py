"""A whole run on EC2: fleet by fleet, hosts made, the same steps as elsewhere, hosts removed, and a look back."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard import this_machine as place
from microshard.backends.ec2 import backend as ec2_hosts
from microshard.backends.ec2 import controller_address as address
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.backend import Ec2Backend
from microshard.backends.ec2.cost_estimate import GRACE_SECONDS, FleetEstimate, of_the_rest
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.backends.ec2.fleet_plan import cost
from microshard.backends.ec2.fleet_records import PlanBook, others_before, record_of
from microshard.backends.ec2.render import show
from microshard.backends.ec2.spec import fleet_spec, to_mapping
from microshard.errors import MicroshardError, PlaceError
from microshard.experiment.errors import DefinitionError
from microshard.interrupts import Stopped, signals
from microshard.model.plan import Plan
from microshard.records.run_folder import RunFolder, write_json
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


def execute_on_ec2(file: Path, scale: str | None, overrides: Mapping[str, Any], runs: Path, console: Console) -> int:
    """Plan, make, run and remove. Returns the exit code.

    Raises MicroshardError for what keeps the run from starting at all; nothing is made then.
    """
    seen = plan_ec2(file, scale=scale, overrides=overrides)
    cidrs = _allowed(seen)  # known before a folder is made
    folder = RunFolder.create(runs, seen.plan.name)
    with folder.lock():
        write_request(folder, seen.asked)
        write_json(folder / "plan.json", seen.plan)
        Ec2Backend.to_be_made(folder, seen.view.fleets[0].region).record(folder)
        announce(seen.plan, seen.loaded.warnings, folder, console)
        return _carried_out(seen, [RunProgress((), plan.steps) for plan in seen.plans], folder, cidrs, console)


def resume_on_ec2(request: ResumeRequest, _backend: Backend, console: Console) -> int:
    """Create new hosts for what is left of a run, and execute it. Returns the exit code.

    The hosts of the aborted part are gone already. Raises MicroshardError as `execute_on_ec2` does.
    """
    seen = plan_ec2(request.experiment, scale=request.scale, overrides=request.overrides, folder=request.folder)
    request.refuse_another_plan(seen.loaded, seen.plan)
    return execute_remaining(request.run, seen, console)


def execute_remaining(folder: RunFolder, seen: Ec2Plan, console: Console) -> int:
    """Execute what is left of a planned run on new hosts. Returns the exit code."""
    stocks = completed_steps(folder, seen.plans, console)
    rest = dataclasses.replace(seen, view=of_the_rest(seen.view, seen.plans, [stock.remaining for stock in stocks]))
    return _carried_out(rest, stocks, folder, _allowed(rest), console)


def _allowed(seen: Ec2Plan) -> dict[str, tuple[str, ...]]:
    """Fleet → who may reach its hosts by SSH. Raises MicroshardError for what EC2 or the account would refuse."""
    seen.refuse_broken()
    seen.refuse_not_yet()
    for region in dict.fromkeys(fleet.region for fleet in seen.view.fleets):
        Api(region).account()  # without a login nothing will work
    return {fleet.name: address.controller_cidrs(fleet.infrastructure.ec2) for fleet in seen.view.fleets}


def _carried_out(
    seen: Ec2Plan,
    stocks: Sequence[RunProgress],
    folder: RunFolder,
    cidrs: Mapping[str, tuple[str, ...]],
    console: Console,
) -> int:
    if seen.view.fleets:
        show(seen.view, console)
    with Progress(folder, seen.plan, console) as progress:
        run = _Run(seen, folder, progress, cidrs, stocks)
        run.run()
    report(folder, run.outcome, console)
    return run.outcome.exit_code


def most_ports(plan: Plan) -> int:
    """How many ports a host of the plan may need at one time: of all points, as they may stand side by side."""
    return sum(point.most_ports for point in plan.points)


class _Run:
    """The fleets of a run that have steps left, one after the other."""

    def __init__(
        self,
        seen: Ec2Plan,
        folder: RunFolder,
        progress: Progress,
        cidrs: Mapping[str, tuple[str, ...]],
        stocks: Sequence[RunProgress],  # one a plan
    ) -> None:
        self.seen = seen
        self.folder = folder
        self.progress = progress
        self.cidrs = cidrs
        self.outcome = Outcome()
        self.answers = AnswerBook()
        self.stocks = stocks
        self.book = PlanBook(folder, seen.plans)
        self._take_over()
        self.playbooks = Playbooks(folder, progress.event)
        budget = seen.view.budget
        self.meter = Meter(budget.max_hours, budget.max_cost_usd)
        self.expires_at = int(time.time() + (budget.max_hours or 0) * 3600 + GRACE_SECONDS)

    def _take_over(self) -> None:
        """What earlier parts have measured counts, and later answers are compared with it, whatever fleets are made."""
        self.outcome.add_completed(self.stocks)
        plan = self.seen.plan
        for item in (item for stock in self.stocks for item in stock.completed):
            self.answers.difference(plan.point(item.step.point), item.result)
            self.progress.step_done(item.step, item.result)

    def run(self) -> None:
        """Take every fleet; whatever happens, its hosts are removed unless they are to stay."""
        started = time.monotonic()
        with signals():
            try:
                for fleet in self.seen.view.fleets:
                    self.outcome.over_budget = self.meter.exhausted()
                    if self.outcome.over_budget:
                        break
                    self.meter.reprice(fleet.cost.hourly_usd)
                    self._fleet(fleet)
                    self.meter.reprice(0.0)
                    if self.outcome.stopped_by is not None or self.outcome.over_budget or self.outcome.left:
                        break
            except Stopped as stopped:
                self.outcome.stopped_by = stopped.number
                self.folder.journal.append(event="stopped", signal=stopped.number)
                self.playbooks.stop()
            finally:
                self._nothing_stays()
        self.outcome.seconds = time.monotonic() - started
        self.folder.journal.append(event="hosts ended", hours=round(self.meter.hours, 3), usd=self.meter.usd)

    def _fleet(self, fleet: FleetEstimate) -> None:
        number = next(n for n, plan in enumerate(self.seen.plans) if fleet.points[0] in {p.id for p in plan.points})
        foreseen, stock = self.seen.plans[number], self.stocks[number]
        try:
            backend = self._made(fleet, stock)
            inputs = backend.inputs(self.folder.path.parent)
            with backend.ports(most_ports(foreseen)) as base:
                points = [point.id for point in foreseen.points]
                plan = self.seen.planned(points, dataclasses.replace(inputs, base_port=base))
            backend.check_room(plan)
            found = backend.binaries(plan)
            self.book.enter(number, plan)
            lock_binaries(self.folder, self.seen.asked, found)
            write_points(self.folder, plan, found, backend)
            rest = dataclasses.replace(plan, steps=stock.remaining)
            runner = Runner(
                self.folder, rest, found, self.progress, backend=backend, meter=self.meter, answers=self.answers
            )
            runner.recorder.restore(stock.completed, self._first_index(number))
            self.outcome.add(runner.run())
        except (MicroshardError, DefinitionError) as error:
            self.outcome.failed |= dict.fromkeys(fleet.points, str(error))
            told = str(error) if len(self.seen.view.fleets) == 1 else f"{fleet.name}: {error}"
            self.outcome.unprepared = "\n".join(filter(None, [self.outcome.unprepared, told]))
            self.folder.journal.append(event="fleet failed", fleet=fleet.name, message=str(error))
            self._nothing_stays()  # the next fleet would take these hosts for its own

    def _first_index(self, number: int) -> int:
        """Of a fleet's first step among all steps of the run, those of earlier parts before."""
        steps = sum(len(plan.steps) for plan in self.seen.plans)
        return steps - sum(len(stock.remaining) for stock in self.stocks[number:])

    def _made(self, fleet: FleetEstimate, stock: RunProgress) -> Ec2Backend:
        """The hosts of a fleet, made and answering; in what they are others is told. Raises PlaceError."""
        spec = fleet_spec(
            fleet.infrastructure,
            run=self.folder.run_id,
            owner=place.user(),
            experiment=self.seen.plan.name,
            expires_at=self.expires_at,
            controller_cidrs=self.cidrs[fleet.name],
        )
        wish = {key: value for key, value in to_mapping(spec).items() if key != "run"}
        variables = {
            "microshard_run": {"id": self.folder.run_id, "folder": str(self.folder.path)},
            "ec2_fleet_region": fleet.region,
            "ec2_fleet_spec": wish,
        }
        self.progress.stage(None, "hosts")
        self.playbooks = Playbooks(self.folder, self.progress.event)
        told = ec2_hosts.made(self.folder, record_of(self.folder, fleet.name), variables, self.playbooks)
        other = [
            *_others(told["notes"]),
            *self._priced_as_made(fleet, told),
            *others_before(self.folder, fleet.name, told, len(stock.completed)),
        ]
        remarks = [f"{fleet.name}: {note}" for note in other]
        self.folder.journal.append(event="hosts made", fleet=fleet.name, zone=told["zone"], remarks=remarks)
        for remark in remarks:
            self.progress.console.print(f"[yellow]warning:[/yellow] {remark}", highlight=False, soft_wrap=True)
        backend = Ec2Backend.of(self.folder, fleet.region)
        self.playbooks = backend.playbooks(self.folder, self.progress.event, backend.names)
        try:
            self.playbooks.run("wait_for_ssh", None)
        except MicroshardError as error:
            raise PlaceError(f"hosts on EC2 do not answer: {error}") from None
        return backend

    def _priced_as_made(self, fleet: FleetEstimate, told: Mapping[str, Any]) -> Iterator[str]:
        """From now on what was made is paid, which may be another type than the first that was listed."""
        types = {host["group"]: host["instance_type"] for host in told["hosts"]}
        groups = [dataclasses.replace(group, instance_types=(types[group.name],)) for group in fleet.groups]
        price = cost(groups, fleet.region)
        if price.hourly_usd is not None:
            self.meter.reprice(price.hourly_usd)
        elif fleet.cost.hourly_usd is not None:
            yield f"there is no price of {', '.join(price.unknown)}; money is counted as for the types listed first"

    def _nothing_stays(self) -> None:
        """The hosts are removed where the runner did not come to it."""
        region = ec2_hosts.region_of(self.folder)
        if region is None or self.outcome.kept or ec2_hosts.is_gone(self.folder):
            return
        if self.outcome.left:
            return  # looked at already, and told
        self.progress.stage(None, "hosts away")
        self.outcome.left = ec2_hosts.removed(self.folder, region, self.progress.event)


def _others(notes: Sequence[str]) -> Iterator[str]:
    """In what hosts are others than wished for; all that was tried in vain in one sentence."""
    vain = "tried in vain: "
    tried = [note.removeprefix(vain) for note in notes if note.startswith(vain)]
    yield from (note for note in notes if not note.startswith(vain))
    if tried:
        yield vain + "; ".join(tried)
