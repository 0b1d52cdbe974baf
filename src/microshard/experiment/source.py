"""A YAML file as plain data with the place of every key and value.

The file is composed here from the parser's events, not by a YAML loader: only so are places kept, limits enforced while
reading (an alias bomb is never expanded), and scalars typed by YAML 1.2 alone, without tags that could construct
anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from microshard.experiment import scalars, syntax
from microshard.experiment.errors import COMMAND_LINE, DefinitionError, Problem, printable

MAX_BYTES = 512 * 1024  # the parser reads about 400 KiB/s on a slow core; a definition must never take seconds
MAX_NODES = 50_000  # with every alias written out
MAX_DEPTH = 64

KeyPath = tuple[str | int, ...]


@dataclass(slots=True)
class SourcePosition:
    """Where a value stands, and where the values in it stand."""

    line: int
    """From 1; 0 for a value of the command line."""
    column: int
    """From 1."""
    raw: str = ""
    """A scalar as written."""
    plain: bool = False
    """A scalar without quotes."""
    bad: bool = False
    """Already reported: nothing more is to be said about this value."""
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    """A mapping's keys → line and column."""
    items: dict[str | int, SourcePosition] = field(default_factory=dict)
    """Key or index → the value's spot."""
    nodes: int = 1
    """Values in this one, itself included, every alias written out."""
    depth: int = 1
    """Levels of mappings and lists in this one."""


@dataclass(slots=True)
class Source:
    """A file and where everything in it stands."""

    file: str
    """The file as the user named it."""
    lines: list[str]
    """Its lines, without their ends."""
    spot: SourcePosition
    """The spot of the whole document."""

    def problem(self, at: tuple[int, int], key_path: str, message: str, **more: Any) -> Problem:
        """A problem at a line and column, with the line's text; (0, 0) is the command line."""
        line, column = at
        if line == 0:
            return Problem(COMMAND_LINE, 0, 0, key_path, message, **more)
        line = min(max(line, 1), max(len(self.lines), 1))
        text = self.lines[line - 1] if self.lines else ""
        return Problem(self.file, line, min(max(column, 1), len(text) + 1), key_path, message, source_line=text, **more)

    def value_at(self, spot: SourcePosition, path: KeyPath) -> tuple[int, int]:
        """Place of the value at a path, or of the nearest value around it."""
        for part in path:
            if part not in spot.items:
                break
            spot = spot.items[part]
        return spot.line, spot.column

    def key_at(self, spot: SourcePosition, path: KeyPath) -> tuple[int, int]:
        """Place of the key at the end of a path; of the value where it is an item of a list."""
        at = spot.line, spot.column
        for part in path:
            if part not in spot.items:
                break
            child = spot.items[part]
            at = spot.keys[part] if isinstance(part, str) and part in spot.keys else (child.line, child.column)
            spot = child
        return at


def read(path: Path) -> tuple[dict[str, Any], Source, list[Problem]]:
    """The file as plain data, its places, and the problems that leave the rest readable.

    Raises DefinitionError where nothing can be made of the file: unreadable, not UTF-8, too large, not YAML, no
    mapping.
    """
    file = str(path)

    def refuse(message: str, line: int = 0, column: int = 0) -> DefinitionError:
        return DefinitionError([Problem(file, line, column, "", message)])

    try:
        if path.is_dir():
            raise refuse("is a folder; name the experiment file in it")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refuse("no such file") from None
    except (OSError, ValueError) as error:
        raise refuse(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise refuse(f"larger than {MAX_BYTES // 1024} KiB, which no experiment file is")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8-sig", errors="replace")
        lines = syntax.split_lines(good)
        raise refuse(
            f"byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8; save the file as UTF-8",
            len(lines),
            len(lines[-1]) + 1,
        ) from None
    return parse(file, text)


def parse(file: str, text: str) -> tuple[dict[str, Any], Source, list[Problem]]:
    """As `read`, from text."""
    source = Source(file, syntax.split_lines(text), SourcePosition(1, 1))
    composer = _Composer(source)
    try:
        data, spot = composer.document(YAML(typ="safe", pure=True).parse(text))
    except ReaderError as error:
        at = syntax.place(text, error.position)
        message = f"the character U+{error.character:04X} cannot stand in YAML; remove it"
        raise DefinitionError([*composer.problems, source.problem(at, "", message)]) from None
    except MarkedYAMLError as error:
        at, message = syntax.explain(error)
        raise DefinitionError([*composer.problems, source.problem(at, "", message)]) from None
    except (YAMLError, ValueError, AttributeError, IndexError, TypeError, RecursionError) as error:
        # The parser's own slips on broken input, such as a directive cut short: still only an error in the file.
        message = f"is not YAML: {printable(str(error).splitlines()[0] if str(error) else 'cannot be parsed', 100)}"
        raise DefinitionError([*composer.problems, source.problem((1, 1), "", message)]) from None
    source.spot = spot
    if not isinstance(data, dict):
        message = f"an experiment file is a mapping (`microshard: 1`, `name: …`), found {scalars.found(data)}"
        raise DefinitionError([*composer.problems, source.problem((spot.line, spot.column), "", message)])
    return data, source, composer.problems


class _Composer:
    """Events to data and spots. Recursion is bounded by MAX_DEPTH."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.anchors: dict[str, tuple[Any, SourcePosition] | None] = {}
        self.path: list[str | int] = []
        self.composed = 0
        self.events: Iterator[Event] = iter(())

    def document(self, events: Iterator[Event]) -> tuple[Any, SourcePosition]:
        self.events = events
        next(events)  # the start of the stream
        start = next(events)
        if not isinstance(start, DocumentStartEvent):
            raise self._stop(start, "is empty; see `microshard schema` and docs/reference.md for what belongs here")
        if start.version not in {None, (1, 2)}:
            self._note(start, "experiment files are YAML 1.2; remove the %YAML line")
        result = self._node(next(events), (1, 1))
        next(events)  # the end of the document
        more = next(events)
        if isinstance(more, DocumentStartEvent):
            raise self._stop(more, "a second document begins here; an experiment file holds one")
        return result

    def _node(self, event: Event, key_at: tuple[int, int]) -> tuple[Any, SourcePosition]:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        anchor = event.anchor if isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent) else None
        if anchor:
            self.anchors[anchor] = None  # known, not yet complete: an alias to it now would be endless
        self.composed += 1
        self._within_limit(event)
        if len(self.path) >= MAX_DEPTH:
            raise self._stop(event, f"nested deeper than {MAX_DEPTH} levels")
        tag = getattr(event, "tag", None)
        if tag is not None:
            short = printable(str(tag).replace("tag:yaml.org,2002:", "!!"), 40)
            self._note(event, f"the tag {short} is not used in experiment files; remove it")
        if isinstance(event, ScalarEvent):
            data, spot = self._scalar(event, key_at)
        elif isinstance(event, SequenceStartEvent):
            data, spot = self._list(event)
        else:
            data, spot = self._mapping(event)
        spot.bad = spot.bad or tag is not None
        if anchor:
            self.anchors[anchor] = data, spot
        return data, spot

    def _alias(self, event: AliasEvent) -> tuple[Any, SourcePosition]:
        name = printable(str(event.anchor), 40)
        if event.anchor not in self.anchors:
            self._note(event, f"no anchor &{name} stands above this alias")
            return None, SourcePosition(*_at(event), bad=True)
        known = self.anchors[event.anchor]
        if known is None:
            raise self._stop(event, f"the alias *{name} stands inside its own anchor: it would never end")
        self.composed += known[1].nodes
        self._within_limit(event)
        if len(self.path) + known[1].depth > MAX_DEPTH:
            raise self._stop(event, f"nested deeper than {MAX_DEPTH} levels once *{name} is written out")
        return known

    def _scalar(self, event: ScalarEvent, key_at: tuple[int, int]) -> tuple[Any, SourcePosition]:
        plain = event.style in {None, ""} and event.tag is None
        # A value left out has no place of its own; the parser puts it behind the next token.
        at = key_at if plain and not event.value else _at(event)
        spot = SourcePosition(*at, raw=event.value, plain=plain)
        if not plain:
            return event.value, spot
        data, trap = scalars.resolve(event.value)
        if trap:
            self.problems.append(self.source.problem(at, self._key_path(), trap))
            spot.bad = True
        return data, spot

    def _list(self, event: SequenceStartEvent) -> tuple[list[Any], SourcePosition]:
        spot = SourcePosition(*_at(event))
        data: list[Any] = []
        while not isinstance(item := next(self.events), SequenceEndEvent):
            self.path.append(len(data))
            value, inner = self._node(item, _at(item))
            self.path.pop()
            spot.items[len(data)] = inner
            data.append(value)
            _grow(spot, inner)
        return data, spot

    def _mapping(self, event: Event) -> tuple[dict[str, Any], SourcePosition]:
        spot = SourcePosition(*_at(event))
        data: dict[str, Any] = {}
        while not isinstance(item := next(self.events), MappingEndEvent):
            key, at = self._key(item), _at(item)
            self.path.append(key if key is not None else "?")
            value, inner = self._node(next(self.events), at)
            if key is not None and key in data:
                first = spot.keys[key]
                message = f"the key is given twice, first on line {first[0]}; keep one"
                self.problems.append(self.source.problem(at, self._key_path(), message))
                spot.items[key].bad = True
            elif key is not None:
                data[key], spot.items[key], spot.keys[key] = value, inner, at
            else:
                spot.bad = True
            self.path.pop()
            _grow(spot, inner)
        return data, spot

    def _key(self, event: Event) -> str | None:
        """The key, or None where it is none (reported)."""
        if isinstance(event, SequenceStartEvent | MappingStartEvent):
            # Refused at once: keys in keys would nest without being counted as levels.
            template = isinstance(event, MappingStartEvent)
            hint = "; templates such as {{ name }} are not filled in" if template else ""
            raise self._stop(event, f"a key must be text{hint}")
        key, _ = self._node(event, _at(event))
        if not isinstance(event, ScalarEvent) or event.tag is not None:
            self._note(event, "a key must be plain text")
            return None
        if event.style not in {None, ""}:
            return str(event.value)
        if event.value == "<<":
            self._note(event, "merge keys (<<) are not part of YAML 1.2; write the keys out")
            return None
        if not isinstance(key, str):
            if not (self.problems and (self.problems[-1].line, self.problems[-1].column) == _at(event)):
                self._note(
                    event, f'a key must be text, found {scalars.found(key)}; put quotes around it: "{event.value}"'
                )
            return None
        return key

    def _within_limit(self, event: Event) -> None:
        if self.composed > MAX_NODES:
            raise self._stop(event, f"more than {MAX_NODES:,} values, with every alias written out")

    def _key_path(self) -> str:
        return ".".join(map(str, self.path))

    def _note(self, event: Event, message: str) -> None:
        self.problems.append(self.source.problem(_at(event), self._key_path(), message))

    def _stop(self, event: Event, message: str) -> DefinitionError:
        return DefinitionError([*self.problems, self.source.problem(_at(event), self._key_path(), message)])


def _at(event: Event) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _grow(spot: SourcePosition, inner: SourcePosition) -> None:
    spot.nodes += inner.nodes
    spot.depth = max(spot.depth, inner.depth + 1)
