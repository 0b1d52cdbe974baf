"""Module collected_files: pack files of a run on a host for the controller."""

from __future__ import annotations

import os
import tarfile
from typing import Any

from .files import require_below, require_run_folder, sha256

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "controller_folder": {"type": "path", "required": True},
    "folders": {"type": "list", "elements": "str", "required": True},
}


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Pack these files and every file in these folders; the archive's path is empty when there are none."""
    run_folder = require_run_folder(parameters["run_folder"])
    files = []
    for name in parameters["folders"]:
        path = require_below(run_folder, os.path.join(run_folder, name))
        if os.path.isfile(path) and not os.path.islink(os.path.join(run_folder, name)):
            files.append(path)
        for parent, _, names in os.walk(path):
            files += [os.path.join(parent, file) for file in names if not os.path.islink(os.path.join(parent, file))]
    if check or not files:
        return {"changed": bool(files), "archive": "", "files": len(files), "msg": f"{len(files)} files"}
    archive = os.path.join(run_folder, "tmp", "collected.tgz")
    # Speed before size: the next point waits. Logs are compressed already.
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for file in sorted(files):
            tar.add(file, arcname=os.path.relpath(file, run_folder), recursive=False)
    return {
        "changed": True,
        "archive": archive,
        "sha256": sha256(archive),
        "files": len(files),
        "msg": f"{len(files)} files",
    }
