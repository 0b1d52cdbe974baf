"""Which process of a failed point is gone, and what its log said last."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

from microshard.backends import leftovers
from microshard.model.plan import Point, Process
from microshard.records.run_folder import RunFolder

_LINES = 5
_SEARCHED = 400  # lines from the end; a backtrace has about a hundred
_LONGEST = 300


def missing(folder: RunFolder, point: Point) -> list[str]:
    """A sentence for every planned process that does not run, with the end of its log."""
    commands = [p.command for p in leftovers.running(folder)]
    return [
        f"{process.name} ({process.endpoint}) is not running any more{_log_end(folder, process)}"
        for process in point.processes
        if not any(str(folder / process.config_path) in command for command in commands)
    ]


def _log_end(folder: RunFolder, process: Process) -> str:
    lines = last_lines(folder / process.log_path)
    if not lines:
        return "; it left no log"
    return "; the end of its log:\n" + "\n".join(f"    {line}" for line in lines)


def last_lines(path: Path) -> list[str]:
    """What a mongod's log says at its end: its last errors, or where there are none its last lines.

    A mongod that dies writes a backtrace after the reason, so the end alone would not tell it.
    """
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip() for line in deque(file, maxlen=_SEARCHED)]
    except OSError:
        return []
    errors = [line for line in lines if '"s":"E"' in line or '"s":"F"' in line]
    return [_readable(line) for line in (errors[:_LINES] or lines[-_LINES:])]


def _readable(line: str) -> str:
    try:
        entry = json.loads(line)
        text = f"{entry['t']['$date']} {entry['s']} {entry['c']} {entry['msg']}"
        if "attr" in entry:
            text += f" {json.dumps(entry['attr'], default=str)}"
    except (ValueError, KeyError, TypeError):
        text = line
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
