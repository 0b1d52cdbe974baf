"""Several settings of other axes beside the shard count: successive halving.

In a round each setting that is left gets equally many measurements, which the search of its own shard counts chooses;
then the better half stays, and the last one gets what is left. A round is judged by what it and the rounds before it
measured, and nothing of one setting depends on when another one is measured: the choices are the same however many
settings are measured side by side, and after resuming.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from microshard.search.scores import Scores
from microshard.search.shard_count import Choice, Ended, SearchSettings, decide, doublings

History = Sequence[Sequence[tuple[int, float]]]  # of each setting: shard count and value, in the order of measuring


@dataclass(frozen=True, slots=True)
class Race:
    """How far a search over settings has come."""

    left: tuple[int, ...]  # settings that were not dropped, by their index
    choices: Mapping[int, Choice] = field(default_factory=dict)  # of each that is measured in this round: its next
    ended: Ended | None = None


def race(settings: SearchSettings, history: History, excluded: Sequence[Collection[int]]) -> Race:
    """The settings that are left, and what to measure of each. The same arguments give the same choices.

    `excluded`: of each setting the counts that cannot be measured or break a limit.
    """
    left: tuple[int, ...] = tuple(range(len(history)))
    for round_, each in enumerate(rounds(settings.most, len(history), len(doublings(settings.counts)))):
        last = round_ + 1 == number_of_rounds(len(history))
        most = settings.most - sum(len(history[n]) for n in range(len(history)) if n not in left) if last else each
        found = {n: _next(dataclasses.replace(settings, most=most), history[n], excluded[n]) for n in left}
        choices = {n: choice for n, choice in found.items() if isinstance(choice, Choice)}
        if choices:
            return Race(left, choices)
        if last:
            (ended,) = found.values()
            return Race(left, ended=ended if isinstance(ended, Ended) else None)
        left = _better_half(settings, {n: history[n][:most] for n in left}, excluded)
    raise AssertionError("the last round returns")


def number_of_rounds(settings: int) -> int:
    """Rounds until one setting is left, and one more for it."""
    return math.ceil(math.log2(settings)) + 1


def rounds(most: int, settings: int, bracket: int = 1) -> Iterator[int]:
    """Measurements of a setting until the end of each round, so that every round takes about as many in all.

    The first round has room for a `bracket` of each setting: none is dropped for the shards it was tried with.
    """
    spent = total = 0
    for left in range(number_of_rounds(settings), 0, -1):
        each = max(1, (most - spent) // (left * settings))
        if not total:
            each = max(each, min(bracket, most // settings))
        total, spent = total + each, spent + each * settings
        settings = math.ceil(settings / 2)
        yield total


def candidates(
    history: History, excluded: Sequence[Collection[int]], only: Collection[int] | None = None
) -> dict[tuple[int, int], list[float]]:
    """Setting and count → values, without what is excluded; of the settings in `only` where that is given."""
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    for setting, tried in enumerate(history):
        for count, value in tried:
            if count not in excluded[setting] and (only is None or setting in only):
                found[setting, count].append(value)
    return dict(found)


def _next(settings: SearchSettings, tried: Sequence[tuple[int, float]], excluded: Collection[int]) -> Choice | Ended:
    choice = decide(settings, _by_count(tried[: settings.most]), excluded)
    if isinstance(choice, Choice) and len(tried) >= settings.most:  # some of them of counts that are excluded since
        return Ended(f"{settings.most} measurements were allowed", known=False)
    return choice


def _better_half(
    settings: SearchSettings, tried: Mapping[int, Sequence[tuple[int, float]]], excluded: Sequence[Collection[int]]
) -> tuple[int, ...]:
    history = [tried.get(n, ()) for n in range(len(excluded))]
    scores = Scores(candidates(history, excluded), settings.better, settings.certainty)
    best = {n: max((c for (m, _), c in scores.centres.items() if m == n), default=-math.inf) for n in tried}
    return tuple(sorted(sorted(best, key=lambda n: (-best[n], n))[: math.ceil(len(best) / 2)]))


def _by_count(tried: Sequence[tuple[int, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for count, value in tried:
        found.setdefault(count, []).append(value)
    return found
