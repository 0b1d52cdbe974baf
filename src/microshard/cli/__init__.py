"""The command line.

This file imports next to nothing: Ctrl-C is handled from its first line on, before the imports that take time.
"""

from __future__ import annotations

import codecs
import io
import os
import sys

from microshard.errors import EXIT_BUG
from microshard.interrupts import Stopped, raise_if_interrupted, signals

_ASCII = {"–": "-", "—": "-", "×": "x", "→": "->", "…": "...", "µ": "u", "≤": "<=", "≥": ">=", "±": "+/-", "·": "."}


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


def main() -> None:
    """Entry point. Always ends in SystemExit; 130, 143 and 129 after SIGINT, SIGTERM and SIGHUP."""
    _take_output()
    try:
        with signals(last=True) as received:
            from microshard.cli.group import execute

            code = execute()
            raise_if_interrupted()  # a Ctrl-C that was dropped on the way
    except Stopped as stopped:
        code = stopped.exit_code
    except Exception:
        if received.number is None:
            raise
        # Python's compiler and some C code replace exceptions that are raised below them.
        code = Stopped(received.number).exit_code
    sys.stdout.flush()
    sys.exit(code or (EXIT_BUG if getattr(sys.stdout, "lost", False) else 0))


def _take_output() -> None:
    codecs.register_error("microshard", _in_ascii)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="microshard")
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        encoding, by_line = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Output(sys.stdout.detach(), encoding, "microshard", line_buffering=by_line)
