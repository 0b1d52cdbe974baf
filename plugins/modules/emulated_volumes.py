#!/usr/bin/python
"""The emulated volumes of a point on this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: emulated_volumes
short_description: Mount loop devices with the IOPS and throughput of a volume in a run's folder
author: The microshard project (!UNKNOWN)
description:
  - Creates sparse files below the folder of a run, loop devices on them, filesystems, mounts, and limits of reads and
    writes by the kernel's block I/O controller (cgroup version 1 or 2), read back afterwards.
  - Links journals and logs of the processes to their own volumes, before the processes start for the first time.
  - For O(state=absent) removes all that the kernel shows below the folder, and nothing outside of it.
  - Runs on the machine of the run, with its Python, as root.
options:
  run_folder:
    description: Folder of the run; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  deployment:
    description: Name of the folder of the processes below C(deployments/) of the run's folder.
    type: str
    required: true
  volumes:
    description: The volumes.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: What it is for; the data volume has journals and logs too unless they have volumes.
        type: str
        choices: [data, journal, log]
        required: true
      size_gib:
        description: Size of the sparse file, GiB.
        type: int
        required: true
      filesystem:
        description: Its filesystem.
        type: str
        choices: [xfs, ext4]
        default: xfs
      lazy_init:
        description: Whether ext4 is initialised by the kernel later, while the volume is in use.
        type: bool
        default: false
      iops:
        description: Limit of reads a second and, for itself, of writes; by default none.
        type: int
      throughput_mibps:
        description: Limit of MiB/s read and, for itself, written; by default none.
        type: int
      readahead_sectors:
        description: Readahead in sectors of 512 bytes; by default the kernel's.
        type: int
      image:
        description: The sparse file; by default C(volumes/DEPLOYMENT/NAME.img) of the run's folder.
        type: path
      mount:
        description: Where it is mounted; by default data at C(deployments/DEPLOYMENT), others beside their files.
        type: path
  processes:
    description: The processes whose journals and logs are put there, as M(microshard.lab.mongo_processes) has them.
    type: list
    elements: dict
    default: []
  state:
    description: Whether the volumes exist.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
"""

EXAMPLES = r"""
- name: The point has its emulated volumes
  microshard.lab.emulated_volumes:
    run_folder: /var/lib/microshard/by-hand
    deployment: by-hand
    volumes:
      - {name: data, size_gib: 10, iops: 3000, throughput_mibps: 125}
      - {name: journal, size_gib: 2, filesystem: ext4, iops: 150}
    processes: [{name: shard01}, {name: shard02}]
"""

RETURN = r"""
cgroup:
  description: Folder of the control group the limits hold for; with cgroup version 1 they hold for all processes.
  returned: state is present
  type: str
volumes:
  description: What each volume is, read back from the kernel; device, filesystem, limits, readahead, sizes in bytes.
  returned: state is present, not in check mode
  type: list
  elements: dict
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import emulated_volumes
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(emulated_volumes)
