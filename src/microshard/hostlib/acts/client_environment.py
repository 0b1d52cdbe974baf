"""A virtual environment made of wheels alone: no package index, no ensurepip, no compiler is needed."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tarfile
from typing import Any

from ..refused import Refused

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "python": {"type": "path", "required": True},
    "wheels": {"type": "path", "default": ""},
    "archive": {"type": "path", "default": ""},
}

_STAMP = "microshard-complete"
_PIP = (
    *("--isolated", "--quiet", "--disable-pip-version-check", "--no-cache-dir"),
    *("install", "--no-index", "--no-deps", "--no-compile"),
)


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """The environment is there; without an archive it is only looked for."""
    folder = wanted["folder"]
    if os.path.exists(os.path.join(folder, _STAMP)):
        return {"there": True, "msg": f"{folder} is complete"}
    if check or not wanted["archive"]:
        return {"there": False, "changed": True, "msg": f"{folder} is to be made"}
    shutil.rmtree(folder, ignore_errors=True)  # one that was not finished
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    wheels = f"{folder}.wheels"
    try:
        with tarfile.open(wanted["archive"]) as tar:
            os.makedirs(wheels, exist_ok=True)
            for member in tar.getmembers():
                if member.isreg() and os.path.basename(member.name) == member.name:
                    tar.extract(member, wheels)
        _say([wanted["python"], "-m", "venv", "--without-pip", folder])
        python = os.path.join(folder, "bin", "python")
        (pip,) = glob.glob(os.path.join(wheels, "pip-*.whl"))
        others = sorted(set(glob.glob(os.path.join(wheels, "*.whl"))) - {pip})
        _say([python, f"{pip}/pip", *_PIP, *others])
    finally:
        shutil.rmtree(wheels, ignore_errors=True)
        os.unlink(wanted["archive"])
    with open(os.path.join(folder, _STAMP), "w", encoding="ascii"):
        pass
    return {"there": True, "changed": True, "msg": f"{folder} was made of {len(others)} wheels"}


def _say(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise Refused(f"{' '.join(command[:4])} … ended with exit code {done.returncode}: {words}")
