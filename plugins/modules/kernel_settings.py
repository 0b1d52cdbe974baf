#!/usr/bin/python
"""Saves, verifies and restores kernel settings that tasks of a role change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_settings
short_description: Save kernel settings before they are changed, verify them afterwards, put them back
author: The microshard project (!UNKNOWN)
description:
  - What stock modules do not say of a setting they change; whether the host has it, what it was before, and
    whether the kernel has kept the new value.
  - O(state=saved) puts back what an earlier run has changed and this one does not ask for, and changes nothing else.
options:
  settings:
    description: Where each setting is found.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the setting in O(values).
        type: str
        required: true
      path:
        description: Pattern of the files with its value; of a list of words the one in brackets counts.
        type: str
        default: ""
      services:
        description: Instead of files; services of systemd, of which one is V(active) or all are V(inactive).
        type: list
        elements: str
        default: []
      sysctl:
        description: Its name for sysctl.
        type: str
        default: ""
      missing:
        description: What it means that the host does not have it, for the message.
        type: str
        default: ""
      offered:
        description: Pattern of files with the words it can be set to.
        type: str
        default: ""
      fixed:
        description: Values that cannot be changed.
        type: list
        elements: str
        default: []
  values:
    description: Setting to value. One the host does not have fails the module before anything is changed.
    type: dict
    default: {}
  recommended:
    description: Setting to C(value) and C(source), where O(values) has none. One the host does not have is left out.
    type: dict
    default: {}
  later:
    description: Values that are set later; each that the host does not have fails the module as well.
    type: list
    elements: dict
    default: []
  state:
    description: V(saved) before and V(verified) after they are changed; V(restored) puts back what was saved.
    type: str
    choices: [saved, verified, restored]
    required: true
  state_file:
    description: File on the host for the former values; removed when they are put back.
    type: path
    required: true
  files:
    description: Files that set them at boot, of which RV(files) has those that exist.
    type: list
    elements: path
    default: []
  record:
    description: File of the controller for RV(record); written by the action plugin.
    type: path
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: Swappiness is saved
  microshard.lab.kernel_settings:
    settings: [{name: swappiness, path: /proc/sys/vm/swappiness}]
    values: {swappiness: 1}
    state: saved
    state_file: /etc/microshard/kernel.json
"""

RETURN = r"""
planned:
  description: Setting to value, in the kernel's words, and its source, without what the host does not have.
  returned: state is saved
  type: dict
differ:
  description: The settings with another value than planned.
  returned: state is saved
  type: list
  elements: str
services:
  description: Setting to the service of systemd that stands for it, empty where none is installed.
  returned: state is saved
  type: dict
files:
  description: Those of O(files) that exist.
  returned: state is saved or restored
  type: list
  elements: str
record:
  description: C(is) has the settings read back, C(planned) their planned values and sources, C(before) the old ones.
  returned: state is verified
  type: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import kernel_settings
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(kernel_settings)
