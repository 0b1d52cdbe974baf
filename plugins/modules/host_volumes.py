#!/usr/bin/python
"""Brings the volumes of a host to a state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_volumes
short_description: Data, journal and log volumes of a host, formatted, mounted and with their readahead
description:
  - Finds devices by serial number or path, never by guess, and makes one filesystem on each without partitions, or on a
    RAID 0 array of several.
  - Looks at all devices before it touches any. One that is missing, in use, smaller than planned, or that carries
    anything that is not microshard's fails the module, and nothing is formatted. A label that begins with C(ms-) is
    microshard's.
  - Mounts by UUID with noatime, in C(/etc/fstab); sets readahead at once and by a rule of udev, and reads it back.
  - O(state=absent) unmounts, puts the readahead back and takes its lines out; what is on the volumes stays.
  - Needs Python 3.9, util-linux, and xfsprogs, e2fsprogs or mdadm where those are asked for.
options:
  volumes:
    description: The volumes by what they hold, as in infrastructure.GROUP.volumes of an experiment.
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
    description: Readahead of all volumes in sectors of 512 bytes; without it they keep what they have.
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
    description: Folder on the host where it is kept what the readahead was before.
    type: path
    default: /etc/microshard
  state:
    description: Whether the volumes are there or unmounted.
    type: str
    choices: [present, absent]
    default: present
  record:
    description: File of the controller that the action plugin of this name writes what is read back into, as JSON.
    type: path
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Data and journal have their volumes
  host_volumes:
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
volumes:
  description: What each volume is, read back; devices, filesystem, UUID, mount options, sizes in bytes, readahead.
  returned: state is present, not in check mode
  type: list
  elements: dict
"""

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import host_volumes


def main() -> None:
    """Entry point."""
    as_module(host_volumes)


if __name__ == "__main__":
    main()
