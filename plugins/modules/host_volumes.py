#!/usr/bin/python
"""Brings the volumes of a host to a state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_volumes
short_description: Format and mount data, journal and log volumes of a host and set their readahead
author: The microshard project (!UNKNOWN)
description:
  - Finds devices by serial number or path, never by guess, and makes one filesystem on each without partitions, or on a
    RAID 0 array of several.
  - Checks all devices before it changes any. One that is missing, in use, smaller than planned, or that carries
    anything that is not microshard's fails the module, and nothing is formatted. A label that begins with C(ms-) is
    microshard's.
  - Mounts by UUID with noatime, in C(/etc/fstab); sets readahead at once and by a rule of udev, and reads it back.
  - O(state=absent) unmounts, puts the readahead back and removes its lines; data on the volumes stays.
  - Needs Python 3.9, util-linux, and xfsprogs, e2fsprogs or mdadm as the volumes do.
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
  readahead_sectors:
    description: Readahead of all volumes in sectors of 512 bytes; without it readahead is not changed.
    type: int
  owner:
    description: Owner of the mount points.
    type: str
    default: root
  group:
    description: Group of the mount points; the owner's own when it is empty.
    type: str
    default: ""
  mode:
    description: Mode of the mount points, octal.
    type: str
    default: "0755"
  state_folder:
    description: Folder on the host for the readahead as it was before.
    type: path
    default: /etc/microshard
  state:
    description: Whether the volumes are mounted.
    type: str
    choices: [present, absent]
    default: present
  record:
    description: File of the controller for RV(record); written by the action plugin.
    type: path
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: full
    description: Shows what it changes.
"""

EXAMPLES = r"""
- name: Data and journal are on separate volumes
  microshard.lab.host_volumes:
    volumes:
      data: {type: gp3, size_gib: 512, filesystem: xfs, lazy_init: false, policy: single, count: 1}
      journal: {type: io1, size_gib: 25, filesystem: xfs, lazy_init: false, policy: single, count: 1}
    known:
      - {purpose: data, serial: vol-0123456789abcdef0}
      - {purpose: journal, serial: vol-0123456789abcdef1}
    readahead_sectors: 32
"""

RETURN = r"""
did:
  description: What was done, or would be.
  returned: success
  type: list
  elements: str
record:
  description: Each volume, read back; devices, filesystem, UUID, mount options, sizes in bytes, readahead.
  returned: state is present, not in check mode
  type: list
  elements: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import host_volumes
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(host_volumes)
