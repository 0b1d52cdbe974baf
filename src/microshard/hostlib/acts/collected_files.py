"""Folders of a run on a host, packed so that the controller can fetch them in one piece."""

from __future__ import annotations

import hashlib
import os
import tarfile
from typing import Any

from ..run_folder import require_below, require_run_folder

ARGUMENTS = {
    "run_folder": {"type": "path", "required": True},
    "controller_folder": {"type": "path", "required": True},
    "folders": {"type": "list", "elements": "str", "required": True},
}


def act(wanted: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """An archive of these files, and of every file in these folders; its path is empty when there is none."""
    run_folder = require_run_folder(wanted["run_folder"])
    files = []
    for name in wanted["folders"]:
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
    digest = hashlib.sha256()
    with open(archive, "rb") as packed:
        for block in iter(lambda: packed.read(1 << 20), b""):
            digest.update(block)
    return {
        "changed": True,
        "archive": archive,
        "sha256": digest.hexdigest(),
        "files": len(files),
        "msg": f"{len(files)} files",
    }
