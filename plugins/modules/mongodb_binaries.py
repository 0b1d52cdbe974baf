#!/usr/bin/python
"""The binaries of a run: there, executable, and of the version the run was planned for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongodb_binaries
short_description: mongod and mongos of a run are there, execute and are of its version
description:
  - Where O(install) says so and they are not there yet, the action plugin of the same name sends them from the
    controller, once, and they are put into a folder that has their checksum in its name.
  - Executes both with C(--version) and compares.
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
      - C(kind) (file, a mongod; tarball, one of MongoDB's archives), C(source) on the controller, C(sha256) of it, and
        the C(folder) here.
      - Empty, or of another kind, where nothing has to be sent.
    type: dict
    default: {}
  arrived:
    description: Where the source was sent to; used by the action plugin.
    type: path
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
there:
  description: Whether the binaries are there.
  returned: success
  type: bool
versions:
  description: First line of what each binary says of itself.
  returned: when they are there
  type: dict
"""

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import mongodb_binaries


def main() -> None:
    """Entry point."""
    as_module(mongodb_binaries)


if __name__ == "__main__":
    main()
