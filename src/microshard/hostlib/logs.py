"""The last words of a server, short enough for a message."""

from __future__ import annotations

import json
import os

_TAIL_BYTES = 65536
_WIDTH = 300  # of a line in a message; mongod writes lines of several thousand characters


def last_words(*paths: str, lines: int = 8) -> list[str]:
    """The last lines of the first of these files that says anything, errors of the tail before the rest kept."""
    for path in paths:
        tail = _tail(path)
        if tail:
            grave = [line for line in tail[:-lines] if _severity(line) in {"E", "F"}]
            return [_readable(line)[:_WIDTH] for line in [*grave[-4:], *tail[-lines:]]]
    return []


def _tail(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]


def _parse(line: str) -> dict[str, object]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _severity(line: str) -> object:
    return _parse(line).get("s")


def _readable(line: str) -> str:
    """A line of mongod's JSON log as `E STORAGE  WiredTiger error message {…}`; other lines as they are."""
    entry = _parse(line)
    if "msg" not in entry:
        return line
    attributes = json.dumps(entry["attr"], separators=(",", ":")) if entry.get("attr") else ""
    return f"{entry.get('s', '')} {entry.get('c', '')}  {entry['msg']} {attributes}".rstrip()
