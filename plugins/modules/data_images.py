#!/usr/bin/python
"""Keeps the data folders of stopped mongods as a data image, or restores them from one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: data_images
short_description: Keep the data folders of a point, or restore them
author: The microshard project (!UNKNOWN)
description:
  - Moves the dbPaths of stopped processes into a data image, without journal, diagnostic data and lock file, and writes
    a manifest with size and checksum of every file; the image gets its name when it is whole.
  - Restores them by reflink where the filesystem can, else by copy, and checks every file against the manifest.
  - Where the processes have other addresses or ports now, each mongod is started alone and its data are changed.
options:
  run_folder:
    description: Folder of the run on this machine. Everything that is moved or restored must be inside it.
    type: path
    required: true
  deployment:
    description: Name of the folder of the processes below C(deployments/) of O(run_folder).
    type: str
    default: by-hand
  processes:
    description: The processes, as the module mongo_processes has them.
    type: list
    elements: dict
    required: true
  replica_sets:
    description: For restored, the sets as mongo_topology has them; by default those the processes name.
    type: list
    elements: dict
    default: []
  mongod:
    description: For restored, the mongod that changes the addresses in data whose processes had others.
    type: path
    default: ""
  host:
    description: The inventory's name of this host; processes of other hosts are left out.
    type: str
    default: ""
  folder:
    description: Folder of all data images.
    type: path
    required: true
  name:
    description: Name of the image.
    type: str
    required: true
  manifest:
    description: For kept, what else the manifest says; for restored, the C(run) that made the image.
    type: dict
    default: {}
  state:
    description:
      - What is true afterwards. C(kept) moves the data of processes that were stopped.
      - C(copied) copies the data of mongods that run, while fsyncLock holds their writes back.
    type: str
    choices: [kept, copied, restored]
    default: restored
attributes:
  check_mode:
    support: full
    description: Says what it would do and changes nothing.
  diff_mode:
    support: none
    description: It has no text to compare.
"""

EXAMPLES = r"""
- name: The data of two stopped mongods is kept
  microshard.lab.data_images:
    run_folder: /var/lib/microshard/by-hand
    processes:
      - {name: mongod1, port: 27101}
      - {name: mongod2, port: 27102}
    folder: /var/lib/microshard/images
    name: mails-500000
    state: kept
"""

RETURN = r"""
bytes:
  description: Size of all files that were restored.
  returned: when state is restored
  type: int
image_bytes:
  description: Size of the host's part of the image.
  returned: when state is kept or copied
  type: int
seconds:
  description: How long it took.
  returned: success
  type: float
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import data_images
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(data_images)
