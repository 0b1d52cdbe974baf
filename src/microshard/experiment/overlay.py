"""Changing a document by dotted keys, with the places moving along: scales, `--set` and the matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from microshard.experiment.source import KeyPath, SourcePosition

_INDEX = re.compile(r"[0-9]{1,6}")
_PART = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*|[0-9]{1,6}")
_GRIDS = ("axes", "zip")


class NoSuchPlaceError(Exception):
    """A dotted key that leads nowhere; the text says why."""


def split(key: str) -> KeyPath:
    """The parts of a dotted key. Axes have dots themselves: `matrix.topology.shards.count` is one of `matrix.axes`."""
    parts = key.split(".")
    if not all(_PART.fullmatch(p) for p in parts):
        raise NoSuchPlaceError("is not a dotted key such as topology.shards.count")
    if parts[0] == "matrix" and len(parts) > 2:
        if parts[1] in _GRIDS:
            return ("matrix", parts[1], ".".join(parts[2:]))
        if parts[1] not in {"include", "exclude"}:
            return ("matrix", "axes", ".".join(parts[1:]))
    return tuple(parts)


def put(
    data: Mapping[str, Any],
    spot: SourcePosition,
    path: KeyPath,
    value: Any,
    value_spot: SourcePosition,
    key_at: tuple[int, int],
) -> tuple[dict[str, Any], SourcePosition]:
    """A copy of the document with one value replaced, and of its places.

    Missing mappings are made; list items must be there. Raises NoSuchPlaceError.
    """
    changed: dict[str, Any] = put_value(data, path, value)
    return changed, _put_spot(spot, data, path, value_spot, key_at)


def put_value(data: Any, path: KeyPath, value: Any, done: KeyPath = ()) -> Any:
    """As `put`, without the places. What is not on the way to the value is shared, not copied."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(data, list):
        index = _index(part, len(data), done)
        return [*data[:index], put_value(data[index], rest, value, (*done, index)), *data[index + 1 :]]
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise NoSuchPlaceError(f"{_dotted(done)} is a single value and has no `{part}`")
    return {**data, part: put_value(data.get(part), rest, value, (*done, part))}


def _index(part: str | int, length: int, done: KeyPath) -> int:
    if not _INDEX.fullmatch(str(part)):
        raise NoSuchPlaceError(f"{_dotted(done)} is a list; name an item of it by number, from 0, not by `{part}`")
    if int(part) >= length:
        items = {0: "no items", 1: "1 item (0)"}.get(length, f"{length} items (0 to {length - 1})")
        raise NoSuchPlaceError(f"{_dotted(done)} has {items}, so there is no {part}")
    return int(part)


def _put_spot(
    spot: SourcePosition, data: Any, path: KeyPath, new: SourcePosition, key_at: tuple[int, int]
) -> SourcePosition:
    """Mirrors put_value."""
    if not path:
        return new
    part: str | int = int(path[0]) if isinstance(data, list) else path[0]
    inside: Any = data[int(part)] if isinstance(data, list) else (data or {}).get(part)
    known = {} if data is None else spot.items
    changed = _put_spot(known.get(part, SourcePosition(*key_at)), inside, path[1:], new, key_at)
    keys = spot.keys
    if isinstance(part, str) and (len(path) == 1 or part not in keys):
        keys = {**keys, part: key_at}
    return replace(spot, keys=keys, items={**known, part: changed}, bad=spot.bad and data is not None)


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path)) or "the experiment"
