#!/usr/bin/python
"""Folders of a run on a host, brought to the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collected_files
short_description: Fetch files of a run from a host into the run's folder of the controller
author: The microshard project (!UNKNOWN)
description:
  - Packs the folders on the host into one compressed archive.
  - The action plugin fetches it, compares the checksum and unpacks it.
  - On the controller itself it does nothing.
options:
  run_folder:
    description: Folder of the run on the host; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  controller_folder:
    description: Folder of the run on the controller.
    type: path
    required: true
  folders:
    description: Folders and files below both, by their relative paths.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: The logs are on the controller
  microshard.lab.collected_files:
    run_folder: /var/lib/microshard/by-hand
    controller_folder: "{{ playbook_dir }}/collected"
    folders: [logs]
"""

RETURN = r"""
files:
  description: How many files were packed.
  returned: success
  type: int
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import collected_files
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(collected_files)
