#!/usr/bin/python
"""Brings all mongod and mongos processes of a point on one host to a state, concurrently."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongo_processes
short_description: All mongod and mongos processes of a point on one host in one state
description:
  - Starts, parks, resumes, stops or removes many processes at the same time; a loop over tasks would take 0.3 s each.
  - A process is recognised by its pid file and by the path of its configuration file in its command line. Nothing else
    is ever signalled, and nothing outside the folder of a run is written or removed.
  - The action plugin of the same name renders the configuration files on the controller.
  - Looks at every process after its start. One that is not bound, limited or configured as planned fails the task.
  - Needs nothing but Python 3.9 and Linux.
options:
  run_folder:
    description: Folder of the run; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  processes:
    description: The processes of this host as in the plan, each with C(config), the text of its configuration file.
    type: list
    elements: dict
    required: true
  state:
    description:
      - V(started), running with this configuration and answering (a mongos is started and not waited for).
      - V(parked), held by SIGSTOP; V(resumed), continued, every replica set with a primary and every mongos routing.
      - V(restarted), ended after being asked (at once with O(stop_timeout=0)) and started again as by V(started).
      - V(stopped), ended after being asked; V(absent), ended at once and its folder removed.
    type: str
    choices: [started, parked, resumed, restarted, stopped, absent]
    default: started
  names:
    description: Of O(processes) only these are meant; empty means all.
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
    description: Seconds a mongos is given for O(state=absent), so that it removes what it made itself.
    type: float
    default: 2
  process_manager:
    description:
      - V(direct), children of no one that are known by their pid files.
      - V(systemd), instances of one template unit; needs root.
    type: str
    choices: [direct, systemd]
    default: direct
  user:
    description: For V(systemd), the user the processes run as. It must be there.
    type: str
    default: ""
  limits:
    description: For V(systemd), limits of the unit by systemd's names in lower case; verified after the start.
    type: dict
    default: {}
  unit:
    description: For V(systemd), the text of the template unit. The action plugin renders it.
    type: str
    default: ""
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
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Every process of the point runs with its configuration
  mongo_processes:
    run_folder: "{{ microshard_run.folder }}"
    processes: "{{ microshard_point.processes }}"
    mongod: "{{ microshard_run.bin.mongod }}"
    mongos: "{{ microshard_run.bin.mongos }}"
    state: started
"""

RETURN = r"""
processes:
  description: What was done to each process (an empty string when nothing had to be done), and its pid.
  returned: success
  type: list
  elements: dict
records:
  description: What each process is, as the kernel and its server say it. The action plugin writes them to files.
  returned: when O(state=started) or O(state=restarted)
  type: list
  elements: dict
page_cache:
  description: C(dropped), or C(not dropped) and why; empty where nothing was to be done.
  returned: success
  type: str
seconds:
  description: How long it took.
  returned: success
  type: float
"""

from ansible.module_utils.hostlib.act import as_module
from ansible.module_utils.hostlib.acts import mongo_processes


def main() -> None:
    """Entry point."""
    as_module(mongo_processes)


if __name__ == "__main__":
    main()
