# ruff: noqa: UP006, UP035
# Old typing names: this file must run on the old Pythons it turns away.
"""The one check that has to work on any Python 3.6 or newer."""

import subprocess
from typing import List, Tuple

OLDEST = (3, 11)
# What is tried when `python3` is too old, the best supported first.
CANDIDATES = ["python3.13", "python3.12", "python3.11", "python3.14"]


def installed_candidates() -> List[str]:
    """Return the commands that start a Python new enough (a version manager's name on PATH may start nothing)."""
    return [name for name in CANDIDATES if _starts(name)]


def too_old(found: Tuple[int, int], candidates: List[str]) -> str:
    """Return what to tell the owner of a Python that is too old; empty when it is new enough."""
    if found >= OLDEST:
        return ""
    problem = "Python {}.{} or newer is needed, found {}.{}.".format(*(OLDEST + found))
    if candidates:
        return problem + "\n  This machine has a newer one: run `make PYTHON=" + candidates[0] + "` with your target."
    return (
        problem + "\n  Install one (Debian, Ubuntu: `apt install python3.12 python3.12-venv`; Fedora, RHEL:"
        " `dnf install python3.12`;\n  macOS: `brew install python@3.12`), then run `make PYTHON=python3.12`"
        " with your target."
    )


def _starts(name: str) -> bool:
    try:
        return subprocess.call([name, "-c", ""], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False
