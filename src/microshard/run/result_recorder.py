"""The results of a run: merged from client hosts, judged against the earlier ones, and written."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.analysis import gates, verdict
from microshard.analysis import telemetry as summary
from microshard.errors import MicroshardError, RunFolderError
from microshard.model.plan import Plan, Point, Step
from microshard.model.result import PhaseFailure, PhaseResult, StepResult
from microshard.model.run_records import JournalEvent
from microshard.records import codec
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.ansible import PlaybookError
from microshard.run.backend import Backend
from microshard.run.completed_steps import CompletedStep
from microshard.run.outcome import Outcome
from microshard.workloads import several_hosts
from microshard.workloads.base import PhaseError, find_engine

Result = dict[str, Any]
_CLOCK_SET_SECONDS = 1.0  # more than what clocks drift, and what comparing them leaves


class ResultRecorder:
    """Judges every result and writes it; remembers what later results are compared with."""

    def __init__(
        self, folder: RunFolder, plan: Plan, backend: Backend, outcome: Outcome, answers: AnswerBook | None
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.backend = backend
        self.outcome = outcome
        self.answers = answers or AnswerBook()
        self.environments = gates.EnvironmentBook()
        self.documents: dict[str, dict[str, float]] = {}  # point → documents by shard, of its last load
        self.values: dict[tuple[str, str], list[float]] = {}  # point and phase → values of valid measurements
        self.first_index = 0  # of the plan's first step among all steps of the run

    def merge_client_results(self, point: Point, step: Step) -> None:
        """Merge the results of several client hosts into that of the step. Raises MissingResultError."""
        if len(point.client_hosts) > 1:
            path = self._path(point, step)
            write_json(path, merge_client_results(path.with_suffix(""), point, step, self.backend.clock_shifts(point)))

    def record(self, point: Point, step: Step, data_image: str = "") -> StepResult:
        """Judge the result the engine has written, and write it again. Raises PlaybookError when there is none.

        `data_image`: the name of the image its data were restored from.
        """
        try:
            result = self.folder.result(point.id, step.name)
        except (FileNotFoundError, RunFolderError) as error:
            raise PlaybookError(f"{self._path(point, step)}: the measurement left no result ({error})") from error
        result.axes, result.step, result.purpose = point.axes, step.name, step.purpose
        result.repetition, result.attempt = step.repetition, step.attempt
        result.order = self.first_index + step.index
        if any(phase.kind == "load" for phase in point.phases):
            result.data, result.data_image = ("restored", data_image) if data_image else ("loaded", None)
        for phase in result.phases:
            if phase.kind == "load":
                self.outcome.loading += phase.seconds
            else:
                self.outcome.measuring += phase.seconds
        self._judge(point, step, result)
        if difference := self.answers.difference(point, result):
            result.valid = False
            result.problems.append(difference)
            self.outcome.wrong.setdefault(point.id, difference)
            self.folder.journal.append(
                JournalEvent("answer differs", step=step.index, point=point.id, message=difference)
            )
        write_json(self._path(point, step), result)
        return result

    def restore(self, completed: Sequence[CompletedStep], first_index: int) -> None:
        """Compare later results with those the run has measured before it was resumed, too."""
        self.first_index = first_index
        for item in completed:
            point, result = self.plan.point(item.step.point), item.result
            self.answers.difference(point, result)
            self.environments.differs(result, point)
            self._remember(point, item.step, result)

    def _judge(self, point: Point, step: Step, result: StepResult) -> None:
        """Add telemetry, verdicts and the checks of the gates to a result."""
        folder = self.folder / "telemetry" / point.id / step.name
        telemetry = summary.read_folder(folder, self.backend.clock_shifts(point))
        summary.attach(result, telemetry)
        verdict.attach(result, telemetry, point, self.backend.ebs_of)
        medians = {phase: statistics.median(v) for (p, phase), v in self.values.items() if p == point.id}
        self.documents[point.id] = gates.documents_by_shard(result) or self.documents.get(point.id, {})
        result.gates = gates.checks(
            result,
            point.gates,
            deploys=self.plan.redeploy == "per_repetition",
            median=medians if step.purpose == "drift" else None,
            environment=self.environments.differs(result, point),
            documents=self.documents[point.id],
        )
        if reasons := [check.sentence for check in result.gates if not check.held]:
            result.valid = False
            result.problems += reasons
        self._remember(point, step, result)

    def _remember(self, point: Point, step: Step, result: StepResult) -> None:
        self.documents[point.id] = gates.documents_by_shard(result) or self.documents.get(point.id, {})
        for phase in result.phases if result.valid and step.purpose == "measure" else ():
            if phase.metric is not None:
                self.values.setdefault((point.id, phase.name), []).append(phase.metric.value)

    def _path(self, point: Point, step: Step) -> Path:
        return self.folder.result_path(point.id, step.name)


@dataclass(slots=True)
class AnswerBook:
    """Remembers the first answer to each query and compares all later ones with it.

    Points must give the same answer when all that decides it is the same: the data loaded (data set, documents, seed)
    and the query. The topology never decides it.
    """

    first: dict[str, tuple[str, str, Any]] = field(default_factory=dict)  # data and query → where, digest, answer

    def difference(self, point: Point, result: StepResult) -> str | None:
        """A sentence on how this answer differs from the first one, or None when it does not."""
        sentences = []
        for phase in result.phases:
            digest = phase.answer_sha256
            if not digest:
                continue
            where = f"{point.id} ({point.label}) {result.step or ''}".strip()
            key = point.question(phase.name)
            first_where, first_digest, first = self.first.setdefault(key, (where, digest, phase.answer))
            if first_digest != digest:
                difference = _difference(first, phase.answer)
                sentences.append(f"{phase.name}: the answer differs from that of {first_where}: {difference}")
        return "; ".join(sentences) or None


def _difference(first: Any, second: Any) -> str:
    if not isinstance(first, list) or not isinstance(second, list):
        return f"{_short(first)} against {_short(second)}"
    if len(first) != len(second):
        return f"{len(first)} rows against {len(second)}"
    for number, (a, b) in enumerate(zip(first, second, strict=True), start=1):
        if a != b:
            return f"row {number}: {_short(a)} against {_short(b)}"
    return "in the order of keys only"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 120 else text[:117] + "…"


class MissingResultError(MicroshardError):
    """The results of the client hosts cannot be merged."""


def merge_client_results(folder: Path, point: Point, step: Step, shifts: Mapping[str, float]) -> StepResult:
    """The result of a step in which every client host took part.

    `folder` is results/POINT/STEP: `hosts/HOST/PHASE.json` are the results of the hosts, `together/PHASE.json` what
    was found after all of them. `shifts`: host → seconds to add to its times, unless the phase has compared clocks. A
    phase fails by the names of the hosts
    that have no result. Raises MissingResultError when there is no result at all, or they cannot be merged.
    """
    parts = {
        host: {
            phase.name: _phase(path)
            for phase in point.phases
            if (path := folder / "hosts" / host / f"{phase.name}.json").exists()
        }
        for host in point.client_hosts
    }
    if not any(parts.values()):
        raise MissingResultError(f"{folder}: no client host has left a result")
    phases = []
    for planned in point.phases:
        found = {host: part[planned.name] for host, part in parts.items() if planned.name in part}
        if not found:
            continue  # an earlier phase failed everywhere
        for host, seconds in several_hosts.clock_shifts(found, shifts).items():
            part, known = _shifted(found[host], seconds), shifts.get(host, 0.0)
            part.details.pop("clock_offset", None)
            if abs(seconds - known) > _CLOCK_SET_SECONDS:
                part.notes["clock"] = f"set by {known - seconds:+.1f} s since the run began; its times are corrected"
        path = folder / "together" / f"{planned.name}.json"
        together = _phase(path) if path.exists() else PhaseResult()
        try:
            phase = find_engine(planned.engine).merge(found, together)
        except PhaseError as error:
            raise MissingResultError(f"{folder}: {planned.name}: {error}") from error
        phase.error = phase.error or _missing(planned.name, parts, found) or together.error
        phases.append(phase)
    problems = [f"{p.name}: {p.error.type}: {p.error.message}" for p in phases if p.error]
    return StepResult(
        point=point.id,
        axes=point.axes,
        step=step.name,
        purpose=step.purpose,
        valid=not problems,
        problems=problems,
        phases=phases,
    )


def _missing(phase: str, hosts: Mapping[str, Any], found: Mapping[str, Any]) -> PhaseFailure | None:
    """The error of a phase that some hosts have left no result of."""
    missing = ", ".join(host for host in hosts if host not in found)
    return PhaseFailure("PartMissing", f"there is no result of {phase} from {missing}") if missing else None


def _shifted(part: PhaseResult, seconds: float) -> PhaseResult:
    """A host's phase with its times on another clock, which is so many seconds ahead of the host's."""
    part.started, part.ended = part.started + seconds, part.ended + seconds
    if part.windows:
        part.windows.start += seconds
    for rung in part.rungs:
        rung.started, rung.ended = (rung.started or 0.0) + seconds, (rung.ended or 0.0) + seconds
    return part


def _phase(path: Path) -> PhaseResult:
    """The one phase of a file. Raises MissingResultError."""
    try:
        (phase,) = codec.read_file(StepResult, path).phases
    except (OSError, ValueError, RunFolderError) as error:
        raise MissingResultError(f"{path}: not the result of a phase ({error})") from error
    return phase
