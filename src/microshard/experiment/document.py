"""An experiment file as plain data, with the position of every key and value, and changes to it by dotted key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from microshard.experiment.errors import COMMAND_LINE, Problem

KeyPath = tuple[str | int, ...]
LineColumn = tuple[int, int]

_PART = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*|[0-9]{1,6}")


def dotted(path: KeyPath) -> str:
    """A path as it is written in matrix and scales: `workload.0.load.documents`."""
    return ".".join(map(str, path))


@dataclass(slots=True)
class SourcePosition:
    """Where a value is in the file, and where the values in it are."""

    line: int  # from 1; 0 for a value of the command line
    column: int  # from 1
    raw: str = ""  # a scalar as it is written
    plain: bool = False  # a scalar without quotes
    bad: bool = False  # already reported: no other problem with this value is
    keys: dict[str, LineColumn] = field(default_factory=dict)  # positions of a mapping's keys
    items: dict[str | int, SourcePosition] = field(default_factory=dict)  # positions of the values, by key or index
    nodes: int = 1  # values in this one, itself included, with every alias expanded
    depth: int = 1  # levels of mappings and lists in this one


@dataclass(frozen=True, slots=True)
class Document:
    """The data of an experiment file with the positions they come from."""

    file: str  # as the user named it
    lines: list[str]  # of the file, without their ends
    data: dict[str, Any]
    root: SourcePosition
    # Values that were put elsewhere, the latest last: path → the path in the file, or the position, they come from.
    moved: tuple[tuple[KeyPath, KeyPath | SourcePosition], ...] = ()

    def put(self, path: KeyPath, value: Any, origin: KeyPath | SourcePosition) -> Document:
        """A copy with one value replaced. Missing mappings are created, list items must exist; else NoSuchKeyError."""
        path = _with_indexes(self.data, path)
        return replace(self, data=put_value(self.data, path, value), moved=(*self.moved, (path, origin)))

    def position(self, path: KeyPath) -> SourcePosition | None:
        """The position of the value at a path; None where there is none."""
        exact, position, _ = self._nearest(path, len(self.moved))
        return position if exact else None

    def problem_at_value(self, path: KeyPath, message: str, **details: Any) -> Problem:
        """A problem with the value at a path; if it is missing, at the nearest value around it."""
        position = self._nearest(path, len(self.moved))[1]
        return self.problem((position.line, position.column), dotted(path), message, **details)

    def problem_at_key(self, path: KeyPath, message: str, **details: Any) -> Problem:
        """A problem with the key at the end of a path; for an item of a list, at its value."""
        return self.problem(self._nearest(path, len(self.moved))[2], dotted(path), message, **details)

    def problem(self, at: LineColumn, key_path: str, message: str, **details: Any) -> Problem:
        """A problem at a line and column, with the line's text; (0, 0) is the command line."""
        line, column = at
        if line == 0:
            return Problem(COMMAND_LINE, 0, 0, key_path, message, **details)
        line = min(max(line, 1), max(len(self.lines), 1))
        text = self.lines[line - 1] if self.lines else ""
        column = min(max(column, 1), len(text) + 1)
        return Problem(self.file, line, column, key_path, message, source_line=text, **details)

    def is_bad(self, path: KeyPath) -> bool:
        """Whether the value at a path, or one it is part of, has been reported already."""
        positions = (self.position(path[:length]) for length in range(len(path) + 1))
        return any(position is not None and position.bad for position in positions)

    def _nearest(self, path: KeyPath, moves: int) -> tuple[bool, SourcePosition, LineColumn]:
        """Whether the path exists, its value's position or the nearest around it, and the position of its key.

        Only the first `moves` moves are looked at: what was moved from a path was moved before it was replaced itself.
        """
        for number in range(moves - 1, -1, -1):
            target, origin = self.moved[number]
            if path[: len(target)] == target:
                return self._origin(origin, path[len(target) :], number)
        position, key_at = self.root, (self.root.line, self.root.column)
        for length, part in enumerate(path, 1):
            if part not in position.items:
                for number, (target, origin) in enumerate(self.moved[:moves]):
                    if target[:length] == path[:length]:  # the mapping was created for a value that was put into it
                        at = self._origin(origin, (), number)[2]
                        return False, SourcePosition(*at), at
                return False, position, key_at
            inner = position.items[part]
            at = (inner.line, inner.column)
            key_at = position.keys.get(part, at) if isinstance(part, str) else at
            position = inner
        return True, position, key_at

    def _origin(
        self, origin: KeyPath | SourcePosition, below: KeyPath, moves: int
    ) -> tuple[bool, SourcePosition, LineColumn]:
        if isinstance(origin, SourcePosition):
            return not below, origin, (origin.line, origin.column)
        return self._nearest((*origin, *below), moves)


class NoSuchKeyError(Exception):
    """A dotted key that does not lead to a value; the text says why."""


def split_key(key: str) -> KeyPath:
    """The parts of a dotted key. Axes contain dots themselves: `matrix.topology.shards.count` is in `matrix.axes`."""
    parts = key.split(".")
    if not all(_PART.fullmatch(p) for p in parts):
        raise NoSuchKeyError("is not a dotted key such as topology.shards.count")
    if parts[0] == "matrix" and len(parts) > 2:
        if parts[1] in {"axes", "zip"}:
            return ("matrix", parts[1], ".".join(parts[2:]))
        if parts[1] not in {"include", "exclude"}:
            return ("matrix", "axes", ".".join(parts[1:]))
    return tuple(parts)


def put_value(data: Any, path: KeyPath, value: Any, outer: KeyPath = ()) -> Any:
    """A copy of the data with one value replaced; only the mappings and lists around the value are copied.

    Missing mappings are created, list items must exist. Raises NoSuchKeyError; `outer` is the path of the data.
    """
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(data, list):
        index = _index(part, len(data), outer)
        return [*data[:index], put_value(data[index], rest, value, (*outer, index)), *data[index + 1 :]]
    if data is not None and not isinstance(data, dict):
        raise NoSuchKeyError(f"{dotted(outer) or 'the experiment'} is a single value and has no `{part}`")
    data = data or {}
    return {**data, part: put_value(data.get(part), rest, value, (*outer, part))}


def _with_indexes(data: Any, path: KeyPath) -> KeyPath:
    """The path with a number for each item of a list, where a dotted key has digits."""
    result: KeyPath = ()
    for part in path:
        if isinstance(data, list):
            index = _index(part, len(data), result)
            result, data = (*result, index), data[index]
        else:
            result, data = (*result, part), data.get(part) if isinstance(data, dict) else None
    return result


def _index(part: str | int, length: int, outer: KeyPath) -> int:
    name = dotted(outer)
    if not str(part).isdecimal():
        raise NoSuchKeyError(f"{name} is a list; name an item of it by number, from 0, not by `{part}`")
    if int(part) >= length:
        items = {0: "no items", 1: "1 item (0)"}.get(length, f"{length} items (0 to {length - 1})")
        raise NoSuchKeyError(f"{name} has {items}, so there is no {part}")
    return int(part)
