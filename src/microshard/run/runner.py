"""The runner: executes the steps of a plan in their order and cleans up whatever happens."""

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from microshard.analysis import server_logs
from microshard.errors import MicroshardError
from microshard.interrupts import Stopped, raise_if_interrupted, signals
from microshard.model.data_images import DataImage, DataImageVariables
from microshard.model.plan import Plan, Point, Step
from microshard.model.result import StepResult
from microshard.model.run_records import JournalEvent, LedgerRecord
from microshard.plan.order import host_settings, later_settings
from microshard.records.run_folder import DiskError, RunFolder, write_json
from microshard.run.ansible import PlaybookError
from microshard.run.backend import Backend, Binaries
from microshard.run.completed_steps import deserves_repetition
from microshard.run.data_images import DataImages
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import write_variables
from microshard.run.result_recorder import AnswerBook, ResultRecorder


class Listener(Protocol):
    """Is notified while a run goes on."""

    def stage(self, step: Step | None, stage: str) -> None:
        """A stage (deploy, measure, teardown …) of a step begins."""

    def event(self, event: dict[str, Any]) -> None:
        """Ansible has sent an event."""

    def step_done(self, step: Step, result: StepResult) -> None:
        """A step ended; its result is on disk."""

    def point_failed(self, point: Point, message: str) -> None:
        """A point failed and is given up; the others go on."""


class StepSource(Protocol):
    """Says which steps of a plan are executed, one after the other."""

    def steps(self, outcome: Outcome, plan: Plan) -> Iterator[Step]:
        """The steps in their order, of points of `plan` alone; `outcome` is that of the run so far."""

    def after(self, step: Step) -> Sequence[Step]:
        """The steps that are known to come after this one."""

    def measured(self, step: Step, result: StepResult) -> None:
        """A measurement ended; its result is judged."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedSteps:
    """Every step of a plan."""

    planned: tuple[Step, ...]

    def steps(self, outcome: Outcome, plan: Plan) -> Iterator[Step]:  # noqa: ARG002 - of the protocol
        """All, in the order of the plan."""
        return iter(self.planned)

    def after(self, step: Step) -> Sequence[Step]:
        """The steps that come after this one in the plan."""
        return self.planned[step.index + 1 :]

    def measured(self, step: Step, result: StepResult) -> None:
        """Nothing depends on it."""


class Runner:
    """Executes a plan in a run's folder."""

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        binaries: Mapping[str, Binaries],
        listener: Listener,
        *,
        backend: Backend,
        meter: Meter | None = None,
        answers: AnswerBook | None = None,
        source: StepSource | None = None,
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.binaries = binaries
        self.listener = listener
        self.backend = backend
        self.source = source or PlannedSteps(plan.steps)
        self.playbooks = backend.playbooks(folder, self._event)
        self.outcome = Outcome()
        self.images = DataImages(folder, plan, binaries, backend)
        self.recorder = ResultRecorder(folder, plan, backend, self.outcome, answers)
        self.deployed: set[str] = set()  # ids of points
        self.lost: set[str] = set()  # names of hosts that are gone for good
        self.meter = meter or Meter()
        self.longest = 0.0  # seconds of the longest step so far
        self.in_force = ""  # the settings the hosts were prepared with last (plan.order.host_settings)
        self.ready: set[str] = set()  # what was brought since then (_brought)

    def _event(self, event: dict[str, Any]) -> None:
        if "image_bytes" in event:
            self.images.host_bytes[str(event["host"])] = int(event["image_bytes"])
        self.listener.event(event)

    def run(self) -> Outcome:
        """Execute every step, then tear down as the plan says. Never raises for what a point does wrong."""
        started = time.monotonic()
        with signals():
            try:
                with self.playbooks.kept():
                    self._all_steps()
                self._finish()
            except Stopped as stopped:  # from now on signals are ignored
                self.outcome.stopped_by = stopped.number
                self._journal(JournalEvent("stopped", signal=stopped.number))
                self.playbooks.stop()
                self._finish()
            except BaseException:
                self.playbooks.stop()
                self._finish()
                raise
        outcome = self.outcome
        outcome.seconds = time.monotonic() - started
        self._journal(outcome.ended())
        return outcome

    def prepare(self) -> None:
        """Prepare the hosts for the point of the first step, and bring what other points need besides.

        The settings of other points are made when their turn comes (set_hosts); that hosts have them is checked now.
        Raises MicroshardError.
        """
        first = self.plan.point(self.plan.steps[0].point) if self.plan.steps else self.plan.points[0]
        with self._stage(None, "prepare"):
            self._prepare(first, later=later_settings(first, self.plan.points))
            for point in self.plan.points:
                # Another version of packages would replace the first one's.
                if host_settings(dataclasses.replace(point, machines=first.machines)) == self.in_force:
                    self._prepare(point, settings=False)

    def set_hosts(self, point: Point, step: Step) -> None:
        """Prepare the hosts again where they are not prepared for the point. Raises MicroshardError."""
        settings = host_settings(point) != self.in_force
        if settings or _brought(point, self.binaries[point.id]) not in self.ready:
            with self._stage(step, "prepare"):
                self._prepare(point, settings=settings)
            self.folder.journal.append(JournalEvent("hosts prepared", step=step.index, point=point.id))

    def _prepare(
        self, point: Point, *, settings: bool = True, later: Mapping[str, list[dict[str, Any]]] | None = None
    ) -> None:
        """Bring what a point needs, once; with `settings` also make its volumes and kernel settings.

        `later` has kernel settings of other points by group of hosts, which are only checked.
        """
        brought = _brought(point, self.binaries[point.id])
        if settings:
            self.in_force = ""  # not known while it is changing
            self.ready.clear()  # what lies on volumes may be hidden or gone
        elif brought in self.ready:
            return
        machines = {group: {**here, "later": (later or {}).get(group, [])} for group, here in point.machines.items()}
        given = dataclasses.replace(point, machines=machines if settings else {})
        self.backend.prepare(self.folder, self.playbooks, self._variables(given, None), point.driver)
        self.ready.add(brought)
        if settings:
            self.in_force = host_settings(point)

    def deploy(self, point: Point, step: Step | None = None) -> None:
        """Start a point's processes: with the data of its image where a step has one, else empty."""
        self.images.restored.pop(point.id, None)
        for image in self.images.available(point, loaded=step is not None):
            try:
                self._deploy(point, step, image)
            except PlaybookError as error:
                # A cluster that is not whole is never measured: it goes, and is made anew.
                message = f"the data image {image.name} was not restored: {error}"
                self._journal(JournalEvent("data image refused", point=point.id, name=image.name, message=message))
                self.images.refused.add(image.name)
                self.undeploy(point, step)
                if point.data_image.mode == "only":
                    raise
                continue
            if image.recipe.load:
                self.images.restored[point.id] = image
                self.recorder.documents[point.id] = image.by_shard
            event = "data restored" if image.recipe.load else "empty cluster restored"
            self._journal(JournalEvent(event, point=point.id, name=image.name))
            return
        self._deploy(point, step)
        self._keep(point, step, self.images.to_keep(point, empty=True), "copied")

    def _deploy(self, point: Point, step: Step | None, image: DataImage | None = None) -> None:
        """Start the processes; every process and volume is recorded in the ledger before it is created."""
        for volume in point.volumes:
            places = {key: getattr(volume, key) for key in ("name", "image", "mount")}
            self.folder.ledger.append(LedgerRecord("volume", "about to be made", point=point.id, **places))
        for process in point.processes:
            places = {key: getattr(process, key) for key in ("name", "folder", "config_path", "pid_path", "port")}
            self.folder.ledger.append(LedgerRecord("process", "about to start", point=point.id, **places))
        self.deployed.add(point.id)
        variables = self._variables(point, step, image=self.images.to_restore(image) if image else None)
        with self._stage(step, "restore" if image and image.recipe.load else "deploy"):
            self.playbooks.run("deploy", variables, limit=self._hosts(point))

    def undeploy(self, point: Point, step: Step | None = None) -> None:
        """Collect a point's logs, stop its processes and remove their data."""
        variables, hosts = self._variables(point, step), self._hosts(point)
        if hosts or not self.lost:  # nothing is left to do on hosts that are gone
            with self._stage(step, "teardown"):
                self.playbooks.run("teardown", variables, limit=hosts)
        self.deployed.discard(point.id)
        kept = self.folder / "logs" / point.id
        if kept.is_dir():
            write_json(kept / server_logs.SUMMARY, server_logs.summarise_folder(kept))
        self.folder.ledger.append(LedgerRecord("deployment", "removed", point=point.id))

    def _all_steps(self) -> None:
        try:
            self.folder.journal.append(JournalEvent("run started", steps=len(self.plan.steps)))
            self.prepare()
            for step in self.source.steps(self.outcome, self.plan):
                raise_if_interrupted()
                if step.point in self.outcome.failed:
                    self.folder.journal.append(
                        JournalEvent("step skipped", step=step.index, point=step.point, reason="its point failed")
                    )
                    continue
                started = time.monotonic()
                try:
                    self._step(step)
                finally:
                    self.longest = max(self.longest, time.monotonic() - started)
                if self._over_budget(step):
                    break
        except (MicroshardError, OSError) as error:
            # Nothing can be measured on hosts that could not be prepared, or where nothing can be written.
            cause = DiskError(Path(error.filename or self.folder.path), error) if isinstance(error, OSError) else error
            message = str(cause)
            self.outcome.failed |= {p.id: message for p in self.plan.points if p.id not in self.outcome.failed}
            self._journal(JournalEvent("prepare failed", message=message))
            self.outcome.unprepared = message

    def _step(self, step: Step) -> None:
        """A step, repeated while its measurement is invalid and may become valid."""
        point = self.plan.point(step.point)
        try:
            while True:
                result = self._attempt(point, step)
                if result.valid or not self._may_repeat(point, step, result):
                    break
                # A deployment that stays has its data already.
                redeploy = self.plan.redeploy == "per_repetition"
                if redeploy:
                    self.undeploy(point, step)
                step = dataclasses.replace(step, attempt=step.attempt + 1, deploy=redeploy)
            if not result.valid:
                self.outcome.invalid[f"{point.id} {step.name}"] = "; ".join(result.problems)
            if step.undeploy and not self._keeps(step):
                if result.valid and point.id not in self.outcome.wrong and not point.data_image.first:
                    self._keep(point, step, self.images.to_keep(point))
                self.undeploy(point, step)
        except DiskError:
            raise  # the next point could not be recorded either
        except MicroshardError as error:
            self._fail(point, step, error)

    def _keep(self, point: Point, step: Step | None, image: DataImageVariables | None, state: str = "kept") -> None:
        """Make the data folders of a point an image. What goes wrong costs the image only.

        `state`: they are "kept" when nothing needs the processes any more, and "copied" while they go on.
        """
        if image is None:
            return
        try:
            self.images.make_room(image.name)
            with self._stage(step, "keep data"):
                variables = self._variables(point, step, image=dataclasses.replace(image, state=state))
                self.images.host_bytes = {}
                self.playbooks.run("keep_data", variables, limit=self._hosts(point))
                self.images.record(image)
            removed = self.images.bound(self.plan.images_gb)
        except (MicroshardError, OSError) as error:
            self._journal(JournalEvent("data not kept", point=point.id, name=image.name, message=str(error)))
        else:
            self._journal(JournalEvent("data kept", point=point.id, name=image.name))
            for name in removed:
                self._journal(JournalEvent("data image removed", name=name))

    def _load_first(self, point: Point, step: Step) -> None:
        """Load a point whose measurements change the data, for its image; each repetition is restored from that."""
        self.deploy(point, step)
        with self._stage(step, "load"):
            self.playbooks.run("measure", self._variables(point, step, kinds={"load"}), limit=self._hosts(point))
        self.recorder.merge_client_results(point, step)
        self.images.loaded[point.id] = loaded = self.folder.result(point.id, step.name)
        self.folder.result_path(point.id, step.name).unlink()  # the measurement writes its own
        self.outcome.loading += sum(phase.seconds for phase in loaded.phases)
        self._keep(point, step, self.images.to_keep(point))
        self.undeploy(point, step)

    def _attempt(self, point: Point, step: Step) -> StepResult:
        """One measurement, from deployment to result."""
        self.folder.journal.append(JournalEvent("step started", step=step.index, point=point.id, name=step.name))
        self.set_hosts(point, step)
        if step.deploy:
            if self.images.to_load(point):
                self._load_first(point, step)
            self.deploy(point, step)
        raise_if_interrupted()
        pause = not step.undeploy and self._next_point(step) != point.id
        restored = self.images.restored.get(point.id)
        kinds = {"warm_up", "measure"} if restored or not step.deploy else {"load", "warm_up", "measure"}
        variables = self._variables(point, step, pause=pause, kinds=kinds)
        with self._stage(step, "measure"):
            try:
                self.playbooks.run("measure", variables, limit=self._hosts(point))
            except BaseException:
                with contextlib.suppress(MicroshardError, OSError):  # the first error is the cause
                    self.recorder.merge_client_results(point, step)
                raise
            self.recorder.merge_client_results(point, step)
        result = self.recorder.record(point, step, restored.name if restored else "")
        if step.deploy and not restored:
            self.images.loaded[point.id] = result
        self.outcome.done += 1
        validity = {"valid": True} if result.valid else {"valid": False, "reasons": result.problems}
        self.folder.journal.append(
            JournalEvent("step done", step=step.index, point=point.id, name=step.name, **validity)
        )
        self.listener.step_done(step, result)
        self.source.measured(step, result)
        return result

    def _may_repeat(self, point: Point, step: Step, result: StepResult) -> bool:
        """Whether an invalid measurement is repeated."""
        if point.id in self.outcome.wrong or self.meter.exhausted(self.longest):
            return False
        return deserves_repetition(point, step.attempt, result)

    def _over_budget(self, step: Step) -> bool:
        """Whether the budget ends the run after this step although there are more."""
        reason = self.meter.exhausted(self.longest) if self.source.after(step) else ""
        self.outcome.over_budget = reason
        if reason:
            self.folder.journal.append(JournalEvent("budget reached", step=step.index, message=reason))
        return bool(reason)

    def _fail(self, point: Point, step: Step, error: MicroshardError) -> None:
        message = str(error)
        with contextlib.suppress(MicroshardError):
            message = "\n".join([message, *self.backend.missing(self.folder, point)])
        self._give_up(point, step, message)
        self._fail_with_lost_hosts(step)
        if self.plan.teardown == "always" and point.id in self.deployed:
            with contextlib.suppress(MicroshardError):
                self.undeploy(point, step)

    def _fail_with_lost_hosts(self, step: Step) -> None:
        """Give up the other points that need a host which is gone for good; nothing waits for it again."""
        try:
            lost = self.backend.lost(self.folder)
        except MicroshardError:
            return
        self.lost.update(lost)
        for other in self.plan.points:
            gone = [f"{host.name}: {lost[host.name]}" for host in other.hosts if host.name in lost]
            if gone and other.id not in self.outcome.failed:
                self._give_up(other, step, "\n".join(gone))

    def _give_up(self, point: Point, step: Step, message: str) -> None:
        self.outcome.failed[point.id] = message
        self.folder.journal.append(JournalEvent("point failed", step=step.index, point=point.id, message=message))
        self.listener.point_failed(point, message)

    def _next_point(self, step: Step) -> str | None:
        later = (s.point for s in self.source.after(step) if s.point not in self.outcome.failed)
        return next(later, None)

    def _keeps(self, step: Step) -> bool:
        """Whether the deployment of this step, the last of its point, stays when all is over."""
        policy = self.plan.teardown
        last = all(later.point != step.point for later in self.source.after(step))
        bad = step.point in self.outcome.failed or step.point in self.outcome.wrong
        return last and (policy == "keep" or (policy == "keep-on-failure" and bad))

    def _finish(self) -> None:
        """Tear down what is deployed, unless the plan keeps it; then clean up without playbooks."""
        if self.plan.teardown != "always" and self.deployed and self.outcome.stopped_by is None:
            self.outcome.kept = {p: self.plan.point(p).connection_string for p in sorted(self.deployed)}
            self._journal(JournalEvent("kept", points=sorted(self.deployed)))
            return
        for point_id in sorted(self.deployed):
            try:
                self.undeploy(self.plan.point(point_id))
            except (MicroshardError, OSError) as error:
                self._journal(JournalEvent("teardown failed", point=point_id, message=str(error)))
        with self._stage(None, "clean up"):
            self.outcome.left = self.backend.clean(self.folder, self.listener.event)

    def _hosts(self, point: Point) -> list[str]:
        """The hosts a play of this point is limited to; a host that is gone may belong to another point only."""
        names = [host.name for host in point.hosts if host.name not in self.lost]
        return names if self.playbooks.limit else []

    def _variables(self, point: Point, step: Step | None, **more: Any) -> Path:
        """`more` of write_variables."""
        return write_variables(self.folder, point, self.binaries[point.id], step, backend=self.backend, **more)

    def _journal(self, event: JournalEvent) -> None:
        """Write an event that may be lost: a full disk must not keep anything from being torn down."""
        with contextlib.suppress(DiskError):
            self.folder.journal.append(event)

    @contextlib.contextmanager
    def _stage(self, step: Step | None, stage: str) -> Iterator[None]:
        self.listener.stage(step, stage)
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.outcome.stages[stage] = self.outcome.stages.get(stage, 0.0) + seconds
            index, point = (None, None) if step is None else (step.index, step.point)
            self._journal(JournalEvent("stage", stage=stage, step=index, point=point, seconds=round(seconds, 3)))


def _brought(point: Point, binaries: Binaries) -> str:
    """What playbooks/prepare.yml brings to the hosts of a point, volumes and kernel settings apart, as text."""
    numactl = any(numa.get("policy", "none") != "none" for numa in point.numa.values())
    ycsb = "ycsb" in [phase.engine for phase in point.phases]
    read = [binaries.variables(), point.topology, point.process_manager, any(point.security.values()), numactl, ycsb]
    read.append(point.driver or "")
    return json.dumps(read, sort_keys=True, default=str)
