"""The points of an experiment: every combination of its axes, checked as a whole experiment."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from pydantic import BaseModel, ValidationError

from microshard.experiment.check import Checker
from microshard.experiment.document import Document, KeyPath, NoSuchKeyError, dotted, put_value, split_key
from microshard.experiment.errors import DefinitionError, Problem, as_yaml, nearest_name
from microshard.experiment.load import LoadedExperiment, examine
from microshard.experiment.rules import RuleViolation, topology_violations, workload_violations
from microshard.experiment.shape import EXPERIMENT, KeyShape, dotted_keys
from microshard.experiment.yaml_reader import yaml_1_1
from microshard.model.experiment import Experiment, Matrix
from microshard.model.topology import Topology

MAX_POINTS = 10_000
MAX_COMBINATIONS = 100_000  # before exclude; they are enumerated, but not validated
SECTIONS = ("topology", "infrastructure", "client", "workload")
# A wrong value is wrong at each of its points; after so many different problems more say nothing new.
_MAX_PROBLEMS = 20


@dataclass(frozen=True)
class PointDefinition:
    """One point: the values that make it, and the experiment they make."""

    axes: dict[str, Any]  # dotted key → value; a key that the point does not give has the experiment's own value
    experiment: Experiment  # the whole experiment at this point, with an empty matrix and no scales
    warnings: tuple[str, ...] = ()  # "key: sentence", of this point and not of the experiment as a whole

    @cached_property
    def phases_key(self) -> tuple[tuple[str, str], ...]:
        """Equal for points that differ at most in the balancer, which decides neither servers nor phases."""
        return tuple((k, repr(v)) for k, v in self.axes.items() if not k.startswith("topology.balancer"))

    @cached_property
    def servers_key(self) -> tuple[tuple[str, str], ...]:
        """Equal for points with the same servers: they differ at most in workload, balancer, gates and order."""
        return tuple(
            pair for pair in self.phases_key if pair[0].startswith(("topology.", "infrastructure.", "client."))
        )


@dataclass(frozen=True, slots=True, eq=False)
class AxisValue:
    """A value of an axis, and where it is written. Each is equal to itself alone."""

    key: str
    path: KeyPath  # of the key
    value: Any
    origin: KeyPath  # below `matrix`
    comparable: Any  # the value in a form that can be compared and looked up: 1 and 1.0 are equal, 1 and true are not
    ambiguous: bool  # whether it contains text that YAML 1.1 would read as something else


Assignment = tuple[AxisValue, ...]


def expand(loaded: LoadedExperiment) -> list[PointDefinition]:
    """All points in file order, the last axis fastest, `zip` after the axes, then those of `include`.

    Raises DefinitionError with all problems, each at the value of an axis that causes it.
    """
    assignments = _Grid(loaded).assignments()
    keys = dict.fromkeys(value.key for assignment in assignments for value in assignment)
    defaults = {key: _value_at(loaded.experiment, split_key(key)) for key in keys}
    builder = _PointBuilder(loaded, assignments)
    points = []
    for assignment in assignments:
        point = builder.point(assignment)
        if point is not None:
            experiment, warnings = point
            points.append(PointDefinition({**defaults, **{v.key: v.value for v in assignment}}, experiment, warnings))
        if len(builder.problems) >= _MAX_PROBLEMS:
            break
    if builder.problems:
        raise DefinitionError(builder.problems)
    return points


class _Grid:
    """Reads the matrix: which values are combined at each point, before anything is validated."""

    def __init__(self, loaded: LoadedExperiment) -> None:
        self._document = loaded.document
        self._matrix = loaded.experiment.matrix
        self._problems: list[Problem] = []

    def assignments(self) -> list[Assignment]:
        """The values of every point, in file order, the last axis fastest, then those of `include`.

        Raises DefinitionError with every problem of the matrix itself.
        """
        self._check_keys()
        self._stop_if_wrong()
        axes = self._axes()
        self._stop_if_wrong()
        points = self._matrix.include
        included = [self._values(point, ("matrix", "include", index)) for index, point in enumerate(points)]
        assignments = [*self._without_excluded(axes), *included]
        if not assignments:
            self._problem(("matrix", "exclude"), "every point is excluded, so there is nothing to measure")
        if len(assignments) > MAX_POINTS:
            message = f"{len(assignments):,} points; at most {MAX_POINTS:,} can be measured in one run"
            self._problem(("matrix",), message)
        self._stop_if_wrong()
        return assignments

    def _stop_if_wrong(self) -> None:
        if self._problems:
            raise DefinitionError(self._problems)

    def _problem(self, path: KeyPath, message: str, **details: Any) -> None:
        self._problems.append(self._document.problem_at_key(path, message, **details))

    def _check_keys(self) -> None:
        axes: dict[str, KeyPath] = {}
        for grid, keys in (("axes", self._matrix.axes), ("zip", self._matrix.zip)):
            for key in keys:
                path: KeyPath = ("matrix", grid, key)
                if key in axes:
                    self._problem(path, "is in axes and in zip; keep one")
                axes[key] = path
                self._check_key(key, path)
        for index, point in enumerate(self._matrix.include):
            paths: dict[str, KeyPath] = {key: ("matrix", "include", index, key) for key in point}
            for key, path in paths.items():
                if key not in axes:
                    self._check_key(key, path)
            self._check_nested({*axes, *point}, paths)
        for index, point in enumerate(self._matrix.exclude):
            for key in point:
                if key not in axes:
                    known, near = ", ".join(axes), nearest_name(key, axes)
                    message = f"is not an axis, so no point can be excluded by it (axes: {known or 'none'})"
                    self._problem(("matrix", "exclude", index, key), message, allowed=known, nearest=near)
        self._check_nested(set(axes), axes)

    def _check_key(self, key: str, path: KeyPath) -> None:
        if key.split(".", maxsplit=1)[0] not in SECTIONS:
            near = nearest_name(key, [k for k in dotted_keys(EXPERIMENT) if k.startswith(SECTIONS) and "." in k])
            allowed = f"{', '.join(f'{s}.' for s in SECTIONS[:2])} or {SECTIONS[2]}."
            hint = f"; did you mean `{near}`?" if near else ""
            self._problem(path, f"cannot be an axis; axes begin with {allowed}{hint}", nearest=near)
            return
        shape: KeyShape | None = EXPERIMENT
        for part in split_key(key):
            # Indexes of lists are checked when a value is put there.
            shape = shape.child(int(part) if str(part).isdigit() else part) if shape else None
        if shape is None:
            near = nearest_name(key, (k for k in dotted_keys(EXPERIMENT) if "." in k))
            self._problem(path, "unknown key" + (f"; did you mean `{near}`?" if near else ""), nearest=near)
            return
        try:
            put_value(self._document.data, split_key(key), None)
        except NoSuchKeyError as error:
            self._problem(path, str(error))

    def _check_nested(self, keys: Iterable[str], paths: Mapping[str, KeyPath]) -> None:
        """topology.shards besides topology.shards.count: the result would depend on the order."""
        all_keys = set(keys)
        for key in sorted(all_keys):
            parts = key.split(".")
            for length in range(2, len(parts)):
                outer = ".".join(parts[:length])
                if outer in all_keys and (key in paths or outer in paths):
                    path = paths.get(key) or paths[outer]
                    self._problem(path, f"{key} is part of the axis {outer}; give one of the two")

    def _axes(self) -> list[list[Assignment]]:
        """Every axis as a list of steps; zip is the last, with one step per row."""
        axes: list[list[Assignment]] = []
        for key, values in self._matrix.axes.items():
            steps = [(_axis_value(key, value, ("matrix", "axes", key, i)),) for i, value in enumerate(values)]
            self._check_repeated(steps, key)
            axes.append([*steps])
        columns = {
            key: [_axis_value(key, value, ("matrix", "zip", key, i)) for i, value in enumerate(values)]
            for key, values in self._matrix.zip.items()
        }
        if columns:
            first, length = next((key, len(column)) for key, column in columns.items())
            for key, column in columns.items():
                if len(column) != length:
                    message = f"has {len(column)} values where {first} has {length}; zip needs equal lengths"
                    self._problem(("matrix", "zip", key), message)
            rows = list(zip(*columns.values(), strict=False))
            self._check_repeated(rows, "zip")
            axes.append(rows)
        combinations = prod(len(steps) for steps in axes)
        if combinations > MAX_COMBINATIONS:
            message = f"{combinations:,} combinations; at most {MAX_POINTS:,} points can be measured in one run"
            self._problem(("matrix",), message)
        return axes

    def _check_repeated(self, steps: Sequence[Assignment], name: str) -> None:
        seen: set[Any] = set()
        for step in steps:
            values = tuple(v.comparable for v in step)
            if values in seen:
                shown = ", ".join(as_yaml(v.value) for v in step)
                self._problems.append(_problem_at(self._document, step[-1], f"{shown} is given twice in {name}"))
            seen.add(values)

    def _values(self, point: Mapping[str, Any], origin: KeyPath) -> Assignment:
        return tuple(_axis_value(key, value, (*origin, key)) for key, value in point.items())

    def _without_excluded(self, axes: list[list[Assignment]]) -> Iterator[Assignment]:
        """The combinations, without those that `exclude` names. Without any axis: the experiment itself."""
        if not axes and self._matrix.include:
            return
        excluded: dict[tuple[str, ...], dict[tuple[Any, ...], int]] = {}
        for index, point in enumerate(self._matrix.exclude):
            keys = tuple(sorted(point))
            excluded.setdefault(keys, {})[tuple(_comparable(point[k]) for k in keys)] = index
        used: set[int] = set()
        for steps in itertools.product(*axes):
            assignment = tuple(itertools.chain.from_iterable(steps))
            if excluded:
                values = {v.key: v.comparable for v in assignment}
                hits = [indexes.get(tuple(values[k] for k in keys)) for keys, indexes in excluded.items()]
                hit = {h for h in hits if h is not None}
                used |= hit
                if hit:
                    continue
            yield assignment
        for index, point in enumerate(self._matrix.exclude):
            if index not in used and not self._problems:
                shown = ", ".join(f"{k}: {as_yaml(v)}" for k, v in point.items()) or "{}"
                self._problem(("matrix", "exclude", index), f"no point has {shown}, so nothing is excluded")


@dataclass(frozen=True, slots=True)
class _CheckedSection:
    """A section of the experiment as some values of axes make it."""

    model: Any
    content: str
    violations: list[RuleViolation]  # of a topology


class _PointBuilder:
    """Makes one point after the other and remembers which it has made."""

    def __init__(self, loaded: LoadedExperiment, assignments: Iterable[Assignment]) -> None:
        self.problems: list[Problem] = []
        self._document = loaded.document
        self._wrong_values: set[int] = set()
        self._points: dict[tuple[str, ...], Assignment] = {}
        # Pydantic does not validate a frozen model again: what was validated for one point is used for the next (row 8
        # of docs/benchmarks.md), and so are keys that no axis varies. Keys are paths with the values put below them.
        self._sections: dict[tuple[str, Assignment], _CheckedSection] = {}
        self._validated: dict[tuple[KeyPath, Assignment], Any] = {}
        experiment, data = loaded.experiment, loaded.document.data
        self._known = {*topology_violations(experiment.topology), *workload_violations(experiment)}
        varied = {value.path[:2] for assignment in assignments for value in assignment}
        self._varied = tuple(dict.fromkeys(("topology", *(str(path[0]) for path in varied))))
        self._base: dict[str, Any] = {k: getattr(experiment, k) for k in experiment.model_fields_set}
        self._base |= {"matrix": Matrix(), "scales": {}}
        for section in self._base.keys() & {path[0] for path in varied}:
            self._base[section] = data[section]
            if isinstance(data[section], dict):
                models = {k: getattr(getattr(experiment, section), k) for k in data[section]}
                fixed = {k: v for k, v in models.items() if _is_model(v) and (section, k) not in varied}
                self._base[section] = {**data[section], **fixed}

    def point(self, assignment: Assignment) -> tuple[Experiment, tuple[str, ...]] | None:
        """The experiment at a point and its warnings; None if there is a problem (kept in `problems`)."""
        if not self._wrong_values.isdisjoint(map(id, assignment)):
            return None
        values = {section: tuple(v for v in assignment if v.path[0] == section) for section in self._varied}
        try:
            experiment = Experiment.model_validate(self._data(values))
        except (ValidationError, NoSuchKeyError):
            self._explain(assignment)
            return None
        sections = [self._section(experiment, name, given) for name, given in values.items()]
        found = (*sections[0].violations, *workload_violations(experiment))
        new = [v for v in found if v not in self._known]
        if any(v.severity == "error" for v in new) or self._is_misread(assignment):
            self._explain(assignment)
            return None
        if self._is_repeated(assignment, tuple(section.content for section in sections)):
            return None
        return experiment, tuple(f"{dotted(v.path)}: {v.message}" for v in new)

    def _section(self, experiment: Experiment, name: str, values: Assignment) -> _CheckedSection:
        """A section of a point that was validated, remembered with its parts."""
        known = self._sections.get((name, values))
        if known is None:
            model = getattr(experiment, name)
            violations = topology_violations(model) if isinstance(model, Topology) else []
            known = self._sections[name, values] = _CheckedSection(model, _json(model), violations)
            for path, given in _by_part(values).items():
                inner = model[int(path[1])] if isinstance(model, list) else getattr(model, str(path[1]))
                if _is_model(inner):
                    self._validated[path, given] = inner
        return known

    def _data(self, sections: Mapping[str, Assignment]) -> dict[str, Any]:
        """The data of a point; what was validated for an earlier point as models."""
        data = self._base
        for name, values in sections.items():
            if known := self._sections.get((name, values)):
                data = {**data, name: known.model}
                continue
            for path, given in _by_part(values).items():
                inner = self._validated.get((path, given))
                for target, value in [(path, inner)] if inner is not None else [(v.path, v.value) for v in given]:
                    data = put_value(data, target, value)
        return data

    def _is_repeated(self, assignment: Assignment, content: tuple[str, ...]) -> bool:
        """Whether an earlier point has the same deployment and workload, perhaps written differently."""
        first = self._points.setdefault(content, assignment)
        if first is assignment:
            return False
        message = f"this point is given twice: it measures the same as {_shown(first)}"
        if assignment:
            self._add(assignment[-1], _problem_at(self._document, assignment[-1], message))
        else:
            self.problems.append(self._document.problem_at_key(("matrix",), message))
        return True

    def _at(self, assignment: Assignment) -> Document | None:
        """The experiment's document with the values of a point put in their places."""
        document = self._document
        for value in assignment:
            try:
                document = document.put(value.path, value.value, value.origin)
            except NoSuchKeyError as error:
                self._add(value, _problem_at(self._document, value, str(error)))
                return None
        return document

    def _is_misread(self, assignment: Assignment) -> bool:
        document = self._at(assignment) if any(value.ambiguous for value in assignment) else None
        if document is None:
            return False
        paths = [path for path, _ in document.moved[len(self._document.moved) :]]
        return any(Checker(document).misread(path) for path in paths)

    def _explain(self, assignment: Assignment) -> None:
        """Find the problems of a point again, with their positions, and the value of an axis that causes each."""
        document = self._at(assignment)
        for problem in _errors(document) if document is not None else ():
            key = problem.key_path
            cause = next((v for v in assignment if key == v.key or key.startswith(f"{v.key}.")), None)
            if cause is None:
                cause = self._cause(assignment, problem)
                message = f"{problem.message} (at the point {_shown(assignment)})"
                problem = replace(_problem_at(self._document, cause, message), key_path=key)  # noqa: PLW2901 - the same one
            self._add(cause, problem)

    def _cause(self, assignment: Assignment, problem: Problem) -> AxisValue:
        """The value without which the problem disappears; the one that changes fastest where it takes several."""
        for value in reversed(assignment):
            document = self._at(tuple(v for v in assignment if v is not value))
            if document is not None and problem.key_path not in {p.key_path for p in _errors(document)}:
                return value
        return assignment[-1]

    def _add(self, cause: AxisValue, problem: Problem) -> None:
        self._wrong_values.add(id(cause))
        self.problems.append(problem)


def _by_part(values: Assignment) -> dict[KeyPath, Assignment]:
    """Values by the part of the section they are in: `topology.shards`."""
    parts: dict[KeyPath, Assignment] = {}
    for value in values:
        parts[value.path[:2]] = (*parts.get(value.path[:2], ()), value)
    return parts


def _axis_value(key: str, value: Any, origin: KeyPath) -> AxisValue:
    return AxisValue(key, split_key(key), value, origin, _comparable(value), _is_ambiguous(value))


def _problem_at(document: Document, value: AxisValue, message: str) -> Problem:
    return replace(document.problem_at_value(value.origin, message), key_path=value.key)


def _errors(document: Document) -> list[Problem]:
    data = {k: v for k, v in document.data.items() if k not in {"matrix", "question", "scales"}}
    return examine(replace(document, data=data))[1]


def _comparable(value: Any) -> Any:
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, list):
        return ("list", *map(_comparable, value))
    if isinstance(value, dict):
        return ("map", frozenset((k, _comparable(v)) for k, v in value.items()))
    return value


def _is_ambiguous(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_is_ambiguous, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and bool(yaml_1_1(value))


def _shown(assignment: Assignment) -> str:
    return ", ".join(f"{v.key}={as_yaml(v.value)}" for v in assignment) or "the experiment itself"


def _is_model(value: Any) -> bool:
    return isinstance(value, BaseModel) or (isinstance(value, list) and all(isinstance(v, BaseModel) for v in value))


def _json(section: BaseModel | list[BaseModel]) -> str:
    return "\n".join(map(_json, section)) if isinstance(section, list) else section.model_dump_json()


def _value_at(experiment: Experiment, path: KeyPath) -> Any:
    """What the experiment says where a point does not; None where it says nothing."""
    value: Any = experiment
    for part in path:
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            value = getattr(value, str(part), None)
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
