"""A whole run on EC2: fleet by fleet, hosts made, the same steps as elsewhere, hosts removed, and a look back."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from microshard.cloud import address
from microshard.cloud.api import Api
from microshard.cloud.outlook import GRACE_SECONDS, FleetOutlook
from microshard.cloud.plan import cost
from microshard.cloud.show import show
from microshard.cloud.spec import fleet_spec, to_mapping
from microshard.definition.errors import DefinitionError
from microshard.errors import MicroshardError, PlaceError
from microshard.plan.merge import merged
from microshard.plan.model import Plan
from microshard.run import ec2_hosts, place
from microshard.run.ansible import Playbooks
from microshard.run.answers import AnswerBook
from microshard.run.budget import Meter
from microshard.run.ec2 import Foreseen, foresee
from microshard.run.ec2_hosts import Ec2
from microshard.run.execute import announce, report
from microshard.run.folder import RunFolder, write_json
from microshard.run.outcome import Outcome
from microshard.run.prepare import Prepared, write_run
from microshard.run.progress import Progress
from microshard.run.runner import Runner
from microshard.stopping import Stopped, signals


def execute_on_ec2(file: Path, scale: str | None, overrides: Mapping[str, Any], runs: Path, console: Console) -> int:
    """Plan, make, run and remove. Returns the exit code.

    Raises MicroshardError for what keeps the run from starting at all; nothing is made then.
    """
    seen = foresee(file, scale=scale, overrides=overrides)
    seen.refuse_broken()
    seen.refuse_not_yet()
    for region in dict.fromkeys(fleet.region for fleet in seen.view.fleets):
        Api(region).account()  # without a login nothing will work, and it is known before a folder is made
    cidrs = {fleet.name: address.controller_cidrs(fleet.infrastructure.ec2) for fleet in seen.view.fleets}
    folder = RunFolder.create(runs, seen.plan.name)
    with folder.held():
        shutil.copyfile(file, folder / "experiment.yml")
        write_json(folder / "plan.json", dataclasses.asdict(seen.plan))
        announce(seen.plan, seen.loaded.warnings, folder, console)
        show(seen.view, console)
        with Progress(folder, seen.plan, console) as progress:
            run = _Run(seen, folder, progress, cidrs)
            run.run()
        report(folder, run.outcome, console)
    return run.outcome.exit_code


def most_ports(plan: Plan) -> int:
    """How many ports a host of the plan may need at one time: of all points, as they may stand side by side."""
    return sum(max(Counter(process.host for process in point.processes).values()) for point in plan.points)


class _Run:
    """The fleets of a run, one after the other."""

    def __init__(
        self, seen: Foreseen, folder: RunFolder, progress: Progress, cidrs: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.seen = seen
        self.folder = folder
        self.progress = progress
        self.cidrs = cidrs
        self.outcome = Outcome()
        self.answers = AnswerBook()
        self.plans: list[Plan] = list(seen.plans)
        self.playbooks = Playbooks(folder, progress.event)
        budget = seen.view.budget
        self.meter = Meter(budget.max_hours, budget.max_cost_usd)
        self.expires_at = int(time.time() + (budget.max_hours or 0) * 3600 + GRACE_SECONDS)

    def run(self) -> None:
        """Take every fleet; whatever happens, its hosts are removed unless they are to stay."""
        started = time.monotonic()
        with signals():
            try:
                for number, fleet in enumerate(self.seen.view.fleets):
                    self.outcome.over_budget = self.meter.spent()
                    if self.outcome.over_budget:
                        break
                    self.meter.reprice(fleet.cost.hourly_usd)
                    self._fleet(number, fleet)
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

    def _fleet(self, number: int, fleet: FleetOutlook) -> None:
        try:
            backend, remarks = self._made(fleet)
            inputs = backend.inputs(self.folder.path.parent)
            with backend.ports(most_ports(self.plans[number])) as base:
                plan = self.seen.planned(fleet, dataclasses.replace(inputs, base_port=base))
            plan = dataclasses.replace(plan, warnings=(*remarks, *plan.warnings))
            backend.check_room(plan)
            found = backend.binaries(plan)
            write_run(self.folder, Prepared(self.seen.loaded, plan, self.seen.path, backend), found)
            self.plans[number] = plan
            write_json(self.folder / "plan.json", dataclasses.asdict(merged(self.plans)))
            runner = Runner(
                self.folder, plan, found, self.progress, backend=backend, meter=self.meter, answers=self.answers
            )
            runner.measured.first_index = sum(len(earlier.steps) for earlier in self.plans[:number])
            self.outcome.add(runner.run())
        except (MicroshardError, DefinitionError) as error:
            self.outcome.failed |= dict.fromkeys(fleet.points, str(error))
            told = str(error) if len(self.seen.view.fleets) == 1 else f"{fleet.name}: {error}"
            self.outcome.unprepared = "\n".join(filter(None, [self.outcome.unprepared, told]))
            self.folder.journal.append(event="fleet failed", fleet=fleet.name, message=str(error))
            self._nothing_stays()  # the next fleet would take these hosts for its own

    def _made(self, fleet: FleetOutlook) -> tuple[Ec2, list[str]]:
        """The hosts of a fleet, made and answering, and in what they are others than wished for. Raises PlaceError."""
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
        told = ec2_hosts.made(self.folder, fleet.name, variables, self.playbooks)
        other = [*_others(told["notes"]), *self._priced_as_made(fleet, told)]
        remarks = [f"{fleet.name}: {note}" for note in other]
        self.folder.journal.append(event="hosts made", fleet=fleet.name, zone=told["zone"], remarks=remarks)
        for remark in remarks:
            self.progress.console.print(f"[yellow]warning:[/yellow] {remark}", highlight=False, soft_wrap=True)
        backend = Ec2.of(self.folder, fleet.region)
        self.playbooks = backend.playbooks(self.folder, self.progress.event, backend.names)
        try:
            self.playbooks.run("reach", None)
        except MicroshardError as error:
            raise PlaceError(f"hosts on EC2 do not answer: {error}") from None
        return backend, remarks

    def _priced_as_made(self, fleet: FleetOutlook, told: Mapping[str, Any]) -> Iterator[str]:
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
