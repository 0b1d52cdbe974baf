"""Pydantic's errors as problems at their place in the file: what was found, what is allowed, the nearest valid name."""

import re
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from microshard.experiment.document import Document, KeyPath
from microshard.experiment.errors import Problem, as_yaml, describe_value, nearest_name, printable
from microshard.experiment.shape import EXPERIMENT, KeyShape, describe, dotted_keys
from microshard.experiment.yaml_reader import yaml_1_1

_UNKNOWN, _MISSING = "unknown key", "missing"
_MAX_EXPLAINED = 200  # errors; the nearest names take time, and nobody reads more
_NUMBER = re.compile(r"[-+]?[0-9][0-9_.]*([eE][-+]?[0-9]+)?")
_OWN_KEY = re.compile(r"([a-z_]+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one of pydantic's errors belongs."""

    path: KeyPath
    shape: KeyShape
    value: Any
    is_key: bool = False


class Checker:
    """Explains what is wrong in one document."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def problems(self, error: ValidationError) -> list[Problem]:
        """All errors of a validation, without those about values that were reported already."""
        found: dict[tuple[KeyPath, str], Problem] = {}
        mistyped: set[KeyPath] = set()
        for details in error.errors(include_url=False, include_input=False)[:_MAX_EXPLAINED]:
            place = self._place(details)
            if place is None or self._document.is_bad(place.path):
                continue
            path, problem = self._problem(details, place)
            if problem.message.startswith(_UNKNOWN) and problem.nearest:
                mistyped.add((*path[:-1], problem.nearest))
            # Each option of an "either" has its own error: one for the place is enough.
            found.setdefault((path, problem.message if details["type"] == "value_error" else ""), problem)
        # A required key that is present but mistyped is not missing as well.
        return [p for (path, _), p in found.items() if not (path in mistyped and p.message.startswith(_MISSING))]

    def misread(self, path: KeyPath = ()) -> list[Problem]:
        """Plain text in untyped places (mongod options, pipelines) that YAML 1.1 would read as something else.

        Where a type is expected the type decides; here nobody would notice that `on` or a date is only text.
        """
        shape: KeyShape | None = EXPERIMENT
        value: Any = self._document.data
        for part in path:
            shape = shape.child(part, value) if shape else None
            value = _part(value, part)
        return self._misread(shape, value, path) if shape is not None else []

    def _misread(self, shape: KeyShape, value: Any, path: KeyPath) -> list[Problem]:
        if isinstance(value, str):
            meaning = yaml_1_1(value) if shape.kind == "any" else ""
            position = self._document.position(path) if meaning else None
            if position is None or not position.plain or position.bad:
                return []
            remedy = "write true or false, or " if meaning == "true or false" else ""
            message = f"{printable(value)} is text in YAML 1.2, not {meaning}; {remedy}quote it if text is meant"
            return [self._document.problem_at_value(path, message, found=describe_value(value))]
        found = []
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for part, inner in parts:
            child = shape.child(part, value)
            # The values of matrix and scales belong to other places and are checked there.
            if child is not None and (path or part not in {"matrix", "scales"}):
                found += self._misread(child, inner, (*path, part))
        return found

    def _place(self, details: ErrorDetails) -> _Place | None:
        """Follows pydantic's location along the models, leaving out the steps that are not in the file."""
        shape, value = EXPERIMENT, cast("Any", self._document.data)
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
            return path, self._unknown_key(path)
        if kind == "missing":
            return path, self._missing(path, shape)
        if kind == "union_tag_not_found":
            near = nearest_name(shape.tag, [k for k in value if k not in shape.keys(value)])
            if near:
                return (*path, near), self._unknown_key((*path, near))
            return (*path, shape.tag), self._missing((*path, shape.tag), KeyShape("words", words=tuple(shape.variants)))
        if kind == "union_tag_invalid":
            path = (*path, shape.tag)
            shape, value = KeyShape("words", words=tuple(shape.variants)), _part(value, shape.tag)
        if kind == "value_error" and shape.kind in {"mapping", "variants"}:
            # An error of a model's own rules: "key: sentence" belongs to that key.
            message = str(details.get("ctx", {}).get("error", details["msg"]))
            match = _OWN_KEY.fullmatch(message)
            if match and shape.child(match[1]) is not None:
                path, message = (*path, match[1]), match[2]
            return path, self._document.problem_at_value(path, message)
        return path, self._wrong_value(path, shape, value, is_key=place.is_key)

    def _missing(self, path: KeyPath, shape: KeyShape) -> Problem:
        needs = describe(shape)
        return self._document.problem_at_key(path, f"{_MISSING}; needs {needs}", found="nothing", allowed=needs)

    def _unknown_key(self, path: KeyPath) -> Problem:
        shape: KeyShape = EXPERIMENT
        value: Any = self._document.data
        for part in path[:-1]:
            shape, value = shape.child(part, value) or shape, _part(value, part)
        name, names = str(path[-1]), list(shape.keys(value))
        near = nearest_name(name, names)
        elsewhere = "" if near else nearest_name(name, dotted_keys(EXPERIMENT)) or _only_key_ending_in(name)
        allowed = ", ".join(names)
        hint = f"; did you mean `{near}`?" if near else f"; there is `{elsewhere}`" if elsewhere else ""
        message = f"{_UNKNOWN}{hint} (allowed here: {allowed})"
        return self._document.problem_at_key(
            path, message, found=printable(name), allowed=allowed, nearest=near or elsewhere
        )

    def _wrong_value(self, path: KeyPath, shape: KeyShape, value: Any, *, is_key: bool) -> Problem:
        """A value of the wrong type or out of range, with what is allowed and, where it is obvious, the correction."""
        allowed, found = describe(shape), describe_value(value)
        message = f"found {found}, needs {allowed}"
        if shape.unit and shape.kind in {"whole", "number"} and not isinstance(value, str):
            message += f", in {shape.unit}"
        near = ""
        if isinstance(value, str):
            words = [w for s in (shape, *shape.options) for w in s.words if isinstance(w, str)]
            near = nearest_name(value, words)
        remedy = f"did you mean `{near}`?" if near else self._remedy(path, shape, value)
        message += f"; {remedy}" if remedy else ""
        problem_at = self._document.problem_at_key if is_key else self._document.problem_at_value
        return problem_at(path, message, found=found, allowed=allowed, nearest=near)

    def _remedy(self, path: KeyPath, shape: KeyShape, value: Any) -> str:  # noqa: PLR0911 - one mistake each
        kinds = {s.kind for s in (shape, *shape.options)}
        position = self._document.position(path)
        raw, plain = (position.raw, position.plain) if position else ("", False)
        if isinstance(value, str):
            if "bool" in kinds and yaml_1_1(value) == "true or false":
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
            return f"for a list of one write [{as_yaml(value)}]"
        return ""


def _part(value: Any, part: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    return value[part] if isinstance(value, list) and isinstance(part, int) and part < len(value) else None


def _as_number(text: str) -> object:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text


def _only_key_ending_in(name: str) -> str:
    """The dotted key that ends in this name, when it is the only one."""
    matches = [k for k in dotted_keys(EXPERIMENT) if k.rsplit(".", 1)[-1] == name]
    return matches[0] if len(matches) == 1 else ""
