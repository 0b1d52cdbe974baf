"""The log of the embedded mongos in the server's format: one JSON object a line, readable by tools for mongos logs."""

import json
import os
import sys
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

RECENT_LINES = 1024  # kept for getLog, as the server keeps them


class ServerLog:
    """Writes to a file or to standard output, and keeps the last lines for the command getLog."""

    def __init__(self, path: Path | None = None, *, append: bool = False, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        self.recent: deque[str] = deque(maxlen=RECENT_LINES)
        self.startup_warnings: list[str] = []
        self.written = 0
        self._path = path
        self._descriptor = self._open(path, append=append) if path else None

    @staticmethod
    def _open(path: Path, *, append: bool) -> int:
        if path.exists() and not append:
            # As the server does without logappend: the old log is kept under the time it was replaced.
            path.rename(f"{path}.{datetime.now().astimezone().strftime('%Y-%m-%dT%H-%M-%S')}")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def rotate(self, *, reopen: bool) -> None:
        """Continue in a new file; with `reopen` another program has already renamed the old one."""
        if self._path is not None and self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._open(self._path, append=reopen)

    def _write(self, severity: str, component: str, ident: int, message: str, attributes: dict[str, Any]) -> None:
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
        else:
            os.write(self._descriptor, line.encode() + b"\n")

    # The ids are the router's: the server's begin at 1 and end in the millions.

    def info(self, message: str, component: str = "CONTROL", **attributes: Any) -> None:
        """Log an event."""
        self._write("I", component, 99_000_001, message, attributes)

    def warning(self, message: str, component: str = "CONTROL", **attributes: Any) -> None:
        """Log a warning."""
        self._write("W", component, 99_000_002, message, attributes)

    def startup_warning(self, message: str) -> None:
        """Log a warning and keep it for `getLog: startupWarnings`, which shells show at connect."""
        self.warning(message)
        self.startup_warnings.append(self.recent[-1])

    def error(self, message: str, component: str = "CONTROL", **attributes: Any) -> None:
        """Log an error."""
        self._write("E", component, 99_000_003, message, attributes)

    def debug(self, message: str, component: str = "CONTROL", **attributes: Any) -> None:
        """Log what only -v shows."""
        if self.verbosity:
            self._write("D1", component, 99_000_004, message, attributes)
