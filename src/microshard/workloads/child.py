"""What the worker processes of engines have in common: how they are told, how they answer, and how they fail.

Standard input: one JSON line with the work and "parent", the pid of who started it; later "go". Standard output: JSON
lines, at the end one with "finished" or with "error" and exit code 3. `workers.Workers` is the other side.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

from pymongo.errors import PyMongoError

from microshard.hostlib.lifetime import die_with_parent
from microshard.model.datasets import DataError
from microshard.workloads.base import PhaseError

FAILED = 3
REPORT_SECONDS = 0.25


def say(**message: Any) -> None:
    """A line to the parent."""
    print(json.dumps(message), flush=True)


def fail(kind: str, message: str) -> int:
    """Say what went wrong; the exit code that belongs to it."""
    say(error={"type": kind, "message": message})
    return FAILED


def told_to_go() -> bool:
    """Wait for the start; False when the parent closes the pipe instead."""
    return sys.stdin.readline().strip() == "go"


def serve(work_on: Callable[[dict[str, Any]], int | None]) -> int:
    """Read the work and do it; errors of phase, data and server become a line. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; the parent decides
    work = json.loads(sys.stdin.readline())
    die_with_parent(work["parent"])
    try:
        return work_on(work) or 0
    except PhaseError as error:
        return fail(error.kind, str(error))
    except DataError as error:
        return fail("NoData", str(error))
    except PyMongoError as error:
        code = getattr(error, "code", None)
        return fail(type(error).__name__, f"code {code}: {error}" if code is not None else str(error))
