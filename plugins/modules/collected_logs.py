#!/usr/bin/python
"""Logs of a point's processes, compressed into the run's folder before their own folders go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collected_logs
short_description: The logs of processes are kept, compressed
description:
  - Compresses every log that is there to C(FOLDER/NAME.log.gz). A copy carries the modification time of its log, and a
    log that has not changed since is not read again.
options:
  run_folder:
    description: Folder of the run; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  folder:
    description: Where the compressed logs go; below the run's folder.
    type: path
    required: true
  processes:
    description: Processes with their C(name) and C(log_path), as in the plan.
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The logs of the point are kept
  collected_logs:
    run_folder: "{{ microshard_run.folder }}"
    folder: "{{ microshard_run.folder }}/logs/{{ microshard_point.id }}"
    processes: "{{ microshard_point.processes }}"
"""

RETURN = r"""
logs:
  description: Names of the processes whose logs were compressed now.
  returned: success
  type: list
  elements: str
"""

import gzip
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.microshard.run_folder import NotOurs, require_below, require_run_folder

# Speed before size: logs are collected while the next point waits.
_LEVEL = 1


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "run_folder": {"type": "path", "required": True},
            "folder": {"type": "path", "required": True},
            "processes": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    folder = module.params["folder"]
    try:
        run_folder = require_run_folder(module.params["run_folder"])
        require_below(run_folder, folder)
        for process in module.params["processes"]:
            require_below(run_folder, process["log_path"])
        if not module.check_mode:
            os.makedirs(folder, exist_ok=True)
        # zlib lets go of the interpreter's lock, so threads compress side by side.
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            kept = list(pool.map(partial(_keep, folder, check=module.check_mode), module.params["processes"]))
    except (NotOurs, OSError) as problem:
        module.fail_json(msg=str(problem))
    names = [name for name in kept if name]
    module.exit_json(changed=bool(names), logs=names, msg=f"{len(names)} logs compressed")


def _keep(folder: str, process: dict[str, Any], *, check: bool) -> str:
    """The process's name if its log had to be compressed, else ""."""
    target = os.path.join(folder, f"{process['name']}.log.gz")
    try:
        stamp = os.stat(process["log_path"]).st_mtime_ns
    except FileNotFoundError:
        return ""
    if os.path.exists(target) and os.stat(target).st_mtime_ns == stamp:
        return ""
    if not check:
        draft = f"{target}.new"
        with open(process["log_path"], "rb") as log, gzip.open(draft, "wb", compresslevel=_LEVEL) as file:
            shutil.copyfileobj(log, file, 1 << 20)
        os.utime(draft, ns=(stamp, stamp))
        os.replace(draft, target)
    return str(process["name"])


if __name__ == "__main__":
    main()
