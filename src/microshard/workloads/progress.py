"""Progress lines: one JSON object a line, at most about two a second."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

INTERVAL = 0.5  # seconds between lines of a phase


class Progress:
    """Writes how far a phase is. Without a file it keeps silent."""

    def __init__(self, path: Path | None) -> None:
        # Unbuffered: a reader sees whole lines, and nothing is left to flush when the process is ended.
        self._file = path.open("ab", buffering=0) if path else None
        self._last = 0.0

    def report(self, phase: str, done: int, of: int, unit: str, note: str = "") -> None:
        """Say that `done` of `of` units are finished; lines that come too soon are dropped, the last one never."""
        now = time.monotonic()
        if self._file is None or (now - self._last < INTERVAL and done < of):
            return
        self._last = now
        line = {"phase": phase, "done": done, "of": of, "unit": unit, "time": time.time(), "note": note}
        with contextlib.suppress(OSError):  # a full disk: it is told when the result cannot be written
            self._file.write(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
