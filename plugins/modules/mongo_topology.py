#!/usr/bin/python
"""Makes the running processes of a point its topology: replica sets, shards, balancer, sharded collections."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongo_topology
short_description: Make running processes the planned replica sets and sharded cluster
author: The microshard project (!UNKNOWN)
description:
  - Initiates the replica sets, concurrently; adds the shards; sets the balancer and the chunk size; shards the
    collections and places their chunks; verifies the cluster's catalogue afterwards.
  - Uses public commands only, so a real mongos and the embedded one are treated alike.
  - Runs on a client host, which has pymongo and reaches the servers over the network.
requirements: [pymongo]
options:
  point:
    description: The point as in the plan, with its processes, replica sets, collections and balancer.
    type: dict
    required: true
  timeout:
    description: Seconds after which the topology has failed.
    type: float
    default: 90
  run_folder:
    description: Folder of the run on this machine, whose C(secrets/) is read where the point has C(security).
    type: path
    default: ""
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: full
    description: Shows what it changes.
"""

EXAMPLES = r"""
- name: The processes form the planned topology
  microshard.lab.mongo_topology:
    point: "{{ microshard_point }}"
"""

RETURN = r"""
changes:
  description: What was done, in order.
  returned: success
  type: list
  elements: str
seconds:
  description: How long it took.
  returned: success
  type: float
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import mongo_topology
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(mongo_topology)
