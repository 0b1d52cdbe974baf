"""The router's log, in the server's own form: one JSON object a line, readable by the tools that read mongos logs."""

import json
import os
import sys
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

RING = 1024  # lines kept for getLog, as the server keeps them


class ServerLog:
    """Writes to a file or to standard output, and keeps the last lines for the command getLog."""

    def __init__(self, path: Path | None = None, *, append: bool = False, verbosity: int = 0) -> None:
        self.path = path
        self.verbosity = verbosity
        self.recent: deque[str] = deque(maxlen=RING)
        self.warnings: list[str] = []
        self.written = 0
        self._descriptor = self._open(append=append) if path else None

    def _open(self, *, append: bool) -> int:
        assert self.path is not None  # noqa: S101 - only called for a log with a path
        if self.path.exists() and not append:
            # As the server does without logappend: the old log is kept under the time it was replaced.
            self.path.rename(f"{self.path}.{datetime.now().astimezone().strftime('%Y-%m-%dT%H-%M-%S')}")
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def rotate(self, *, reopen: bool) -> None:
        """Go on in a new file: the old one is renamed, or (`reopen`) was renamed by somebody else already."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._open(append=reopen)

    def write(self, severity: str, component: str, ident: int, message: str, **attributes: Any) -> None:
        """Write one line. `severity` I, W, E or D1 to D5; lines above the verbosity are dropped."""
        if severity[0] == "D" and int(severity[1:]) > self.verbosity:
            return
        entry: dict[str, Any] = {
            "t": {"$date": datetime.now().astimezone().isoformat(timespec="milliseconds")},
            "s": severity,
            "c": component,
            "id": ident,
            "ctx": "mongosMain",
            "msg": message,
        }
        if attributes:
            entry["attr"] = attributes
        line = json.dumps(entry, default=str)
        self.recent.append(line)
        self.written += 1
        if self._descriptor is None:
            print(line, file=sys.stdout, flush=True)
            return
        os.write(self._descriptor, line.encode() + b"\n")

    def note(self, component: str, message: str, **attributes: Any) -> None:
        """Say what happened. The number is the router's own: the server's begin at 1 and end in the millions."""
        self.write("I", component, 99_000_001, message, **attributes)

    def alert(self, component: str, message: str, **attributes: Any) -> None:
        """Say what is not as one would expect."""
        self.write("W", component, 99_000_002, message, **attributes)

    def startup_warning(self, message: str, **attributes: Any) -> None:
        """Warn and keep the line for `getLog: startupWarnings`, which shells show at connect."""
        self.alert("CONTROL", message, **attributes)
        self.warnings.append(self.recent[-1])

    def fail(self, component: str, message: str, **attributes: Any) -> None:
        """Say what went wrong."""
        self.write("E", component, 99_000_003, message, **attributes)

    def trace(self, component: str, message: str, **attributes: Any) -> None:
        """Say what somebody asked for with -v."""
        self.write("D1", component, 99_000_004, message, **attributes)
