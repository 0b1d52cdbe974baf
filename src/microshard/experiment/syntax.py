"""The parser's errors in plain words, at the place where they are mended."""

from __future__ import annotations

import re

from ruamel.yaml.error import MarkedYAMLError

from microshard.experiment.errors import printable

# What the parser counts as the end of a line.
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")

_EXPLAINED = (
    ("mapping values are not allowed", "a `:` where no key can stand; indent it like its neighbours or quote the text"),
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
# Here the parser stops at the end of the file; people need to see where the open thing begins.
_SHOW_BEGINNING = ("unexpected end of stream", "but got '<stream end>'")


def split_lines(text: str) -> list[str]:
    """Lines as the parser counts them."""
    return _LINE_END.split(text)


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column (from 1) of a character's offset."""
    lines = split_lines(text[:offset])
    return len(lines), len(lines[-1]) + 1


def explain(error: MarkedYAMLError) -> tuple[tuple[int, int], str]:
    """Line and column of a syntax error, and what to do about it."""
    problem = str(error.problem or error.context or "cannot be parsed")
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and any(words in problem for words in _SHOW_BEGINNING):
        mark = error.context_mark
    at = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    for words, message in _EXPLAINED:
        if words in problem:
            return at, message
    return at, f"is not YAML: {printable(problem, 100)}"
