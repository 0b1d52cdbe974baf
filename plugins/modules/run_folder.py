#!/usr/bin/python
"""The folder of a run on a host that is not the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_folder
short_description: Create, inspect or remove the folder of a run on a host
author: The microshard project (!UNKNOWN)
description:
  - Creates the folder with microshard's marker; or ends every process that names a path inside it, and removes both.
  - A folder without the marker is never changed.
options:
  folder:
    description: The folder.
    type: path
    required: true
  run_id:
    description: Name of the run.
    type: str
    required: true
  files:
    description: Small files for the folder, name to content.
    type: dict
    default: {}
  state:
    description: V(inspected) lists the processes of the run and changes nothing.
    type: str
    choices: [present, inspected, absent]
    default: present
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: The run has a folder on the host
  microshard.lab.run_folder:
    folder: /var/lib/microshard/by-hand
    run_id: by-hand
"""

RETURN = r"""
run:
  description: C(running), command lines of the processes, and C(logs), the last lines of those that ended.
  returned: O(state=inspected)
  type: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import run_folder
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(run_folder)
