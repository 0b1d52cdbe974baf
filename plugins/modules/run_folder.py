#!/usr/bin/python
"""The folder of a run on a host that is not the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_folder
short_description: The folder of a run on a host is there, looked at, or gone
description:
  - Makes the folder with microshard's marker; or ends every process that names a path inside it, and removes it.
  - Nothing without the marker is touched.
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
    description: Small files put into it, name to content.
    type: dict
    default: {}
  state:
    description: What becomes of it.
    type: str
    choices: [present, looked_at, absent]
    default: present
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The run has a folder on the host
  run_folder:
    folder: "{{ microshard_run.folder }}"
    run_id: "{{ microshard_run.id }}"
"""

RETURN = r"""
run:
  description: C(running), the command lines of the run's processes, and C(logs), the last words of those that ended.
  returned: O(state=looked_at)
  type: dict
"""

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import run_folder


def main() -> None:
    """Entry point."""
    as_module(run_folder)


if __name__ == "__main__":
    main()
