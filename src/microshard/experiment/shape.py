"""What is allowed at each key of an experiment file, read from the models.

Pydantic knows this too, but not by the file's own keys and not in sentences. Used by error messages, nearest names, the
axes of the matrix and the reference page.
"""

from __future__ import annotations

import ast
import datetime
import inspect
import itertools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from microshard.experiment.errors import as_yaml
from microshard.model.base import AllowedText
from microshard.model.experiment import Experiment

ShapeKind = Literal[
    "mapping", "variants", "either", "list", "map", "any", "whole", "number", "text", "bool", "date", "words"
]


_KINDS: dict[Any, ShapeKind] = {int: "whole", float: "number", str: "text", bool: "bool"}
_KINDS |= {datetime.date: "date", Any: "any"}


@dataclass(frozen=True, slots=True)
class KeyShape:
    """What is allowed at one place."""

    kind: ShapeKind
    model: type[BaseModel] | None = None  # of a mapping
    variants: dict[str, KeyShape] = field(default_factory=dict)  # of variants: word under `tag` → mapping
    tag: str = ""
    options: tuple[KeyShape, ...] = ()  # of either: everything that is allowed
    item: KeyShape | None = None  # of list and map
    key: KeyShape | None = None  # of map
    words: tuple[Any, ...] = ()  # of words: the values themselves
    nullable: bool = False
    allowed_text: str = ""  # of text with a pattern: what the pattern allows
    unit: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None

    def keys(self, value: object = None) -> dict[str, KeyShape]:
        """Keys of a mapping → shapes; of variants those of the variant that the value names, or of all."""
        if self.kind == "mapping" and self.model is not None:
            return model_keys(self.model)
        if self.kind == "variants":
            word = value.get(self.tag) if isinstance(value, dict) else None
            if isinstance(word, str) and word in self.variants:
                return self.variants[word].keys()
            return {k: s for variant in self.variants.values() for k, s in variant.keys().items()}
        return {}

    def child(self, part: str | int, value: object = None) -> KeyShape | None:
        """The shape under a key or index; None for an unknown key."""
        if self.kind == "any":
            return self
        if isinstance(part, int):
            container = self.container([])
            return container.item if container else None
        if self.kind in {"mapping", "variants"}:
            return self.keys(value).get(part)
        container = self.container({})
        return container.item if container else None

    def container(self, value: object) -> KeyShape | None:
        """This shape, or the one of its options, that takes a list or a mapping such as the value."""
        wanted = {"list"} if isinstance(value, list) else {"map"} if isinstance(value, dict) else set()
        return next((s for s in self.options or (self,) if s.kind in wanted), None)


@cache
def model_keys(model: type[BaseModel]) -> dict[str, KeyShape]:
    """A model's keys → shapes."""
    return {name: _shape(f.annotation, _metadata(f), _unit(f)) for name, f in model.model_fields.items()}


def _unit(info: FieldInfo) -> str:
    extra = info.json_schema_extra
    return str(extra.get("unit", "")) if isinstance(extra, dict) else ""


def _metadata(info: FieldInfo) -> list[Any]:
    return [*info.metadata, *([info] if info.discriminator else [])]


def _shape(annotation: Any, metadata: list[Any], unit: str = "") -> KeyShape:
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        for entry in more:
            metadata = [*metadata, *(_metadata(entry) if isinstance(entry, FieldInfo) else [entry])]
            unit = unit or (_unit(entry) if isinstance(entry, FieldInfo) else "")
    shape = _plain_shape(annotation, metadata)
    limits = {}
    for name in ("ge", "gt", "le", "lt", "min_length", "max_length"):
        values = [getattr(m, name) for m in metadata if getattr(m, name, None) is not None]
        if values:
            limits[name] = values[0]
    allowed_text = next((m.text for m in metadata if isinstance(m, AllowedText)), "")
    return replace(shape, unit=unit or shape.unit, allowed_text=allowed_text or shape.allowed_text, **limits)


def _plain_shape(annotation: Any, metadata: list[Any]) -> KeyShape:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, types.UnionType}:
        return _union(arguments, metadata)
    if origin is Literal:
        return KeyShape("words", words=arguments)
    if origin is list:
        return KeyShape("list", item=_shape(arguments[0], []))
    if origin is dict:
        return KeyShape("map", key=_shape(arguments[0], []), item=_shape(arguments[1], []))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return KeyShape("mapping", model=annotation)
    return KeyShape(_KINDS[annotation])


def _union(arguments: tuple[Any, ...], metadata: list[Any]) -> KeyShape:
    given = [a for a in arguments if a is not type(None)]
    nullable = len(given) < len(arguments)
    tag = next((str(m.discriminator) for m in metadata if isinstance(m, FieldInfo) and m.discriminator), "")
    if tag:
        by_word = {get_args(m.model_fields[tag].annotation)[0]: KeyShape("mapping", model=m) for m in given}
        return KeyShape("variants", variants=by_word, tag=tag, nullable=nullable)
    if len(given) == 1:
        return replace(_shape(given[0], []), nullable=nullable)
    return KeyShape("either", options=tuple(_shape(a, []) for a in given), nullable=nullable)


def describe(shape: KeyShape) -> str:
    """What is allowed, in words that follow "needs"."""
    text = _describe(shape)
    return f"{text} or null" if shape.nullable else text


def _describe(shape: KeyShape) -> str:  # noqa: PLR0911 - one sentence a kind
    match shape.kind:
        case "either":
            return " or ".join(_describe(s) for s in shape.options)
        case "whole" | "number":
            return f"a {'whole ' if shape.kind == 'whole' else ''}number{limits(shape)}"
        case "text":
            return shape.allowed_text or "text"
        case "bool":
            return "true or false"
        case "date":
            return "a date such as 2015-07-03"
        case "words":
            words = [as_yaml(w) for w in shape.words]
            return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
        case "list":
            assert shape.item is not None  # noqa: S101 - a list has items, here for the type checker
            return f"a list{limits(shape)}, each {_describe(shape.item)}"
        case "variants":
            return f"a mapping with {shape.tag}: {' or '.join(shape.variants)}"
        case "any":
            return "anything"
        case _:
            return f"a mapping{limits(shape)}"


def limits(shape: KeyShape) -> str:
    """Range or size, with a space in front; empty without one."""
    low, high = shape.min_length, shape.max_length
    if high is not None:
        return f" of {low} to {high} entries" if low else f" of at most {high} entries"
    if low:
        return f" of at least {low} {'entry' if low == 1 else 'entries'}"
    if shape.ge is not None and shape.le is not None:
        return f" from {_figure(shape.ge)} to {_figure(shape.le)}"
    bounds = (("of at least", shape.ge), ("above", shape.gt), ("at most", shape.le), ("below", shape.lt))
    texts = [f"{words} {_figure(value)}" for words, value in bounds if value is not None]
    return f" {' and '.join(texts)}" if texts else ""


def _figure(value: float) -> str:
    if value == 2**63:
        return "2^63"
    return str(value) if isinstance(value, int) else f"{value:g}"


def dotted_keys(shape: KeyShape, prefix: str = "", depth: int = 8) -> Iterator[str]:
    """All keys that can be named without an index, for the nearest name."""
    for key, child in shape.keys().items():
        yield f"{prefix}{key}"
        if depth and child.kind in {"mapping", "variants"}:
            yield from dotted_keys(child, f"{prefix}{key}.", depth - 1)


EXPERIMENT = KeyShape("mapping", model=Experiment)


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Field → its docstring on one line, of the model and of its base classes; fields without one are left out.

    Pydantic can read them too (use_attribute_docstrings), but whenever models are imported: a third of that time.
    """
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            (tree,) = ast.parse(inspect.getsource(cls)).body
            assert isinstance(tree, ast.ClassDef)  # noqa: S101 - models are at the top level of their files
            for statement, below in itertools.pairwise(tree.body):
                match statement, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        found[name] = " ".join(text.split())
    return {name: text for name, text in found.items() if name in model.model_fields}
