#!/usr/bin/python
"""What a host is and has, as far as a plan and a run need to know it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_facts
short_description: Read the facts of a host that a plan needs
author: The microshard project (!UNKNOWN)
description:
  - Reads cores, memory, free disk, listening ports, Pythons and rights; changes nothing.
  - The action plugin of the same name adds the offset of the host's clock against the controller's.
options:
  folder:
    description: Folder for runs; its volume is measured for free space.
    type: path
    required: true
  client_python:
    description: Interpreter for microshard itself on client hosts; empty looks for one.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: The host is known
  microshard.lab.host_facts:
    folder: /var/lib/microshard
"""

RETURN = r"""
facts:
  description: Among others cores, ram_mib, free_disk_bytes, listening ports, and clock_offset (s it is ahead).
  returned: success
  type: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import host_facts
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(host_facts)
