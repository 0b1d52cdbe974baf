"""`python -m microshard.workloads --job JOB --out RESULT [--progress FILE]`: see microshard.workloads.program.

This file imports next to nothing: from its first line on a signal ends the engine in order, and only then come the
imports that take their time.
"""

import sys

from microshard.hostlib.proc import Terminated, leave, orderly_end


def run() -> int:
    """The command; returns the exit code."""
    try:
        with orderly_end():
            from microshard.workloads.program import main  # noqa: PLC0415 - see above

            return main()
    except Terminated as ended:  # before there was a job, or after its result
        print(f"microshard.workloads: ended by {ended}", file=sys.stderr)
        return ended.exit_code


if __name__ == "__main__":
    leave(run())
