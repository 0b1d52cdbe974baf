"""Standard output that takes every character, and that may go away while a run goes on.

Imports next to nothing: it is in force before the imports that take time. Encoding with its error handler
writes characters that an encoding lacks in those every encoding has.
"""

import codecs
import io
import os
import sys

HANDLER = "microshard"  # of errors of encoding
_ASCII = {
    "–": "-", "—": "-", "×": "x", "→": "->", "…": "...", "µ": "u", "≤": "<=", "≥": ">=", "±": "+/-", "·": "-",
    "✓": "yes", "✗": "NO",
}  # fmt: skip


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """Characters that a terminal's encoding lacks, in those every encoding has."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


class _Output(io.TextIOWrapper):
    """Standard output that may go away: a run goes on and tears down though its reader has left or the disk is full."""

    lost = False  # for another reason than that the reader left

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        null = os.open(os.devnull, os.O_WRONLY)  # takes what is buffered and what comes, from child processes too
        os.dup2(null, self.fileno())
        os.close(null)
        if not isinstance(error, BrokenPipeError):
            self.lost = True
            print(f"microshard: standard output: {error.strerror}; going on without it", file=sys.stderr)


def take_output() -> None:
    """Make sys.stdout and sys.stderr such that no character and no reader that leaves is an error."""
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors=HANDLER)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        encoding, by_line = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Output(sys.stdout.detach(), encoding, HANDLER, line_buffering=by_line)


codecs.register_error(HANDLER, _in_ascii)
