#!/usr/bin/python
"""Finds the volumes of a host and checks them before and after tasks format and mount them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_volumes
short_description: Check that devices are the planned ones and may be formatted, or read mounted volumes back
author: The microshard project (!UNKNOWN)
description:
  - Finds devices by serial number or path, never by guess. Changes nothing.
  - Checks all devices. One that is missing, in use, smaller than planned, or that carries anything that is not
    microshard's fails the module. A label that begins with C(ms-) is microshard's.
options:
  volumes:
    description: The volumes data, journal and log, as in infrastructure.GROUP.volumes of an experiment.
    type: dict
    required: true
  known:
    description: The devices of this host, each with C(purpose) and C(serial) or C(device).
    type: list
    elements: dict
    default: []
  mounts:
    description: Mount points by volume, where they are not below O(root).
    type: dict
    default: {}
  root:
    description: Folder with the mount points.
    type: path
    default: /srv/microshard
  owner:
    description: User the mount points belong to; one the host does not have fails the module.
    type: str
    default: ""
  group:
    description: Their group; empty is that of the owner.
    type: str
    default: ""
  mode:
    description: Their mode.
    type: str
    default: ""
  readahead_sectors:
    description: Readahead the mounted volumes must have, in sectors of 512 bytes.
    type: int
  state:
    description:
      - V(checked) decides which volumes have to be formatted, and refuses what may not be.
      - V(found) only finds the devices. V(mounted) reads the mounted volumes back.
    type: str
    choices: [found, checked, mounted]
    default: checked
  record:
    description: File of the controller for RV(record); written by the action plugin.
    type: path
attributes:
  check_mode:
    support: full
    description: Changes nothing either way.
  diff_mode:
    support: none
    description: It changes nothing.
"""

EXAMPLES = r"""
- name: The devices of data and journal are the planned ones
  microshard.lab.host_volumes:
    volumes:
      data: {size_gib: 512, filesystem: xfs, devices: ["serial:vol-0123456789abcdef0"]}
      journal: {size_gib: 25, filesystem: xfs, devices: [/dev/disk/by-id/nvme-journal]}
  register: found
"""

RETURN = r"""
volumes:
  description: Each filesystem with its devices, label, UUID and mount point, and what has to be done to it.
  returned: state is checked or found
  type: list
  elements: dict
group:
  description: GID of the mount points.
  returned: state is checked or found
  type: int
record:
  description: Each volume, read back; devices, filesystem, UUID, mount options, sizes in bytes, readahead.
  returned: state is mounted
  type: list
  elements: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import host_volumes
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(host_volumes)
