"""The steps of a search: each is chosen from the results of the earlier ones (microshard/search), not by the plan."""

import dataclasses
import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from microshard.analysis.advice import advice_of, point_name
from microshard.analysis.objective import Needs, figure_of, needs_of
from microshard.model.advice import Advice, OtherFleets, SearchRequest, TriedCount
from microshard.model.plan import Plan, Point, Step
from microshard.model.result import Metric, StepResult
from microshard.plan.render import count
from microshard.plan.search_grid import AXIS, over, over_planned
from microshard.records.run_folder import ADVICE, RunFolder, write_json
from microshard.run.completed_steps import CompletedStep
from microshard.run.outcome import Meter, Outcome
from microshard.search.settings import Race, candidates, race
from microshard.search.shard_count import Choice, Ended, SearchSettings

_MOST_INVALID = 2  # of one point before it is given up
_BARELY = 1.5  # over its limit by less, a latency is measured a second time

Candidate = tuple[int, int]  # index of the setting, shard count


class SearchSteps:
    """Chooses the steps of a plan one after the other, until the best point is known or the limits are reached.

    The plan has a point for each count of each setting and enough repetitions of it. A search that is resumed is given
    what was completed, and goes on as if it had not been stopped.
    """

    def __init__(
        self,
        request: SearchRequest,
        plan: Plan,
        completed: Sequence[CompletedStep] = (),
        *,
        meter: Meter | None = None,
        prices: Mapping[str, float | None] | None = None,
        others: OtherFleets | None = None,
    ) -> None:
        """`prices`: point → USD an hour of its hosts. `others`: what other processes have measured of this search."""
        self.request = request
        self.plan = plan
        self.candidates = {point.id: _candidate(request, point) for point in plan.points}
        self.points = {self.candidates[point.id]: point for point in plan.points}
        self.history: list[list[tuple[int, float]]] = [[] for _ in request.settings]
        self.results: dict[Candidate, list[StepResult]] = {}
        self.excluded: dict[Candidate, str] = {}
        self.failed: dict[Candidate, str] = {}
        self.tried: list[TriedCount] = []
        self.taken: list[Step] = []
        self.metric: Metric | None = None
        self.ended: Ended | None = None
        self.meter = meter or Meter(request.hours)
        self.prices = prices or {}
        self._needs: defaultdict[Candidate, list[Needs]] = defaultdict(list)
        self._invalid: Counter[Candidate] = Counter()
        self._longest = 0.0  # seconds between two choices
        for point in plan.points:
            if broken := over_planned(point, request.limits):
                self.excluded[self.candidates[point.id]] = broken
        for tried in others.tried if others else ():
            if tried.value is not None:
                self.history[tried.setting].append((tried.count, tried.value))
        self.excluded |= {(each.setting, each.count): each.why for each in (others.excluded if others else ())}
        for item in completed:
            self.measured(item.step, item.result)

    def steps(self, outcome: Outcome, plan: Plan) -> Iterator[Step]:
        """The steps of a plan's points as they are chosen: the search's own, or the part one fleet measures.

        Points that failed are not chosen again.
        """
        always = self.plan.redeploy == "per_repetition"
        here = {self.candidates[point.id] for point in plan.points}
        deployed: set[str] = set()
        index = 0
        while True:
            self.exclude_failed(outcome)
            found = self.next_choices()
            chosen = next((each for n, c in found.choices.items() if (each := (n, c.count)) in here), None)
            if chosen is None:
                return
            point = self.points[chosen].id
            repetition = 1 + max((s.repetition for s in self.taken if s.point == point), default=0)
            began = time.monotonic()
            yield Step(index, point, repetition, "measure", deploy=always or point not in deployed, undeploy=always)
            self._longest = max(self._longest, time.monotonic() - began)
            deployed.add(point)
            index += 1

    def after(self, step: Step) -> Sequence[Step]:  # noqa: ARG002 - of the protocol StepSource
        """Nothing is known of what comes next."""
        return ()

    def measured(self, step: Step, result: StepResult) -> None:
        """Take a judged result into account."""
        candidate = setting, shards = self.candidates[step.point]
        value, request = None, self.request
        choice = self._choices(race(self.settings, self.history, self._excluded_counts())).get(setting)
        why = choice.why if choice else "repeat"
        metric = figure_of(result, request, self.prices.get(step.point))
        if result.valid and metric is not None and math.isfinite(metric.value) and metric.value > 0:
            self.metric, value = metric, metric.value
            self.history[setting].append((shards, value))
            self.results.setdefault(candidate, []).append(result)
            self._needs[candidate].append(needs_of(result, request))
            self._exclude_what_breaks_limits(candidate)
        else:
            self._invalid[candidate] += 1
            if self._invalid[candidate] >= _MOST_INVALID:
                problem = "; ".join(result.problems) or f"{request.phase} has no {request.objective or 'figure'}"
                self.excluded[candidate] = f"measurements stay invalid: {problem}"
        self.taken.append(step)
        self.tried.append(TriedCount(shards, why, value, f"{step.point}/{step.name}", setting))

    def exclude_failed(self, outcome: Outcome) -> None:
        """Points that failed are not chosen again."""
        self.failed |= {self.candidates[p]: m for p, m in outcome.failed.items() if p in self.candidates}
        self.excluded |= self.failed

    def beside(self, points: Collection[str]) -> OtherFleets:
        """What is known of other points than these."""
        mine = {self.candidates[point] for point in points}
        return OtherFleets(
            [each for each in self.tried if (each.setting, each.count) not in mine],
            [TriedCount(c, why, None, "", n) for (n, c), why in self.excluded.items() if (n, c) not in mine],
        )

    def next_choices(self) -> Race:
        """The next measurement of each setting in the race; with `ended` when nothing more is measured."""
        found = race(self.settings, self.history, self._excluded_counts())
        if reason := self.meter.exhausted(self._longest):
            for key, option in (("budget.max_hours", "--hours"), ("budget.max_cost_usd", "--cost")):
                reason = reason.replace(key, option)
            found = Race(found.left, ended=Ended(reason, known=False))
        failed = sum(1 for tried in self.tried if tried.value is None)
        if found.choices and sum(map(len, self.history)) + failed >= self.request.most:
            allowed = f"{self.request.most} measurements were allowed"
            found = Race(
                found.left, ended=Ended(allowed + (f", {failed} are not valid" if failed else ""), known=False)
            )
        self.ended = found.ended
        return Race(found.left, self._choices(found), found.ended)

    def conclude(self, folder: RunFolder) -> Advice | None:
        """Write advice.json, and what was measured as the plan. None while the search is not at its end."""
        if self.ended is None or self.metric is None or not self._fit():
            return None
        seconds = sum(e.seconds or 0.0 for e in folder.journal.records() if e.event == "stage")
        left = race(self.settings, self.history, self._excluded_counts()).left
        advice = advice_of(self.request, self.settings, self._fit(), self.results, self.metric, self.ended, left)
        advice.tried, advice.seconds, advice.measurements = self.tried, seconds, len(self.tried)
        advice.excluded = self.left_out()
        write_json(folder / ADVICE, advice)
        write_json(folder / "plan.json", self._executed(folder.plan()))
        return advice

    def left_out(self) -> dict[str, str]:
        """The excluded points in words, and why."""
        return {point_name(self.request, n, c): why for (n, c), why in sorted(self.excluded.items())}

    def _fit(self) -> dict[Candidate, list[float]]:
        return candidates(self.history, self._excluded_counts())

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

    def _excluded_counts(self) -> list[list[int]]:
        return [[count for n, count in self.excluded if n == number] for number in range(len(self.history))]

    def _choices(self, found: Race) -> dict[int, Choice]:
        """The choices of a race; a count whose latency is barely over its limit comes first."""
        repeated = {n: self._barely_over(n) for n in found.choices}
        return {
            n: Choice(repeated[n] or choice.count, "limit" if repeated[n] else choice.why)
            for n, choice in found.choices.items()
        }

    def _exclude_what_breaks_limits(self, candidate: Candidate) -> None:
        """Exclude a point whose medians exceed a limit."""
        measured = self._needs[candidate]
        ram, disk, p99 = (_median(getattr(n, name) for n in measured) for name in ("ram_gib", "disk_gib", "p99_ms"))
        broken = over(self.request.limits, ram, disk, p99, f"in {count(len(measured), 'measurement')}")
        if broken and self._barely_over(candidate[0]) != candidate[1]:
            self.excluded[candidate] = broken

    def _barely_over(self, setting: int) -> int | None:
        """The count of a setting whose one latency is a little over its limit: noise may have lifted it."""
        limit = self.request.limits.p99_ms
        for (number, count_), needs in self._needs.items():
            if number == setting and limit and len(needs) == 1 and limit < (needs[0].p99_ms or 0.0) < _BARELY * limit:
                return count_
        return None

    def _executed(self, plan: Plan) -> Plan:
        """The plan of what was measured: the report shows no count that was never meant to be measured."""
        points = {step.point for step in self.taken} | {self.points[each].id for each in self.failed}
        steps = tuple(dataclasses.replace(step, index=index, attempt=1) for index, step in enumerate(self.taken))
        unique = {(step.point, step.repetition): step for step in steps}
        return dataclasses.replace(
            plan,
            points=tuple(point for point in plan.points if point.id in points),
            steps=tuple(dataclasses.replace(step, index=n) for n, step in enumerate(unique.values())),
            repetitions=max(step.repetition for step in steps),
        )


def _candidate(request: SearchRequest, point: Point) -> Candidate:
    """The setting and count of a point."""
    others = {key: value for key, value in point.axes.items() if key != AXIS}
    wanted = json.dumps(others, sort_keys=True, default=str)
    known = [json.dumps(setting, sort_keys=True, default=str) for setting in request.settings]
    return known.index(wanted), point.shards or 1  # of what is not sharded the settings alone are searched


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
