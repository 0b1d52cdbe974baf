"""The binaries of a run, tried."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.microshard.refused import Refused

ARGUMENTS = {
    "mongod": {"type": "path", "required": True},
    "mongos": {"type": "path", "default": ""},
    "version": {"type": "str", "default": ""},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:  # noqa: ARG001 - nothing is changed either way
    """The binaries execute and have their version."""
    paths = {name: wanted[name] for name in ("mongod", "mongos") if wanted[name]}
    with ThreadPoolExecutor(len(paths)) as pool:
        versions = dict(zip(paths, pool.map(_ask, paths.values())))
    _require_version(paths["mongod"], versions["mongod"], wanted["version"])
    return {"versions": versions, "msg": "; ".join(versions.values())}


def _ask(path: str) -> str:
    """The first line of `path --version`."""
    if not os.path.isfile(path):
        raise Refused(f"{path} is not there. Set it up again, or point to another with topology.mongodb.path")
    if not os.access(path, os.X_OK):
        raise Refused(f"{path} may not be executed: chmod +x {path}")
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        raise Refused(f"{path} cannot be executed on this machine: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{path} --version did not end within 30 s") from None
    if answer.returncode == -signal.SIGILL:
        raise Refused(f"{path} needs instructions this processor lacks (mongod since 5.0 needs AVX)")
    if answer.returncode != 0 or not answer.stdout.strip():
        words = (answer.stderr or answer.stdout).strip()[-500:] or "it said nothing"
        raise Refused(f"{path} --version ended with exit code {answer.returncode}: {words}")
    return answer.stdout.splitlines()[0]


def _require_version(path: str, line: str, wanted: str) -> None:
    found = re.search(r"v(\d+\.\d+\.\d+)", line)
    if not found:
        raise Refused(f"{path} is not a mongod: it says {line!r}")
    if wanted and not f"{found[1]}.".startswith(f"{wanted}."):
        raise Refused(f"{path} is MongoDB {found[1]}, the run was planned for {wanted}")
