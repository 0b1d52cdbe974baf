#!/usr/bin/python
"""Runs phases of a workload through microshard's engines and tells what came out."""

from __future__ import annotations

DOCUMENTATION = r"""
module: workload_phases
short_description: Execute phases of a workload by an engine
author: The microshard project (!UNKNOWN)
description:
  - Writes the job, runs C(PYTHON -m microshard.workloads) with it and reads the result.
  - Always runs, so it always reports a change; in check mode it does nothing.
  - The engine stays in the module's process group, so it ends with a play that is interrupted; but see I(state).
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
    description: Pid file of the engine while it runs.
    type: path
  progress:
    description: File the engine appends its progress to.
    type: path
  state:
    description:
      - C(executed) runs the phases. The others are parts of that, and need I(pid_path).
      - C(ready) and C(finished) are its halves, for a phase that several hosts execute at the same time.
      - C(ready) starts the engine and waits until its clients are connected; the engine outlives the module.
        It needs a job of one phase with C(start_at=file).
      - C(begun) starts an engine that requests restarts on hosts, and waits until it does or has ended (a phase that
        failed fails the module); C(answered) gives it the answer, and waits again. The engine outlives the module.
      - C(finished) gives it the start time, where I(start_at) is given, and waits for its end.
    type: str
    choices: [executed, ready, begun, answered, finished]
    default: executed
  number:
    description: For C(answered), the number of the request, from 1.
    type: int
  answer:
    description: For C(answered), what was done. An C(error) in it fails the phase.
    type: dict
  start_at:
    description: When the clients of all hosts begin, in seconds since the epoch by this host's clock; for C(finished).
    type: float
attributes:
  check_mode:
    support: partial
    description: Supported in part.
    details: Nothing is executed.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: The phases of a job that a run has left are executed once more
  microshard.lab.workload_phases:
    run_folder: "{{ run_folder }}"
    python: "{{ ansible_playbook_python }}"
    job: "{{ lookup('ansible.builtin.file', run_folder ~ '/points/p01/job.json') | from_json }}"
    job_path: "{{ run_folder }}/points/p01/again.json"
    out: "{{ run_folder }}/results/p01/again.json"
"""

RETURN = r"""
phases:
  description: Name, metric and error of every phase that was begun.
  returned: when the engine wrote a result
  type: list
  elements: dict
request:
  description: The engine's request, docs/contracts.md.
  returned: with C(begun) and C(answered), unless the engine has ended
  type: dict
seconds:
  description: How long it took.
  returned: always
  type: float
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import workload_phases
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(workload_phases)
