#!/usr/bin/python
"""Processes that run beside a measurement: started before it, ended after it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: background_processes
short_description: Start or end processes that run during a measurement
author: The microshard project (!UNKNOWN)
description:
  - Starts processes detached, each in a new session, or ends them.
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
    description: A folder for the output of the processes, created before they start; below the run's folder.
    type: path
  files:
    description: Files below the run's folder that the processes read; written before they start.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path of the file.
        type: path
        required: true
      content:
        description: Text of the file.
        type: str
        required: true
  processes:
    description: The processes. One that runs with another command line is restarted.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Its name in messages and files.
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
  stop_timeout:
    description: Seconds between SIGTERM and SIGKILL.
    type: float
    default: 3
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: vmstat runs beside what follows
  microshard.lab.background_processes:
    run_folder: /var/lib/microshard/by-hand
    folder: /var/lib/microshard/by-hand/beside
    processes:
      - {name: vmstat, argv: [vmstat, -t, "1"], marker: -t}
"""

RETURN = r"""
seconds:
  description: How long it took.
  returned: success
  type: float
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import background_processes
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(background_processes)
