"""What is wrong with an experiment file, told so that it can be mended without looking anything up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# Wider lines are shown around the place only; a report of a hundred columns still fits most terminals.
_SHOWN_COLUMNS = 100

_SHOWN = 50

COMMAND_LINE = "--set"


def printable(text: str, limit: int = 60) -> str:
    """Text from a file as it may go to a terminal: one line, no control characters, at most `limit` characters."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong (or, as a warning, doubtful), with the place where it is mended."""

    file: str
    """The file as the user named it, or `--set`."""
    line: int
    """From 1; 0 where there is no line (a file that cannot be read, the command line)."""
    column: int
    """From 1, in characters; 0 where there is none."""
    key_path: str
    """Dotted key, empty for the file as a whole."""
    message: str
    """The whole sentence."""
    found: str = ""
    """What stands there, in words."""
    allowed: str = ""
    """What may stand there, in words."""
    nearest: str = ""
    """The nearest valid name, empty when none is near."""
    source_line: str = ""
    """The line of the file, without its end."""
    severity: Literal["error", "warning"] = "error"
    """Warnings do not stop a run."""

    @property
    def headline(self) -> str:
        """Place, key and sentence on one line, as compilers do it, so that editors can jump there."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        key = f"{printable(self.key_path, 200)}: " if self.key_path else ""
        warning = "warning: " if self.severity == "warning" else ""
        return f"{place}: {warning}{key}{self.message}"

    def __str__(self) -> str:
        if not self.line or not self.source_line.strip():
            return self.headline
        start = max(0, self.column - 1 - _SHOWN_COLUMNS // 2) if len(self.source_line) > _SHOWN_COLUMNS else 0
        before = "…" if start else ""
        shown = before + printable(self.source_line[start:].replace("\t", " "), _SHOWN_COLUMNS)
        margin = f"{self.line:>5} | "
        caret = " " * (self.column - 1 - start + len(before))
        return f"{self.headline}\n{margin}{shown}\n{' ' * (len(margin) - 2)}| {caret}^"


class DefinitionError(Exception):
    """An experiment that cannot be run as it is written."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted_problems(problems)
        super().__init__("\n".join(p.headline for p in self.problems))

    def __str__(self) -> str:
        return render(self.problems)


def sorted_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, in the order of the lines; those of the command line last."""
    return sorted(dict.fromkeys(problems), key=lambda p: (p.file == COMMAND_LINE, p.line, p.column))


def render(problems: Sequence[Problem]) -> str:
    """All problems for people, with a last line that counts them when there are several."""
    parts = [str(p) for p in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        parts.append(f"… and {len(problems) - _SHOWN} more")
    if len(problems) > 1:
        errors = sum(p.severity == "error" for p in problems)
        parts.append(f"{errors} errors" if errors == len(problems) else f"{len(problems)} problems, {errors} errors")
    return "\n".join(parts)
