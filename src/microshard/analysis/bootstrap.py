"""Medians and their ratios with bootstrap intervals.

The interval is that of `scipy.stats.bootstrap`, in one of two forms:

- *BCa* (bias-corrected and accelerated; Efron, "Better bootstrap confidence intervals", JASA 82, 1987) from eight
  repetitions on. Below that its acceleration is estimated from a jackknife of a median that takes at most three
  different values, which corrects nothing.
- *percentile* otherwise, and wherever BCa has no answer (all repetitions but one equal, for example).

No bootstrap of a median reaches beyond the smallest and the largest repetition. The range of n repetitions covers the
true median with probability 1 - 2^(1-n): 75 % for three, 94 % for five, 97 % for six. `Interval.coverage` carries that
ceiling, so that nobody takes the interval of three repetitions for a 95 % interval.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from microshard.model.result import Better

Samples = tuple[float, ...]

LEVEL = 0.95
RESAMPLES = 1999  # a nominal 2.5 % is then met to 0.7 % (two standard errors), and a thousand points take seconds
BCA_FROM = 8  # repetitions; see the module's description
SEED = 20150703  # the same run gives the same report, to the last digit


@dataclass(frozen=True, slots=True)
class Interval:
    """A confidence interval, in the unit of its estimate."""

    low: float
    high: float
    level: float  # nominal, 0 to 1
    method: str
    coverage: float  # most that so few repetitions can give, 0 to 1; at most `level`


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with what is known of its uncertainty."""

    value: float
    interval: Interval | None
    n: int  # repetitions the figure rests on; of a ratio the smaller of the two
    note: str = ""  # why there is no interval

    def scaled(self, factor: float) -> Estimate:
        """The estimate times a positive constant."""
        span = self.interval
        if span is not None:
            span = replace(span, low=span.low * factor, high=span.high * factor)
        return replace(self, value=self.value * factor, interval=span)


def median_estimate(values: Sequence[float]) -> Estimate:
    """The median of the repetitions with its bootstrap interval, in the unit of `values`.

    One repetition has no interval. Raises ValueError when there is none or one is not finite.
    """
    return _cached((checked_samples(values),), _median)


def ratio_estimate(numerator: Sequence[float], denominator: Sequence[float]) -> Estimate:
    """Median of `numerator` over median of `denominator`, both resampled independently; without unit.

    Raises ValueError when a side is empty, or holds a value that is not finite and positive.
    """
    above, below = checked_samples(numerator), checked_samples(denominator)
    if min(above) <= 0 or min(below) <= 0:
        raise ValueError("a ratio needs positive values")
    return _cached((above, below), _median_ratio)


def estimate(data: tuple[Samples, ...], statistic: Callable[..., Any]) -> Estimate:
    """A statistic of one or more samples with its bootstrap interval; none where a sample has one value only."""
    value = float(statistic(*map(np.asarray, data)))
    fewest = min(map(len, data))
    if fewest == 1:
        return Estimate(value, None, 1, "one repetition has no interval")
    return Estimate(value, bootstrap_interval(data, statistic, value), fewest)


_cached = lru_cache(maxsize=65536)(estimate)


def speed_up(base: Sequence[float], values: Sequence[float], better: Better = "lower") -> Estimate:
    """How many times as fast `values` is as `base`; 1 is as fast, without unit.

    Times (`better` = "lower"): median(base) / median(values). Rates ("higher"): median(values) / median(base).
    Raises ValueError as `ratio_estimate` does.
    """
    return ratio_estimate(base, values) if better == "lower" else ratio_estimate(values, base)


def efficiency(speed: Estimate, size: float, base_size: float) -> Estimate:
    """Speed-up over growth: speed_up / (size / base_size); 1 is ideal, without unit.

    Raises ValueError when a size is not positive.
    """
    if size <= 0 or base_size <= 0:
        raise ValueError("sizes must be positive")
    return speed.scaled(base_size / size)


def usable_cores(shards: float, cores: float) -> float:
    """How many cores `shards` processes can keep busy when each uses one for a query: min(shards, cores).

    An aggregation runs on one thread a shard, so efficiency "of the cores" divides the speed-up by the ratio of these.
    """
    return min(shards, cores)


def checked_samples(values: Sequence[float]) -> Samples:
    """The repetitions as a tuple. Raises ValueError when there is none or one is not finite."""
    if not values:
        raise ValueError("no repetitions")
    samples = tuple(float(v) for v in values)
    if not all(math.isfinite(v) for v in samples):
        raise ValueError("repetitions must be finite numbers")
    return samples


def _median(sample: NDArray[np.float64], axis: int = -1) -> Any:
    return np.median(sample, axis=axis)


def _median_ratio(above: NDArray[np.float64], below: NDArray[np.float64], axis: int = -1) -> Any:
    return np.median(above, axis=axis) / np.median(below, axis=axis)


def bootstrap_interval(data: tuple[Samples, ...], statistic: Callable[..., Any], value: float) -> Interval:
    """Bootstrap interval of `statistic` over one or more samples of two or more values each."""
    coverage = min([LEVEL, *(1 - 2.0 ** (1 - len(sample)) for sample in data)])
    if all(min(sample) == max(sample) for sample in data):
        return Interval(value, value, LEVEL, "all repetitions are equal", coverage)
    arrays = tuple(map(np.asarray, data))
    if min(map(len, data)) >= BCA_FROM:
        low, high = _bca(arrays, statistic)
        # BCa of nearly degenerate data is NaN, or an interval beside its own estimate.
        if math.isfinite(low) and math.isfinite(high) and low <= value <= high:
            return Interval(low, high, LEVEL, "BCa bootstrap", coverage)
    low, high = _percentile(arrays, statistic)
    # Rounding in the resampled ratio can leave the estimate one unit in the last place outside.
    return Interval(min(low, value), max(high, value), LEVEL, "percentile bootstrap", coverage)


def _bca(arrays: tuple[NDArray[np.float64], ...], statistic: Callable[..., Any]) -> tuple[float, float]:
    from scipy import stats  # noqa: PLC0415 - half a second, and the command line starts without it

    options: dict[str, Any] = {"n_resamples": RESAMPLES, "confidence_level": LEVEL, "method": "BCa"}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # degenerate data is answered by the caller
        rng = np.random.default_rng(SEED)
        found = stats.bootstrap(arrays, statistic, vectorized=True, paired=False, rng=rng, **options)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _percentile(arrays: tuple[NDArray[np.float64], ...], statistic: Callable[..., Any]) -> tuple[float, float]:
    """What `scipy.stats.bootstrap` says, but for rounding, in two fifths of its time: a thousand points ask for it."""
    chosen = _resamples(tuple(map(len, arrays)))
    with np.errstate(all="ignore"):
        found = statistic(*(array[places] for array, places in zip(arrays, chosen, strict=True)), axis=-1)
    low, high = np.quantile(found, ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return float(low), float(high)


@lru_cache(maxsize=64)
def _resamples(sizes: tuple[int, ...]) -> tuple[NDArray[np.int64], ...]:
    """Places of the repetitions in every resample of samples of these sizes; with one seed they are always the same."""
    rng = np.random.default_rng(SEED)
    return tuple(rng.integers(0, size, (RESAMPLES, size)) for size in sizes)
