#!/usr/bin/python
"""Runs phases of a workload through microshard's engines and tells what came out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workload_phases
short_description: Phases of a workload were executed and their result is on disk
description:
  - Writes the job, runs C(PYTHON -m microshard.engines) with it and reads the result.
  - Always runs, so it always reports a change; in check mode it does nothing.
  - The engine stays in the module's process group, so it ends with a play that is interrupted.
options:
  run_folder:
    description: Folder of the run; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  python:
    description: Interpreter that has the microshard package.
    type: path
    required: true
  job:
    description: The job as in docs/contracts.md. Missing C(point.cores) become the cores this machine grants.
    type: dict
    required: true
  job_path:
    description: Where the job is written; the same phases can be run from it by hand.
    type: path
    required: true
  out:
    description: Where the engine writes its result.
    type: path
    required: true
  pid_path:
    description: Where the engine's pid stands while it runs, for those who observe it.
    type: path
  progress:
    description: File the engine appends its progress to.
    type: path
attributes:
  check_mode:
    support: partial
    details: Nothing is executed.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The phases of the step were executed
  workload_phases:
    run_folder: "{{ microshard_run.folder }}"
    python: "{{ microshard_run.python }}"
    job: "{{ workload_job }}"
    job_path: "{{ workload_job_path }}"
    out: "{{ microshard_step.results }}"
"""

RETURN = r"""
phases:
  description: Name, metric and error of every phase that was begun.
  returned: when the engine wrote a result
  type: list
  elements: dict
seconds:
  description: How long it took.
  returned: always
  type: float
"""

import json
import os
import subprocess
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.microshard.run_folder import NotOurs, require_below, require_run_folder, write_atomically


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "run_folder": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "job": {"type": "dict", "required": True},
            "job_path": {"type": "path", "required": True},
            "out": {"type": "path", "required": True},
            "progress": {"type": "path"},
            "pid_path": {"type": "path"},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    names = [phase["name"] for phase in wanted["job"]["phases"]]
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would run {', '.join(names)}")
    began = time.monotonic()
    try:
        _prepare(wanted)
        code, words = _run(wanted)
    except (NotOurs, OSError) as problem:
        module.fail_json(msg=str(problem))
    phases = _phases(wanted["out"])
    told = {"phases": phases, "seconds": round(time.monotonic() - began, 3)}
    if code != 0:
        module.fail_json(msg=_failure(code, words, phases), rc=code, **told)
    module.exit_json(changed=True, msg="; ".join(_figure(phase) for phase in phases), **told)


def _prepare(wanted: dict[str, Any]) -> None:
    run_folder = require_run_folder(wanted["run_folder"])
    for key in ("job_path", "out", "progress", "pid_path"):
        if wanted[key]:
            os.makedirs(os.path.dirname(require_below(run_folder, wanted[key])), exist_ok=True)
    point = wanted["job"]["point"]
    point.setdefault("cores", len(os.sched_getaffinity(0)))
    for process in point["processes"]:
        process.setdefault("endpoint", f"{process['address']}:{process['port']}")
    write_atomically(wanted["job_path"], json.dumps(wanted["job"], indent=1) + "\n")
    # A result that is there afterwards must be of this execution.
    if os.path.exists(wanted["out"]):
        os.unlink(wanted["out"])


def _command(wanted: dict[str, Any]) -> list[str]:
    command = [wanted["python"], "-m", "microshard.engines", "--job", wanted["job_path"], "--out", wanted["out"]]
    return [*command, "--progress", wanted["progress"]] if wanted["progress"] else command


def _run(wanted: dict[str, Any]) -> tuple[int, str]:
    """Exit code of the engine, and what it said."""
    engine = subprocess.Popen(
        _command(wanted), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if wanted["pid_path"]:
            write_atomically(wanted["pid_path"], f"{engine.pid}\n")
        words, _ = engine.communicate()
    finally:
        if wanted["pid_path"] and os.path.exists(wanted["pid_path"]):
            os.unlink(wanted["pid_path"])
    return engine.returncode, words


def _phases(path: str) -> list[dict[str, Any]]:
    """What of the result fits a message; the result itself may hold megabytes of answers."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except (OSError, ValueError):
        return []
    return [{key: phase.get(key) for key in ("name", "metric", "error")} for phase in result.get("phases", [])]


def _figure(phase: dict[str, Any]) -> str:
    metric = phase["metric"] or {}
    value = metric.get("value")
    return (
        f"{phase['name']} {value:,.6g} {metric.get('unit', '')}" if isinstance(value, (int, float)) else phase["name"]
    )


def _failure(code: int, words: str, phases: list[dict[str, Any]]) -> str:
    for phase in phases:
        if phase["error"]:
            return f"phase {phase['name']}: {phase['error'].get('type')}: {phase['error'].get('message')}"
    return f"the engine ended with exit code {code}: {words.strip()[-2000:] or 'it said nothing'}"


if __name__ == "__main__":
    main()
