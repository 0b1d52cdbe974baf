"""Two runs of an experiment, matched point by point: does a metric differ, and by how much?

Repetitions are few and their noise grows with their size, so logarithms are compared: Welch's t-test (scipy), whose
interval back on the scale of the metric is one for the ratio of geometric means. A bootstrap of three repetitions can
promise no more than 75 % (bootstrap.py); the t distribution is honest about small numbers.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from microshard.analysis.measurements import measurements
from microshard.analysis.read_run import RunFiles, read_run
from microshard.analysis.report_model import Measurement
from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.model.result import Better, StepResult
from microshard.records.differences import Difference, differences

Key = tuple[str, str]  # axes as JSON, phase
# Parts of a definition that change no measurement.
_NOT_COMPARED = ("title", "name", "scales", "reference", "reproduces", "lock", "microshard")
ChangeVerdict = Literal["better", "worse", "no difference", "inconclusive", "not comparable"]
LEVEL = 0.95


class NothingInCommonError(MicroshardError):
    """Two runs without a point that both have."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One metric at one point of one run."""

    values: tuple[float, ...]  # of the valid repetitions, in the metric's unit
    invalid: tuple[str, ...]  # why others do not count
    answers: tuple[tuple[str, str], ...]  # question, hash of the answer

    @property
    def mean(self) -> float | None:
        """Geometric mean of the valid repetitions, which is what the ratio is made of; None without positive values."""
        return statistics.geometric_mean(self.values) if self.values and min(self.values) > 0 else None


@dataclass(frozen=True, slots=True)
class ComparedPhase:
    """One metric at one point of both runs."""

    label: str
    axes: Mapping[str, Any]
    phase: str
    metric: str
    unit: str
    better: Better
    base: ComparedSide
    other: ComparedSide
    change: Change
    other_answer: bool  # the same question of the same data was answered otherwise
    other_question: bool = False  # other data was loaded, or another query measured: nothing can be compared


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other; ratios are `other` over `base`."""

    base: str
    other: str
    tolerance: float
    rows: tuple[ComparedPhase, ...]
    definition: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    only_base: tuple[str, ...]  # labels of the points only one run has
    only_other: tuple[str, ...]

    @property
    def worse(self) -> list[ComparedPhase]:
        """Where the other run is worse than the tolerance allows, or answers otherwise."""
        return [row for row in self.rows if row.change.verdict == "worse" or row.other_answer]

    @property
    def incomparable(self) -> list[ComparedPhase]:
        """Where the two runs measured different things."""
        return [row for row in self.rows if row.other_question]

    @property
    def unseen(self) -> list[tuple[float, str]]:
        """(share, point): a difference below it lies inside the interval of no change; the smallest first."""
        found = [(row.change, row.label) for row in self.rows]
        return sorted(
            (math.sqrt(change.high / change.low) - 1, label) for change, label in found if change.low and change.high
        )


@dataclass(frozen=True, slots=True)
class Change:
    """Other over base, of one metric at one point."""

    ratio: float | None  # of geometric means, without unit; None where a side has no positive value
    low: float | None  # interval of the ratio at LEVEL; None with fewer than two repetitions on a side
    high: float | None
    p: float | None  # of the hypothesis that the change is within the tolerance
    verdict: ChangeVerdict
    why: str = ""  # it is inconclusive


def change(base: Sequence[float], other: Sequence[float], tolerance: float = 0.0) -> Change:
    """Compare two sets of repetitions of one metric; `decide` gives the verdict.

    `tolerance` is a share: 0.05 takes ratios from 1/1.05 to 1.05 for equal. Values must be positive to be compared.
    """
    if not base or not other:
        where = "either run" if not base and not other else "the first run" if not base else "the second run"
        return Change(None, None, None, None, "inconclusive", f"no valid measurement in {where}")
    if min(*base, *other) <= 0 or not all(map(math.isfinite, (*base, *other))):
        return Change(None, None, None, None, "inconclusive", "a ratio needs positive values")
    logs = [[math.log(v) for v in side] for side in (base, other)]
    difference = statistics.fmean(logs[1]) - statistics.fmean(logs[0])
    if min(len(base), len(other)) < 2:
        return Change(math.exp(difference), None, None, None, "inconclusive", "needs at least 2 repetitions")
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


def compare(base: Path, other: Path, tolerance: float = 0.0) -> Comparison:
    """Compare two run folders. Raises RunFolderError, NothingInCommonError."""
    runs = read_run(base), read_run(other)
    sides = [_measured(run) for run in runs]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        shown = " and ".join(map(_shown, runs))
        raise NothingInCommonError(
            f"{shown} have no measured point in common: points are the same when their axes and their phase are"
        )
    # Plans of older versions do not state their questions.
    stated = all(any(p.question is not None for p in point.phases) for r in runs if r.plan for point in r.plan.points)
    rows = [_row(key, sides[0][key], sides[1][key], tolerance, stated=stated) for key in common]
    changes = decide([row.change for row in rows], [row.better for row in rows])
    only = [
        tuple(dict.fromkeys(label for key, (label, _) in mine.items() if key not in theirs))
        for mine, theirs in (sides, reversed(sides))
    ]
    return Comparison(
        base=runs[0].marker.run_id,
        other=runs[1].marker.run_id,
        tolerance=tolerance,
        rows=tuple(replace(row, change=change) for row, change in zip(rows, changes, strict=True)),
        definition=tuple(differences(*map(_definition, runs))),
        environment=tuple(differences(*map(_environment, runs))),
        only_base=only[0],
        only_other=only[1],
    )


def _measured(run: RunFiles) -> dict[Key, tuple[str, list[Measurement]]]:
    """Every metric of every point → the point's label and its measurements, in the order of the plan."""
    grouped: dict[Key, tuple[str, list[Measurement]]] = {}
    by_point: dict[str, list[tuple[str, StepResult]]] = {}
    for (name, step), result in run.results.items():
        by_point.setdefault(name, []).append((step, result))
    for point in run.plan.points if run.plan else ():
        axes = json.dumps(point.axes, sort_keys=True, default=str)
        for order, (step, result) in enumerate(by_point.get(point.id, [])):
            for measured in measurements(point, point.id, step, order, result):
                if measured.result.kind == "measure" and measured.purpose == "measure":
                    grouped.setdefault((axes, measured.result.name), (point.label, []))[1].append(measured)
    return grouped


def _row(
    key: Key,
    base: tuple[str, list[Measurement]],
    other: tuple[str, list[Measurement]],
    tolerance: float,
    *,
    stated: bool,
) -> ComparedPhase:
    """One metric at one point, compared without regard to the others."""
    every = [*base[1], *other[1]]
    named = next((m for m in every if m.counts), base[1][0])  # a failed measurement does not name the metric
    metrics = dict.fromkeys(f"{m.metric} in {m.unit}" for m in every if m.counts)
    mine, theirs = _side(base[1]), _side(other[1])
    questions = [{m.question for m in side[1]} for side in (base, other)]
    incomparable = stated and not questions[0] & questions[1]
    if incomparable:
        found = Change(None, None, None, None, "not comparable", "other data or another query")
    elif len(metrics) > 1:
        found = Change(None, None, None, None, "inconclusive", f"not the same metric: {' and '.join(metrics)}")
    else:
        found = change(mine.values, theirs.values, tolerance)
    known = dict(mine.answers)
    return ComparedPhase(
        label=base[0],
        axes=json.loads(key[0]),
        phase=key[1],
        metric=named.metric,
        unit=named.unit,
        better=named.better,
        base=mine,
        other=theirs,
        change=found,
        other_answer=any(known.get(question, answer) != answer for question, answer in theirs.answers),
        other_question=incomparable,
    )


def _side(found: list[Measurement]) -> ComparedSide:
    answers = dict.fromkeys((m.question, m.result.answer_sha256) for m in found if m.counts and m.result.answer_sha256)
    return ComparedSide(
        values=tuple(m.value for m in found if m.counts and m.value is not None),
        invalid=tuple(dict.fromkeys(p for m in found if not m.counts for p in m.problems or ("no value",))),
        answers=tuple((question, str(digest)) for question, digest in answers),
    )


def _shown(run: RunFiles) -> str:
    labels = [point.label for point in run.plan.points] if run.plan else []
    points = ", ".join(labels[:6]) + (" …" if len(labels) > 6 else "") if labels else "none"
    return f"{run.marker.run_id} ({run.marker.experiment}; points: {points})"


def _definition(run: RunFiles) -> dict[str, Any]:
    return {key: value for key, value in run.lock.definition.items() if key not in _NOT_COMPARED}


def _environment(run: RunFiles) -> dict[str, Any]:
    lock, binaries = run.lock, run.lock.binaries.values()
    return {
        "microshard": lock.microshard or None,
        "host": lock.host,
        "hosts": lock.hosts,
        "packages": lock.packages,
        "mongodb": {
            "version": ", ".join(sorted({binary.version for binary in binaries})),
            "embedded": ", ".join(sorted({str(binary.embedded) for binary in binaries})),
            "mongod_sha256": ", ".join(sorted({binary.mongod_sha256 or "" for binary in binaries})),
        },
    }
