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
  processes:
    description: All processes of the topology, as the module mongo_processes has them.
    type: list
    elements: dict
    required: true
  replica_sets:
    description: C(name), C(role) and C(members) of each set; empty makes one of each C(replica_set) of O(processes).
    type: list
    elements: dict
    default: []
  collections:
    description: Sharded collections with C(namespace), C(shard_key), and what else the role mongo_topology lists.
    type: list
    elements: dict
    default: []
  zones:
    description: Zones with C(name), C(shards) and C(ranges).
    type: list
    elements: dict
    default: []
  balancer:
    description: Settings of the balancer; without C(enabled) it is stopped.
    type: dict
    default: {}
  documents:
    description: Namespace and number of documents of collections that are there already; another number fails.
    type: dict
    default: {}
  users:
    description: Whether a topology whose clients log in has the users of C(secrets/users.json); false drops them.
    type: bool
    default: true
  security:
    description: C(authorization) and C(tls); the files are in C(secrets/) of O(run_folder).
    type: dict
    default: {}
  timeout:
    description: Seconds after which the topology has failed.
    type: float
    default: 90
  run_folder:
    description: Folder of the run on this machine, whose C(secrets/) is read where O(security) says so.
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
- name: A cluster of one shard has a sharded collection
  microshard.lab.mongo_topology:
    processes:
      - {name: config1, role: config, replica_set: config, port: 27101}
      - {name: shard01, role: shard, replica_set: shard01, port: 27102}
      - {name: mongos1, role: mongos, port: 27100}
    collections:
      - {namespace: db.things, shard_key: {_id: hashed}}
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
