import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from microshard.analysis.bootstrap import (
    RESAMPLES,
    SEED,
    Estimate,
    Interval,
    efficiency,
    median_estimate,
    ratio_estimate,
    speed_up,
    usable_cores,
)

times = st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=12)


def interval(estimate: Estimate) -> Interval:
    assert estimate.interval is not None
    return estimate.interval


def span(estimate: Estimate) -> tuple[float, float]:
    return interval(estimate).low, interval(estimate).high


def test_three_repetitions_span_their_range_and_say_what_that_covers() -> None:
    estimate = median_estimate([2.0, 1.0, 4.0])
    assert estimate.value == 2.0
    assert span(estimate) == (1.0, 4.0)
    assert interval(estimate).method == "percentile bootstrap"
    assert interval(estimate).level == 0.95
    assert interval(estimate).coverage == 0.75


def test_one_repetition_has_a_median_and_no_interval() -> None:
    estimate = median_estimate([3.5])
    assert (estimate.value, estimate.interval, estimate.n) == (3.5, None, 1)
    assert "one repetition" in estimate.note


def test_equal_repetitions_give_an_interval_without_width() -> None:
    estimate = median_estimate([5.0] * 4)
    assert span(estimate) == (5.0, 5.0)
    assert "equal" in interval(estimate).method


def test_bca_is_used_from_eight_repetitions_on() -> None:
    assert interval(median_estimate([float(v) for v in range(7)])).method == "percentile bootstrap"
    values = np.random.default_rng(3).normal(10, 1, 40).tolist()
    assert interval(median_estimate(values)).method == "BCa bootstrap"


def test_bca_falls_back_to_percentile_where_it_has_no_answer() -> None:
    values = [1.0] * 9 + [2.0]  # the jackknife of this median does not vary
    assert interval(median_estimate(values)).method == "percentile bootstrap"


@pytest.mark.parametrize("sizes", [(2,), (5,), (7,), (3, 6), (7, 4)])
def test_percentile_intervals_are_those_of_scipy(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        samples = [rng.lognormal(0, 1, size).tolist() for size in sizes]
        found = interval(ratio_estimate(*samples) if len(samples) == 2 else median_estimate(*samples))
        if found.method != "percentile bootstrap":
            continue
        whole = stats.bootstrap(
            samples,
            lambda *columns, axis=-1: (
                np.median(columns[0], axis=axis) / (np.median(columns[1], axis=axis) if columns[1:] else 1)
            ),
            n_resamples=RESAMPLES,
            method="percentile",
            rng=np.random.default_rng(SEED),
        )
        assert (found.low, found.high) == pytest.approx(
            (whole.confidence_interval.low, whole.confidence_interval.high), rel=1e-12
        )


def test_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = sum(
        low <= 10 <= high for low, high in (span(median_estimate(rng.normal(10, 1, 25).tolist())) for _ in range(200))
    )
    assert 0.88 <= hits / 200 <= 1.0  # 200 trials of 95 %: three standard deviations are 4.6 %


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.inf]])
def test_values_that_are_no_measurements_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="repetitions"):
        median_estimate(values)


def test_speed_up_of_times_and_of_rates() -> None:
    assert speed_up([8.0, 8.0, 8.0], [2.0, 2.0, 2.0]).value == 4.0
    assert speed_up([100.0, 100.0], [250.0, 250.0], "higher").value == 2.5


def test_interval_of_a_ratio_uses_the_uncertainty_of_both_sides() -> None:
    low, high = span(ratio_estimate([9.0, 10.0, 11.0], [4.0, 5.0, 6.0]))
    assert low == pytest.approx(9 / 6, rel=0.05)
    assert high == pytest.approx(11 / 4, rel=0.05)


def test_ratio_of_values_that_are_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        speed_up([1.0, 0.0], [1.0])


def test_efficiency_divides_by_growth_and_keeps_the_interval() -> None:
    speed = speed_up([8.0, 9.0, 10.0], [3.0, 3.1, 3.2])
    share = efficiency(speed, 4, 1)
    assert share.value == pytest.approx(speed.value / 4)
    assert span(share) == pytest.approx(tuple(edge / 4 for edge in span(speed)))
    with pytest.raises(ValueError, match="positive"):
        efficiency(speed, 0, 1)


def test_shards_beyond_the_cores_use_no_further_core() -> None:
    assert [usable_cores(n, 4) for n in (1, 4, 16)] == [1, 4, 4]


@given(times)
def test_interval_contains_the_median_and_lies_within_the_repetitions(values: list[float]) -> None:
    estimate = median_estimate(values)
    if estimate.interval is None:
        assert len(values) == 1
    else:
        low, high = span(estimate)
        assert low <= estimate.value <= high
        assert min(values) * (1 - 1e-9) <= low
        assert high <= max(values) * (1 + 1e-9)


@given(times)
def test_speed_up_of_a_point_against_itself_is_one(values: list[float]) -> None:
    estimate = speed_up(values, values)
    assert estimate.value == 1.0
    if estimate.interval is not None:
        assert interval(estimate).low <= 1.0 <= estimate.interval.high


@given(times, times, st.sampled_from([0.25, 2.0, 1024.0]))
def test_speed_up_does_not_depend_on_the_unit(base: list[float], values: list[float], unit: float) -> None:
    here, there = speed_up(base, values), speed_up([v * unit for v in base], [v * unit for v in values])
    assert there.value == pytest.approx(here.value)
    if here.interval is not None and there.interval is not None:
        assert span(there) == pytest.approx(span(here))


@given(times, times)
def test_times_and_their_rates_give_the_same_speed_up_for_odd_repetitions(
    base: list[float], values: list[float]
) -> None:
    base, values = base[: len(base) // 2 * 2 + 1], values[: len(values) // 2 * 2 + 1]
    if len(base) % 2 and len(values) % 2:
        by_time = speed_up(base, values, "lower")
        by_rate = speed_up([1 / v for v in base], [1 / v for v in values], "higher")
        assert by_rate.value == pytest.approx(by_time.value)
