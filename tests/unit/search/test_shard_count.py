import dataclasses
import statistics

import pytest
from bench.advise import RULES, Tally, search, surfaces

from microshard.search.shard_count import Choice, Ended, SearchSettings, decide, doublings, recommend

SIXTEEN = tuple(range(1, 17))


def settings(**changes):
    return dataclasses.replace(SearchSettings(SIXTEEN, "lower", most=16, most_each=8, seed=7), **changes)


def run(given, value, excluded=()):
    """All choices of a search, and what it measured; value(count, number) is a measurement."""
    measured: dict[int, list[float]] = {}
    choices = []
    while isinstance(choice := decide(given, measured, excluded), Choice):
        values = measured.setdefault(choice.count, [])
        values.append(value(choice.count, len(values)))
        choices.append(choice)
    return choices, measured, choice


def steep(count, number):
    """Times of a query: best at 6, with a spread of 1 %."""
    return {1: 10, 2: 5.3, 3: 3.8, 4: 3.1, 5: 2.7, 6: 2.5, 7: 3.4, 8: 5.2}.get(count, 8.0) * (1 + 0.01 * (-1) ** number)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [(SIXTEEN, [1, 2, 4, 8, 16]), (range(1, 7), [1, 2, 4, 6]), ([3, 5, 9, 30], [3, 9, 30]), ([2, 3], [2, 3])],
)
def test_the_bracket_doubles_and_ends_at_the_last_count(counts, expected):
    assert doublings(list(counts)) == expected


def test_it_brackets_then_narrows_then_repeats_and_finds_the_best():
    choices, measured, ended = run(settings(), steep)
    assert [c.count for c in choices if c.why == "bracket"] == [1, 2, 4, 8]  # 8 is slower than 4: 16 is not measured
    assert 6 in [c.count for c in choices if c.why == "narrow"]
    assert recommend(settings(), measured).count == 6
    assert ended.known
    assert len(choices) < 16


def test_the_bracket_goes_on_while_it_gets_faster():
    choices, measured, _ = run(settings(), lambda count, number: 100 / count * (1 + 0.01 * (-1) ** number))
    assert [c.count for c in choices[:5]] == [1, 2, 4, 8, 16]
    found = recommend(settings(), measured)
    assert found.count == 16
    assert found.gain.low < 16 < found.gain.high


def test_where_noise_hides_the_difference_the_fewest_are_recommended_and_all_are_named():
    noise = (1.0, 1.3, 0.8, 1.1, 0.9)
    _, measured, ended = run(settings(), lambda count, number: noise[(count + number) % 5])
    found = recommend(settings(), measured)
    assert len(found.alike) > 2
    assert found.count <= found.best
    assert found.count in found.alike
    assert not ended.known  # it does not say that it is certain


def test_equal_counts_are_alike_and_the_fewest_is_recommended():
    _, measured, ended = run(settings(), lambda count, number: 5 * (1 + 0.004 * (-1) ** (count + number)))
    found = recommend(settings(), measured)
    assert found.count == 1
    assert ended.known


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_rates_are_searched_as_times_are(better):
    value = steep if better == "lower" else lambda count, number: 1 / steep(count, number)
    assert recommend(settings(better=better), run(settings(better=better), value)[1]).count == 6


def test_the_same_measurements_give_the_same_choice_whatever_came_between():
    choices, measured, _ = run(settings(), steep)
    again: dict[int, list[float]] = {}
    for choice in choices:  # as after resuming at any of them
        assert decide(settings(), {n: list(v) for n, v in again.items()}) == choice
        again.setdefault(choice.count, []).append(measured[choice.count][len(again.get(choice.count, []))])
    assert isinstance(decide(settings(), again), Ended)


def test_counts_that_cannot_be_measured_are_left_out():
    choices, measured, _ = run(settings(), steep, excluded={4, 6})
    assert not {4, 6} & {c.count for c in choices}
    assert recommend(settings(), measured).count in {5, 7}
    assert decide(settings(), {}, SIXTEEN) == Ended("no count can be measured", known=False)


@pytest.mark.parametrize(("most", "certain"), [(3, False), (16, True)])
def test_it_ends_at_its_limit_and_says_so(most, certain):
    choices, _, ended = run(settings(most=most), steep)
    assert len(choices) <= most
    assert ended.known is certain


def test_no_count_is_measured_more_often_than_allowed():
    choices, _, _ = run(settings(most=40, most_each=3), lambda count, number: (1.0, 1.5, 0.7)[(count + number) % 3])
    counts = [c.count for c in choices]
    assert max(counts.count(n) for n in counts) == 3


def test_advice_holds_on_surfaces_of_measured_sweeps():
    """docs/benchmarks.md has the same with more searches; here every surface is searched ten times."""
    every, total = [*surfaces(), *surfaces(held_out=True)], Tally()
    assert len(every) >= 80
    for surface in every:
        found = [search(surface, seed, total) for seed in range(10)]
        assert found[0] == search(surface, 0, Tally())  # same seed, same choices
    right = [statistics.fmean(each[number] for each in total.right) for number in range(len(RULES))]
    oracle = [statistics.fmean(each[number] for each in total.oracle) for number in range(len(RULES))]
    assert right[0] >= 0.95
    assert right[1] >= oracle[1] - 0.06
    assert statistics.median(total.shares) <= 1 / 3 + 1e-9
