"""`microshard advise --on ec2`: which fleets are launched in which round, what it may cost, and what is advised."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from microshard.backends.ec2 import execute, runs
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.cost_estimate import FleetEstimate
from microshard.backends.ec2.ec2_plan import Ec2Plan, plan_ec2
from microshard.experiment.load import load
from microshard.model.advice import Advice
from microshard.model.result import Metric, PhaseResult, StepResult
from microshard.plan.search_grid import SearchError, SearchOptions, search_of
from microshard.records import codec
from microshard.records.run_folder import ADVICE, RunFolder, write_json
from microshard.run.completed_steps import RunProgress, finished, remaining
from microshard.run.outcome import Meter, Outcome
from microshard.run.prepare import write_request
from microshard.run.runner import Runner

from .definitions import FILE
from .test_execute import FakeHosts

TYPES = FILE.replace(
    "matrix: {topology.shards.count: [1, 4]}\n",
    "matrix: {infrastructure.shard_hosts.instance_type: [c5.4xlarge, m5.4xlarge], topology.shards.count: [1, 4]}\n",
)
FACTOR = {"c5.4xlarge": 1.0, "m5.4xlarge": 0.95}  # the second is a little faster, and dearer


def seconds(point: Any) -> float:
    kind = next(value for key, value in point.axes.items() if key.endswith("instance_type"))
    return {1: 8.0, 2: 4.4, 3: 3.4, 4: 3.0}[point.shards] * FACTOR[kind]


class Search:
    """A search whose hosts are only noted, and whose measurements are given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, text: str = TYPES, **options: Any) -> None:
        (folder / "x.yml").write_text(text)
        self.request, changed = search_of(load(folder / "x.yml").experiment, SearchOptions(**options))
        self.plan: Ec2Plan = plan_ec2(folder / "x.yml", overrides=changed, search=self.request)
        self.run = RunFolder.create(folder / "runs", "x")
        write_request(self.run, self.plan.request)
        write_json(self.run / "plan.json", self.plan.plan)
        self.fleets: list[str] = []
        self.output, self.outcome = io.StringIO(), Outcome()
        self.orders: list[tuple[int, int]] = []
        self.stop_after = 1000
        self.stopped_by: int | None = 2

        def launch(_run: Any, fleet: FleetEstimate, _progress: RunProgress) -> FakeHosts:
            self.fleets.append(fleet.name)
            return FakeHosts(self.plan.plans[int(fleet.name.removeprefix("fleet")) - 1], len(self.fleets))

        def run(runner: Runner) -> Outcome:
            assert runner.source is not None
            base = runner.recorder.first_index
            for number, step in enumerate(runner.source.steps(runner.outcome, runner.plan)):
                if len(self.orders) >= self.stop_after:
                    runner.outcome.stopped_by = self.stopped_by
                    break
                assert runner.plan.point(step.point), "the point of another fleet's hosts"
                runner.source.measured(step, self.result(step, base + number))
                self.orders.append((runner.plan.steps[0].index, base + number))
            return runner.outcome

        monkeypatch.setattr(execute.Ec2Run, "launch", launch)
        monkeypatch.setattr(Runner, "run", run)
        monkeypatch.setattr(Api, "__init__", lambda *_: None)
        monkeypatch.setattr(Api, "caller", lambda _: ("123456789012", "arn"))
        monkeypatch.setattr(runs, "report", lambda _folder, outcome, _console: setattr(self, "outcome", outcome))

    def result(self, step: Any, order: int) -> StepResult:
        point = self.plan.plan.point(step.point)
        value = seconds(point) * (1 + 0.002 * (-1) ** step.repetition)
        phase = PhaseResult("measure", "measure", metric=Metric("query time", "s", value))
        result = StepResult(point=point.id, step=step.name, purpose="measure", phases=[phase], order=order, gates=[])
        write_json(self.run.result_path(point.id, step.name), result)
        return result

    def execute(self) -> int:
        progress = []
        for plan in self.plan.plans:
            completed = tuple(finished(self.run, plan))
            progress.append(RunProgress(completed, remaining(plan, completed)))
        cidrs = {fleet.name: ("192.0.2.7/32",) for fleet in self.plan.estimate.fleets}
        return runs._execute(self.plan, progress, self.run, cidrs, Console(file=self.output, width=200))

    @property
    def advice(self) -> Advice:
        return codec.read_file(Advice, self.run / ADVICE)


def test_each_type_is_launched_and_the_better_one_measured_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(tmp_path, monkeypatch)
    assert search.execute() == 0
    assert search.fleets == ["fleet1", "fleet2"]  # the second one goes on with the hosts it has
    advice = search.advice
    assert (advice.count, list(advice.setting.values())) == (4, ["m5.4xlarge"])
    assert advice.sentence in search.output.getvalue().replace("\n", " ")
    orders = [order for _, order in search.orders]
    assert len(orders) == len(set(orders)) == advice.measurements <= search.request.most


def test_the_cheapest_type_is_another_one_than_the_fastest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(tmp_path, monkeypatch, objective="cost per operation")
    assert search.execute() == 0
    assert (search.advice.metric, search.advice.unit) == ("cost per operation", "USD/million")
    assert list(search.advice.setting.values()) == ["c5.4xlarge"]


def test_a_search_that_was_stopped_makes_the_same_choices_after_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    whole = Search(tmp_path / "a", monkeypatch)
    whole.execute()
    parts = Search(tmp_path / "b", monkeypatch)
    parts.stop_after = 7
    assert parts.execute() == 130
    assert not (parts.run / ADVICE).exists()
    parts.stop_after = 1000
    assert parts.execute() == 0
    by_setting = [
        [[(t.count, t.value) for t in search.advice.tried if t.setting == n] for n in (0, 1)]
        for search in (whole, parts)
    ]
    assert by_setting[0] == by_setting[1]
    assert whole.advice.sentence == parts.advice.sentence


def test_the_estimate_is_that_of_the_search_and_the_cost_is_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Search(tmp_path, monkeypatch, cost=0.01)
    few, many = (Search(tmp_path, monkeypatch, points=points).plan.estimate for points in (6, 40))
    assert few.cost_usd is not None
    assert many.cost_usd is not None
    assert few.cost_usd < many.cost_usd
    assert search.plan.estimate.budget.max_cost_usd == 0.01
    monkeypatch.setattr(Meter, "usd", property(lambda _: 0.02))
    assert search.execute() == 3
    assert "No recommendation: --cost (0.01 USD) would be exceeded" in search.output.getvalue()


def test_a_fleet_that_has_no_money_left_ends_the_search_with_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Search(tmp_path, monkeypatch)
    search.stop_after, search.stopped_by = 7, None
    assert search.execute() == 0
    assert not search.advice.known
    assert search.advice.ended == "what is left of the budget allows no further measurement"
    assert search.advice.measurements == 7


def test_without_a_price_the_cost_cannot_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = TYPES.replace("region: us-east-1", "region: af-south-1")
    with pytest.raises(SearchError, match="there is no price of"):
        Search(tmp_path, monkeypatch, text=unknown, objective="cost per operation")
