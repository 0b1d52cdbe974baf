#!/usr/bin/python
"""The secrets of a run on a host that is not the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_secrets
short_description: Write the secrets of a run on a host, readable by their owner alone
description:
  - The folder C(secrets) is 0700, every file 0600. Their text appears in no log, difference or process list.
options:
  run_folder:
    description: Folder of the run on the host; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  owner:
    description: Who may read them; empty is the user Ansible connects as.
    type: str
    default: ''
  files:
    description: Text of each file by its name.
    type: dict
    required: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The servers of this host can authenticate each other
  run_secrets:
    run_folder: "{{ microshard_run.folder }}"
    files:
      keyfile: "{{ lookup('ansible.builtin.file', microshard_run.controller_folder ~ '/secrets/keyfile') }}"
    owner: microshard
"""

RETURN = r"""
msg:
  description: How many files there are, and how many of them were written.
  returned: success
  type: str
"""

from ansible.module_utils.hostlib import run_secrets
from ansible.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(run_secrets)
