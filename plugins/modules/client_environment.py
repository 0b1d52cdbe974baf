#!/usr/bin/python
"""The virtual environment of a client host, made of wheels the controller sends."""

from __future__ import annotations

DOCUMENTATION = r"""
module: client_environment
short_description: Install microshard on a client host
author: The microshard project (!UNKNOWN)
description:
  - Creates a virtual environment from wheels. No package index, ensurepip or compiler is needed on the host.
options:
  folder:
    description: Path of the environment; its name has a checksum of the wheels.
    type: path
    required: true
  python:
    description: Interpreter it is created with.
    type: path
    required: true
  source:
    description: Folder of the wheels on the controller, sent by the action plugin where the environment is missing.
    type: path
  archive:
    description: The wheels on the host; set by the action plugin.
    type: path
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
- name: The client host has microshard
  microshard.lab.client_environment:
    folder: /var/lib/microshard/software/client-0123456789ab
    python: /usr/bin/python3
    source: /home/me/.cache/microshard/wheels-0123456789ab
"""

RETURN = r"""
exists:
  description: Whether the environment is complete.
  returned: success
  type: bool
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import client_environment
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(client_environment)
