"""The points of an experiment: every combination of its axes as a whole experiment, checked as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from microshard.experiment import overlay
from microshard.experiment.check import Checker, dotted
from microshard.experiment.errors import DefinitionError, Problem
from microshard.experiment.grid import SECTIONS, Assignment, Given, Grid, problem_at
from microshard.experiment.load import LoadedExperiment, examine
from microshard.experiment.rules import findings
from microshard.experiment.scalars import written
from microshard.experiment.source import KeyPath, SourcePosition
from microshard.gc_pause import gc_paused
from microshard.model.experiment import Experiment, Matrix

# A wrong value is wrong at each of its points; after so many different problems more say nothing new.
_ENOUGH = 20


@dataclass(frozen=True, slots=True)
class PointDefinition:
    """One point: the values that make it, and the experiment they make."""

    axes: dict[str, Any]
    """Dotted key → value, the same keys at every point: those a point does not give have the experiment's own value."""
    experiment: Experiment
    """The whole experiment at this point. Its own matrix and scales are empty: it is one point."""
    warnings: tuple[str, ...] = ()
    """What is doubtful at this point and not already doubtful in the experiment: "key: sentence"."""


@gc_paused
def expand(loaded: LoadedExperiment) -> list[PointDefinition]:
    """All points in file order, the last axis fastest, `zip` after the axes, then those of `include`.

    Raises DefinitionError with all problems, each at the value of an axis that causes it.
    """
    assignments = Grid(loaded).assignments()
    keys = dict.fromkeys(g.key for assignment in assignments for g in assignment)
    own = {key: _own_value(loaded.experiment, overlay.split(key)) for key in keys}
    builder = _Builder(loaded, assignments)
    points = []
    for assignment in assignments:
        made = builder.point(assignment)
        if made is not None:
            points.append(PointDefinition({**own, **{g.key: g.value for g in assignment}}, *made))
        if len(builder.problems) >= _ENOUGH:
            break
    if builder.problems:
        raise DefinitionError(builder.problems)
    return points


@dataclass(slots=True)
class _Part:
    """A section of a point, or a key of one: data first, validated from its first point on."""

    value: Any
    pieces: dict[str, _Part] = field(default_factory=dict)
    """Keys of the section that points vary."""
    text: str = ""
    """What validation made of it as JSON, to compare points; of a section the keys that points vary."""

    def settle(self, validated: Any, varied: Sequence[str]) -> None:
        """Takes over what validation made of it; `varied`: keys of a section, none where all of it is compared."""
        if self.text:
            return
        self.value = validated
        for name, piece in self.pieces.items():
            own = getattr(validated, name)
            if not piece.text:
                piece.text = _text(own)
            if isinstance(own, BaseModel):
                piece.value = own
        told = {name: piece.text for name, piece in self.pieces.items()}
        self.text = _compared(validated, varied, told)


class _Builder:
    """Makes points one after the other and remembers what it has already seen."""

    def __init__(self, loaded: LoadedExperiment, assignments: Iterable[Assignment]) -> None:
        self.loaded = loaded
        self.source = loaded.source
        self.problems: list[Problem] = []
        self.blamed: set[int] = set()
        self.parts: dict[tuple[int, ...], _Part] = {}
        self.pieces: dict[tuple[int, ...], _Part] = {}
        self.seen: dict[tuple[str, ...], Assignment] = {}
        self.known = {(f.path, f.message) for f in findings(loaded.experiment)}
        # What no axis can change is taken over validated; a frozen model is not validated again.
        experiment = loaded.experiment
        self.base: dict[str, Any] = {k: getattr(experiment, k) for k in experiment.model_fields_set}
        self.base |= {"matrix": Matrix(), "scales": {}}
        self.varied = {section: _varied(section, experiment, assignments) for section in SECTIONS}
        self.base_text = {s: _compared(getattr(experiment, s), varied) for s, varied in self.varied.items()}

    def point(self, assignment: Assignment) -> tuple[Experiment, tuple[str, ...]] | None:
        """The experiment at a point and its warnings; None where there is a problem with it (kept in `problems`)."""
        if not self.blamed.isdisjoint(map(id, assignment)):
            return None
        sections: dict[str, list[Given]] = {}
        for given in assignment:
            sections.setdefault(str(given.path[0]), []).append(given)
        try:
            parts = {name: self._part(name, tuple(given)) for name, given in sections.items()}
            experiment = Experiment.model_validate({**self.base, **{n: p.value for n, p in parts.items()}})
        except (ValidationError, overlay.NoSuchPlaceError):
            self._explain(assignment)
            return None
        news = [f for f in findings(experiment) if (f.path, f.message) not in self.known]
        if any(f.severity == "error" for f in news) or self._is_misread(assignment):
            self._explain(assignment)
            return None
        for name, part in parts.items():
            part.settle(getattr(experiment, name), self.varied[name])
        if self._repeats(assignment, parts):
            return None
        return experiment, tuple(f"{dotted(f.path)}: {f.message}" for f in news)

    def _part(self, section: str, assignment: Assignment) -> _Part:
        """A section with its values, validated once for all points that share them."""
        key = tuple(map(id, assignment))
        if key not in self.parts:
            self.parts[key] = self._made(section, assignment)
        return self.parts[key]

    def _made(self, section: str, assignment: Assignment) -> _Part:
        """The section's data; keys of it that no axis changes, or that were validated before, as models.

        So they are not validated again, and points share the objects, which the plan looks at once for all of them.
        """
        data, own = self.loaded.data.get(section), getattr(self.loaded.experiment, section, None)
        if not isinstance(own, BaseModel) or any(len(given.path) < 2 for given in assignment):
            value = {section: data}
            for given in assignment:
                value = overlay.put_value(value, given.path, given.value)
            return _Part(value[section])
        below: dict[str, list[Given]] = {}
        for given in assignment:
            below.setdefault(str(given.path[1]), []).append(given)
        pieces = {name: self._piece((data or {}).get(name), tuple(given)) for name, given in below.items()}
        models = {k: v for k in own.model_fields_set if _is_made_of_models(v := getattr(own, k))}
        return _Part({**(data or {}), **models, **{n: p.value for n, p in pieces.items()}}, pieces)

    def _piece(self, data: Any, assignment: Assignment) -> _Part:
        key = tuple(map(id, assignment))
        if key not in self.pieces:
            for given in assignment:
                data = overlay.put_value(data, given.path[2:], given.value, given.path[:2])
            self.pieces[key] = _Part(data)
        return self.pieces[key]

    def _place(self, assignment: Assignment) -> tuple[dict[str, Any], SourcePosition] | None:
        """The experiment's data with the values of a point put in their places."""
        data, spot = self.loaded.data, self.source.spot
        for given in assignment:
            try:
                data, spot = overlay.put(data, spot, given.path, given.value, given.spot, given.key_at)
            except overlay.NoSuchPlaceError as error:
                self._add(given, problem_at(self.source, given, str(error)))
                return None
        return data, spot

    def _is_misread(self, assignment: Assignment) -> bool:
        unsure = [g for g in assignment if g.unsure]
        placed = self._place(assignment) if unsure else None
        return placed is not None and any(Checker(self.source, *placed).misread_at(g.path) for g in unsure)

    def _repeats(self, assignment: Assignment, parts: dict[str, _Part]) -> bool:
        """Whether the same deployment and workload are already there, perhaps written otherwise."""
        text = tuple(parts[name].text if name in parts else own for name, own in self.base_text.items())
        first = self.seen.setdefault(text, assignment)
        if first is assignment:
            return False
        message = f"this point is there twice: it measures the same as {_named(first)}"
        if assignment:
            self._add(assignment[-1], problem_at(self.source, assignment[-1], message))
        else:
            self.problems.append(
                self.source.problem(self.source.key_at(self.source.spot, ("matrix",)), "matrix", message)
            )
        return True

    def _explain(self, assignment: Assignment) -> None:
        """Finds the problems of a point again, with their places, and the value of an axis that causes each."""
        placed = self._place(assignment)
        for problem in self._errors(*placed) if placed is not None else ():
            cause = next((g for g in assignment if _is_in(problem.key_path, g.key)), None)
            if cause is not None:
                self._add(cause, problem)
                continue
            cause = self._cause(assignment, problem)
            message = f"{problem.message} (at the point {_named(assignment)})"
            self._add(cause, problem_at(self.source, cause, message, key_path=problem.key_path))

    def _errors(self, data: dict[str, Any], spot: SourcePosition) -> list[Problem]:
        own = {k: v for k, v in data.items() if k not in {"matrix", "scales"}}
        return examine(self.source, own, spot).errors

    def _cause(self, assignment: Assignment, problem: Problem) -> Given:
        """The value without which the problem is gone; the one that changes fastest where several are needed for it."""
        for given in reversed(assignment):
            placed = self._place(tuple(g for g in assignment if g is not given))
            if placed is not None and problem.key_path not in {p.key_path for p in self._errors(*placed)}:
                return given
        return assignment[-1]

    def _add(self, cause: Given, problem: Problem) -> None:
        self.blamed.add(id(cause))
        self.problems.append(problem)


def _is_made_of_models(value: Any) -> bool:
    return isinstance(value, BaseModel) or (isinstance(value, list) and all(isinstance(v, BaseModel) for v in value))


def _is_in(key_path: str, key: str) -> bool:
    return key_path == key or key_path.startswith(f"{key}.")


def _named(assignment: Assignment) -> str:
    return ", ".join(f"{g.key}={written(g.value)}" for g in assignment) or "the experiment itself"


def _varied(section: str, experiment: Experiment, assignments: Iterable[Assignment]) -> tuple[str, ...]:
    """The keys of a section that points vary; none where it has no keys."""
    if not isinstance(getattr(experiment, section), BaseModel):
        return ()
    paths = {given.path[:2] for assignment in assignments for given in assignment}
    return tuple(sorted(str(path[1]) for path in paths if path[0] == section))


def _compared(section: Any, varied: Sequence[str], told: Mapping[str, str] | None = None) -> str:
    """What two points differ in when they differ in this section. `told`: keys whose text is known."""
    known = told or {}
    return "\0".join(known.get(name) or _text(getattr(section, name)) for name in varied) or _text(section)


def _text(value: Any) -> str:
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return "\n".join(map(_text, value)) if _is_made_of_models(value) else repr(value)


def _own_value(experiment: Experiment, path: KeyPath) -> Any:
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
