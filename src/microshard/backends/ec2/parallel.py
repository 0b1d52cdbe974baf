"""Several fleets of a run at a time, a process for each: as many as --parallel, the quotas and the budget allow."""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2.backend import FLEET_VARIABLES, Ec2Backend
from microshard.backends.ec2.cost_estimate import FleetEstimate
from microshard.backends.ec2.execute import Ec2Run
from microshard.backends.ec2.fleet_process import ORDER, OUTCOME, FleetOrder, fleet_folder
from microshard.backends.ec2.resources import is_gone
from microshard.errors import MicroshardError
from microshard.interrupts import Stopped
from microshard.model.plan import Step
from microshard.model.run_records import JournalEvent
from microshard.records import codec
from microshard.records.codec import DamagedFileError
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.completed_steps import finished
from microshard.run.outcome import Outcome

_POLL_SECONDS = 0.5
_NOT_COPIED = {"run ended", "hosts ended", "stopped", "resumed"}  # events that are the run's own, and come once
# Codes of EC2 for a quota that other fleets may be using up: the fleet is tried again when one of them is gone.
_QUOTA_CODES = ("VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VpcLimitExceeded")


@dataclass(slots=True)
class _RunningFleet:
    fleet: FleetEstimate
    number: int
    order: FleetOrder
    folder: RunFolder
    process: subprocess.Popen[bytes]
    seen: int  # events of its journal that are known
    size: int = 0  # of its journal, bytes
    started: float = field(default_factory=time.monotonic)
    beside: bool = False  # another fleet existed at the same time
    now: str = "hosts"  # what it does, for the display
    usd: float | None = None


class ParallelRun(Ec2Run):
    """The fleets of a run that have steps left, side by side."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.steps = {(step.point, step.name): step for plan in self.plan.plans for step in plan.steps}
        self.waiting: list[FleetEstimate] = []
        self.running: list[_RunningFleet] = []
        self.most = self.plan.estimate.parallel  # fewer once a quota turned out to be lower
        self.again: set[str] = set()  # fleets that were tried twice
        self.spent: list[float | None] = []  # USD, by fleets that have ended

    @property
    def spent_usd(self) -> float | None:
        """What the hosts of all fleets have cost at on-demand prices; None where a price is unknown."""
        known = [usd for usd in self.spent if usd is not None]
        return sum(known) if len(known) == len(self.spent) else None

    def _execute(self, fleets: Sequence[FleetEstimate]) -> None:
        """Execute fleets, each as soon as it fits beside those that run. Raises Stopped when all have ended."""
        self.waiting = list(fleets)
        try:
            while self.waiting or self.running:
                self._start_what_fits()
                self._follow()
                if self.running:
                    time.sleep(_POLL_SECONDS)
        except BaseException as error:
            # A run that is stopped hands its signal on; each fleet tears down what it has.
            number = error.number if isinstance(error, Stopped) else signal.SIGTERM
            self.waiting.clear()
            for each in self.running:
                with contextlib.suppress(ProcessLookupError):
                    each.process.send_signal(number)
            self.outcome.stopped_by = number
            while self.running:
                time.sleep(_POLL_SECONDS)
                self._follow()
            raise
        self._compare_answers()

    def remove_hosts(self) -> None:
        """Nothing: each fleet has removed its own, or `_end` has."""

    def _start_what_fits(self) -> None:
        while self.waiting:
            fleet = self.waiting[0]
            others = [each.fleet for each in self.running]
            if others and not (len(others) < self.most and self.plan.estimate.fits(fleet, others)):
                return
            usd = self._share_usd(fleet)
            over = self.over_budget()
            if usd is not None and usd <= 0:
                over, limit = True, self.meter.max_usd
                if not self.search:
                    self.outcome.over_budget = f"budget.max_cost_usd ({limit:g} USD) has nothing left for {fleet.name}"
            if over or self.outcome.left:
                self.waiting.clear()
                return
            self._start(self.waiting.pop(0), usd)

    def _share_usd(self, fleet: FleetEstimate) -> float | None:
        """The part of the budget a fleet may spend: what is left is divided as the estimates of the rest are."""
        if self.meter.max_usd is None:
            return None
        left = self.meter.max_usd - sum(usd or 0.0 for usd in self.spent)
        left -= sum(each.order.max_cost_usd or 0.0 for each in self.running)
        estimates = [each.cost_usd or 0.0 for each in self.waiting]
        return left * (fleet.cost_usd or 0.0) / (sum(estimates) or 1.0)

    def _start(self, fleet: FleetEstimate, usd: float | None) -> None:
        number, request = self.number_of(fleet), self.plan.request
        order = FleetOrder(
            file=str(self.folder / "experiment.yml"),
            scale=request.scale,
            overrides=dict(request.overrides),
            folder=str(self.plan.folder),
            name=fleet.name,
            points=[point.id for point in self.plan.plans[number].points],
            first=self.first_step(number),
            expires_at=self.expires_at,
            max_hours=None if self.meter.max_hours is None else self.meter.max_hours - self.meter.hours,
            max_cost_usd=usd,
            parent=os.getpid(),
            search=request.search,
            others=self.search.beside([point.id for point in self.plan.plans[number].points]) if self.search else None,
        )
        folder = fleet_folder(self.folder, self.plan, order, fleet.region)
        with (folder / "logs" / "fleet.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "microshard.backends.ec2.fleet_process", str(folder.path)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the run hands signals on, in its order
            )
        self.running.append(
            _RunningFleet(fleet, number, order, folder, process, seen=len(list(folder.journal.records())))
        )
        if len(self.running) > 1:
            for each in self.running:
                each.beside = True
        self._say(f"{fleet.name} starts, for {', '.join(fleet.points)}")

    def _follow(self) -> None:
        """Take over what the fleets have journaled, and how those ended whose process is gone."""
        for each in list(self.running):
            code = each.process.poll()  # first: what was written before the end is read after it
            self._read_journal(each)
            if code is not None:
                self.running.remove(each)
                self._end(each, code)
        self.display.now = ", ".join(f"{each.fleet.name}: {each.now}" for each in self.running) or "ending"

    def _read_journal(self, each: _RunningFleet) -> None:
        path = each.folder.journal.path
        size = path.stat().st_size if path.exists() else 0
        if size == each.size:
            return
        each.size = size
        events = list(each.folder.journal.records())
        for event in events[each.seen :]:
            self._take_event(each, event)
        each.seen = len(events)

    def _take_event(self, each: _RunningFleet, event: JournalEvent) -> None:
        if event.event == "hosts ended":
            each.usd = event.usd
        if event.event in _NOT_COPIED or event.recovered:
            return
        self.folder.journal.append(dataclasses.replace(event, fleet=each.fleet.name))
        match event.event:
            case "hosts made":
                each.now = "preparing"
                for remark in event.remarks or ():
                    self._say(f"[yellow]warning:[/yellow] {remark}")
            case "run started":  # its plan, hosts and binaries are written
                self._adopt(each)
            case "step started":
                each.now = f"{event.point} {event.name}"
            case "step done":
                step = self._step(str(event.point), str(event.name))
                result = self.folder.result(step.point, step.name)
                self.display.step_done(step, result)
                if self.search:
                    self.search.measured(step, result)
            case "point failed":
                self.display.point_failed(self.plan.plan.point(str(event.point)), event.message or "")

    def _step(self, point: str, name: str) -> Step:
        first, _, attempt = name.partition("-")
        return dataclasses.replace(self.steps[point, first], attempt=int(attempt or 1))

    def _copy_hosts(self, each: _RunningFleet) -> None:
        """Copy what a fleet has recorded of its hosts; the variables of its playbooks stay its own."""
        left_out = shutil.ignore_patterns(FLEET_VARIABLES.partition("/")[2])
        shutil.copytree(each.folder / "hosts", self.folder / "hosts", ignore=left_out, dirs_exist_ok=True)

    def _adopt(self, each: _RunningFleet) -> None:
        """Take over hosts, plan and binaries of a fleet that runs."""
        self._copy_hosts(each)
        with contextlib.suppress(FileNotFoundError, DamagedFileError):
            lock, of_fleet = self.folder.run_lock(), each.folder.run_lock()
            lock.binaries |= of_fleet.binaries
            lock.differs_from_lock = list(dict.fromkeys([*lock.differs_from_lock, *of_fleet.differs_from_lock]))
            write_json(self.folder / "lock.json", lock)
            self.record.update(each.number, each.folder.plan())

    def _end(self, each: _RunningFleet, code: int) -> None:
        """Add how a fleet ended, after removing what its process could not."""
        self._copy_hosts(each)
        try:
            outcome = codec.read_file(Outcome, each.folder / OUTCOME)
        except (FileNotFoundError, DamagedFileError):
            outcome = Outcome()
        stopped = self.outcome.stopped_by is not None
        by = outcome.stopped_by or max(-code, 0)
        if (code or by) and not stopped:
            how = signal.Signals(by).name if by else f"exit code {code}"
            message = f"{each.fleet.name}: its process ended with {how}; see {each.folder / 'logs' / 'fleet.log'}"
            outcome.failed |= {point: message for point in each.fleet.points if point not in outcome.failed}
            self.folder.journal.append(JournalEvent("fleet failed", fleet=each.fleet.name, message=message))
            outcome.unprepared = outcome.unprepared or message
            self._say(f"[red]{message}[/red]")
        if not is_gone(each.folder):
            with contextlib.suppress(MicroshardError):
                outcome.left = Ec2Backend.recorded_as(each.folder.backend()).clean(each.folder)
        (each.folder / ORDER).unlink(missing_ok=True)
        self.spent.append(each.usd)
        if self._try_again(each, outcome):
            return
        if not stopped:
            outcome.stopped_by = None  # by somebody else, and a failure of this fleet alone
        if outcome.unprepared and not outcome.unprepared.startswith(f"{each.fleet.name}: "):
            outcome.unprepared = f"{each.fleet.name}: {outcome.unprepared}"
        outcome.unprepared = "\n".join(filter(None, [self.outcome.unprepared, outcome.unprepared]))
        self.outcome.unprepared = ""
        outcome.fleet_seconds = time.monotonic() - each.started
        self.outcome.add(outcome)
        self._say(f"{each.fleet.name} has ended")

    def _try_again(self, each: _RunningFleet, outcome: Outcome) -> bool:
        """Whether a quota that others used up is why the fleet was not launched; then it waits for one of them."""
        refused = any(quota in outcome.unprepared for quota in _QUOTA_CODES)
        if not (refused and each.beside and not outcome.left and each.fleet.name not in self.again):
            return False
        self.again.add(each.fleet.name)
        self.most = max(len(self.running), 1)
        self.waiting.insert(0, each.fleet)
        self._say(f"[yellow]{each.fleet.name} waits:[/yellow] the account's quota has no room for it beside the others")
        return True

    def _compare_answers(self) -> None:
        """Mark answers that differ from those of an earlier fleet: a fleet's process knows its own only."""
        for plan in self.plan.plans:
            for item in finished(self.folder, plan):
                point, result = plan.point(item.step.point), item.result
                difference = self.answers.difference(point, result)
                if difference is None or any("the answer differs from" in problem for problem in result.problems):
                    continue
                result.valid = False
                result.problems.append(difference)
                write_json(self.folder.result_path(point.id, item.step.name), result)
                self.outcome.wrong.setdefault(point.id, difference)
                self.folder.journal.append(JournalEvent("answer differs", point=point.id, message=difference))

    def _say(self, text: str) -> None:
        self.display.console.print(text, highlight=False, soft_wrap=True)
