"""The command line.

This file imports next to nothing: Ctrl-C is handled from its first line on, before the imports that take time.
"""

import sys

from microshard.errors import EXIT_BUG
from microshard.interrupts import Stopped, raise_if_interrupted, signals
from microshard.standard_output import take_output


def main() -> None:
    """Entry point. Always ends in SystemExit; 130, 143 and 129 after SIGINT, SIGTERM and SIGHUP."""
    take_output()
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
