"""Problems of an experiment file: where they are, what was found, what is allowed, and how they are printed."""

import datetime
import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

MAX_SHOWN_COLUMNS = 100  # of a source line; longer ones are cut to the part around the problem
MAX_SHOWN_PROBLEMS = 50
COMMAND_LINE = "--set"


def printable(text: str, limit: int = 60) -> str:
    """Text from a file in a form that is safe to print: one line, no control characters, at most `limit` characters."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def nearest_name(word: str, names: Iterable[str]) -> str:
    """The valid name that a mistyped one is most similar to; empty when none is similar."""
    match = difflib.get_close_matches(printable(word, 80).lower(), [*names], n=1, cutoff=0.6)
    return match[0] if match else ""


def describe_value(value: object) -> str:  # noqa: PLR0911 - one sentence per type
    """A value in a few words, as in "found the number 3"."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the text "{printable(value, 40)}"' if value else "empty text"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        keys = [printable(str(k), 24) for k in list(value)[:3]]
        return f"a mapping with {', '.join(keys)}{' …' if len(value) > 3 else ''}" if keys else "an empty mapping"
    return f"a {type(value).__name__}"


def as_yaml(value: object) -> str:
    """A value as it is written in the file, shortened."""
    if isinstance(value, str):
        return printable(value, 40)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return printable(json.dumps(value, ensure_ascii=False, default=str), 40)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error or a warning about one place of an experiment file."""

    file: str  # as the user named it, or `--set`
    line: int  # from 1; 0 where there is none (a file that cannot be read, the command line)
    column: int  # from 1, in characters; 0 where there is none
    key_path: str  # dotted key, empty for the file as a whole
    message: str
    found: str = ""
    allowed: str = ""
    nearest: str = ""  # the most similar valid name, if any
    source_line: str = ""  # the line of the file, without its end
    severity: Literal["error", "warning"] = "error"  # a warning does not stop a run

    @property
    def headline(self) -> str:
        """Position, key and message on one line in the form of compilers, so that editors can jump there."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f"{printable(self.key_path, 200)}: " if self.key_path else ""
        warning = "warning: " if self.severity == "warning" else ""
        return f"{place}: {warning}{key}{self.message}"

    def __str__(self) -> str:
        if not self.line or not self.source_line.strip():
            return self.headline
        start = max(0, self.column - 1 - MAX_SHOWN_COLUMNS // 2) if len(self.source_line) > MAX_SHOWN_COLUMNS else 0
        before = "…" if start else ""
        shown = before + printable(self.source_line[start:].replace("\t", " "), MAX_SHOWN_COLUMNS)
        margin = f"{self.line:>5} | "
        caret = " " * (self.column - 1 - start + len(before))
        return f"{self.headline}\n{margin}{shown}\n{' ' * (len(margin) - 2)}| {caret}^"


class DefinitionError(Exception):
    """An experiment that cannot be run as it is written."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        # Each problem once, in the order of the lines, those of the command line last.
        self.problems = sorted(dict.fromkeys(problems), key=lambda p: (p.file == COMMAND_LINE, p.line, p.column))
        super().__init__("\n".join(p.headline for p in self.problems))

    def __str__(self) -> str:
        return render(self.problems)


def render(problems: Sequence[Problem]) -> str:
    """All problems as text, with a last line that counts them when there are several."""
    parts = [str(p) for p in problems[:MAX_SHOWN_PROBLEMS]]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        parts.append(f"… and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    if len(problems) > 1:
        errors = sum(p.severity == "error" for p in problems)
        parts.append(f"{errors} errors" if errors == len(problems) else f"{len(problems)} problems, {errors} errors")
    return "\n".join(parts)
