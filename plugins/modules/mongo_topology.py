#!/usr/bin/python
"""Makes the running processes of a point its topology: replica sets, shards, balancer, sharded collections."""

from __future__ import annotations

DOCUMENTATION = r"""
module: mongo_topology
short_description: The running processes of a point form the planned topology
description:
  - Initiates the replica sets, concurrently; adds the shards; sets the balancer and the chunk size; shards the
    collections and places their chunks; verifies what the cluster's own catalogue then says.
  - Uses public commands only, so a real mongos and the embedded one are treated alike.
  - Runs on the controller and reaches the servers over the network.
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
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: The processes of the point form its topology
  mongo_topology:
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

import time

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from ansible.module_utils.microshard.topology.build import build
    from ansible.module_utils.microshard.topology.server import Deadline, TopologyProblem
    from pymongo.errors import PyMongoError
except ImportError as error:
    MISSING: ImportError | None = error
else:
    MISSING = None


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "point": {"type": "dict", "required": True},
            "timeout": {"type": "float", "default": 90},
        },
        supports_check_mode=True,
    )
    if MISSING:
        module.fail_json(msg=missing_required_lib("pymongo"), exception=MISSING)
    began = time.monotonic()
    try:
        changes = build(module.params["point"], Deadline(module.params["timeout"]), check=module.check_mode)
    except (TopologyProblem, PyMongoError) as problem:
        module.fail_json(msg=str(problem))
    lines = "".join(f"{change}\n" for change in changes)
    module.exit_json(
        changed=bool(changes),
        msg=f"{len(changes)} changes" if changes else "as planned",
        changes=changes,
        seconds=round(time.monotonic() - began, 3),
        diff={"before": "", "after": lines} if changes else {},
    )


if __name__ == "__main__":
    main()
