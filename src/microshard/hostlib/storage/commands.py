"""Commands of the system, with their own words when they fail."""

from __future__ import annotations

import os
import subprocess

from ..refused import Refused

# A login without a session may lack these.
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


def run(*command: str, accept: tuple[int, ...] = (0,), package: str = "") -> str:
    """What a command printed. Refused when it ends with another code than accepted, or is not there."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "PATH": _PATH, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        hint = f"; install {package} on this host" if package else ""
        raise Refused(f"{command[0]} is not installed{hint}") from None
    if done.returncode not in accept:
        words = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise Refused(f"{' '.join(command)} ended with exit code {done.returncode}: {words}")
    return done.stdout.decode(errors="replace")


def read(path: str) -> str:
    """The text of a file without blanks around it; "" when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
