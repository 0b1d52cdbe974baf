"""When hours or money end a run."""

from __future__ import annotations

import pytest

from microshard.run.outcome import Meter, Outcome


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def pass_hours(self, hours: float) -> None:
        self.seconds += hours * 3600


def test_hours_end_it_when_they_are_over() -> None:
    clock = Clock()
    meter = Meter(max_hours=2, now=clock)
    clock.pass_hours(1.9)
    assert meter.exhausted(next_seconds=3600) == "", "a repetition that has begun in time is ended"
    clock.pass_hours(0.2)
    assert "budget.max_hours (2 h)" in meter.exhausted()


def test_money_ends_it_before_more_is_spent_than_it_may_cost() -> None:
    clock = Clock()
    meter = Meter(max_usd=10, hourly_usd=4, now=clock)
    clock.pass_hours(2)
    assert meter.usd == pytest.approx(8)
    assert meter.exhausted(next_seconds=0.4 * 3600) == ""
    assert "8.00 USD are spent" in meter.exhausted(next_seconds=0.5 * 3600)


def test_other_hosts_have_another_price_and_none_costs_nothing() -> None:
    clock = Clock()
    meter = Meter(max_usd=10, hourly_usd=4, now=clock)
    clock.pass_hours(1)
    meter.reprice(0)
    clock.pass_hours(5)
    assert meter.usd == pytest.approx(4)
    meter.reprice(1)
    clock.pass_hours(2)
    assert meter.usd == pytest.approx(6)
    assert meter.hours == pytest.approx(8)


def test_without_a_price_money_is_not_counted_and_hours_are() -> None:
    clock = Clock()
    meter = Meter(max_hours=1, max_usd=1, now=clock)
    clock.pass_hours(0.5)
    assert meter.usd is None
    assert meter.exhausted() == ""
    clock.pass_hours(0.6)
    assert "max_hours" in meter.exhausted()


def test_a_run_that_its_budget_ended_has_not_measured_all() -> None:
    assert Outcome(done=1).exit_code == 0
    assert Outcome(done=1, over_budget="budget.max_hours (1 h) is reached").exit_code == 3
