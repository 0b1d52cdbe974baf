from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.analysis.bootstrap import Interval
from microshard.analysis.curve_distance import CurveDistance, curve_distance
from microshard.model.result import Better

PUBLISHED: dict[float, float] = {1: 1392.0, 2: 931.0, 4: 512.0, 8: 276.0, 16: 215.0}


def distance(
    measured: Mapping[float, Sequence[float]], published: Mapping[float, float] = PUBLISHED, better: Better = "lower"
) -> CurveDistance:
    found = curve_distance(measured, published, better)
    assert found is not None
    return found


def span(found: CurveDistance) -> Interval:
    assert found.distance.interval is not None
    return found.distance.interval


def test_the_same_shape_on_another_machine_is_at_distance_one() -> None:
    measured: dict[float, list[float]] = {n: [value / 500] * 3 for n, value in PUBLISHED.items()}
    result = distance(measured)
    assert result.distance.value == pytest.approx(1.0)
    assert result.bias == pytest.approx(1.0)
    assert result.base == 1


def test_distance_and_bias_of_a_known_gap() -> None:
    result = distance({1: [8.0], 2: [8.0], 4: [8.0]}, {1: 8.0, 2: 4.0, 4: 2.0})
    # gaps of ln 2 and ln 4: rms = ln 2 · sqrt((1 + 4) / 2), mean = ln 2 · 1.5, downwards
    assert result.distance.value == pytest.approx(2 ** (2.5**0.5))
    assert result.bias == pytest.approx(2**-1.5)
    assert dict(result.ratios) == pytest.approx({1: 1.0, 2: 0.5, 4: 0.25})
    assert result.distance.interval is None


def test_interval_contains_the_distance() -> None:
    measured: dict[float, list[float]] = {n: [value * f for f in (0.95, 1.0, 1.1)] for n, value in PUBLISHED.items()}
    interval = span(distance(measured))
    assert 1.0 <= interval.low <= 1.2
    assert interval.low <= distance(measured).distance.value <= interval.high


def test_rates_compare_with_times() -> None:
    rates: dict[float, list[float]] = {n: [1 / value] for n, value in PUBLISHED.items()}
    assert distance(rates, better="higher").distance.value == pytest.approx(1.0)


def test_fewer_than_two_shared_sizes_have_no_distance() -> None:
    assert curve_distance({1: [1.0], 3: [1.0]}, {1: 1.0, 2: 1.0}) is None
    assert curve_distance({1: [1.0], 2: []}, {1: 1.0, 2: 1.0}) is None


def test_a_published_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        curve_distance({1: [1.0], 2: [1.0]}, {1: 1.0, 2: 0.0})


@given(st.floats(0.001, 1000))
def test_distance_does_not_depend_on_the_unit(unit: float) -> None:
    measured: dict[float, list[float]] = {1: [4.0, 4.4, 4.1], 2: [3.0, 3.1, 2.9], 4: [2.0, 2.2, 2.1]}
    scaled = {n: [v * unit for v in values] for n, values in measured.items()}
    here, there = distance(measured), distance(scaled)
    assert there.distance.value == pytest.approx(here.distance.value)
    assert span(there).high == pytest.approx(span(here).high)
