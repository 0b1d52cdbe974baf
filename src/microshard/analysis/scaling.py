"""The Universal Scalability Law: how throughput grows with the number of shards, and where it turns back.

    X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))

lambda is the throughput of one shard, sigma contention (work that cannot be shared), kappa coherency (work that each
pair of shards adds); the knee is N* = sqrt((1 - sigma) / kappa). Source: N. J. Gunther, "A General Theory of
Computational Scalability Based on Rational Functions", 2008, https://arxiv.org/abs/0808.1431.

N / X(N) = a + b (N - 1) + c N (N - 1), with a = 1/lambda, b = sigma/lambda and c = kappa/lambda, is linear in a, b, c.
Weighted by X/N its residuals are relative errors, so a non-negative least squares (scipy.optimize.nnls) finds the one
best fit: no start values, no local minimum, no negative coefficients.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from microshard.analysis.bootstrap import LEVEL, SEED, Estimate, Interval, checked_samples
from microshard.model.result import Better

FEWEST_SIZES = 4  # three coefficients, and one size over to contradict them
WORST_MISFIT = 0.2  # relative error at one size above which the curve does not follow the law
RESAMPLES = 999
NOTHING = 1e-9  # a coefficient below this is zero: nnls stops at the bound


@dataclass(frozen=True, slots=True)
class Refused:
    """The data does not carry the fit, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class UslFit:
    """A fit of the law. `sigma` and `kappa` have no unit, `knee` is a number of shards."""

    rate: float  # lambda, in 1/unit of the times or in the unit of the rates
    sigma: Estimate
    kappa: Estimate
    knee: Estimate | None
    knee_note: str  # why there is no knee, or what to hold against it
    misfit: float  # largest relative error of the law at a measured size

    def throughput(self, size: float) -> float:
        """X(N) at `size`, in the unit of `rate`."""
        return self.rate * size / (1 + self.sigma.value * (size - 1) + self.kappa.value * size * (size - 1))


def fit_usl(
    sizes: Sequence[float], repetitions: Sequence[Sequence[float]], better: Better = "lower"
) -> UslFit | Refused:
    """Fit the law to the medians of `repetitions` at `sizes`; times ("lower") or rates ("higher").

    Intervals come from a percentile bootstrap: the repetitions of every size are resampled and the law fitted anew.
    Refused with a reason when there are too few sizes or the curve does not have this shape.
    Raises ValueError when the arguments do not fit together or a value is not finite and positive.
    """
    if len(sizes) != len(repetitions):
        raise ValueError("as many sizes as lists of repetitions")
    samples = [np.asarray(checked_samples(values)) for values in repetitions]
    n = np.asarray(sizes, dtype=float)
    if np.any(n < 1) or any(np.any(sample <= 0) for sample in samples):
        raise ValueError("the law needs sizes of at least 1 and positive values")
    if len(set(n.tolist())) < FEWEST_SIZES:
        return Refused(f"needs {FEWEST_SIZES} sizes, has {len(set(n.tolist()))}")
    costs = [_cost(size, sample, better) for size, sample in zip(n, samples, strict=True)]
    best = _solve(n, np.asarray([np.median(cost) for cost in costs]))
    if best is None:
        return Refused("no throughput of one shard explains the measured values")
    rate, sigma, kappa, misfit, worst = best
    if misfit > WORST_MISFIT:
        return Refused(f"the curve does not have this shape: the best fit is {misfit:.0%} off at {n[worst]:g}")
    resampled = _resample(n, costs)
    fewest = min(len(sample) for sample in samples)
    contention, coherency = (_with_interval(v, resampled[:, c], fewest) for c, v in enumerate((sigma, kappa)))
    knee, note = _knee(sigma, kappa, resampled, float(n.max()), fewest)
    return UslFit(rate, contention, coherency, knee, note, misfit)


def _cost(size: float, values: NDArray[np.float64], better: Better) -> NDArray[np.float64]:
    """N / X(N): the shard-seconds of one unit of work."""
    return size * values if better == "lower" else size / values


def _solve(n: NDArray[np.float64], cost: NDArray[np.float64]) -> tuple[float, float, float, float, int] | None:
    """lambda, sigma, kappa, the largest relative misfit and where it is; None when lambda would be infinite."""
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and the command line starts without it

    columns = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1)
    weighted = columns / cost[:, None]
    (a, b, c), _ = nnls(weighted, np.ones_like(n))
    if a <= NOTHING * float(cost.max()):
        return None
    off = np.abs(cost / (columns @ np.asarray([a, b, c])) - 1)
    worst = int(np.argmax(off))
    return float(1 / a), float(b / a), float(c / a), float(off[worst]), worst


def _resample(n: NDArray[np.float64], costs: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """sigma and kappa of every resample, a row each; resamples without a solution are left out."""
    rng = np.random.default_rng(SEED)
    columns = [np.median(rng.choice(cost, (RESAMPLES, len(cost))), axis=1) for cost in costs]
    solved = (_solve(n, medians) for medians in np.stack(columns, axis=1))
    return np.asarray([found[1:3] for found in solved if found is not None]).reshape(-1, 2)


def _with_interval(value: float, resampled: NDArray[np.float64], fewest: int) -> Estimate:
    if fewest < 2:
        return Estimate(value, None, fewest, "one repetition has no interval")
    tail = (1 - LEVEL) / 2
    # method "lower"/"higher" never interpolates towards the infinite knee of a resample without coherency
    low = float(np.quantile(resampled, tail, method="lower"))
    high = float(np.quantile(resampled, 1 - tail, method="higher"))
    coverage = min(LEVEL, 1 - 2.0 ** (1 - fewest))
    return Estimate(value, Interval(min(low, value), max(high, value), LEVEL, "percentile bootstrap", coverage), fewest)


def _knee(
    sigma: float, kappa: float, resampled: NDArray[np.float64], largest: float, fewest: int
) -> tuple[Estimate | None, str]:
    # Bounds come before arithmetic: whether a contention of 1 is fitted as 1 or as 1 - 1e-16 depends on the processor.
    full_contention = sigma >= 1 - NOTHING
    if not full_contention and kappa <= NOTHING:
        return None, "kappa is 0: the fit rises for ever and has no knee"
    value = 1.0 if full_contention else math.sqrt((1 - sigma) / kappa)
    if value <= 1:
        return Estimate(1.0, None, fewest, "the fit falls from one shard on"), "every further shard makes it slower"
    with np.errstate(divide="ignore", invalid="ignore"):
        knees = np.sqrt(
            np.clip(1 - resampled[:, 0], 0, None) / np.where(resampled[:, 1] > NOTHING, resampled[:, 1], 0.0)
        )
    estimate = _with_interval(value, np.maximum(np.nan_to_num(knees, nan=1.0, posinf=math.inf), 1.0), fewest)
    if estimate.interval is not None and math.isinf(estimate.interval.high):
        return None, f"the repetitions do not tell kappa from 0 (best guess of the knee: {value:.1f})"
    if value > 2 * largest:
        return None, f"the knee would lie at {value:.0f}, far beyond the largest measured size {largest:g}"
    return estimate, "" if value <= largest else f"beyond the largest measured size {largest:g}"
