"""From data to a typed experiment, and from pydantic's errors to problems at their place in the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from microshard.experiment import scalars
from microshard.experiment.errors import Problem, printable
from microshard.experiment.shape import Shape, describe, dotted_keys, shape_of
from microshard.experiment.source import KeyPath, Source, SourcePosition
from microshard.model.experiment import Experiment

EXPERIMENT = shape_of(Experiment)
_UNKNOWN, _MISSING = "unknown key", "missing"
_ENOUGH = 200  # errors explained at once; nearest names take time, and nobody reads further
_NUMBER = re.compile(r"[-+]?[0-9][0-9_.]*([eE][-+]?[0-9]+)?")
_OUR_KEY = re.compile(r"([a-z_]+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one of pydantic's errors belongs."""

    path: KeyPath
    shape: Shape
    value: Any
    is_key: bool = False


def nearest(word: str, names: Iterable[str]) -> str:
    """The valid name a mistyped one stands for; empty when none is near."""
    match = difflib.get_close_matches(printable(word, 80).lower(), [*names], n=1, cutoff=0.6)
    return match[0] if match else ""


def dotted(path: KeyPath) -> str:
    """The key as it is written in matrix and scales."""
    return ".".join(map(str, path))


class Checker:
    """Speaks of one document: its data, its places, its source."""

    def __init__(self, source: Source, data: Mapping[str, Any], spot: SourcePosition) -> None:
        self.source = source
        self.data = data
        self.spot = spot

    def problems(self, error: ValidationError) -> list[Problem]:
        """Every error of pydantic's, in words; those about values already reported are left out."""
        found: dict[tuple[KeyPath, str], Problem] = {}
        mistyped: set[KeyPath] = set()
        for details in error.errors(include_url=False, include_input=False)[:_ENOUGH]:
            place = self._place(details)
            if place is None or self._is_bad(place.path):
                continue
            path, problem = self._problem(details, place)
            if problem.message.startswith(_UNKNOWN) and problem.nearest:
                mistyped.add((*path[:-1], problem.nearest))
            # Each option of an "either" has its own error: one for the place is enough.
            found.setdefault((path, problem.message if details["type"] == "value_error" else ""), problem)
        # A required key that is there but mistyped is not missing as well.
        return [p for (path, _), p in found.items() if not (path in mistyped and p.message.startswith(_MISSING))]

    def at_value(self, path: KeyPath, message: str, **more: Any) -> Problem:
        """A problem with the value at a path; at its parent where it is missing."""
        return self.source.problem(self.source.value_at(self.spot, path), dotted(path), message, **more)

    def at_key(self, path: KeyPath, message: str, **more: Any) -> Problem:
        """A problem with the key at the end of a path."""
        return self.source.problem(self.source.key_at(self.spot, path), dotted(path), message, **more)

    def misread(self) -> list[Problem]:
        """Plain text in free places (mongod options, pipelines) that YAML 1.1 would read as something else.

        Where a type is expected the type decides; here nobody would notice that `on` or a date is only text.
        """
        found: list[Problem] = []
        self._misread(EXPERIMENT, self.data, self.spot, (), found)
        return found

    def misread_at(self, path: KeyPath) -> list[Problem]:
        """As `misread`, for the value at one path."""
        shape: Shape | None = EXPERIMENT
        value: Any = self.data
        spot = self.spot
        for part in path:
            if shape is None or part not in spot.items:
                return []
            shape = shape.child(part, value)
            value, spot = value[part], spot.items[part]
        found: list[Problem] = []
        if shape is not None:
            self._misread(shape, value, spot, path, found)
        return found

    def _misread(self, shape: Shape, value: Any, spot: SourcePosition, path: KeyPath, found: list[Problem]) -> None:
        if isinstance(value, str) and spot.plain and not spot.bad and shape.kind == "any":
            meaning = scalars.yaml_1_1(value)
            if meaning:
                remedy = "write true or false, or " if meaning == "true or false" else ""
                message = f"{printable(value)} is text in YAML 1.2, not {meaning}; {remedy}quote it if text is meant"
                found.append(self.at_value(path, message, found=scalars.found(value)))
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for part, inner in parts:
            child = shape.child(part, value)
            # matrix and scales hold values of other places: they are looked at there.
            if child is not None and part in spot.items and (path or part not in {"matrix", "scales"}):
                self._misread(child, inner, spot.items[part], (*path, part), found)

    def _is_bad(self, path: KeyPath) -> bool:
        spot = self.spot
        for part in path:
            if spot.bad or part not in spot.items:
                break
            spot = spot.items[part]
        return spot.bad

    def _place(self, details: ErrorDetails) -> _Place | None:
        """Walks pydantic's location by the models, leaving out the steps that are not in the file."""
        shape, value = EXPERIMENT, cast("Any", self.data)
        path: KeyPath = ()
        loc = list(details["loc"])
        while loc:
            part = loc.pop(0)
            if shape.kind == "variants" and part in shape.variants:
                shape = shape.variants[str(part)]
                continue
            if shape.kind == "either":
                container = shape.container(value)
                if container is None:
                    return _Place(path, shape, value)
                if not str(part).startswith(("list[", "dict[")):
                    return None  # the error of an option that was not meant
                shape = container
                continue
            child = shape.child(part, value)
            path = (*path, part)
            value = _part(value, part)
            if child is None:
                break  # an unknown key
            if loc == ["[key]"] and shape.key is not None:
                return _Place(path, shape.key, part, is_key=True)
            shape = child
        return _Place(path, shape, value)

    def _problem(self, details: ErrorDetails, place: _Place) -> tuple[KeyPath, Problem]:
        path, shape, value = place.path, place.shape, place.value
        kind = details["type"]
        if kind == "extra_forbidden":
            return path, self.unknown_key(path)
        if kind == "missing":
            return path, self._missing(path, shape)
        if kind == "union_tag_not_found":
            near = nearest(shape.tag, [k for k in value if k not in shape.keys(value)])
            if near:
                return (*path, near), self.unknown_key((*path, near))
            return (*path, shape.tag), self._missing((*path, shape.tag), Shape("words", words=tuple(shape.variants)))
        if kind == "union_tag_invalid":
            path = (*path, shape.tag)
            shape, value = Shape("words", words=tuple(shape.variants)), _part(value, shape.tag)
        if kind == "value_error" and shape.kind in {"mapping", "variants"}:
            return self._ours(str(details.get("ctx", {}).get("error", details["msg"])), path, shape)
        return path, self.wrong_value(path, shape, value, is_key=place.is_key)

    def _ours(self, message: str, path: KeyPath, shape: Shape) -> tuple[KeyPath, Problem]:
        """An error of a model's own rules: "key: sentence" belongs to that key."""
        match = _OUR_KEY.fullmatch(message)
        if match and shape.child(match[1]) is not None:
            path, message = (*path, match[1]), match[2]
        return path, self.at_value(path, message)

    def _missing(self, path: KeyPath, shape: Shape) -> Problem:
        needs = describe(shape)
        return self.at_key(path, f"{_MISSING}; needs {needs}", found="nothing", allowed=needs)

    def unknown_key(self, path: KeyPath) -> Problem:
        """A key that is not there, with the nearest that is."""
        shape: Shape = EXPERIMENT
        value: Any = self.data
        for part in path[:-1]:
            shape, value = shape.child(part, value) or shape, _part(value, part)
        name, names = str(path[-1]), list(shape.keys(value))
        near = nearest(name, names)
        elsewhere = "" if near else nearest(name, dotted_keys(EXPERIMENT)) or _last_part(name)
        allowed = ", ".join(names)
        message = _UNKNOWN
        if near:
            message += f"; did you mean `{near}`?"
        elif elsewhere:
            message += f"; there is `{elsewhere}`"
        return self.at_key(
            path,
            f"{message} (allowed here: {allowed})",
            found=printable(name),
            allowed=allowed,
            nearest=near or elsewhere,
        )

    def wrong_value(self, path: KeyPath, shape: Shape, value: Any, *, is_key: bool = False) -> Problem:
        """A value of the wrong type or out of range, with what is allowed and, where it is plain, how to mend it."""
        allowed, found = describe(shape), scalars.found(value)
        message = f"found {found}, needs {allowed}"
        if shape.unit and shape.kind in {"whole", "number"} and not isinstance(value, str):
            message += f", in {shape.unit}"
        near = ""
        if isinstance(value, str):
            words = [w for s in (shape, *shape.options) for w in s.words if isinstance(w, str)]
            near = nearest(value, words)
            message += f"; did you mean `{near}`?" if near else ""
        remedy = self._remedy(path, shape, value)
        message += f"; {remedy}" if remedy and not near else ""
        place = self.at_key if is_key else self.at_value
        return place(path, message, found=found, allowed=allowed, nearest=near)

    def _remedy(self, path: KeyPath, shape: Shape, value: Any) -> str:  # noqa: PLR0911 - one mistake each
        kinds = {s.kind for s in (shape, *shape.options)}
        spot = self._spot(path)
        raw, plain = (spot.raw, spot.plain) if spot else ("", False)
        if isinstance(value, str):
            if "bool" in kinds and scalars.yaml_1_1(value) == "true or false":
                return "in YAML 1.2 write true or false"
            if "bool" in kinds and value.lower() in {"true", "false"}:
                return "remove the quotes"
            if kinds & {"whole", "number"} and _NUMBER.fullmatch(value):
                return "write it without underscores" if plain and "_" in value else "remove the quotes"
            if {w for s in (shape, *shape.options) for w in s.words} & {_as_number(value)}:
                return "remove the quotes"
        if isinstance(value, bool | int | float) and "text" in kinds and plain:
            return f'put it in quotes: "{printable(raw, 30)}"'
        if isinstance(value, float) and "whole" in kinds and value.is_integer():
            return f"write {int(value)}"
        if "list" in kinds and value is not None and not isinstance(value, dict | list):
            return f"for a list of one write [{scalars.written(value)}]"
        return ""

    def _spot(self, path: KeyPath) -> SourcePosition | None:
        spot = self.spot
        for part in path:
            if part not in spot.items:
                return None
            spot = spot.items[part]
        return spot


def _part(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None


def _as_number(text: str) -> object:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text


def _last_part(name: str) -> str:
    """The dotted key that ends in this name, when it is the only one."""
    matches = [k for k in dotted_keys(EXPERIMENT) if k.rsplit(".", 1)[-1] == name]
    return matches[0] if len(matches) == 1 else ""
