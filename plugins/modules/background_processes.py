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

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import background_processes


def main() -> None:
    """Entry point."""
    as_module(background_processes)


if __name__ == "__main__":
    main()
