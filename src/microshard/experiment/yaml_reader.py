"""Reads YAML 1.2 into plain data with positions.

The data are composed here from the parser's events, not by a YAML loader: this keeps positions, enforces limits while
reading (an alias bomb is never expanded) and types scalars by YAML 1.2 alone, without tags.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML, events
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from microshard.experiment.document import Document, LineColumn, SourcePosition, dotted
from microshard.experiment.errors import DefinitionError, Problem, describe_value, printable

MAX_BYTES = 512 * 1024  # the parser reads about 400 KiB/s on a slow core; an experiment file must never take seconds
MAX_NODES = 50_000  # with every alias expanded
MAX_DEPTH = 64

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what the parser counts as the end of a line

_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)

# Text in YAML 1.2, something else in YAML 1.1 and so for most people who type it.
_YAML_1_1 = (
    (re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"), "true or false"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date"),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|[-+]?0b[01_]+"), "a number"),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), "a time"),
)

# Part of the parser's message → what to tell the user.
_SYNTAX_ERRORS = (
    ("mapping values are not allowed", "a `:` where no key can be; indent it like its neighbours or quote the text"),
    ("'\\t'", "a tab; YAML is indented with spaces"),
    ("found character '@'", "text that begins with @ needs quotes"),
    ("found character '`'", "text that begins with ` needs quotes"),
    ("found character '%'", "text that begins with % needs quotes"),
    ("unexpected end of stream", "the quotes that begin here are never closed"),
    ("expected ',' or ']'", "the list in [ ] is not closed, or a comma is missing"),
    ("expected ',' or '}'", "the mapping in { } is not closed, or a comma is missing"),
    ("expected <block end>", "is indented unlike its neighbours, or mixes list items (-) with keys"),
    ("expected the node content, but found '<stream end>'", "the file ends inside [ ] or { } that are not closed"),
    ("expected the node content", "a value is missing here, or needs quotes"),
    ("could not find expected ':'", "a key without a colon"),
    ("unknown escape character", "an unknown escape in double quotes; double the backslash or use single quotes"),
    ("incompatible YAML document", "experiment files are YAML 1.2; remove the %YAML line"),
)
# For these the parser points at the end of the file; shown is where the unclosed quotes or brackets begin.
_POINT_AT_BEGINNING = ("unexpected end of stream", "but got '<stream end>'")


def read(path: Path) -> tuple[Document, list[Problem]]:
    """The file's document, and the problems that leave the rest readable.

    Raises DefinitionError for a file that is unreadable, not UTF-8, too large, not YAML, or no mapping.
    """
    file = str(path)

    def refusal(message: str, line: int = 0, column: int = 0) -> DefinitionError:
        return DefinitionError([Problem(file, line, column, "", message)])

    try:
        if path.is_dir():
            raise refusal("is a folder; name the experiment file in it")
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise refusal("no such file") from None
    except (OSError, ValueError) as error:
        raise refusal(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise refusal(f"larger than {MAX_BYTES // 1024} KiB, the limit for experiment files")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = split_lines(raw[: error.start].decode("utf-8-sig", errors="replace"))
        message = f"byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8; save the file as UTF-8"
        raise refusal(message, len(lines), len(lines[-1]) + 1) from None
    return parse(file, text)


def parse(file: str, text: str) -> tuple[Document, list[Problem]]:
    """As `read`, from text."""
    empty = Document(file, split_lines(text), {}, SourcePosition(1, 1))
    composer = _Composer(empty)
    try:
        data, root = composer.document(YAML(typ="safe", pure=True).parse(text))
    except (YAMLError, ValueError, AttributeError, IndexError, TypeError, RecursionError) as error:
        # The parser's own failures on broken input, such as a directive cut short, are errors of the file too.
        composer.path.clear()
        raise composer.stop(*_explain(error, text)) from None
    if not isinstance(data, dict):
        message = f"an experiment file is a mapping (`microshard: 1`, `name: …`), found {describe_value(data)}"
        raise composer.stop((root.line, root.column), message)
    return Document(file, empty.lines, data, root), composer.problems


def split_lines(text: str) -> list[str]:
    """Lines as the parser counts them."""
    return _LINE_END.split(text)


def yaml_1_1(text: str) -> str:
    """What plain text would have meant in YAML 1.1; empty when it was text there too."""
    return next((meaning for pattern, meaning in _YAML_1_1 if pattern.fullmatch(text)), "")


class _Composer:
    """Makes data and positions from events. Recursion is limited by MAX_DEPTH."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []
        self._anchors: dict[str, tuple[Any, SourcePosition] | None] = {}
        self.path: list[str | int] = []
        self._nodes = 0
        self._events: Iterator[events.Event] = iter(())

    def document(self, stream: Iterator[events.Event]) -> tuple[Any, SourcePosition]:
        """The only document of a stream."""
        self._events = stream
        next(stream)  # the start of the stream
        start = next(stream)
        if not isinstance(start, events.DocumentStartEvent):
            raise self.stop(_at(start), "is empty; see `microshard schema` and docs/reference.md for what belongs here")
        if start.version not in {None, (1, 2)}:
            self._note(_at(start), "experiment files are YAML 1.2; remove the %YAML line")
        result = self._node(next(stream), (1, 1))
        next(stream)  # the end of the document
        after = next(stream)
        if isinstance(after, events.DocumentStartEvent):
            raise self.stop(_at(after), "a second document begins here; an experiment file holds one")
        return result

    def stop(self, at: LineColumn, message: str) -> DefinitionError:
        """The error for a problem after which nothing more can be read."""
        self._note(at, message)
        return DefinitionError(self.problems)

    def _note(self, at: LineColumn, message: str) -> None:
        self.problems.append(self._document.problem(at, dotted(tuple(self.path)), message))

    def _count(self, event: events.Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self.stop(_at(event), f"more than {MAX_NODES:,} values, with every alias expanded")

    def _node(self, event: events.Event, key_at: LineColumn) -> tuple[Any, SourcePosition]:
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        # No other event starts a node.
        assert isinstance(event, events.ScalarEvent | events.SequenceStartEvent | events.MappingStartEvent)  # noqa: S101
        if event.anchor:
            self._anchors[event.anchor] = None  # not complete yet: an alias to it now would be endless
        self._count(event, 1)
        if len(self.path) >= MAX_DEPTH:
            raise self.stop(_at(event), f"nested deeper than {MAX_DEPTH} levels")
        if event.tag is not None:
            tag = printable(str(event.tag).replace("tag:yaml.org,2002:", "!!"), 40)
            self._note(_at(event), f"the tag {tag} is not used in experiment files; remove it")
        if isinstance(event, events.ScalarEvent):
            data, position = self._scalar(event, key_at)
        elif isinstance(event, events.SequenceStartEvent):
            data, position = self._list(event)
        else:
            data, position = self._mapping(event)
        position.bad = position.bad or event.tag is not None
        if event.anchor:
            self._anchors[event.anchor] = data, position
        return data, position

    def _alias(self, event: events.AliasEvent) -> tuple[Any, SourcePosition]:
        name = printable(str(event.anchor), 40)
        if event.anchor not in self._anchors:
            self._note(_at(event), f"there is no anchor &{name} above this alias")
            return None, SourcePosition(*_at(event), bad=True)
        known = self._anchors[event.anchor]
        if known is None:
            raise self.stop(_at(event), f"the alias *{name} is inside its own anchor: it would never end")
        self._count(event, known[1].nodes)
        if len(self.path) + known[1].depth > MAX_DEPTH:
            raise self.stop(_at(event), f"nested deeper than {MAX_DEPTH} levels once *{name} is expanded")
        return known

    def _scalar(self, event: events.ScalarEvent, key_at: LineColumn) -> tuple[Any, SourcePosition]:
        plain = event.style in {None, ""} and event.tag is None
        # The parser puts a missing value behind the next token; its key says more.
        at = key_at if plain and not event.value else _at(event)
        position = SourcePosition(*at, raw=event.value, plain=plain)
        if not plain:
            return event.value, position
        data, refusal = resolve(event.value)
        if refusal:
            self._note(at, refusal)
            position.bad = True
        return data, position

    def _list(self, event: events.Event) -> tuple[list[Any], SourcePosition]:
        position = SourcePosition(*_at(event))
        data: list[Any] = []
        while not isinstance(item := next(self._events), events.SequenceEndEvent):
            self.path.append(len(data))
            value, inner = self._node(item, _at(item))
            self.path.pop()
            _add(position, len(data), inner)
            data.append(value)
        return data, position

    def _mapping(self, event: events.Event) -> tuple[dict[str, Any], SourcePosition]:
        position = SourcePosition(*_at(event))
        data: dict[str, Any] = {}
        while not isinstance(item := next(self._events), events.MappingEndEvent):
            key, at = self._key(item), _at(item)
            self.path.append("?" if key is None else key)
            value, inner = self._node(next(self._events), at)
            if key is None:
                position.bad = True
            elif key in data:
                self._note(at, f"the key is given twice, first on line {position.keys[key][0]}; keep one")
                position.items[key].bad = True
            else:
                _add(position, key, inner)
                data[key], position.keys[key] = value, at
            self.path.pop()
        return data, position

    def _key(self, event: events.Event) -> str | None:
        """The key, or None where it is not valid (reported)."""
        if isinstance(event, events.SequenceStartEvent | events.MappingStartEvent):
            # Refused at once: keys in keys would be nested without being counted as levels.
            hint = (
                "; templates such as {{ name }} are not filled in"
                if isinstance(event, events.MappingStartEvent)
                else ""
            )
            raise self.stop(_at(event), f"a key must be text{hint}")
        key, position = self._node(event, _at(event))
        if not isinstance(event, events.ScalarEvent) or event.tag is not None:
            self._note(_at(event), "a key must be plain text")
        elif position.plain and event.value == "<<":
            self._note(_at(event), "merge keys (<<) are not part of YAML 1.2; write the keys out")
        elif isinstance(key, str):
            return key
        elif not position.bad:
            quoted = f'put quotes around it: "{event.value}"'
            self._note(_at(event), f"a key must be text, found {describe_value(key)}; {quoted}")
        return None


def _at(event: events.Event) -> LineColumn:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _add(outer: SourcePosition, part: str | int, inner: SourcePosition) -> None:
    outer.items[part] = inner
    outer.nodes += inner.nodes
    outer.depth = max(outer.depth, inner.depth + 1)


def resolve(text: str) -> tuple[Any, str]:  # noqa: PLR0911 - one form of scalar each
    """What plain text means in YAML 1.2, and why it is refused (empty when it is not)."""
    if text in _WORDS:
        return _WORDS[text], ""
    if text[0] not in "-+.0123456789":
        return text, ""
    shown = printable(text, 30)
    if _OCTAL.fullmatch(text):
        return None, f"{shown} may be octal or decimal; write it without the leading 0, or as text in quotes"
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        # No 64-bit number has more than 24 digits, and Python refuses to convert some thousands of them.
        number = int(text, 0) if len(text) <= 24 else None
        if number is None or not -(2**63) <= number < 2**63:
            return None, f"{shown} does not fit 64 bits"
        return number, ""
    if _FLOAT.fullmatch(text):
        value = float(text)
        return (value, "") if math.isfinite(value) else (None, f"{shown} is too large for a number")
    if _NOT_FINITE.fullmatch(text):
        return None, f"{text} is not a value an experiment can use; write a number"
    return text, ""


def _explain(error: Exception, text: str) -> tuple[LineColumn, str]:
    """Line and column of a syntax error, and what to do about it."""
    if isinstance(error, ReaderError):
        before = split_lines(text[: error.position])
        message = f"the character U+{error.character:04X} is not allowed in YAML; remove it"
        return (len(before), len(before[-1]) + 1), message
    if not isinstance(error, MarkedYAMLError):
        return (1, 1), f"is not YAML: {printable((str(error) or 'cannot be parsed').splitlines()[0], 100)}"
    problem = str(error.problem or error.context or "cannot be parsed")
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and any(words in problem for words in _POINT_AT_BEGINNING):
        mark = error.context_mark
    at = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    advice = next((advice for words, advice in _SYNTAX_ERRORS if words in problem), None)
    return at, advice or f"is not YAML: {printable(problem, 100)}"
