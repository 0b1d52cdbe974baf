"""How far a measured curve is from a published one in shape, whatever the machines.

Both curves are divided by their own value at the smallest size they share; what is left is speed-up. The distance is
the root mean square of the logarithm of measured over published, given as a factor: 1 is the same shape, 2 means that
the two speed-ups are typically a factor of two apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from microshard.analysis.bootstrap import Estimate, checked_samples, estimate
from microshard.model.result import Better


@dataclass(frozen=True, slots=True)
class CurveDistance:
    """Distance between two normalised curves."""

    distance: Estimate  # factor, ≥ 1: exp(sqrt(mean(ln(measured/published)²)))
    bias: float  # factor: exp(mean(ln(measured/published))); below 1 the measured curve lies lower
    base: float  # size at which both curves are 1
    ratios: tuple[tuple[float, float], ...]  # size → measured speed-up / published speed-up


def curve_distance(
    measured: Mapping[float, Sequence[float]],
    published: Mapping[float, float],
    better: Better = "lower",
    published_better: Better = "lower",
) -> CurveDistance | None:
    """Distance of the repetitions by size to published values by size; units need not agree.

    None when fewer than two sizes are in both. The interval resamples the repetitions of every size.
    Raises ValueError when a shared value is not finite and positive.
    """
    sizes = sorted(size for size in measured.keys() & published.keys() if measured[size])
    if len(sizes) < 2:
        return None
    samples = tuple(checked_samples(measured[size]) for size in sizes)
    reference = np.asarray([published[size] for size in sizes], dtype=float)
    if min(min(sample) for sample in samples) <= 0 or not np.all(reference > 0) or not np.all(np.isfinite(reference)):
        raise ValueError("curves need positive values")
    target = np.log(reference / reference[0]) * (1 if published_better == "higher" else -1)
    sign = 1 if better == "higher" else -1

    def statistic(*columns: Any, axis: int = -1) -> Any:
        medians = np.stack([np.median(column, axis=axis) for column in columns])
        own = sign * (np.log(medians) - np.log(medians[0]))
        gap = own - target.reshape((-1,) + (1,) * (own.ndim - 1))
        return np.exp(np.sqrt(np.mean(gap[1:] ** 2, axis=0)))

    logs = sign * np.log([np.median(sample) / np.median(samples[0]) for sample in samples]) - target
    ratios = tuple((size, float(np.exp(log))) for size, log in zip(sizes, logs, strict=True))
    return CurveDistance(estimate(samples, statistic), float(np.exp(np.mean(logs[1:]))), sizes[0], ratios)
