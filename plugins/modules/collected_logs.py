#!/usr/bin/python
"""Logs of a point's processes, compressed into the run's folder before their own folders go."""

from __future__ import annotations

DOCUMENTATION = r"""
module: collected_logs
short_description: Compress the logs of processes into the run's folder
author: The microshard project (!UNKNOWN)
description:
  - Keeps C(diagnostic.data) (FTDC) of every process with a C(db_path) as C(FOLDER/NAME.diagnostic.tar.gz).
  - Compresses every log that exists to C(FOLDER/NAME.log.gz). A copy carries the modification time of its log, and a
    log that has not changed since is not read again.
options:
  run_folder:
    description: Folder of the run; its C(run.json) must carry microshard's marker.
    type: path
    required: true
  folder:
    description: Where the compressed logs go; below the run's folder.
    type: path
    required: true
  processes:
    description: The processes, as the module mongo_processes has them.
    type: list
    elements: dict
    required: true
  host:
    description: The host; processes whose C(host) is another one are left out. Empty takes all.
    type: str
    default: ""
  deployment:
    description: A process without C(folder) is in C(deployments/DEPLOYMENT/NAME/) of the run's folder.
    type: str
    default: by-hand
attributes:
  check_mode:
    support: full
    description: Says what it would change and changes nothing.
  diff_mode:
    support: none
    description: Shows no differences.
"""

EXAMPLES = r"""
- name: The logs of two mongods are kept
  microshard.lab.collected_logs:
    run_folder: /var/lib/microshard/by-hand
    folder: /var/lib/microshard/by-hand/logs
    processes:
      - {name: mongod1, port: 27017}
      - {name: mongod2, port: 27018}
"""

RETURN = r"""
logs:
  description: Names of the processes whose logs or diagnostics were compressed now.
  returned: success
  type: list
  elements: str
"""

from ansible_collections.microshard.lab.plugins.module_utils.hostlib import collected_logs
from ansible_collections.microshard.lab.plugins.module_utils.run_module import run_module

if __name__ == "__main__":
    run_module(collected_logs)
