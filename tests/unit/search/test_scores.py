import pytest

from microshard.search.scores import Scores, quantile


def test_the_noise_is_that_of_all_counts_together():
    few = Scores({1: [10.0, 11.0, 9.0], 2: [5.0]}, "lower", 0.95)
    many = Scores({1: [10.0, 11.0, 9.0] * 4, 2: [5.0, 5.5, 4.5] * 4}, "lower", 0.95)
    assert many.margin(2, 1) < few.margin(2, 1)
    assert many.spread == pytest.approx(0.083, abs=0.01)


@pytest.mark.parametrize(("better", "best"), [("lower", 2), ("higher", 1)])
def test_the_best_has_the_least_time_or_the_highest_rate(better, best):
    assert Scores({1: [10.0], 2: [5.0]}, better, 0.95).best == best


def test_of_equal_counts_the_fewest_shards_are_best():
    assert Scores({4: [5.0], 2: [5.0]}, "lower", 0.95).best == 2


def test_a_ratio_has_its_interval_around_it_and_one_of_itself_is_one():
    scores = Scores({1: [10.0, 10.2], 4: [5.0, 5.1]}, "lower", 0.95)
    ratio = scores.ratio(4, 1)
    assert ratio.low < ratio.value < ratio.high
    assert ratio.value == pytest.approx(2, rel=0.01)
    assert scores.ratio(4, 4).low == 1


def test_one_measurement_each_tells_only_what_is_far_apart():
    scores = Scores({1: [10.0], 2: [9.7], 4: [5.0]}, "lower", 0.95)
    assert scores.worse(1, 4)
    assert not scores.worse(1, 2)
    assert scores.most_gained(1, 2) > 0


def test_more_certainty_needs_wider_intervals():
    assert quantile(0.99, 5) > quantile(0.95, 5) > quantile(0.8, 5)
    assert quantile(0.95, 10_000) == pytest.approx(1.96, abs=0.01)
