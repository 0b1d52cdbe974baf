"""When hours or money end a run, and the exit code it ends with."""

import pytest

from microshard.model.plan import Step
from microshard.model.result import StepResult
from microshard.run.completed_steps import CompletedStep, RunProgress
from microshard.run.outcome import Meter, Outcome


class Clock:
    def __init__(self) -> None:
        self.hours = 1.0

    def __call__(self) -> float:
        return self.hours * 3600


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_hours_end_it_when_they_are_over(clock: Clock) -> None:
    meter = Meter(max_hours=2, now=clock)
    clock.hours += 1.9
    assert meter.exhausted(next_seconds=3600) == "", "a repetition that has begun in time is ended"
    clock.hours += 0.2
    assert "budget.max_hours (2 h)" in meter.exhausted()


def test_money_ends_it_before_more_is_spent_than_it_may_cost(clock: Clock) -> None:
    meter = Meter(max_usd=10, hourly_usd=4, now=clock)
    clock.hours += 2
    assert meter.usd == pytest.approx(8)
    assert meter.exhausted(next_seconds=0.4 * 3600) == ""
    assert "8.00 USD" in meter.exhausted(next_seconds=0.5 * 3600)


def test_other_hosts_have_another_price_and_none_costs_nothing(clock: Clock) -> None:
    meter = Meter(max_usd=10, hourly_usd=4, now=clock)
    for price, hours, total in ((0, 1, 4), (1, 5, 4), (1, 2, 6)):
        clock.hours += hours
        assert meter.usd == pytest.approx(total)
        meter.reprice(price)
    assert meter.hours == pytest.approx(8)


def test_without_a_price_money_is_not_counted_and_hours_are(clock: Clock) -> None:
    meter = Meter(max_hours=1, max_usd=1, now=clock)
    clock.hours += 0.5
    assert (meter.usd, meter.exhausted()) == (None, "")
    clock.hours += 0.6
    assert "max_hours" in meter.exhausted()


def test_a_run_that_its_budget_ended_has_not_measured_all() -> None:
    assert Outcome(done=1).exit_code == 0
    assert Outcome(done=1, over_budget="budget.max_hours (1 h) is reached").exit_code == 3


def test_an_invalid_attempt_that_is_repeated_may_still_become_valid() -> None:
    def step(point: str, attempt: int = 1) -> Step:
        return Step(0, point, 1, "measure", deploy=True, undeploy=True, attempt=attempt)

    bad = StepResult(valid=False, problems=["slow"])
    completed = [CompletedStep(step(point), bad) for point in ("p01", "p02", "p03")]
    completed.append(CompletedStep(step("p03", 2), StepResult()))
    outcome = Outcome()
    outcome.add_completed([RunProgress(tuple(completed), (step("p02", 2),))])
    assert (outcome.done, outcome.invalid) == (4, {"p01 r1": "slow"})
