"""The page cache of a host, emptied."""

from __future__ import annotations

import os
import subprocess

_DROP = "/proc/sys/vm/drop_caches"


def drop(path: str = _DROP) -> str:
    """Write dirty pages and drop the page cache, by sudo where that is needed: "dropped", or "not dropped (reason)"."""
    os.sync()
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write("3\n")
    except PermissionError:
        return "dropped" if _by_sudo(path) else "not dropped (not root)"
    except OSError as error:
        return f"not dropped ({error.strerror})"
    return "dropped"


def _by_sudo(path: str) -> bool:
    words = ["sudo", "-n", "/bin/sh", "-c", 'echo 3 > "$0"', path]
    try:
        return subprocess.run(words, capture_output=True, check=False, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
