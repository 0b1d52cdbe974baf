#!/usr/bin/python
"""The secrets of a run on a host that is not the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: run_secrets
short_description: The secrets of a run are in its folder on a host, for their owner alone
description:
  - The action plugin reads the files on the controller; all of them go to the host with the module, in one task.
  - The folder C(secrets) is 0700, every file 0600. Their text is in no log, no difference and no process list.
options:
  run_folder:
    description: Folder of the run on the host; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  source:
    description: Folder of the controller the secrets were made in.
    type: path
    required: true
  names:
    description: Names of the files this host is given.
    type: list
    elements: str
    required: true
  owner:
    description: Who may read them; empty is the user Ansible works as.
    type: str
    default: ''
  files:
    description: Name to text, filled in by the action plugin.
    type: dict
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The servers of this host know one another
  run_secrets:
    run_folder: "{{ microshard_run.folder }}"
    source: "{{ microshard_run.controller_folder }}/secrets"
    names: [keyfile, ca.pem, server.pem]
    owner: microshard
"""

RETURN = r"""
msg:
  description: How many files there are, and how many of them were written.
  returned: success
  type: str
"""

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import run_secrets


def main() -> None:
    """Entry point."""
    as_module(run_secrets)


if __name__ == "__main__":
    main()
