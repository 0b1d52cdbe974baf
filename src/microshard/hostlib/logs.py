"""Logs of servers: their last lines for a message, and their rotation by logrotate."""

from __future__ import annotations

import json
import os
import shutil

from .files import put_file

_TAIL_BYTES = 65536
_WIDTH = 300  # of a line in a message; mongod writes lines of several thousand characters


def last_lines(*paths: str, lines: int = 8) -> list[str]:
    """The last lines of the first of these files that is not empty, after up to four errors that precede them."""
    for path in paths:
        tail = _tail(path)
        if tail:
            errors = [line for line in tail[:-lines] if _parse(line).get("s") in {"E", "F"}]
            return [_readable(line)[:_WIDTH] for line in [*errors[-4:], *tail[-lines:]]]
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


def _readable(line: str) -> str:
    """A line of mongod's JSON log as `E STORAGE  WiredTiger error message {…}`; other lines as they are."""
    entry = _parse(line)
    if "msg" not in entry:
        return line
    attributes = json.dumps(entry["attr"], separators=(",", ":")) if entry.get("attr") else ""
    return f"{entry.get('s', '')} {entry.get('c', '')}  {entry['msg']} {attributes}".rstrip()


FOLDER = "/etc/logrotate.d"


def rotation_path(run_folder: str, folder: str = FOLDER) -> str:
    """The run's file for logrotate."""
    return os.path.join(folder, f"microshard-{os.path.basename(run_folder)}")


def install_rotation(text: str, run_folder: str, *, check: bool, folder: str = FOLDER) -> bool:
    """Write the run's file for logrotate, where the host has it; whether it had to be written."""
    if not os.path.isdir(folder) or shutil.which("logrotate", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        return False
    return put_file(rotation_path(run_folder, folder), text, check=check) is not None


def remove_rotation(run_folder: str, *, check: bool, folder: str = FOLDER) -> bool:
    """Remove the run's file for logrotate; whether there was one."""
    return put_file(rotation_path(run_folder, folder), "", check=check) is not None
