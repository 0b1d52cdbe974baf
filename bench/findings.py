"""What a benchmark hands back: rows to compare with a target, and how figures grow."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from microshard.analysis.bootstrap import Estimate, median_estimate, ratio_estimate

Span = tuple[float, float]
_RESAMPLES = 999
_SEED = 7


@dataclass(frozen=True)
class Target:
    """A limit: `most` is an upper one, else it is a lower one."""

    limit: float
    most: bool = True

    def met(self, value: float) -> bool:
        """Whether a value meets it."""
        return value <= self.limit if self.most else value >= self.limit

    def used(self, value: float) -> float:
        """How much of the room is used, below 1 is met: value over limit, or limit over value for a lower one."""
        if self.most:
            return value / self.limit if self.limit else (math.inf if value > 0 else 0.0)
        return self.limit / value if value > 0 else math.inf


@dataclass(frozen=True)
class Row:
    """A figure, its baseline and its target."""

    number: int  # of the table in docs/benchmarks.md; 0: a further one
    name: str
    baseline: str  # what a user would take instead; "" where it is an absolute figure
    ratio: float  # ours over the other's; of an absolute figure the figure itself, in `unit`
    interval: Span | None  # 95 %, of `ratio`; None with one repetition
    target: Target | None
    unit: str = "×"
    ours: str = ""  # the medians behind a ratio, for people
    other: str = ""
    repetitions: int = 1
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        return None if self.target is None else self.target.met(self.ratio)

    def as_json(self) -> dict[str, Any]:
        """The row for programs."""
        return {**dataclasses.asdict(self), "met": self.met}


@dataclass(frozen=True)
class Growth:
    """How a figure grows: `values` of each size, and the exponent b of value = a * size^b."""

    name: str
    along: str  # shards, connections, hosts, points
    unit: str
    sizes: tuple[int, ...]
    medians: tuple[float, ...]
    exponent: float | None  # None below three sizes
    interval: Span | None


@dataclass
class Findings:
    """The findings of one benchmark."""

    rows: list[Row] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # what was not measured, and why
    date: str = ""  # of the measurement
    seconds: float = 0.0  # duration
    load: float = 0.0  # of the machine before it, average over a minute

    def as_json(self) -> dict[str, Any]:
        """The findings for programs."""
        return {
            "rows": [row.as_json() for row in self.rows],
            "growths": [dataclasses.asdict(growth) for growth in self.growths],
            "missing": self.missing,
            "date": self.date,
            "seconds": self.seconds,
            "load": self.load,
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Findings:
        """The reverse of `as_json`."""
        rows = []
        for row in data["rows"]:
            kept = {key: value for key, value in row.items() if key != "met"}
            kept["target"] = None if row["target"] is None else Target(**row["target"])
            kept["interval"] = None if row["interval"] is None else tuple(row["interval"])
            rows.append(Row(**kept))
        growths = [
            Growth(
                **{
                    **growth,
                    "sizes": tuple(growth["sizes"]),
                    "medians": tuple(growth["medians"]),
                    "interval": None if growth["interval"] is None else tuple(growth["interval"]),
                }
            )
            for growth in data["growths"]
        ]
        return cls(rows, growths, list(data["missing"]), data["date"], data["seconds"], data["load"])


def compared(
    number: int,
    name: str,
    ours: Sequence[float],
    baseline: str,
    other: Sequence[float],
    unit: str,
    target: Target | None = None,
    note: str = "",
) -> Row:
    """A row of two series of repetitions: their ratio with its bootstrap interval."""
    estimate = in_turns(ours, other)
    span = estimate.interval
    return Row(
        number,
        name,
        baseline,
        estimate.value,
        None if span is None else (span.low, span.high),
        target,
        ours=formatted(statistics.median(ours), unit),
        other=formatted(statistics.median(other), unit),
        repetitions=estimate.n,
        note=note,
    )


def in_turns(ours: Sequence[float], other: Sequence[float]) -> Estimate:
    """Ours over the other's, where one of each was measured after the other: the median of the rounds' ratios.

    A machine whose speed drifts meets both sides of a round, so the ratios of rounds scatter less than either series.
    Where the series are not equally long, the ratio of their medians.
    """
    if len(ours) != len(other):
        return ratio_estimate(ours, other)
    return median_estimate([mine / theirs for mine, theirs in zip(ours, other, strict=True)])


def absolute(
    number: int, name: str, values: Sequence[float], unit: str, target: Target | None = None, note: str = ""
) -> Row:
    """A row without a baseline: its median with its bootstrap interval."""
    estimate = median_estimate(values)
    span = estimate.interval
    interval = None if span is None else (span.low, span.high)
    return Row(number, name, "", estimate.value, interval, target, unit=unit, repetitions=estimate.n, note=note)


def formatted(value: float, unit: str) -> str:
    """The value with its unit and three digits."""
    if unit == "%":
        return f"{value:.1f} %"
    if value != 0 and not 0.01 <= abs(value) < 1000:
        return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.2g} {unit}"
    return f"{value:.3g} {unit}"


def growth(name: str, along: str, unit: str, series: Mapping[int, Sequence[float]]) -> Growth:
    """How the medians of `series` (size → repetitions) grow, by least squares on logarithms.

    The interval comes from resampling the repetitions of each size; None where a size has only one.
    """
    sizes = sorted(size for size, values in series.items() if values)
    medians = [statistics.median(series[size]) for size in sizes]
    if len(sizes) < 3 or min(medians) <= 0:
        return Growth(name, along, unit, tuple(sizes), tuple(medians), None, None)
    interval = None
    if min(len(series[size]) for size in sizes) > 1:
        rng = np.random.default_rng(_SEED)
        drawn = [
            _slope(sizes, [float(np.median(rng.choice(series[size], len(series[size])))) for size in sizes])
            for _ in range(_RESAMPLES)
        ]
        interval = (float(np.quantile(drawn, 0.025)), float(np.quantile(drawn, 0.975)))
    return Growth(name, along, unit, tuple(sizes), tuple(medians), _slope(sizes, medians), interval)


def _slope(sizes: Sequence[int], values: Sequence[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
