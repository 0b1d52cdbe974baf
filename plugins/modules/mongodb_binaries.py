#!/usr/bin/python
"""The binaries of a run: there, executable, and of the version the run was planned for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongodb_binaries
short_description: Install mongod and mongos of a run where needed, and check that they execute
author: The microshard project (!UNKNOWN)
description:
  - Where O(install) says so and they are missing, the action plugin of the same name sends them from the controller,
    once, and they are installed in a folder that has their checksum in its name.
  - Executes both with C(--version) and compares the version.
options:
  mongod:
    description: Path of mongod.
    type: path
    required: true
  mongos:
    description: Path of mongos; empty where no point of the run is sharded.
    type: path
    default: ""
  version:
    description: Version that mongod must have, as far as given (6.0 or 6.0.5).
    type: str
    default: ""
  install:
    description:
      - C(kind) (file, a mongod; tarball, one of MongoDB's archives), C(sha256) of it, and the C(folder) on the host.
      - Empty, or of another kind, where nothing has to be sent.
    type: dict
    default: {}
  source:
    description: The file or tarball on the controller, sent by the action plugin where the binaries are missing.
    type: path
  archive:
    description: The source on the host; set by the action plugin.
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
- name: The binaries of the run execute
  microshard.lab.mongodb_binaries:
    mongod: "{{ microshard_run.bin.mongod }}"
    version: "6.0.5"
"""

RETURN = r"""
exists:
  description: Whether the binaries are installed.
  returned: success
  type: bool
versions:
  description: First line that each binary prints.
  returned: when they are installed
  type: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import mongodb_binaries
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(mongodb_binaries)
