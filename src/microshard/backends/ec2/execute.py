"""Execute or resume the fleets of a run on EC2 one after the other: hosts launched, steps, hosts terminated."""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence

from microshard.backends.ec2.backend import Ec2Backend, created_region, remove_hosts
from microshard.backends.ec2.bring_up import earlier_hosts_notes, expiry, launch_hosts, most_ports, reprice
from microshard.backends.ec2.cost_estimate import FleetEstimate
from microshard.backends.ec2.ec2_plan import Ec2Plan
from microshard.backends.ec2.resources import is_gone
from microshard.errors import MicroshardError
from microshard.experiment.errors import DefinitionError
from microshard.interrupts import Stopped, signals
from microshard.model.advice import OtherFleets
from microshard.model.plan import Plan, Point
from microshard.model.run_records import JournalEvent
from microshard.plan.order import join_plans
from microshard.records.codec import DamagedFileError
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.completed_steps import RunProgress
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import lock_binaries, write_points
from microshard.run.progress import Progress
from microshard.run.result_recorder import AnswerBook
from microshard.run.runner import Runner
from microshard.run.search_steps import SearchSteps
from microshard.search.shard_count import Ended


class Ec2Run:
    """The fleets of a run that have steps left, one after the other."""

    first = 0  # index of the first step; another one where this executes a part of a run's fleets

    def __init__(
        self,
        plan: Ec2Plan,
        folder: RunFolder,
        display: Progress,
        cidrs: Mapping[str, tuple[str, ...]],
        progress: Sequence[RunProgress],  # one a plan
        others: OtherFleets | None = None,  # what they have measured of the same search
    ) -> None:
        self.plan = plan
        self.folder = folder
        self.display = display
        self.cidrs = cidrs
        self.progress = progress
        self.outcome = Outcome()
        self.answers = AnswerBook()
        self.record = PlanRecord(folder, plan.plans)
        budget = plan.estimate.budget
        self.meter = Meter(budget.max_hours, budget.max_cost_usd)
        self.expires_at = expiry(plan)
        # What earlier sessions have measured counts, and later answers are compared with it.
        self.outcome.add_completed(progress)
        for item in (item for each in progress for item in each.completed):
            self.answers.difference(plan.plan.point(item.step.point), item.result)
            display.step_done(item.step, item.result)
        self.search: SearchSteps | None = None
        if request := plan.request.search:
            completed = sorted((i for each in progress for i in each.completed), key=lambda i: i.result.order or 0)
            prices = {p: fleet.price.hourly_usd for fleet in plan.estimate.fleets for p in fleet.points}
            self.search = SearchSteps(request, plan.plan, completed, meter=self.meter, prices=prices, others=others)

    def execute(self) -> None:
        """Execute every fleet; whatever happens, its hosts are terminated unless they are to be kept."""
        started = time.monotonic()
        with signals():
            try:
                self.execute_fleets()
            except Stopped as stopped:
                self.outcome.stopped_by = stopped.number
                self.folder.journal.append(JournalEvent("stopped", signal=stopped.number))
            finally:
                self.remove_hosts()
        self.outcome.seconds = time.monotonic() - started
        self.folder.journal.append(
            JournalEvent(
                "hosts ended",
                hours=round(self.meter.hours, 3),
                usd=self.spent_usd,
                estimated_hours=round(self.plan.estimate.seconds / 3600, 3),
                estimated_usd=self.plan.estimate.cost_usd,
            )
        )
        self.folder.journal.append(self.outcome.ended())

    @property
    def spent_usd(self) -> float | None:
        """What the hosts have cost so far at on-demand prices; None where a price is unknown."""
        return self.meter.usd

    def execute_fleets(self) -> None:
        """Execute one fleet after the other until the budget is reached or something cannot be removed.

        Of a search each round executes the fleets of the settings that are left.
        """
        search = self.search
        if search is None:
            self._execute(self.plan.estimate.fleets)
            return
        known = None
        while (wanted := self._wanted(search)) and known != (known := (len(search.tried), len(search.excluded))):
            self._execute(wanted)
        if wanted:
            search.ended = Ended("what is left of the budget allows no further measurement", known=False)

    def _wanted(self, search: SearchSteps) -> list[FleetEstimate]:
        """The fleets whose settings a search measures next."""
        if self.outcome.stopped_by is not None or self.outcome.left:
            return []
        search.exclude_failed(self.outcome)
        chosen = {(n, choice.count) for n, choice in search.next_choices().choices.items()}
        points = {search.points[each].id for each in chosen if each in search.points}
        return [fleet for fleet in self.plan.estimate.fleets if points & set(fleet.points)]

    def over_budget(self) -> bool:
        """Whether no further fleet may be launched; a search says so itself."""
        reason = self.meter.exhausted()
        if not self.search:
            self.outcome.over_budget = self.outcome.over_budget or reason
        return bool(reason)

    def _execute(self, fleets: Sequence[FleetEstimate]) -> None:
        for fleet in fleets:
            if self.over_budget():
                break
            self.meter.reprice(fleet.price.hourly_usd)
            self._execute_fleet(fleet)
            self.meter.reprice(0.0)
            if self.outcome.stopped_by is not None or self.outcome.over_budget or self.outcome.left:
                break

    def number_of(self, fleet: FleetEstimate) -> int:
        """The fleet's place among all fleets of the plan, those without remaining steps included."""
        return next(n for n, plan in enumerate(self.plan.plans) if fleet.points[0] in {p.id for p in plan.points})

    def first_step(self, number: int) -> int:
        """The index of a fleet's next step among all steps of the run, those of earlier sessions first."""
        remaining = sum(len(each.remaining) for each in self.progress[number:])
        since = 0  # of a search: what the fleet has measured in this session
        if self.search:
            points = {point.id for point in self.plan.plans[number].points}
            since = sum(step.point in points for step in self.search.taken) - len(self.progress[number].completed)
        return self.first + sum(len(each.steps) for each in self.plan.plans) - remaining + since

    def _execute_fleet(self, fleet: FleetEstimate) -> None:
        plans, number = self.plan.plans, self.number_of(fleet)
        progress = self.progress[number]
        try:
            backend = self.launch(fleet, progress)
            backend.hourly_usd = self.meter.hourly_usd
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
                self.folder, rest, binaries, self.display, backend=backend, meter=self.meter, answers=self.answers,
                source=self.search,
            )  # fmt: skip
            runner.recorder.restore(progress.completed, self.first_step(number))
            self.outcome.add(runner.run())
        except (MicroshardError, DefinitionError) as error:
            self.outcome.failed |= dict.fromkeys(fleet.points, str(error))
            message = str(error) if len(self.plan.estimate.fleets) == 1 else f"{fleet.name}: {error}"
            self.outcome.unprepared = "\n".join(filter(None, [self.outcome.unprepared, message]))
            self.folder.journal.append(JournalEvent("fleet failed", fleet=fleet.name, message=str(error)))
            self.remove_hosts()  # the next fleet must not reuse these hosts

    def launch(self, fleet: FleetEstimate, progress: RunProgress) -> Ec2Backend:
        """Launch the hosts of a fleet and wait until they answer; say where they differ from the plan.

        Raises PlaceError.
        """
        backend, created = launch_hosts(
            self.folder, self.plan, fleet, self.display, cidrs=self.cidrs[fleet.name], expires_at=self.expires_at
        )
        notes = [
            *created["notes"],
            *reprice(self.meter, fleet, created),
            *earlier_hosts_notes(self.folder, fleet.name, created, len(progress.completed)),
        ]
        remarks = [f"{fleet.name}: {note}" for note in notes]
        self.folder.journal.append(JournalEvent("hosts made", fleet=fleet.name, zone=created["zone"], remarks=remarks))
        for remark in remarks:
            self.display.console.print(f"[yellow]warning:[/yellow] {remark}", highlight=False, soft_wrap=True)
        return backend

    def remove_hosts(self) -> None:
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
