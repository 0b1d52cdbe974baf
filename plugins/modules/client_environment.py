#!/usr/bin/python
"""The virtual environment of a client host, made of wheels the controller sends."""

from __future__ import annotations

DOCUMENTATION = r"""
module: client_environment
short_description: microshard is installed on a client host
description:
  - Makes a virtual environment from wheels alone. No package index, ensurepip or compiler is needed on the host.
  - The action plugin sends the wheels only where the environment is missing.
options:
  folder:
    description: The environment; its name says what it is made of.
    type: path
    required: true
  python:
    description: Interpreter it is made with.
    type: path
    required: true
  wheels:
    description: Folder of the wheels on the controller.
    type: path
    default: ""
  archive:
    description: The wheels on the host; set by the action plugin.
    type: path
    default: ""
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The client host has microshard
  client_environment:
    folder: /var/lib/microshard/software/client-0123456789ab
    python: /usr/bin/python3
    wheels: /home/me/.cache/microshard/wheels-0123456789ab
"""

RETURN = r"""
there:
  description: Whether the environment is complete.
  returned: success
  type: bool
"""

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import client_environment


def main() -> None:
    """Entry point."""
    as_module(client_environment)


if __name__ == "__main__":
    main()
