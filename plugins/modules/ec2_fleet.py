#!/usr/bin/python
"""Launch or terminate the hosts of a run on EC2."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_fleet
short_description: Launch or terminate the hosts of a run on EC2, with their network
author: The microshard project (!UNKNOWN)
description:
  - Creates network, security group, key pair, placement group and instances of a run, or reuses what exists already;
    fails when the attached volumes are not what was requested.
  - Removes all of it in the right order, then searches for anything left; the module fails and lists what is left.
  - Everything is recorded in the ledger before it is created, and tagged as it is created.
  - Runs on the controller, in an interpreter that has microshard. Credentials are found as the AWS CLI finds them.
options:
  state:
    description: V(present) or V(absent).
    type: str
    choices: [present, absent]
    default: present
  region:
    description: Name of the region.
    type: str
    required: true
  run:
    description: Id of the run; all names and tags carry it.
    type: str
    required: true
  ledger:
    description: Path of the run's ledger (JSON lines), read and appended to.
    type: path
    required: true
  groups:
    description: The hosts by group of the inventory. Needed for V(present).
    type: list
    elements: dict
    suboptions:
      name:
        description: Group of the inventory; without V(config_hosts) the shard hosts are in it too, without
          V(mongos_hosts) the client hosts.
        type: str
        choices: [shard_hosts, other_shard_hosts, config_hosts, mongos_hosts, client_hosts]
        required: true
      count:
        description: How many hosts.
        type: int
        required: true
      instance_types:
        description: The first is preferred; the others are used, in order, where capacity is missing.
        type: list
        elements: str
        required: true
      image:
        description: An image such as V(ubuntu-24.04) and V(debian-12), C(ami-…), C(ssm:/PATH) or C(name:PATTERN).
        type: str
        default: al2023
      market:
        description: How the hosts are bought.
        type: str
        choices: [on_demand, spot, spot_or_on_demand]
        default: on_demand
      threads_per_core:
        description: V(1) disables hyper-threading; by default as the type has it.
        type: int
      root_gib:
        description: Size of the root volume, GiB.
        type: int
        default: 16
      volumes:
        description: Volumes each host gets besides.
        type: list
        elements: dict
        default: []
        suboptions:
          purpose:
            description: What it is for.
            type: str
            choices: [data, journal, log]
            required: true
          type:
            description: Type of EBS, V(gp3), V(io2) …, or V(instance_store).
            type: str
            required: true
          size_gib:
            description: Size, GiB.
            type: int
            required: true
          iops:
            description: IOPS; by default the type's.
            type: int
          throughput_mibps:
            description: Throughput, MiB/s; by default the type's.
            type: int
          number:
            description: Of several of one purpose, from 1.
            type: int
            default: 1
  owner:
    description: Tag of all resources, by which C(microshard gc) finds what is left. Needed for V(present).
    type: str
  experiment:
    description: Tag of all resources. Needed for V(present).
    type: str
  expires_at:
    description: Epoch seconds; the instances terminate automatically then. Needed for V(present).
    type: int
  controller_cidrs:
    description: Networks SSH is allowed from; never the whole Internet. Needed for V(present).
    type: list
    elements: str
  ports:
    description: First and last port that are open between the hosts.
    type: list
    elements: int
    default: [27000, 32000]
  placement_group:
    description: Whether the hosts are in a cluster placement group.
    type: bool
    default: false
  zones:
    description: Availability zones to choose from; by default all.
    type: list
    elements: str
    default: []
  vpc_id:
    description: An existing VPC; by default one is created, unless O(subnet_id) is given.
    type: str
  subnet_id:
    description: An existing subnet.
    type: str
  public_addresses:
    description: Whether the hosts have public addresses.
    type: bool
    default: true
  ssh_folder:
    description: Folder for the keys of the run and its known_hosts. Needed for V(present).
    type: path
  inventory:
    description: File the inventory is written to.
    type: path
  record:
    description: File RV(fleet) is written to.
    type: path
  profile:
    description: Profile of the AWS configuration.
    type: str
  endpoint_url:
    description: Endpoint of another EC2 than AWS; by default boto3 uses E(AWS_ENDPOINT_URL).
    type: str
attributes:
  check_mode:
    support: full
    description: Says how many instances would be launched or what would be removed; makes read-only calls only.
"""

EXAMPLES = r"""
- name: The hosts of the run are running
  microshard.lab.ec2_fleet:
    region: us-east-1
    run: replica-lag-1
    ledger: runs/replica-lag-1/ledger.jsonl
    ssh_folder: runs/replica-lag-1/ssh
    inventory: runs/replica-lag-1/inventory.yml
    owner: ann
    experiment: replica-lag
    expires_at: "{{ now().timestamp() | int + 4 * 3600 }}"
    controller_cidrs: [192.0.2.7/32]
    groups:
      - {name: shard_hosts, count: 1, instance_types: [c5.4xlarge]}
      - {name: client_hosts, count: 1, instance_types: [c5.2xlarge]}

- name: Nothing of the run is left
  microshard.lab.ec2_fleet:
    state: absent
    region: us-east-1
    run: replica-lag-1
    ledger: runs/replica-lag-1/ledger.jsonl
"""

RETURN = r"""
fleet:
  description: Hosts with addresses, volumes and keys, as in C(microshard.backends.ec2.fleet.Ec2Fleet).
  returned: state is present, not in check mode
  type: dict
launched:
  description: How many instances were launched, or would be.
  returned: state is present
  type: int
removed:
  description: What was removed, or would be.
  returned: state is absent
  type: list
  elements: str
errors:
  description: Errors that left nothing behind.
  returned: state is absent
  type: list
  elements: str
"""

import json
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from microshard.backends.ec2.api import Api, CloudError
    from microshard.backends.ec2.fleet import provision
    from microshard.backends.ec2.resources import find_all, find_resources
    from microshard.backends.ec2.spec import TAG_RUN, SpecError, from_mapping
    from microshard.backends.ec2.teardown import teardown
    from microshard.records.run_folder import Ledger, write_atomic

    _MISSING = ""
except ImportError as _error:
    _MISSING = str(_error)


VOLUME = {
    "purpose": {"type": "str", "choices": ["data", "journal", "log"], "required": True},
    "type": {"type": "str", "required": True},
    "size_gib": {"type": "int", "required": True},
    "iops": {"type": "int"},
    "throughput_mibps": {"type": "int"},
    "number": {"type": "int", "default": 1},
}
GROUP = {
    "name": {
        "type": "str",
        "choices": ["shard_hosts", "other_shard_hosts", "config_hosts", "mongos_hosts", "client_hosts"],
        "required": True,
    },
    "count": {"type": "int", "required": True},
    "instance_types": {"type": "list", "elements": "str", "required": True},
    "image": {"type": "str", "default": "al2023"},
    "market": {"type": "str", "choices": ["on_demand", "spot", "spot_or_on_demand"], "default": "on_demand"},
    "threads_per_core": {"type": "int"},
    "root_gib": {"type": "int", "default": 16},
    "volumes": {"type": "list", "elements": "dict", "default": [], "options": VOLUME},
}
# The fleet: with `run` what microshard.backends.ec2.spec.FleetSpec has.
FLEET = {
    "groups": {"type": "list", "elements": "dict", "options": GROUP},
    "owner": {"type": "str"},
    "experiment": {"type": "str"},
    "expires_at": {"type": "int"},
    "controller_cidrs": {"type": "list", "elements": "str"},
    "ports": {"type": "list", "elements": "int", "default": [27000, 32000]},
    "placement_group": {"type": "bool", "default": False},
    "zones": {"type": "list", "elements": "str", "default": []},
    "vpc_id": {"type": "str"},
    "subnet_id": {"type": "str"},
    "public_addresses": {"type": "bool", "default": True},
}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "region": {"type": "str", "required": True},
            "run": {"type": "str", "required": True},
            "ledger": {"type": "path", "required": True},
            "ssh_folder": {"type": "path"},
            "inventory": {"type": "path"},
            "record": {"type": "path"},
            "profile": {"type": "str"},
            "endpoint_url": {"type": "str"},
            **FLEET,
        },
        required_if=[
            ("state", "present", ("groups", "owner", "experiment", "expires_at", "controller_cidrs", "ssh_folder"))
        ],
        supports_check_mode=True,
    )
    if _MISSING:
        module.fail_json(msg=f"{missing_required_lib('microshard')} ({_MISSING})")
    given = module.params
    try:
        api = Api(given["region"], endpoint=given["endpoint_url"] or None, profile=given["profile"] or None)
        answer = _present(module, api) if given["state"] == "present" else _absent(module, api)
    except (CloudError, SpecError, OSError) as error:
        module.fail_json(msg=str(error), code=getattr(error, "code", type(error).__name__))
    module.exit_json(**answer)


def _present(module: AnsibleModule, api: Api) -> dict[str, Any]:
    given = module.params
    spec = from_mapping({name: given[name] for name in ("run", *FLEET)})
    if module.check_mode:
        existing = find_resources(api, "instance", f"tag:{TAG_RUN}", [spec.run])
        missing = max(0, sum(g.count for g in spec.groups) - len(existing))
        return {"changed": missing > 0, "launched": missing}
    Path(given["ledger"]).parent.mkdir(parents=True, exist_ok=True)
    fleet = provision(api, spec, Ledger(Path(given["ledger"])), Path(given["ssh_folder"]))
    changed = fleet.launched > 0
    if given["inventory"]:
        # JSON is YAML; Ansible's yaml plugin reads it.
        path, text = Path(given["inventory"]), json.dumps(fleet.inventory(sys.executable), indent=1) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomic(path, text)
            changed = True
    if given["record"]:
        write_atomic(Path(given["record"]), json.dumps(fleet.as_json(), indent=1) + "\n")
    return {"changed": changed, "launched": fleet.launched, "fleet": fleet.as_json()}


def _absent(module: AnsibleModule, api: Api) -> dict[str, Any]:
    run = module.params["run"]
    if module.check_mode:
        found = [str(resource) for resource in find_all(api, run)]
        return {"changed": bool(found), "removed": found, "errors": []}
    result = teardown(api, run, Ledger(Path(module.params["ledger"])))
    details = {"removed": result.removed, "errors": result.errors}
    if not result.clean:
        module.fail_json(msg=f"left of run {run}: {'; '.join(result.left)}", left=result.left, **details)
    return {"changed": bool(result.removed), **details}


if __name__ == "__main__":
    main()
