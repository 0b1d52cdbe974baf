"""Whether two sets of repetitions differ."""

import math
import random

import pytest

from microshard.analysis.comparison import change, decide
from microshard.model.result import Better


def _repetitions(rng: random.Random, level: float, n: int = 5, scatter: float = 0.02) -> list[float]:
    return [level * math.exp(rng.gauss(0, scatter)) for _ in range(n)]


def _verdicts(
    pairs: list[tuple[list[float], list[float]]], tolerance: float = 0.0, better: Better = "lower"
) -> list[str]:
    found = [change(a, b, tolerance) for a, b in pairs]
    return [c.verdict for c in decide(found, [better] * len(found))]


def test_equal_points_are_seldom_called_different() -> None:
    rng = random.Random(1)
    runs = 60
    wrong = 0
    for _ in range(runs):
        pairs = [(_repetitions(rng, 2.0), _repetitions(rng, 2.0)) for _ in range(20)]
        wrong += any(v != "no difference" for v in _verdicts(pairs))
    # One run in twenty; 60 runs scatter by 3 % around it. Without the adjustment it would be two in three.
    assert wrong / runs < 0.12


def test_a_slowdown_of_ten_per_cent_is_found() -> None:
    rng = random.Random(2)
    pairs = [(_repetitions(rng, 2.0), _repetitions(rng, 2.2)) for _ in range(100)]
    assert _verdicts(pairs).count("worse") >= 98
    assert _verdicts(pairs, better="higher").count("better") >= 98


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    rng = random.Random(3)
    held = 0
    for _ in range(1000):
        found = change(_repetitions(rng, 1.0, n=3), _repetitions(rng, 1.3, n=3))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1.3 <= found.high
    assert 0.93 <= held / 1000 <= 0.985


def test_what_is_inside_the_tolerance_is_no_difference() -> None:
    base, slower = [1.00, 1.001, 0.999], [1.04, 1.041, 1.039]
    assert _verdicts([(base, slower)]) == ["worse"]
    assert _verdicts([(base, slower)], tolerance=0.05) == ["no difference"]
    assert _verdicts([(slower, base)], tolerance=0.02) == ["better"]


def test_counts_that_never_scatter_are_compared_as_they_are() -> None:
    assert _verdicts([([5.0, 5.0], [5.0, 5.0]), ([5.0, 5.0], [6.0, 6.0])]) == ["no difference", "worse"]
    assert _verdicts([([5.0, 5.0], [5.1, 5.1])], tolerance=0.05) == ["no difference"]


@pytest.mark.parametrize(
    ("base", "other", "why"),
    [
        ([1.0], [1.1, 1.2], "at least 2 repetitions"),
        ([], [1.0], "the first run"),
        ([1.0], [], "the second run"),
        ([1.0, 0.0], [1.0, 1.0], "positive"),
        ([1.0, math.inf], [1.0, 1.0], "positive"),
    ],
)
def test_what_cannot_be_reported_is_said(base: list[float], other: list[float], why: str) -> None:
    (found,) = decide([change(base, other)], ["lower"])
    assert found.verdict == "inconclusive"
    assert why in found.why
