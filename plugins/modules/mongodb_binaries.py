#!/usr/bin/python
"""The binaries of a run: there, executable, and of the version the run was planned for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongodb_binaries
short_description: mongod and mongos of a run execute and are of its version
description:
  - Executes both with C(--version) and compares; changes nothing.
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
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: The binaries of the run execute
  mongodb_binaries:
    mongod: "{{ microshard_run.bin.mongod }}"
    version: "6.0.5"
"""

RETURN = r"""
versions:
  description: First line of what each binary says of itself.
  returned: success
  type: dict
"""

from ansible.module_utils.microshard.act import as_module
from ansible.module_utils.microshard.acts import mongodb_binaries


def main() -> None:
    """Entry point."""
    as_module(mongodb_binaries)


if __name__ == "__main__":
    main()
