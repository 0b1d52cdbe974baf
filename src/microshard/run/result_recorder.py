"""What the measurements of a run gave: each is judged beside the earlier ones and written into its result."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.analysis import gates, verdict
from microshard.analysis import telemetry as summary
from microshard.analysis.environment import EnvironmentBook
from microshard.model.plan import Plan, Point, Step
from microshard.records.run_folder import RunFolder, write_json
from microshard.run.ansible import PlaybookError
from microshard.run.backend import Backend
from microshard.run.completed_steps import CompletedStep
from microshard.run.merge_client_results import merge_client_results
from microshard.run.outcome import Outcome


class ResultRecorder:
    """Judges every result and writes it; keeps what later results are compared with."""

    def __init__(
        self, folder: RunFolder, plan: Plan, backend: Backend, outcome: Outcome, answers: AnswerBook | None
    ) -> None:
        self.folder = folder
        self.plan = plan
        self.backend = backend
        self.outcome = outcome
        self.answers = answers or AnswerBook()
        self.environments = EnvironmentBook()
        self.documents: dict[str, dict[str, float]] = {}  # point → documents by shard, of its last load
        self.values: dict[tuple[str, str], list[float]] = {}  # point and phase → values of valid measurements
        self.first_index = 0  # of the plan's first step among all steps of the run

    def merge_client_results(self, point: Point, step: Step) -> None:
        """Of several client hosts each has left its part: make them the result of the step. Raises PartsError."""
        if len(point.client_hosts) > 1:
            path = self._path(point, step)
            write_json(path, merge_client_results(path.with_suffix(""), point, step, self.backend.clock_shifts(point)))

    def take(self, point: Point, step: Step) -> dict[str, Any]:
        """The result the engine left, judged and put back. Raises PlaybookError when there is none."""
        path = self._path(point, step)
        try:
            result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PlaybookError(f"{path}: the measurement left no result ({error})") from error
        result["axes"] = point.axes
        result["step"] = step.name
        result["purpose"] = step.purpose
        result["repetition"], result["attempt"] = step.repetition, step.attempt
        result["order"] = self.first_index + step.index
        result.setdefault("valid", True)
        for phase in result["phases"]:
            if phase["kind"] == "load":
                self.outcome.loading += phase["seconds"]
            else:
                self.outcome.measuring += phase["seconds"]
        self._judge(point, step, result)
        differs = self.answers.differs(point, result)
        if differs:
            result["valid"] = False
            result.setdefault("problems", []).append(differs)
            self.outcome.wrong.setdefault(point.id, differs)
            self.folder.journal.append(event="answer differs", step=step.index, point=point.id, message=differs)
        write_json(path, result)
        return result

    def take_over(self, taken: Sequence[CompletedStep], first_index: int) -> None:
        """What earlier parts of the run have measured is what later ones are compared with."""
        self.first_index = first_index
        for item in taken:
            self._known(self.plan.point(item.step.point), item.step, item.result)

    def _known(self, point: Point, step: Step, result: dict[str, Any]) -> None:
        self.answers.differs(point, result)
        self.environments.differs(result, dataclasses.asdict(point))
        self.documents[point.id] = gates.documents_by_shard(result) or self.documents.get(point.id, {})
        if result["valid"] and step.purpose == "measure":
            self._remember(point, result)

    def _judge(self, point: Point, step: Step, result: dict[str, Any]) -> None:
        """Put telemetry, verdicts and the answers of the gates into a result."""
        folder = self.folder / "telemetry" / point.id / step.name
        telemetry = summary.read_folder(folder, self.backend.clock_shifts(point))
        plan = dataclasses.asdict(point)
        summary.attach(result, telemetry)
        verdict.attach(result, telemetry, plan)
        medians = {phase: statistics.median(v) for (p, phase), v in self.values.items() if p == point.id}
        self.documents[point.id] = gates.documents_by_shard(result) or self.documents.get(point.id, {})
        found = gates.checks(
            result,
            point.gates,
            deploys=self.plan.redeploy == "per_repetition",
            median=medians if step.purpose == "drift" else None,
            environment=self.environments.differs(result, plan),
            documents=self.documents[point.id],
        )
        result["gates"] = [check.as_json() for check in found]
        reasons = [check.sentence for check in found if not check.held]
        if reasons:
            result["valid"] = False
            result["problems"] = [*result.get("problems", []), *reasons]
        if result["valid"] and step.purpose == "measure":
            self._remember(point, result)

    def _remember(self, point: Point, result: Mapping[str, Any]) -> None:
        for phase in result["phases"]:
            if phase.get("metric"):
                self.values.setdefault((point.id, phase["name"]), []).append(float(phase["metric"]["value"]))

    def _path(self, point: Point, step: Step) -> Path:
        return self.folder / "results" / point.id / f"{step.name}.json"


@dataclass(slots=True)
class AnswerBook:
    """Remembers the first answer to each question and compares all later ones with it.

    Points answer the same question when everything that decides the answer is the same: the data loaded
    (data set, documents, seed) and the query. The topology never decides it.
    """

    first: dict[str, tuple[str, str, Any]] = field(default_factory=dict)  # question → where, digest, answer

    def differs(self, point: Point, result: dict[str, Any]) -> str | None:
        """A sentence on how this answer differs from the first one, or None when it does not."""
        sentences = []
        for phase in result.get("phases", []):
            digest = phase.get("answer_sha256")
            if not digest:
                continue
            question = self._question(point, phase["name"])
            here = f"{point.id} ({point.label}) {result.get('step', '')}".strip()
            where, known, answer = self.first.setdefault(question, (here, digest, phase.get("answer")))
            if known != digest:
                difference = _difference(answer, phase.get("answer"))
                sentences.append(f"{phase['name']}: the answer differs from that of {where}: {difference}")
        return "; ".join(sentences) or None

    @staticmethod
    def _question(point: Point, phase: str) -> str:
        data = [p.data for p in point.phases if p.data is not None]
        query = next((p.question for p in point.phases if p.name == phase), None)
        return json.dumps([data, phase, query], sort_keys=True, default=str)


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
