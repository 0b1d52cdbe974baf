"""Two runs of an experiment, matched point by point."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.analysis.change import Change, change, decide
from microshard.analysis.measurements import measurements
from microshard.analysis.read_run import RawRun, items, mapping, read_run, text
from microshard.analysis.report_model import Measurement
from microshard.analysis.statistics import Better
from microshard.errors import EXIT_DEFINITION, MicroshardError
from microshard.records.differences import Difference, differences

Key = tuple[str, str]  # axes as JSON, phase
# Parts of a definition that change no measurement.
_NOT_COMPARED = ("title", "name", "scales", "reference", "reproduces", "lock", "microshard")


class NothingInCommonError(MicroshardError):
    """Two runs without a point that both have."""

    exit_code = EXIT_DEFINITION


@dataclass(frozen=True, slots=True)
class Side:
    """One metric at one point of one run."""

    values: tuple[float, ...]  # of the valid repetitions, in the metric's unit
    invalid: tuple[str, ...]  # why others do not count
    answers: tuple[tuple[str, str], ...]  # question, hash of the answer

    @property
    def mean(self) -> float | None:
        """Geometric mean of the valid repetitions, which is what the ratio is made of; None without positive values."""
        return statistics.geometric_mean(self.values) if self.values and min(self.values) > 0 else None


@dataclass(frozen=True, slots=True)
class Row:
    """One metric at one point of both runs."""

    label: str
    axes: Mapping[str, Any]
    phase: str
    metric: str
    unit: str
    better: Better
    base: Side
    other: Side
    change: Change
    other_answer: bool  # the same question of the same data was answered otherwise


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs beside each other; ratios are `other` over `base`."""

    base: str
    other: str
    tolerance: float
    rows: tuple[Row, ...]
    definition: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    only_base: tuple[str, ...]  # labels of the points only one run has
    only_other: tuple[str, ...]

    @property
    def worse(self) -> list[Row]:
        """Where the other run is worse than the tolerance allows, or answers otherwise."""
        return [row for row in self.rows if row.change.verdict == "worse" or row.other_answer]


def compare(base: Path, other: Path, tolerance: float = 0.0) -> Comparison:
    """Compare two run folders. Raises RunFolderError, NothingInCommonError."""
    first, second = read_run(base), read_run(other)
    sides = [dict(_sides(raw)) for raw in (first, second)]
    labels = [{key: label for key, (label, _) in side.items()} for side in sides]
    common = [key for key in sides[0] if key in sides[1]]
    if not common:
        raise NothingInCommonError(_nothing_in_common(first, second))
    pairs = [(sides[0][key][1], sides[1][key][1]) for key in common]
    found = [(_side(mine), _side(theirs)) for mine, theirs in pairs]
    shown = [_named(mine, theirs) for mine, theirs in pairs]
    changes = decide(
        [_change(a, b, names, tolerance) for (a, b), names in zip(found, map(_metrics, pairs), strict=True)],
        [named.better for named in shown],
    )
    rows = tuple(
        Row(
            label=labels[0][key],
            axes=json.loads(key[0]),
            phase=key[1],
            metric=named.metric,
            unit=named.unit,
            better=named.better,
            base=a,
            other=b,
            change=verdict,
            other_answer=_answers_differ(a, b),
        )
        for key, named, (a, b), verdict in zip(common, shown, found, changes, strict=True)
    )
    return Comparison(
        base=text(first.marker.get("run_id")),
        other=text(second.marker.get("run_id")),
        tolerance=tolerance,
        rows=rows,
        definition=tuple(_definition_differences(first, second)),
        environment=tuple(_environment_differences(first, second)),
        only_base=tuple(dict.fromkeys(label for key, label in labels[0].items() if key not in sides[1])),
        only_other=tuple(dict.fromkeys(label for key, label in labels[1].items() if key not in sides[0])),
    )


def _sides(raw: RawRun) -> Iterator[tuple[Key, tuple[str, list[Measurement]]]]:
    """Every metric of every point → the point's label and its measurements, in the order of the plan."""
    grouped: dict[Key, tuple[str, list[Measurement]]] = {}
    by_point: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for (point, step), result in raw.results.items():
        by_point.setdefault(point, []).append((step, result))
    for plan in (p for p in items(raw.plan.get("points")) if isinstance(p, dict)):
        axes = json.dumps(mapping(plan.get("axes")), sort_keys=True, default=str)
        phases = [p for p in items(plan.get("phases")) if isinstance(p, dict)]
        for order, (step, result) in enumerate(by_point.get(text(plan.get("id")), [])):
            for measured in measurements(plan, step, order, result, phases):
                if measured.kind == "measure" and measured.purpose == "measure":
                    key = (axes, measured.phase)
                    grouped.setdefault(key, (text(plan.get("label")), []))[1].append(measured)
    yield from grouped.items()


def _named(mine: list[Measurement], theirs: list[Measurement]) -> Measurement:
    """The measurement that says what the metric is: a failed one knows no name of it."""
    return next((m for m in (*mine, *theirs) if m.counts), mine[0])


def _metrics(pair: tuple[list[Measurement], list[Measurement]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{m.metric} in {m.unit}" for side in pair for m in side if m.counts))


def _change(base: Side, other: Side, metrics: tuple[str, ...], tolerance: float) -> Change:
    if len(metrics) > 1:
        return Change(None, None, None, None, "cannot tell", f"not the same metric: {' and '.join(metrics)}")
    return change(base.values, other.values, tolerance)


def _side(found: list[Measurement]) -> Side:
    return Side(
        values=tuple(m.value for m in found if m.counts and m.value is not None),
        invalid=tuple(dict.fromkeys(p for m in found if not m.counts for p in m.problems or ("no value",))),
        answers=tuple(dict.fromkeys((m.question, m.answer) for m in found if m.counts and m.answer)),
    )


def _answers_differ(base: Side, other: Side) -> bool:
    known = dict(base.answers)
    return any(known.get(question, answer) != answer for question, answer in other.answers)


def _nothing_in_common(first: RawRun, second: RawRun) -> str:
    def shown(raw: RawRun) -> str:
        labels = [text(mapping(p).get("label")) for p in items(raw.plan.get("points"))]
        points = ", ".join(labels[:6]) + (" …" if len(labels) > 6 else "") if labels else "none"
        return f"{text(raw.marker.get('run_id'))} ({text(raw.marker.get('experiment'))}; points: {points})"

    return (
        f"{shown(first)} and {shown(second)} have no measured point in common: "
        "points are the same when their axes and their phase are"
    )


def _definition_differences(first: RawRun, second: RawRun) -> Iterator[Difference]:
    def definition(raw: RawRun) -> dict[str, Any]:
        found = mapping(raw.lock.get("definition"))
        return {key: value for key, value in found.items() if key not in _NOT_COMPARED}

    return differences(definition(first), definition(second))


def _environment_differences(first: RawRun, second: RawRun) -> Iterator[Difference]:
    def environment(raw: RawRun) -> dict[str, Any]:
        binaries = {
            name: sorted({text(mapping(b).get(name)) for b in mapping(raw.lock.get("binaries")).values()})
            for name in ("version", "embedded", "mongod_sha256")
        }
        return {
            "microshard": raw.lock.get("microshard"),
            "host": raw.lock.get("host"),
            "hosts": raw.lock.get("hosts"),
            "packages": raw.lock.get("packages"),
            "mongodb": {name: ", ".join(values) for name, values in binaries.items()},
        }

    return differences(environment(first), environment(second))
