"""Changing a document by dotted keys, with the places moving along: scales, `--set` and the matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from microshard.definition.source import KeyPath, Spot

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
    data: Mapping[str, Any], spot: Spot, path: KeyPath, value: Any, value_spot: Spot, key_at: tuple[int, int]
) -> tuple[dict[str, Any], Spot]:
    """A copy of the document with one value replaced; what is not on the way to it is shared, not copied.

    Missing mappings are made; list items must be there. Raises NoSuchPlaceError.
    """
    new_data, new_spot = _put(data, spot, path, (value, value_spot, key_at), ())
    assert isinstance(new_data, dict)  # noqa: S101 - a document is a mapping, here for the type checker
    return new_data, new_spot


def _put(
    data: Any, spot: Spot, path: KeyPath, new: tuple[Any, Spot, tuple[int, int]], done: KeyPath
) -> tuple[Any, Spot]:
    if not path:
        return new[0], new[1]
    part, rest = path[0], path[1:]
    here = ".".join(map(str, done)) or "the experiment"
    if isinstance(data, list):
        if not (isinstance(part, int) or _INDEX.fullmatch(part)):
            raise NoSuchPlaceError(f"{here} is a list; name an item of it by 0 to {len(data) - 1}, not by `{part}`")
        index = int(part)
        if index >= len(data):
            items = (
                "1 item (0)" if len(data) == 1 else f"{len(data)} items (0 to {len(data) - 1})" if data else "no items"
            )
            raise NoSuchPlaceError(f"{here} has {items}, so there is no {index}")
        inner, inner_spot = _put(data[index], spot.items.get(index, spot), rest, new, (*done, index))
        return [*data[:index], inner, *data[index + 1 :]], replace(spot, items={**spot.items, index: inner_spot})
    if data is None:
        data, spot = {}, replace(spot, items={}, keys={}, bad=False)
    if not isinstance(data, dict):
        raise NoSuchPlaceError(f"{here} is a single value and has no `{part}`")
    part = str(part)
    at = new[2]
    inside = spot.items.get(part, Spot(*at))
    inner, inner_spot = _put(data.get(part), inside, rest, new, (*done, part))
    keys = spot.keys if rest and part in spot.keys else {**spot.keys, part: at}
    return {**data, part: inner}, replace(spot, keys=keys, items={**spot.items, part: inner_spot})
