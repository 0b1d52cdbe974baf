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
  point:
    description: Id of the point.
    type: str
    required: true
  volumes:
    description: The volumes as in the plan, with absolute paths.
    type: list
    elements: dict
    default: []
  processes:
    description: The processes of the point as in the plan, with absolute paths.
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
    run_folder: "{{ microshard_run.folder }}"
    point: "{{ microshard_point.id }}"
    volumes: "{{ microshard_point.volumes }}"
    processes: "{{ microshard_point.processes }}"
"""

RETURN = r"""
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
