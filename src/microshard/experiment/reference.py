"""docs/reference.md: every key of an experiment file, from the models."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Iterator
from math import prod
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from microshard.experiment import yaml_reader
from microshard.experiment.errors import DefinitionError, Problem, as_yaml, nearest_name
from microshard.experiment.matrix import MAX_POINTS
from microshard.experiment.shape import EXPERIMENT, KeyShape, descriptions, limits, model_keys

_NOTHING = "\N{EN DASH}"

_HEAD = """\
# Reference of the experiment file

Made by `microshard reference` from the types the loader checks. A key is written as its dotted path:
`topology.shards.count` is `topology: {{shards: {{count: 4}}}}`. The same paths name axes of the matrix, changes of a
scale and `--set KEY=VALUE`; an item of a list is named by its number, from 0: `workload.0.load.documents`.

## The file

- YAML 1.2 in UTF-8, one document, at most {kib} KiB, {nodes} values and {depth} levels. Anchors and aliases may be
  used; tags and merge keys (`<<`) may not.
- Yes and no are `true` and `false`; `on`, `off`, `yes` and `no` are text. A date is `2015-07-03`. A version is text:
  `"6.0"`.
- Numbers begin with no 0 (`010` is refused), fit 64 bits and are finite.
- Unknown keys, keys given twice and values of another type are errors; nothing is converted.

## Axes, zip, include, exclude

`matrix: {{topology.shards.count: [1, 2, 4]}}` is short for `matrix: {{axes: {{topology.shards.count: [1, 2, 4]}}}}`.

- Axes are combined in file order, the last one fastest. They begin with `topology.`, `infrastructure.` or `workload.`.
- All of `zip` is one more axis, the fastest: its lists are equally long and read row by row.
- `exclude` takes out every combination that has all the values of one of its entries; an entry that takes out nothing
  is an error.
- `include` then adds points. They may give only some keys and may bring new ones; what they leave out is as the
  experiment says.
- Every point is checked as a whole experiment. Two points that measure the same are an error. A run has at most
  {points} points.

## Scales

`scales: {{laptop: {{workload.0.load.documents: 1000, matrix.topology.shards.count: [1, 2], repetitions: 1}}}}` names
changes for `--scale laptop`. A whole mapping or list may be given and then replaces what was there. Every scale is
checked with the file, even if it is not used. `microshard` and `scales` cannot be changed.

## Contents
"""


def reference_text() -> str:
    """The text of docs/reference.md."""
    sections = _sections()
    head = _HEAD.format(
        kib=yaml_reader.MAX_BYTES // 1024,
        nodes=f"{yaml_reader.MAX_NODES:,}",
        depth=yaml_reader.MAX_DEPTH,
        points=f"{MAX_POINTS:,}",
    )
    lines = [head.rstrip("\n"), ""]
    lines += [f"{'  ' * s.level}- [{s.title}](#{s.anchor}): {s.summary}" for s in sections]
    for section in sections:
        lines += ["", f"## {section.title}", "", section.summary, ""]
        if section.where:
            lines += [section.where, ""]
        lines += _table(section, {s.model: s for s in sections})
    return "\n".join(lines) + "\n"


def key_text(key: str) -> str:
    """What a dotted key of the file takes, as text for a terminal; a mapping's own keys with it.

    Items of lists are named by a number or left out (`workload.0.load` or `workload.load`). Raises DefinitionError with
    the nearest name for a key that does not exist.
    """
    sections = {s.model: s for s in _sections()}
    found = _shapes(key)
    lines = [key]
    for model, name, shape in found:
        place = f"{_words(model.__name__)}: " if len(found) > 1 else ""
        lines.append(f"  {place}{_row_text(model, name, shape, sections)}")
    for below in dict.fromkeys(inner.model for _, _, shape in found for inner in _mappings(shape)):
        if below is not None:
            lines += ["", f"{_words(below.__name__)}: {sections[below].summary}"]
            lines += [
                f"  {name}: {_row_text(below, name, shape, sections)}" for name, shape in model_keys(below).items()
            ]
    return "\n".join(lines) + "\n"


def known_part(key: str) -> str:
    """The longest beginning of a dotted key that the file format knows; empty where it knows none."""
    parts = key.split(".")
    while parts:
        with contextlib.suppress(DefinitionError):
            _shapes(".".join(parts))
            return ".".join(parts)
        parts.pop()
    return ""


def _shapes(key: str) -> list[tuple[type[BaseModel], str, KeyShape]]:
    """Every place a key means, as mapping, name there and shape: several where an engine decides what stands there."""
    found: list[tuple[type[BaseModel], str, KeyShape]] = []
    within = [EXPERIMENT]
    parts = [part for part in key.replace("[]", "").split(".") if not part.isdecimal()]
    for number, part in enumerate(parts):
        mappings = [mapping for shape in within for mapping in _mappings(shape) if mapping.model]
        keys = [(m.model, m.keys()) for m in mappings]
        found = [(model, part, shapes[part]) for model, shapes in keys if model and part in shapes]
        within = [shape for _, _, shape in found]
        if any(shape.kind in {"map", "any"} for shape in within):  # any name may follow
            return found
        if not found:
            begin = ".".join(parts[:number])
            names = {name for _, shapes in keys for name in shapes}
            near = nearest_name(part, names)
            advice = f"did you mean `{near}`?" if near else f"there are {', '.join(sorted(names))}" if names else ""
            place = f"`{begin}` has no key `{part}`" if begin else f"no key `{part}` at the top level"
            raise DefinitionError([Problem("reference", 0, 0, key, f"{place}; {advice}".rstrip("; "))])
    return found


def _mappings(shape: KeyShape) -> Iterator[KeyShape]:
    """The mappings that may stand at a place: itself, its variants, what its list holds."""
    if shape.kind == "mapping":
        yield shape
    for inner in (*shape.variants.values(), *shape.options, *([shape.item] if shape.item else [])):
        yield from _mappings(inner)


def _row_text(model: type[BaseModel], name: str, shape: KeyShape, sections: dict[type[BaseModel], _Section]) -> str:
    """Type, unit, what is allowed, default and meaning of a key on one line."""
    kind = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", _type(shape, sections)) + (f" in {shape.unit}" if shape.unit else "")
    default = _default(model.model_fields[name], shape)
    about = [kind, *([text] if (text := _allowed(shape)) != _NOTHING else [])]
    about += ["required" if "required" in default else f"default {default}"] if default != _NOTHING else []
    return f"{', '.join(about).replace('`', '')}. {descriptions(model).get(name, '')}"


class _Section:
    """One mapping of the file."""

    def __init__(self, model: type[BaseModel], paths: list[str]) -> None:
        self.model = model
        self.paths = paths
        self.title = paths[0] if len(paths) == 1 else _words(model.__name__)
        self.anchor = re.sub(r"[^a-z0-9_ -]", "", self.title.lower()).replace(" ", "-")
        self.summary = " ".join(inspect.cleandoc(model.__doc__ or "").split())
        self.level = 0 if not paths[0] else min(path.count(".") for path in paths)
        self.where = "" if len(paths) == 1 else f"At {', '.join(f'`{p}`' for p in braced(paths))}."
        if not paths[0]:
            self.title, self.anchor = "The top level", "the-top-level"


def braced(paths: list[str]) -> list[str]:
    """a.x.c and a.y.c as a.{x,y}.c, if that names exactly these paths."""
    steps = [list(dict.fromkeys(parts)) for parts in zip(*(p.split(".") for p in paths), strict=False)]
    if len({p.count(".") for p in paths}) > 1 or prod(map(len, steps)) != len(paths):
        return paths
    return [".".join(s[0] if len(s) == 1 else f"{{{','.join(s)}}}" for s in steps)]


def _sections() -> list[_Section]:
    """Every mapping once, in the order in which a reader of the file meets it, with all its places."""
    places: dict[type[BaseModel], list[str]] = {}
    for model, path in _models(EXPERIMENT, ""):
        places.setdefault(model, []).append(path)
    return [_Section(model, paths) for model, paths in places.items()]


def _models(shape: KeyShape, path: str) -> Iterator[tuple[type[BaseModel], str]]:
    if shape.model is not None:
        yield shape.model, path
        for key, child in shape.keys().items():
            yield from _models(child, f"{path}.{key}" if path else key)
    for variant in shape.variants.values():
        yield from _models(variant, path)
    for inner in (shape.item, *shape.options):
        if inner is not None:
            yield from _models(inner, f"{path}[]" if shape.kind == "list" else path)


def _table(section: _Section, sections: dict[type[BaseModel], _Section]) -> Iterator[str]:
    yield "| key | type | unit | allowed | default | meaning |"
    yield "|---|---|---|---|---|---|"
    meanings = descriptions(section.model)
    for name, shape in model_keys(section.model).items():
        info = section.model.model_fields[name]
        cells = (
            f"`{name}`",
            _type(shape, sections),
            shape.unit or _NOTHING,
            _allowed(shape),
            _default(info, shape),
            meanings.get(name, ""),
        )
        yield f"| {' | '.join(c.replace('|', chr(92) + '|') for c in cells)} |"


def _type(shape: KeyShape, sections: dict[type[BaseModel], _Section]) -> str:
    return f"{_plain_type(shape, sections)} or null" if shape.nullable else _plain_type(shape, sections)


def _plain_type(shape: KeyShape, sections: dict[type[BaseModel], _Section]) -> str:
    if shape.model is not None:
        return f"[mapping](#{sections[shape.model].anchor})"
    if shape.kind == "variants":
        links = [f"[{word}](#{sections[s.model].anchor})" for word, s in shape.variants.items() if s.model is not None]
        return f"mapping with `{shape.tag}`: {' or '.join(links)}"
    if shape.kind == "either":
        return " or ".join(_type(s, sections) for s in shape.options)
    if shape.kind == "list" and shape.item is not None:
        return f"list of {_type(shape.item, sections)}"
    if shape.kind == "map" and shape.item is not None:
        return f"mapping of {_type(shape.item, sections)}"
    names = {"whole": "whole number", "bool": "true or false", "words": "word", "any": "any value"}
    return names.get(shape.kind, shape.kind)


def _allowed(shape: KeyShape) -> str:
    parts = [_allowed_one(s) for s in (shape, *shape.options)]
    if shape.item is not None:
        parts.append(_allowed_one(shape.item))
    if shape.key is not None:
        parts.append(f"keys: {_allowed_one(shape.key)}" if _allowed_one(shape.key) else "")
    return "; ".join(dict.fromkeys(p for p in parts if p)) or _NOTHING


def _allowed_one(shape: KeyShape) -> str:
    if shape.kind == "words":
        return ", ".join(f"`{as_yaml(w)}`" for w in shape.words)
    if shape.allowed_text:
        return shape.allowed_text
    return limits(shape).strip().removeprefix("from ").removeprefix("of ")


def _default(info: FieldInfo, shape: KeyShape) -> str:
    if info.is_required():
        return "**required**"
    value: Any = info.default
    if value is PydanticUndefined or isinstance(value, BaseModel):
        return _NOTHING
    if isinstance(value, str) and any(value in s.words for s in (shape, *shape.options)):
        return f"`{value}`"
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()
