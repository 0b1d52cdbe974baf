"""The steps of a search: limits, measurements that stay invalid, what another process has measured."""

import dataclasses
from pathlib import Path

import pytest

from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.experiment.load import load
from microshard.model.advice import SearchLimits, SearchRequest
from microshard.model.plan import Plan, Step
from microshard.model.result import Latency, Metric, PhaseResult, StepResult
from microshard.plan.search_grid import SearchError, SearchOptions, refuse_hopeless, search_of
from microshard.run.outcome import Outcome
from microshard.run.search_steps import SearchSteps
from tests.unit.backends.ec2.definitions import FILE

SECONDS = {1: 8.0, 2: 4.4, 3: 3.4, 4: 3.0}
P99 = {1: 30.0, 2: 11.0, 3: 8.0, 4: 25.0}  # ms


@pytest.fixture
def planned(tmp_path: Path) -> tuple[SearchRequest, Plan]:
    (tmp_path / "x.yml").write_text(FILE)
    request, changed = search_of(load(tmp_path / "x.yml").experiment, SearchOptions(points=14))
    return request, plan_ec2(tmp_path / "x.yml", overrides=changed, search=request).plan


def run(search: SearchSteps, plan: Plan, most: int = 100, p99: dict[int, float] | None = None) -> list[int]:
    """Measure until the end; the shard counts in their order."""
    counts: list[int] = []
    for step in search.steps(Outcome(), plan):
        count = plan.point(step.point).shards
        search.measured(step, result(count, step, (p99 or P99)[count]))
        counts.append(count)
        if len(counts) == most:
            break
    return counts


def result(count: int, step: Step, p99: float) -> StepResult:
    value = SECONDS[count] * (1 + 0.004 * (-1) ** step.repetition)
    latency = {"FIND": Latency(9, percentiles={"99": p99 * 1000})}
    return StepResult(phases=[PhaseResult("measure", metric=Metric("query time", "s", value), latency=latency)])


def test_points_over_a_limit_are_left_out_and_named_and_one_barely_over_is_measured_twice(
    planned: tuple[SearchRequest, Plan],
) -> None:
    request, plan = planned
    request = dataclasses.replace(request, limits=SearchLimits(p99_ms=10.0))
    search = SearchSteps(request, plan)
    counts = run(search, plan)
    assert search.left_out() == {
        "1 shard": "p99 of 30 ms in 1 measurement, more than 10 ms",
        "2 shards": "p99 of 11 ms in 2 measurements, more than 10 ms",
        "4 shards": "p99 of 25 ms in 1 measurement, more than 10 ms",
    }
    assert counts.count(3) == len(counts) - 4
    assert [tried.why for tried in search.tried if tried.count == 2] == ["bracket", "limit"]


def test_where_every_point_breaks_a_limit_there_is_no_recommendation(planned: tuple[SearchRequest, Plan]) -> None:
    request, plan = planned
    search = SearchSteps(dataclasses.replace(request, limits=SearchLimits(p99_ms=1.0)), plan)
    assert sorted(run(search, plan)) == [1, 2, 3, 4]
    assert search.ended is not None
    assert search.ended.reason == "no count can be measured"


def test_what_the_plan_says_is_too_much_is_not_measured(planned: tuple[SearchRequest, Plan]) -> None:
    request, plan = planned
    needs = {point.shards: max(n.disk_bytes for n in point.needs.values()) / 1024**3 for point in plan.points}
    request = dataclasses.replace(request, limits=SearchLimits(disk_gib=(needs[2] + needs[3]) / 2))
    search = SearchSteps(request, plan)
    assert set(run(search, plan)) == {1, 2}
    assert "as planned" in search.left_out()["4 shards"]
    with pytest.raises(SearchError, match="no point keeps the limits"):
        refuse_hopeless(dataclasses.replace(request, limits=SearchLimits(disk_gib=needs[1] / 2)), plan)


def test_a_point_whose_measurements_stay_invalid_is_given_up(planned: tuple[SearchRequest, Plan]) -> None:
    request, plan = planned
    search = SearchSteps(request, plan)
    for step in search.steps(Outcome(), plan):
        count = plan.point(step.point).shards
        measured = result(count, step, 1.0)
        measured.valid, measured.problems = count != 4, ["skew"] if count == 4 else []
        search.measured(step, measured)
    assert search.left_out() == {"4 shards": "measurements stay invalid: skew"}


def test_a_process_that_is_given_what_another_has_measured_chooses_what_it_would(
    planned: tuple[SearchRequest, Plan],
) -> None:
    request, plan = planned
    one = SearchSteps(request, plan)
    run(one, plan, most=3)
    other = SearchSteps(request, plan, others=one.beside([]))
    assert other.next_choices() == one.next_choices()
