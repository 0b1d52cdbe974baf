"""The runner: takes the steps of a plan in their order and cleans up whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from microshard.analysis import server_logs as logs
from microshard.errors import MicroshardError
from microshard.interrupts import Stopped, raise_if_interrupted, signals
from microshard.model.plan import Plan, Point, Step
from microshard.records.run_folder import DiskError, RunFolder, write_json
from microshard.run.backend import Backend, Binaries
from microshard.run.completed_steps import worth_another
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import write_variables
from microshard.run.result_recorder import AnswerBook, ResultRecorder


class Listener(Protocol):
    """Who wants to know how the run goes on."""

    def stage(self, step: Step | None, stage: str) -> None:
        """A stage (deploy, measure, teardown …) of a step begins."""

    def event(self, event: dict[str, Any]) -> None:
        """An event of Ansible's."""

    def step_done(self, step: Step, result: dict[str, Any]) -> None:
        """A step ended; its result is on disk."""

    def point_failed(self, point: Point, message: str) -> None:
        """A point failed and is given up; the others go on."""


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
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.binaries = binaries
        self.listener = listener
        self.backend = backend
        self.playbooks = self.backend.playbooks(folder, listener.event, self.backend.limit(plan))
        self.outcome = Outcome()
        self.recorder = ResultRecorder(folder, plan, self.backend, self.outcome, answers)
        self.deployed: set[str] = set()
        self.lost: set[str] = set()  # names of hosts that are gone for good
        self.meter = meter or Meter()
        self.longest = 0.0  # seconds of the longest step so far

    def run(self) -> Outcome:
        """Take every step, then tear down as the plan says. Never raises for what a point does wrong."""
        started = time.monotonic()
        with signals():
            try:
                with self.playbooks.kept():
                    self._all_steps()
                self._finish()
            except Stopped as stopped:  # from now on signals are ignored
                self.outcome.stopped_by = stopped.number
                self._tell(event="stopped", signal=stopped.number)
                self.playbooks.stop()
                self._finish()
            except BaseException:
                self.playbooks.stop()
                self._finish()
                raise
        self.outcome.seconds = time.monotonic() - started
        self._tell(
            event="run ended",
            exit_code=self.outcome.exit_code,
            seconds=round(self.outcome.seconds, 3),
            loading=round(self.outcome.loading, 3),
            measuring=round(self.outcome.measuring, 3),
            orchestration=round(self.outcome.orchestration, 3),
            stages={name: round(seconds, 3) for name, seconds in self.outcome.stages.items()},
        )
        return self.outcome

    def _all_steps(self) -> None:
        try:
            self.folder.journal.append(event="run started", steps=len(self.plan.steps))
            self.prepare()
            for step in self.plan.steps:
                raise_if_interrupted()
                if step.point in self.outcome.failed:
                    self._skip(step)
                    continue
                self._step(step)
                if self._over_budget(step):
                    break
        except (MicroshardError, OSError) as error:
            # Nothing can be measured on hosts that could not be prepared, or where nothing can be written.
            told = DiskError(Path(error.filename or self.folder.path), error) if isinstance(error, OSError) else error
            message = str(told)
            self.outcome.failed |= {p.id: message for p in self.plan.points if p.id not in self.outcome.failed}
            self._tell(event="prepare failed", message=message)
            self.outcome.unprepared = message

    def _tell(self, **record: Any) -> None:
        """A line of the journal that may be missing: a full disk must not keep anything from being torn down."""
        with contextlib.suppress(DiskError):
            self.folder.journal.append(**record)

    def _over_budget(self, step: Step) -> bool:
        """Whether the run ends here although there are more steps."""
        self.outcome.over_budget = self.meter.spent(self.longest) if step is not self.plan.steps[-1] else ""
        if self.outcome.over_budget:
            self.folder.journal.append(event="budget reached", step=step.index, message=self.outcome.over_budget)
        return bool(self.outcome.over_budget)

    def _step(self, step: Step) -> None:
        began = time.monotonic()
        try:
            self._take(step)
        finally:
            self.longest = max(self.longest, time.monotonic() - began)

    def _take(self, step: Step) -> None:
        point = self.plan.point(step.point)
        try:
            while True:
                result = self._attempt(point, step)
                if result["valid"] or not self._again(point, step, result):
                    break
                # The data of a deployment that stays is there already.
                anew = self.plan.redeploy == "per_repetition"
                if anew:
                    self.undeploy(point, step)
                step = dataclasses.replace(step, attempt=step.attempt + 1, deploy=anew)
            if not result["valid"]:
                self.outcome.invalid[f"{point.id} {step.name}"] = "; ".join(result["problems"])
            if step.undeploy and not self._keeps(step):
                self.undeploy(point, step)
        except DiskError:
            raise  # the next point could not be recorded either
        except MicroshardError as error:
            self._fail(point, step, self._why(point, error))

    def _attempt(self, point: Point, step: Step) -> dict[str, Any]:
        """One measurement, from deployment to result."""
        self.folder.journal.append(event="step started", step=step.index, point=point.id, name=step.name)
        if step.deploy:
            self.deploy(point, step)
        raise_if_interrupted()
        park = not step.undeploy and self._next_point(step) != point.id
        variables = self._variables(point, step, park=park)
        with self._stage(step, "measure"):
            try:
                self.playbooks.run("measure", variables, limit=self._hosts(point))
            except BaseException:
                with contextlib.suppress(MicroshardError, OSError):  # why it failed is what has to be told
                    self.recorder.merge_client_results(point, step)
                raise
            self.recorder.merge_client_results(point, step)
        result = self.recorder.take(point, step)
        self.outcome.done += 1
        how = {"valid": True} if result["valid"] else {"valid": False, "reasons": result["problems"]}
        self.folder.journal.append(event="step done", step=step.index, point=point.id, name=step.name, **how)
        self.listener.step_done(step, result)
        return result

    def _again(self, point: Point, step: Step, result: Mapping[str, Any]) -> bool:
        """Whether an invalid measurement is taken once more."""
        if point.id in self.outcome.wrong or self.meter.spent(self.longest):
            return False
        return worth_another(point, step.attempt, result)

    def deploy(self, point: Point, step: Step | None = None) -> None:
        """Start a point's processes; every one, and every volume, stands in the ledger before it is made."""
        for volume in point.volumes:
            self.folder.ledger.append(
                kind="volume",
                state="about to be made",
                point=point.id,
                name=volume.name,
                image=volume.image,
                mount=volume.mount,
            )
        for process in point.processes:
            self.folder.ledger.append(
                kind="process",
                state="about to start",
                point=point.id,
                name=process.name,
                folder=process.folder,
                config_path=process.config_path,
                pid_path=process.pid_path,
                port=process.port,
            )
        self.deployed.add(point.id)
        variables = self._variables(point, step)
        with self._stage(step, "deploy"):
            self.playbooks.run("deploy", variables, limit=self._hosts(point))

    def _hosts(self, point: Point) -> list[str]:
        """The hosts a play of this point is kept to: another host may be gone, and this point does not need it."""
        names = [host.name for host in point.hosts if host.name not in self.lost]
        return names if self.playbooks.limit else []

    def _variables(self, point: Point, step: Step | None, *, park: bool = False) -> Path:
        return write_variables(self.folder, point, self.binaries[point.id], step, park=park, backend=self.backend)

    def prepare(self) -> None:
        """Give the hosts what they need, once before the first point. Raises MicroshardError."""
        ready: set[str] = set()
        with self._stage(None, "prepare"):
            for point in self.plan.points:
                needs = self._needs(point)
                if needs not in ready:
                    self.backend.prepare(self.folder, self.playbooks, self._variables(point, None))
                    ready.add(needs)

    def _needs(self, point: Point) -> str:
        """What playbooks/prepare.yml, which prepares all hosts, reads of a point: those with the same need it once."""
        read = [self.binaries[point.id].variables(), point.topology, point.machines]
        return json.dumps([*read, "ycsb" in [phase.engine for phase in point.phases]], sort_keys=True, default=str)

    def undeploy(self, point: Point, step: Step | None = None) -> None:
        """Collect a point's logs, stop its processes and remove their data."""
        variables, hosts = self._variables(point, step), self._hosts(point)
        if hosts or not self.lost:  # what was on hosts that are gone is gone with them
            with self._stage(step, "teardown"):
                self.playbooks.run("teardown", variables, limit=hosts)
        self.deployed.discard(point.id)
        kept = self.folder / "logs" / point.id
        if kept.is_dir():
            write_json(kept / logs.SUMMARY, logs.summarise_folder(kept))
        self.folder.ledger.append(kind="deployment", state="removed", point=point.id)

    def _fail(self, point: Point, step: Step, message: str) -> None:
        self.outcome.failed[point.id] = message
        self.folder.journal.append(event="point failed", step=step.index, point=point.id, message=message)
        self.listener.point_failed(point, message)
        self._fail_with_lost_hosts(step)
        if self.plan.teardown == "always" and point.id in self.deployed:
            with contextlib.suppress(MicroshardError):
                self.undeploy(point, step)

    def _fail_with_lost_hosts(self, step: Step) -> None:
        """Other points that need a host which is gone for good have failed as well; nobody waits for it again."""
        try:
            lost = self.backend.lost(self.folder)
        except MicroshardError:
            return
        self.lost.update(lost)
        for other in self.plan.points:
            gone = [f"{host.name}: {lost[host.name]}" for host in other.hosts if host.name in lost]
            if gone and other.id not in self.outcome.failed:
                message = "\n".join(gone)
                self.outcome.failed[other.id] = message
                self.folder.journal.append(event="point failed", step=step.index, point=other.id, message=message)
                self.listener.point_failed(other, message)

    def _why(self, point: Point, error: MicroshardError) -> str:
        """What failed, and which processes and hosts of the point are gone."""
        with contextlib.suppress(MicroshardError):
            return "\n".join([str(error), *self.backend.missing(self.folder, point, self.playbooks)])
        return str(error)

    def _skip(self, step: Step) -> None:
        self.folder.journal.append(event="step skipped", step=step.index, point=step.point, reason="its point failed")

    def _next_point(self, step: Step) -> str | None:
        for later in self.plan.steps[step.index + 1 :]:
            if later.point not in self.outcome.failed:
                return later.point
        return None

    def _keeps(self, step: Step) -> bool:
        """Whether the deployment of this step, the last of its point, stays when all is over."""
        policy = self.plan.teardown
        last = all(later.point != step.point for later in self.plan.steps[step.index + 1 :])
        unhappy = step.point in self.outcome.failed or step.point in self.outcome.wrong
        return last and (policy == "keep" or (policy == "keep-on-failure" and unhappy))

    def _finish(self) -> None:
        if self.plan.teardown != "always" and self.deployed and self.outcome.stopped_by is None:
            self.outcome.kept = {p: self.plan.point(p).connection_string for p in sorted(self.deployed)}
            self._tell(event="kept", points=sorted(self.deployed))
            return
        for point_id in sorted(self.deployed):
            try:
                self.undeploy(self.plan.point(point_id))
            except (MicroshardError, OSError) as error:
                self._tell(event="teardown failed", point=point_id, message=str(error))
        # Whatever the playbooks could not do is done here, by the ledger alone.
        with self._stage(None, "clean up"):
            self.outcome.left = self.backend.clean(self.folder, self.playbooks)

    @contextlib.contextmanager
    def _stage(self, step: Step | None, stage: str) -> Iterator[None]:
        self.listener.stage(step, stage)
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self.outcome.stages[stage] = self.outcome.stages.get(stage, 0.0) + seconds
            self._tell(event="stage", stage=stage, step=None if step is None else step.index, seconds=round(seconds, 3))
