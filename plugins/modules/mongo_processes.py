#!/usr/bin/python
"""Brings all mongod and mongos processes of a point on one host to a state together."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongo_processes
short_description: Start, pause, resume, restart, stop or remove the servers of a point on a host
author: The microshard project (!UNKNOWN)
description:
  - Starts, pauses, resumes, stops or removes many processes at the same time; a loop over tasks would take 0.3 s each.
  - A process is recognised by its pid file and by the path of its configuration file in its command line. Nothing else
    is ever signalled, and nothing outside the folder of a run is written or removed.
  - The action plugin of the same name renders the configuration files on the controller.
  - Verifies every process after its start; one that is not bound, limited or configured as planned fails the task.
  - Needs nothing but Python 3.9 and Linux.
options:
  run_folder:
    description:
      - Folder of the run; its C(run.json) must carry microshard's marker.
      - With V(started), one that does not exist or is empty is created.
    type: path
    required: true
  processes:
    description:
      - The processes, each with C(name) and C(port), and what is not as the defaults of the role C(mongo_processes).
      - The action plugin leaves those of other hosts out, completes the others, and adds C(config) and C(config_tree),
        the configuration file as text and as a tree.
    type: list
    elements: dict
    required: true
  host:
    description: The host, by default that of the task; processes whose C(host) is another one are left out.
    type: str
  deployment:
    description: A process without C(folder) is in C(deployments/DEPLOYMENT/NAME/) of the run's folder.
    type: str
    default: by-hand
  templates:
    description: Folder of the templates on the controller; needed to start a process.
    type: path
  version:
    description: MongoDB's version, for which the files are written; needed to start a process.
    type: str
  embedded:
    description: Whether mongos is the embedded one.
    type: bool
    default: false
  config_db:
    description: For a mongos, its config servers; by default those of O(processes).
    type: str
  records:
    description: Folder of the controller for a file for each process, as kernel and server report it.
    type: path
  state:
    description:
      - V(started), running with this configuration and answering (a mongos is started and not waited for).
      - V(paused), stopped by SIGSTOP; V(resumed), continued, every replica set with a primary and every mongos routing.
      - V(restarted), ended by SIGTERM (with O(stop_timeout=0) by SIGKILL) and started again as by V(started).
      - V(stopped), ended by SIGTERM; V(absent), killed and its folder removed.
    type: str
    choices: [started, paused, resumed, restarted, stopped, absent]
    default: started
  names:
    description: Only these of O(processes); empty means all.
    type: list
    elements: str
    default: []
  drop_page_cache:
    description: For V(restarted), the page cache of the host is dropped while none of the processes runs.
    type: bool
    default: false
  mongod:
    description: Path of mongod.
    type: path
    required: true
  mongos:
    description: Path of mongos; empty where no process is one.
    type: path
    default: ""
  concurrency:
    description: How many processes are started at a time; 0 means two per core.
    type: int
    default: 0
  start_timeout:
    description: Seconds after which a start or a resume has failed.
    type: float
    default: 60
  stop_timeout:
    description: Seconds a process is given after SIGTERM before it is killed; 0 kills it at once.
    type: float
    default: 30
  mongos_grace:
    description: Seconds a mongos is given before it is killed, so that it removes its own router.
    type: float
    default: 2
  process_manager:
    description:
      - V(direct), detached processes known by their pid files.
      - V(systemd), instances of one template unit; needs root.
    type: str
    choices: [direct, systemd]
    default: direct
  user:
    description: For V(systemd), the user the processes run as. It must exist.
    type: str
    default: ""
  limits:
    description: For V(systemd), limits of the unit by systemd's names in lower case; verified after the start.
    type: dict
    default: {}
  files:
    description: Texts of C(start), C(unit) and C(rotation). The action plugin renders them.
    type: dict
    default: {}
  numa:
    description: C(policy), C(nodes) and C(reserved_cores) of this host, as C(infrastructure.*.numa) of an experiment.
    type: dict
    default: {}
  security:
    description: C(authorization) and C(tls) as C(topology.security); the files are in C(secrets/) of the run's folder.
    type: dict
    default: {}
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: full
    description: Shows what it changes.
"""

EXAMPLES = r"""
- name: Two mongods run, memory from all NUMA nodes in turn, a cache of 2 MB each
  microshard.lab.mongo_processes:
    run_folder: /var/lib/microshard/by-hand
    processes:
      - {name: mongod1, port: 27017, cache_mib: 2}
      - {name: mongod2, port: 27018, cache_mib: 2, options: {operationProfiling: {mode: all}}}
    mongod: /usr/bin/mongod
    version: "6.0"
    templates: "{{ playbook_dir }}/templates"
    numa: {policy: interleave}

- name: Nothing of them is left
  microshard.lab.mongo_processes:
    run_folder: /var/lib/microshard/by-hand
    processes:
      - {name: mongod1, port: 27017}
      - {name: mongod2, port: 27018}
    mongod: /usr/bin/mongod
    state: absent
"""

RETURN = r"""
processes:
  description: What was done to each process (an empty string when nothing had to be done), and its pid.
  returned: success
  type: list
  elements: dict
records:
  description: Each process as the kernel and its server report it. The action plugin writes them to files.
  returned: when O(state=started) or O(state=restarted)
  type: list
  elements: dict
page_cache:
  description: C(dropped), or C(not dropped) and why; empty where it was not to be dropped.
  returned: success
  type: str
seconds:
  description: How long it took.
  returned: success
  type: float
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import mongo_processes
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(mongo_processes)
