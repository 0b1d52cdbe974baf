"""The search for the best shard count: a pure function from what is measured to the next count, or to the end.

1. *bracket*: 1, 2, 4, 8 … shards once each, until the last one is clearly slower than the best.
2. *narrow*: between the best and its measured neighbours, where the slopes beside a gap leave room for a better count.
3. *repeat*: of the best and the count that may yet be better than it, the one with fewer measurements, until every
   other count is slower beyond doubt or within the tolerance, or the measurements are used up.

Everything is decided anew from all measurements each time, so a count that seemed hopeless comes back when the noise
turns out larger. No law of scaling is assumed: only that between two measured counts the curve does not rise above
both its slopes.
"""

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from microshard.search.scores import Better, Ratio, Scores

_DECLINE = 0.10  # the bracket ends at a count that is slower than the best by this, and beyond doubt
_FEWEST_REPEATED = 3  # measurements beyond the first of each count before the noise counts as known
_FEWEST_DOUBLINGS = 3
# A median this close to the best, as a share of the spread of repetitions, is not slower as far as anybody can see.
_HIDDEN = 0.15


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What is searched, how certain the answer must be, and what it may cost."""

    counts: tuple[int, ...]  # numbers of shards of the full grid, ascending
    better: Better
    most: int  # measurements in all
    most_each: int  # measurements of one count
    certainty: float = 0.95
    tolerance: float = 0.03  # counts this close to the best are as good
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """The count to measure next, and why."""

    count: int
    why: str  # bracket, narrow or repeat


@dataclass(frozen=True, slots=True)
class Ended:
    """Why nothing more is measured."""

    reason: str
    known: bool  # the answer is known to the required certainty


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What the measurements say: the counts as numbers of shards."""

    count: int  # recommended: the fewest whose difference from the best is hidden by the noise
    best: int  # the one with the best median
    gain: Ratio  # of the recommended count over the fewest measured
    base: int  # the fewest measured
    alike: tuple[int, ...]  # measured counts that cannot be distinguished from the best
    close: tuple[int, ...]  # measured counts within the tolerance of the best
    spread: float  # of repetitions, as a share: what the intervals rest on


def decide(
    settings: SearchSettings, measured: Mapping[int, Sequence[float]], excluded: Collection[int] = ()
) -> Choice | Ended:
    """The next count to measure, or why there is none. The same arguments give the same choice.

    `measured`: count → values of its valid measurements, positive. `excluded`: counts that cannot be measured.
    """
    counts = [n for n in settings.counts if n not in excluded]
    if not counts:
        return Ended("no count can be measured", known=False)
    scores = Scores({n: measured.get(n, ()) for n in counts}, settings.better, settings.certainty)
    spent = sum(len(values) for values in scores.values.values())
    choice = _bracket(counts, scores) or _narrow(counts, scores, settings) or _repeat(scores, settings, spent)
    if choice is not None:
        return choice if spent < settings.most else Ended(f"{spent} measurements were allowed", known=False)
    if _unresolved(scores, settings):
        return Ended(f"each count in question was measured {settings.most_each} times", known=False)
    return Ended("the answer is known", known=True)


def recommend(settings: SearchSettings, measured: Mapping[int, Sequence[float]]) -> Recommendation:
    """What the measurements say. Raises ValueError when there is none."""
    scores = Scores(measured, settings.better, settings.certainty)
    if not scores.centres:
        raise ValueError("nothing has been measured")
    best = scores.best
    alike = tuple(n for n in scores.centres if not scores.worse(n, best))
    near = math.log1p(settings.tolerance)
    close = tuple(n for n in scores.centres if scores.centres[best] - scores.centres[n] <= near)
    base = min(scores.centres)
    count = min(n for n in alike if scores.centres[best] - scores.centres[n] <= _HIDDEN * scores.spread)
    return Recommendation(
        count=count,
        best=best,
        gain=scores.ratio(count, base),
        base=base,
        alike=alike,
        close=close,
        spread=math.expm1(scores.spread),
    )


def doublings(counts: Sequence[int]) -> list[int]:
    """The counts the bracket tries: the first, then each that is at least twice the one before, and the last."""
    found = [counts[0]]
    for count in counts:
        if count >= 2 * found[-1]:
            found.append(count)
    return found if found[-1] == counts[-1] else [*found, counts[-1]]


def _bracket(counts: Sequence[int], scores: Scores[int]) -> Choice | None:
    for number, count in enumerate(doublings(counts)):
        if count not in scores.centres:
            return Choice(count, "bracket")
        best = max((n for n in scores.centres if n <= count), key=lambda n: scores.centres[n])
        behind = scores.centres[best] - scores.centres[count]
        if number + 1 >= _FEWEST_DOUBLINGS and behind > _DECLINE and scores.worse(count, best):
            return None
    return None


def _narrow(counts: Sequence[int], scores: Scores[int], settings: SearchSettings) -> Choice | None:
    """The middle of the gap beside the best count that leaves most room for a better one."""
    known, best = list(scores.centres), scores.best
    gaps = []
    for low, high in pairwise(known):
        between = [n for n in counts if low < n < high]
        if between and best in {low, high}:
            middle = min(between, key=lambda n: abs(math.log(n) - (math.log(low) + math.log(high)) / 2))
            gaps.append((max(_room(n, low, high, scores) for n in between), -middle))
    if not gaps:
        return None
    room, middle = max(gaps)
    return Choice(-middle, "narrow") if room - scores.centres[best] > math.log1p(settings.tolerance) else None


def _room(count: int, low: int, high: int, scores: Scores[int]) -> float:
    """The highest score the slopes beside a gap leave for a count in it; at most one of a speed-up in proportion."""
    known = list(scores.centres)
    left, right = known[: known.index(low)], known[known.index(high) + 1 :]
    ceilings = [scores.centres[low] + math.log(count / low)]
    if left:
        ceilings.append(_line(left[-1], low, count, scores))
    if right:
        ceilings.append(_line(right[0], high, count, scores))
    return min(ceilings)


def _line(one: int, other: int, count: int, scores: Scores[int]) -> float:
    """The score at a count on the line through two others, along the logarithm of the count."""
    slope = (scores.centres[other] - scores.centres[one]) / math.log(other / one)
    return scores.centres[other] + slope * math.log(count / other)


def _unresolved(scores: Scores[int], settings: SearchSettings) -> list[int]:
    """Counts that may be better than the best one, or fewer shards as good, by more than the tolerance."""
    if not scores.centres:
        return []
    best, near = scores.best, math.log1p(settings.tolerance)
    found = []
    for n in scores.centres:
        if n == best or scores.worse(n, best):
            continue
        loss = scores.centres[best] - scores.centres[n] + scores.margin(n, best)
        if scores.most_gained(n, best) > near or (n < best and loss > near):
            found.append(n)
    return found


def _repeat(scores: Scores[int], settings: SearchSettings, spent: int) -> Choice | None:
    """One of the best count and the one that decides most; at first until the noise is known."""
    best = scores.best
    rivals = _unresolved(scores, settings)
    if not rivals:
        if scores.repeated >= _FEWEST_REPEATED:
            return None
        rivals = [min(scores.centres)]
    rng = random.Random(f"{settings.seed} {spent}")  # noqa: S311 - no secret
    rival = max(rivals, key=lambda n: (scores.most_gained(n, best), rng.random()))
    fewest = [n for n in (best, rival) if len(scores.values[n]) < settings.most_each]
    if not fewest:
        open_ones = [n for n in rivals if len(scores.values[n]) < settings.most_each]
        return Choice(open_ones[0], "repeat") if open_ones else None
    return Choice(min(fewest, key=lambda n: (len(scores.values[n]), rng.random())), "repeat")
