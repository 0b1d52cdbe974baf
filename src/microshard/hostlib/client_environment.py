"""Module client_environment: install microshard on a client host from wheels.

No package index, ensurepip or compiler is needed on the host.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tarfile
from typing import Any

from .errors import HostError

ARGUMENTS = {
    "folder": {"type": "path", "required": True},
    "python": {"type": "path", "required": True},
    "archive": {"type": "path", "default": ""},
}

_STAMP = "microshard-complete"
_PIP = (
    *("--isolated", "--quiet", "--disable-pip-version-check", "--no-cache-dir"),
    *("install", "--no-index", "--no-deps", "--no-compile"),
)


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Create the virtual environment; without an archive of wheels only report whether it is complete."""
    folder = parameters["folder"]
    if os.path.exists(os.path.join(folder, _STAMP)):
        return {"exists": True, "msg": f"{folder} is complete"}
    if check or not parameters["archive"]:
        return {"exists": False, "changed": True, "msg": f"{folder} has to be created"}
    shutil.rmtree(folder, ignore_errors=True)  # one that was not finished
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    wheels = f"{folder}.wheels"
    try:
        with tarfile.open(parameters["archive"]) as tar:
            os.makedirs(wheels, exist_ok=True)
            for member in tar.getmembers():
                if member.isreg() and os.path.basename(member.name) == member.name:
                    tar.extract(member, wheels)
        _run([parameters["python"], "-m", "venv", "--without-pip", folder])
        python = os.path.join(folder, "bin", "python")
        (pip,) = glob.glob(os.path.join(wheels, "pip-*.whl"))
        others = sorted(set(glob.glob(os.path.join(wheels, "*.whl"))) - {pip})
        _run([python, f"{pip}/pip", *_PIP, *others])
    finally:
        shutil.rmtree(wheels, ignore_errors=True)
        os.unlink(parameters["archive"])
    with open(os.path.join(folder, _STAMP), "w", encoding="ascii"):
        pass
    return {"exists": True, "changed": True, "msg": f"{folder} was created from {len(others)} wheels"}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = "\n".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise HostError(f"{' '.join(command[:4])} … ended with exit code {done.returncode}: {output}")
