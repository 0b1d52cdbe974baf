"""What a few measurements say of each shard count: centres, the noise they share, which counts can be distinguished.

A score is the logarithm of how fast a measurement was (minus that of a time, that of a rate), so that differences are
ratios and more is better. The noise is pooled over all counts, because one count has two or three measurements only.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, Literal, TypeVar

Key = TypeVar("Key", int, tuple[int, int])
Better = Literal["higher", "lower"]

# Before anything has been measured twice: a spread of 3 %, which counts as much as two repetitions do.
_ASSUMED_SPREAD = 0.03
_ASSUMED_WEIGHT = 2.0
_MEDIAN = 1.16  # standard error of the median of three to nine normal values, over that of their mean


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast one count is as another, with the interval of the required certainty."""

    value: float
    low: float
    high: float


class Scores(Generic[Key]):
    """The measurements of every count so far: numbers of shards, or settings and those. Values are positive."""

    def __init__(self, measured: Mapping[Key, Sequence[float]], better: Better, certainty: float) -> None:
        sign = -1.0 if better == "lower" else 1.0
        self.values: dict[Key, list[float]] = {
            n: [sign * math.log(v) for v in values] for n, values in sorted(measured.items()) if values
        }
        self.centres: dict[Key, float] = {n: statistics.median(scores) for n, scores in self.values.items()}
        self.certainty = certainty
        freedom = float(sum(len(scores) - 1 for scores in self.values.values()))
        squares = sum(statistics.pvariance(s) * len(s) for s in self.values.values() if len(s) > 1)
        self.repeated = int(freedom)  # measurements beyond the first of each count: what the noise is known from
        self.freedom = freedom + _ASSUMED_WEIGHT
        self.spread = math.sqrt((squares + _ASSUMED_WEIGHT * _ASSUMED_SPREAD**2) / self.freedom)

    @property
    def best(self) -> Key:
        """The count with the highest score; of equal ones the fewest shards."""
        return max(self.centres, key=lambda n: self.centres[n])  # ascending, and the first of equal ones

    def ratio(self, count: Key, base: Key) -> Ratio:
        """How many times as fast `count` is as `base`; of a count and itself exactly 1."""
        if count == base:
            return Ratio(1.0, 1.0, 1.0)
        difference = self.centres[count] - self.centres[base]
        margin = self._margin(count, base, comparisons=1)
        return Ratio(math.exp(difference), math.exp(difference - margin), math.exp(difference + margin))

    def margin(self, one: Key, other: Key) -> float:
        """Half the interval of the difference of two scores, where all with the best together have the certainty."""
        return self._margin(one, other, comparisons=max(len(self.values) - 1, 1))

    def _margin(self, one: Key, other: Key, comparisons: int) -> float:
        variance = sum(self._error(n) ** 2 for n in (one, other))
        certainty = 1 - (1 - self.certainty) / comparisons  # Bonferroni
        return quantile(certainty, self.freedom) * math.sqrt(variance)

    def worse(self, count: Key, than: Key) -> bool:
        """Whether a count is slower than another beyond doubt."""
        return self.centres[than] - self.centres[count] > self.margin(count, than)

    def most_gained(self, count: Key, over: Key) -> float:
        """The most by which a count may be faster than another, as a difference of scores."""
        return self.centres[count] - self.centres[over] + self.margin(count, over)

    def _error(self, count: Key) -> float:
        n = len(self.values[count])
        return self.spread * (_MEDIAN if n > 2 else 1.0) / math.sqrt(n)


@lru_cache(maxsize=4096)
def quantile(certainty: float, freedom: float) -> float:
    """Student's t of a two-sided interval with this certainty (0 to 1)."""
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to import, and the command line starts without it

    return float(stdtrit(freedom, (1 + certainty) / 2))
