"""Whether two sets of repetitions differ, and by how much.

Repetitions are few and their noise grows with their size, so logarithms are compared: Welch's t-test (scipy), whose
interval back on the scale of the metric is one for the ratio of geometric means. A bootstrap of three repetitions can
promise no more than 75 % (stats/bootstrap.py); the t distribution is honest about small numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from microshard.analysis.statistics import Better

Verdict = Literal["better", "worse", "no difference", "cannot tell"]
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Change:
    """Other over base, of one metric at one point."""

    ratio: float | None  # of geometric means, without unit; None where a side has no positive value
    low: float | None  # interval of the ratio at LEVEL; None with fewer than two repetitions on a side
    high: float | None
    p: float | None  # of the hypothesis that the change is within the tolerance
    verdict: Verdict
    why: str = ""  # of "cannot tell"


def change(base: Sequence[float], other: Sequence[float], tolerance: float = 0.0) -> Change:
    """Compare two sets of repetitions of one metric; the verdict is left to `decide`.

    `tolerance` is a share: 0.05 takes ratios from 1/1.05 to 1.05 for equal. Values must be positive to be compared.
    """
    if not base or not other:
        return Change(None, None, None, None, "cannot tell", "no valid measurement in " + _sides(base, other))
    if min(*base, *other) <= 0 or not all(map(math.isfinite, (*base, *other))):
        return Change(None, None, None, None, "cannot tell", "a ratio needs positive values")
    logs = [[math.log(v) for v in side] for side in (base, other)]
    difference = _mean(logs[1]) - _mean(logs[0])
    if min(len(base), len(other)) < 2:
        return Change(math.exp(difference), None, None, None, "cannot tell", "one repetition shows no scatter")
    margin = math.log1p(tolerance)
    if all(max(side) - min(side) < 1e-12 for side in logs):  # nothing scatters: counts, sizes
        p = 1.0 if abs(difference) <= margin + 1e-12 else 0.0
        ratio = math.exp(difference)
        return Change(ratio, ratio, ratio, p, "no difference")
    from scipy import stats  # noqa: PLC0415 - half a second, and the command line starts without it

    test = stats.ttest_ind(logs[1], logs[0], equal_var=False)
    span = test.confidence_interval(LEVEL)
    # The nearer edge of the tolerance is the hypothesis; inside it there is nothing to reject.
    beyond = abs(difference) - margin
    error = abs(difference / test.statistic) if test.statistic else math.inf
    p = min(1.0, 2 * float(stats.t.sf(beyond / error, test.df))) if beyond > 0 else 1.0
    return Change(math.exp(difference), math.exp(span.low), math.exp(span.high), p, "no difference")


def decide(changes: Sequence[Change], better: Sequence[Better]) -> list[Change]:
    """The verdicts of all points together.

    Of a thousand equal points fifty would differ at 95 %. The p values are therefore adjusted (Benjamini and Hochberg,
    1995, by scipy): where nothing differs at all, one time in twenty anything is called different.
    """
    tested = [index for index, found in enumerate(changes) if found.p is not None]
    if not tested:
        return list(changes)
    from scipy import stats  # noqa: PLC0415

    adjusted = stats.false_discovery_control([changes[index].p for index in tested])
    result = list(changes)
    for index, p in zip(tested, adjusted, strict=True):
        found = changes[index]
        assert found.ratio is not None  # noqa: S101 - there is a p only with a ratio
        if p < 1 - LEVEL:
            gained = (found.ratio < 1) == (better[index] == "lower")
            result[index] = replace(found, verdict="better" if gained else "worse")
    return result


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sides(base: Sequence[float], other: Sequence[float]) -> str:
    return "either run" if not base and not other else "the first run" if not base else "the second run"
