"""The grid of the matrix: which values go together at each point, before anything is validated."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from microshard.experiment import overlay
from microshard.experiment.check import EXPERIMENT, Checker, nearest
from microshard.experiment.errors import DefinitionError, Problem
from microshard.experiment.load import LoadedExperiment
from microshard.experiment.scalars import written, yaml_1_1
from microshard.experiment.shape import Shape, dotted_keys
from microshard.experiment.source import KeyPath, Source, SourcePosition

MAX_POINTS = 10_000
MAX_COMBINATIONS = 100_000  # before exclude; looked at, but not validated
SECTIONS = ("topology", "infrastructure", "workload")


@dataclass(frozen=True, slots=True)
class Given:
    """A value of an axis, and where it stands."""

    key: str
    path: KeyPath
    value: Any
    spot: SourcePosition
    key_at: tuple[int, int]
    unsure: bool
    """Whether there is text in it that YAML 1.1 would read as something else."""
    frozen: Any
    """The value in a form that can be compared and looked up: 1 and 1.0 are one, 1 and true are not."""


Assignment = tuple[Given, ...]


class Grid:
    """Reads the matrix of an experiment."""

    def __init__(self, loaded: LoadedExperiment) -> None:
        self.source = loaded.source
        self.matrix = loaded.experiment.matrix
        self.checker = Checker(loaded.source, loaded.data, loaded.source.spot)
        self.problems: list[Problem] = []

    def assignments(self) -> list[Assignment]:
        """The values of every point, in file order, the last axis fastest, then those of `include`.

        Raises DefinitionError with every problem of the matrix itself.
        """
        self._check_keys()
        self._stop_if_wrong()
        axes = self._axes()
        self._stop_if_wrong()
        assignments = [*self._without_excluded(axes), *self._included()]
        if not assignments:
            self._problem(("matrix", "exclude"), "every point is excluded, so there is nothing to measure")
        if len(assignments) > MAX_POINTS:
            self._problem(
                ("matrix",), f"{len(assignments):,} points; at most {MAX_POINTS:,} can be measured in one run"
            )
        self._stop_if_wrong()
        return assignments

    def _stop_if_wrong(self) -> None:
        if self.problems:
            raise DefinitionError(self.problems)

    def _problem(self, path: KeyPath, message: str, **more: Any) -> None:
        self.problems.append(self.checker.at_key(path, message, **more))

    # Keys

    def _check_keys(self) -> None:
        places: dict[str, KeyPath] = {}
        place: KeyPath
        for grid, axes in (("axes", self.matrix.axes), ("zip", self.matrix.zip)):
            for key in axes:
                place = ("matrix", grid, key)
                if key in places:
                    self._problem(place, "is in axes and in zip; keep one")
                places[key] = place
                self._check_key(key, place)
        for list_name, points in (("include", self.matrix.include), ("exclude", self.matrix.exclude)):
            for index, point in enumerate(points):
                for key in point:
                    place = ("matrix", list_name, index, key)
                    if list_name == "exclude":
                        self._check_excluded(key, place)
                    elif key not in places:
                        self._check_key(key, place)
                self._check_nested(
                    [*places, *(k for k in point if k not in places)],
                    {k: ("matrix", list_name, index, k) for k in point},
                )
        self._check_nested(list(places), places)

    def _check_key(self, key: str, place: KeyPath) -> None:
        if key.split(".", maxsplit=1)[0] not in SECTIONS:
            near = nearest(key, [k for k in dotted_keys(EXPERIMENT) if k.startswith(SECTIONS) and "." in k])
            message = f"cannot be an axis; axes begin with {', '.join(f'{s}.' for s in SECTIONS[:2])} or {SECTIONS[2]}."
            self._problem(place, message + (f"; did you mean `{near}`?" if near else ""), nearest=near)
            return
        shape: Shape | None = EXPERIMENT
        for part in overlay.split(key):
            # Under lists the index is judged when the value is put there.
            shape = shape.child(int(part) if str(part).isdigit() else part) if shape else None
        if shape is not None:
            try:
                overlay.put_value(self.checker.data, overlay.split(key), None)
            except overlay.NoSuchPlaceError as error:
                self._problem(place, str(error))
        else:
            near = nearest(key, (k for k in dotted_keys(EXPERIMENT) if "." in k))
            self._problem(place, "unknown key" + (f"; did you mean `{near}`?" if near else ""), nearest=near)

    def _check_excluded(self, key: str, place: KeyPath) -> None:
        axes = [*self.matrix.axes, *self.matrix.zip]
        if key not in axes:
            near = nearest(key, axes)
            message = f"is no axis, so nothing has it to be excluded (axes: {', '.join(axes) or 'none'})"
            self._problem(place, message, allowed=", ".join(axes), nearest=near)

    def _check_nested(self, keys: list[str], places: Mapping[str, KeyPath]) -> None:
        """topology.shards beside topology.shards.count: the outcome would hang on the order."""
        there = set(keys)
        for key in keys:
            parts = key.split(".")
            for length in range(2, len(parts)):
                outer = ".".join(parts[:length])
                if outer in there and (key in places or outer in places):
                    place = places.get(key) or places[outer]
                    self._problem(place, f"{key} is part of the axis {outer}; give one of the two")

    # The grid

    def _axes(self) -> list[list[Assignment]]:
        """Every axis as its steps; zip is the last, one step a row."""
        axes: list[list[Assignment]] = []
        for key, values in self.matrix.axes.items():
            steps: list[Assignment] = [(self._given(("matrix", "axes", key, i), key, v),) for i, v in enumerate(values)]
            self._check_repeated(steps, key)
            axes.append(steps)
        columns = {
            key: [self._given(("matrix", "zip", key, i), key, v) for i, v in enumerate(values)]
            for key, values in self.matrix.zip.items()
        }
        if columns:
            lengths = {key: len(column) for key, column in columns.items()}
            first, wanted = next(iter(lengths.items()))
            for key, length in lengths.items():
                if length != wanted:
                    self._problem(
                        ("matrix", "zip", key), f"has {length} values where {first} has {wanted}; zip needs as many"
                    )
            rows = list(zip(*columns.values(), strict=False))
            self._check_repeated(rows, "zip")
            axes.append([*rows])
        combinations = prod(len(steps) for steps in axes)
        if combinations > MAX_COMBINATIONS:
            self._problem(
                ("matrix",), f"{combinations:,} combinations; at most {MAX_POINTS:,} points can be measured in one run"
            )
        return axes

    def _given(self, place: KeyPath, key: str, value: Any) -> Given:
        spot = self.checker.spot
        at = self.source.value_at(spot, place)
        for part in place:
            spot = spot.items.get(part) or SourcePosition(*at)
        # An item's own place says more than the key of the whole axis.
        key_at = at if isinstance(place[-1], int) else self.source.key_at(self.checker.spot, place)
        return Given(key, overlay.split(key), value, spot, key_at, _is_unsure(spot), _frozen(value))

    def _check_repeated(self, steps: Iterable[Assignment], name: str) -> None:
        seen: set[Any] = set()
        for step in steps:
            frozen = tuple(g.frozen for g in step)
            if frozen in seen:
                values = ", ".join(written(g.value) for g in step)
                self.problems.append(problem_at(self.source, step[-1], f"{values} is there twice in {name}"))
            seen.add(frozen)

    def _without_excluded(self, axes: list[list[Assignment]]) -> Iterator[Assignment]:
        """The combinations, without those that `exclude` names. Without any axis: the experiment itself."""
        if not axes and self.matrix.include:
            return
        excluded: dict[tuple[str, ...], dict[tuple[Any, ...], int]] = {}
        for index, point in enumerate(self.matrix.exclude):
            keys = tuple(sorted(point))
            excluded.setdefault(keys, {})[tuple(_frozen(point[k]) for k in keys)] = index
        used: set[int] = set()
        for steps in itertools.product(*axes):
            assignment = tuple(itertools.chain.from_iterable(steps))
            if excluded:
                values = {g.key: g.frozen for g in assignment}
                hits = [wanted.get(tuple(values[k] for k in keys)) for keys, wanted in excluded.items()]
                hit = {h for h in hits if h is not None}
                used |= hit
                if hit:
                    continue
            yield assignment
        for index, point in enumerate(self.matrix.exclude):
            if index not in used and not self.problems:
                what = ", ".join(f"{k}: {written(v)}" for k, v in point.items()) or "{}"
                self._problem(("matrix", "exclude", index), f"no point has {what}, so nothing is excluded")

    def _included(self) -> Iterator[Assignment]:
        for index, point in enumerate(self.matrix.include):
            yield tuple(self._given(("matrix", "include", index, k), k, v) for k, v in point.items())


def problem_at(source: Source, given: Given, message: str, key_path: str = "") -> Problem:
    """A problem at a value of an axis."""
    return source.problem((given.spot.line, given.spot.column), key_path or given.key, message)


def _is_unsure(spot: SourcePosition) -> bool:
    return bool(spot.plain and yaml_1_1(spot.raw)) or any(map(_is_unsure, spot.items.values()))


def _frozen(value: Any) -> Any:
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *map(_frozen, value))
    if isinstance(value, dict):
        return ("map", frozenset((k, _frozen(v)) for k, v in value.items()))
    return value
