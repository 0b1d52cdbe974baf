import itertools
import random

import pytest

from microshard.search.settings import number_of_rounds, race, rounds
from microshard.search.shard_count import SearchSettings

COUNTS = tuple(range(1, 9))
FACTORS = (1.0, 1.4, 0.7, 1.2)  # of the settings' times: the third is the fastest


def settings(most=48):
    return SearchSettings(COUNTS, "lower", most=most, most_each=12, seed=3)


def value(setting, count, number):
    noise = 1 + 0.01 * random.Random(f"{setting} {count} {number}").uniform(-1, 1)
    return FACTORS[setting] * {1: 10, 2: 5.4, 3: 4.0, 4: 3.2}.get(count, 3.2 + 0.3 * (count - 4)) * noise


def run(given, number, pick, excluded=None):
    """Search until the end; `pick` says which of the settings with a choice are measured before the next choice."""
    history: list[list[tuple[int, float]]] = [[] for _ in range(number)]
    while True:
        found = race(given, history, excluded or [()] * number)
        if found.ended:
            return history, found
        for setting in pick(sorted(found.choices)):
            count = found.choices[setting].count
            history[setting].append((count, value(setting, count, len(history[setting]))))


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 4)])
def test_halving_until_one_is_left(number, expected):
    assert number_of_rounds(number) == expected
    each = list(rounds(48, number))
    assert len(each) == expected
    assert each == sorted(each)
    assert next(rounds(48, number)) * number <= 48


def test_the_better_half_stays_and_the_others_are_not_measured_again():
    history, found = run(settings(), 4, lambda ready: ready)
    assert found.left == (2,)
    assert found.ended.known
    sizes = [len(tried) for tried in history]
    assert sizes[1] == sizes[3] == next(rounds(48, 4))
    assert sizes[2] >= sizes[0] > sizes[1]


def test_the_choices_do_not_depend_on_how_many_are_measured_side_by_side():
    rng = random.Random(1)
    ways = (lambda ready: ready, lambda ready: ready[:1], lambda ready: ready[-1:], lambda ready: [rng.choice(ready)])
    for one, other in itertools.pairwise([run(settings(), 4, pick) for pick in ways]):
        assert one == other


def test_a_setting_without_any_point_is_dropped_first():
    excluded = [(), (), COUNTS, ()]
    history, found = run(settings(), 4, lambda ready: ready, excluded)
    assert not history[2]
    assert found.left == (0,)


def test_counts_that_were_measured_and_then_broke_a_limit_are_spent():
    history = [[(1, 10.0)] * 6, []]
    found = race(settings(most=8), history, [(1,), ()])
    assert 0 not in found.choices


def test_the_first_round_tries_every_count_of_the_bracket():
    assert list(rounds(17, 4, bracket=3)) == [3, 4, 7]
    assert next(rounds(5, 4, bracket=3)) == 1  # as far as the measurements go
    history, _ = run(settings(most=20), 4, lambda ready: ready)
    assert all([count for count, _ in tried][:4] == [1, 2, 4, 8] for tried in history)
