#!/usr/bin/python
"""Processes that run beside a measurement: started before it, ended after it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: background_processes
short_description: Helpers of a measurement run, or run no more
description:
  - Starts processes detached, each in a session of its own, or ends them.
  - A process is recognised by its pid file and by its marker, an argument of its command line. Nothing else is
    signalled.
options:
  run_folder:
    description: Folder of the run; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  folder:
    description: Where pid files and outputs (C(NAME.pid), C(NAME.out)) go; below the run's folder.
    type: path
    required: true
  output_folder:
    description: A folder made before the processes start, for what they write; below the run's folder.
    type: path
  files:
    description: Files below the run's folder that the processes read; written before they start.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Where it is.
        type: path
        required: true
      content:
        description: What is in it.
        type: str
        required: true
  processes:
    description: The processes. One that runs with another command line is started anew.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: How messages and files call it.
        type: str
        required: true
      argv:
        description: Command line.
        type: list
        elements: str
        required: true
      marker:
        description: The argument that tells this process from all others, such as its output file.
        type: str
        required: true
  state:
    description: Whether they run.
    type: str
    choices: [started, stopped]
    default: started
  patience:
    description: Seconds between SIGTERM and SIGKILL.
    type: float
    default: 3
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The host is observed
  background_processes:
    run_folder: "{{ microshard_run.folder }}"
    folder: "{{ microshard_step.telemetry }}"
    processes:
      - {name: host, argv: [python3, host.py, --out, host.jsonl], marker: host.jsonl}
"""

RETURN = r"""
seconds:
  description: How long it took.
  returned: success
  type: float
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.microshard import daemon, logs, proc
from ansible.module_utils.microshard.run_folder import NotOurs, require_below, require_run_folder, write_atomically

# Seconds a helper must survive to count as started: one that cannot import or open its files ends sooner.
_SURVIVE = 0.15


def main() -> None:
    """Entry point."""
    process = {
        "name": {"type": "str", "required": True},
        "argv": {"type": "list", "elements": "str", "required": True},
        "marker": {"type": "str", "required": True},
    }
    file = {"path": {"type": "path", "required": True}, "content": {"type": "str", "required": True}}
    module = AnsibleModule(
        argument_spec={
            "run_folder": {"type": "path", "required": True},
            "folder": {"type": "path", "required": True},
            "output_folder": {"type": "path"},
            "files": {"type": "list", "elements": "dict", "default": [], "options": file},
            "processes": {"type": "list", "elements": "dict", "required": True, "options": process},
            "state": {"choices": ["started", "stopped"], "default": "started"},
            "patience": {"type": "float", "default": 3},
        },
        supports_check_mode=True,
    )
    began = time.monotonic()
    try:
        run_folder = require_run_folder(module.params["run_folder"])
        for path in (
            module.params["folder"],
            module.params["output_folder"],
            *(f["path"] for f in module.params["files"]),
        ):
            if path:
                require_below(run_folder, path)
        changed = _start(module) if module.params["state"] == "started" else _stop(module)
    except (NotOurs, OSError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(
        changed=bool(changed),
        msg=f"{', '.join(changed)} {module.params['state']}" if changed else "as they should be",
        seconds=round(time.monotonic() - began, 3),
    )


def _paths(module: AnsibleModule, process: dict[str, Any]) -> tuple[str, str]:
    base = os.path.join(module.params["folder"], process["name"])
    return f"{base}.pid", f"{base}.out"


def _start(module: AnsibleModule) -> list[str]:
    running = {p["name"]: proc.recorded(_paths(module, p)[0], p["marker"]) for p in module.params["processes"]}
    missing = [p for p in module.params["processes"] if not _runs_as_wanted(running[p["name"]], p)]
    if module.check_mode or not missing:
        return [process["name"] for process in missing]
    folder = module.params["folder"]
    for path in (folder, module.params["output_folder"]):
        if path:
            os.makedirs(path, exist_ok=True)
    for file in module.params["files"]:
        write_atomically(file["path"], file["content"])
    for process in missing:
        other = running[process["name"]]
        if other:  # left over from a step that was interrupted
            daemon.end(other, grace=module.params["patience"])
    children = []
    for process in missing:
        pid_path, output = _paths(module, process)
        children.append(daemon.spawn(process["argv"], folder=folder, output=output, pid_path=pid_path))
    time.sleep(_SURVIVE)
    for process, child in zip(missing, children):
        code = child.poll()
        if code is not None:
            words = "\n    ".join(logs.last_words(_paths(module, process)[1])) or "it said nothing"
            raise OSError(f"{process['name']} ended at once with exit code {code}:\n    {words}")
    return [process["name"] for process in missing]


def _runs_as_wanted(seen: proc.Seen | None, process: dict[str, Any]) -> bool:
    return seen is not None and list(seen.command) == process["argv"]


def _stop(module: AnsibleModule) -> list[str]:
    found = []
    for process in module.params["processes"]:
        seen = proc.recorded(_paths(module, process)[0], process["marker"])
        if seen:
            found.append((process["name"], seen))
    if found and not module.check_mode:
        with ThreadPoolExecutor(len(found)) as pool:
            list(pool.map(lambda pair: daemon.end(pair[1], grace=module.params["patience"]), found))
    return [name for name, _ in found]


if __name__ == "__main__":
    main()
