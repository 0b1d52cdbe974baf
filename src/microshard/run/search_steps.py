"""The steps of a search: each is chosen from the results of the earlier ones (microshard/search), not by the plan."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence

from microshard.analysis.advice import advice_of
from microshard.model.advice import Advice, SearchRequest, TriedCount
from microshard.model.plan import Plan, Step
from microshard.model.result import Metric, StepResult
from microshard.records.run_folder import ADVICE, RunFolder, write_json
from microshard.run.completed_steps import CompletedStep
from microshard.run.outcome import Meter, Outcome
from microshard.search.shard_count import Choice, Ended, SearchSettings, decide

_MOST_INVALID = 2  # of one count before it is given up


class SearchSteps:
    """Chooses the steps of a plan one after the other, until the best shard count is known or the limits are reached.

    The plan has a point for each count and enough repetitions of it. A search that is resumed is given what was
    completed, and goes on as if it had not been stopped.
    """

    def __init__(self, request: SearchRequest, plan: Plan, completed: Sequence[CompletedStep] = ()) -> None:
        self.request = request
        self.plan = plan
        self.points = {point.shards: point.id for point in plan.points}
        self.counts = {point: count for count, point in self.points.items()}
        self.values: dict[int, list[float]] = {}
        self.results: dict[int, list[StepResult]] = {}
        self.excluded: dict[int, str] = {}
        self.tried: list[TriedCount] = []
        self.taken: list[Step] = []
        self.metric: Metric | None = None
        self.ended: Ended | None = None
        self.meter = Meter(request.hours)
        self._invalid: Counter[int] = Counter()
        self._why = "earlier"
        for item in completed:
            self.measured(item.step, item.result)

    def steps(self, outcome: Outcome) -> Iterator[Step]:
        """The steps as they are chosen. Points that failed are not chosen again."""
        always = self.plan.redeploy == "per_repetition"
        deployed: set[str] = set()
        index = 0
        while True:
            self.excluded |= {self.counts[point]: message for point, message in outcome.failed.items()}
            chosen = self._next()
            if isinstance(chosen, Ended):
                self.ended = chosen
                return
            self._why = chosen.why
            point = self.points[chosen.count]
            repetition = 1 + max((s.repetition for s in self.taken if s.point == point), default=0)
            yield Step(index, point, repetition, "measure", deploy=always or point not in deployed, undeploy=always)
            deployed.add(point)
            index += 1

    def after(self, step: Step) -> Sequence[Step]:  # noqa: ARG002 - of the protocol StepSource
        """Nothing is known of what comes next."""
        return ()

    def measured(self, step: Step, result: StepResult) -> None:
        """Take a judged result into account."""
        count, value = self.counts[step.point], None
        metric = next((p.metric for p in result.phases if p.name == self.request.phase and p.error is None), None)
        if result.valid and metric is not None and math.isfinite(metric.value) and metric.value > 0:
            self.metric, value = metric, metric.value
            self.values.setdefault(count, []).append(value)
            self.results.setdefault(count, []).append(result)
        else:
            self._invalid[count] += 1
            if self._invalid[count] >= _MOST_INVALID:
                why = "; ".join(result.problems) or f"{self.request.phase} has no figure"
                self.excluded[count] = f"measurements stay invalid: {why}"
        self.taken.append(step)
        self.tried.append(TriedCount(count, self._why, value, f"{step.point}/{step.name}"))

    def conclude(self, folder: RunFolder) -> Advice | None:
        """Write advice.json, and what was measured as the plan. None while the search is not at its end."""
        if self.ended is None or self.metric is None:
            return None
        seconds = sum(e.seconds or 0.0 for e in folder.journal.records() if e.event == "stage")
        advice = advice_of(self.request, self.settings, self.values, self.results, self.metric, self.ended)
        advice.tried, advice.seconds, advice.measurements = self.tried, seconds, len(self.tried)
        advice.excluded = {str(count): message for count, message in sorted(self.excluded.items())}
        write_json(folder / ADVICE, advice)
        write_json(folder / "plan.json", self._executed())
        return advice

    @property
    def settings(self) -> SearchSettings:
        """The request as the search takes it."""
        request = self.request
        better = self.metric.better if self.metric else "lower"
        return SearchSettings(
            tuple(request.counts),
            better,
            request.most,
            request.most_each,
            request.certainty,
            request.tolerance,
            request.seed,
        )

    def shown(self) -> Plan:
        """The plan as the progress display needs it: with as many steps as the search may take."""
        most = min(self.request.most, len(self.plan.steps))
        share = most / len(self.plan.steps)
        return dataclasses.replace(
            self.plan, steps=self.plan.steps[:most], estimate_seconds=self.plan.estimate_seconds * share
        )

    def _next(self) -> Choice | Ended:
        if reason := self.meter.exhausted():
            return Ended(reason.replace("budget.max_hours", "--hours"), known=False)
        found = decide(self.settings, self.values, self.excluded)
        failed = sum(1 for tried in self.tried if tried.value is None)
        if isinstance(found, Choice) and len(self.tried) >= self.request.most:
            return Ended(f"{self.request.most} measurements were allowed, {failed} of them are not valid", known=False)
        return found

    def _executed(self) -> Plan:
        """The plan of what was measured: the report shows no count that was never meant to be measured."""
        points = {step.point for step in self.taken} | {self.points[count] for count in self.excluded}
        steps = tuple(dataclasses.replace(step, index=index, attempt=1) for index, step in enumerate(self.taken))
        unique = {(step.point, step.repetition): step for step in steps}
        return dataclasses.replace(
            self.plan,
            points=tuple(point for point in self.plan.points if point.id in points),
            steps=tuple(dataclasses.replace(step, index=n) for n, step in enumerate(unique.values())),
            repetitions=max(step.repetition for step in steps),
        )
