"""The fleet as an Ansible inventory."""

from __future__ import annotations

import shlex
from typing import Any

from microshard.backends.ec2.fleet import Fleet, Host
from microshard.backends.ec2.spec import GROUPS, STAND_IN


def inventory(fleet: Fleet, python: str) -> dict[str, Any]:
    """An inventory in Ansible's YAML form: the groups every play knows, reached over SSH with known host keys alone.

    `python` is the controller's interpreter. A host's volumes are in its variable `microshard_volumes`.
    """
    children: dict[str, Any] = {
        "controller": {"hosts": {"local": {"ansible_connection": "local", "ansible_python_interpreter": python}}}
    }
    names = {g: [h.name for h in fleet.hosts if h.group == g] for g in GROUPS}
    for group in GROUPS:
        members = names[group] or names[STAND_IN.get(group, group)]
        children[group] = {"hosts": {name: {} for name in members}}
    return {"all": {"hosts": {h.name: _variables(fleet, h) for h in fleet.hosts}, "children": children}}


def _variables(fleet: Fleet, host: Host) -> dict[str, Any]:
    options = {
        "UserKnownHostsFile": fleet.known_hosts,
        "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": "ssh-ed25519",
        "IdentitiesOnly": "yes",
        "ConnectTimeout": "10",
        # A host that is taken away says no good-bye: after a minute of silence it is gone.
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
    }
    python = {"microshard_client_python": host.client_python} if host.client_python else {}
    return {
        **python,
        "ansible_host": host.ssh_address,
        "ansible_user": host.user,
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": fleet.key_file,
        "ansible_ssh_common_args": " ".join(f"-o {shlex.quote(f'{k}={v}')}" for k, v in options.items()),
        "microshard_address": host.private_address,  # the processes of the cluster speak to each other here
        "microshard_instance": host.instance_id,
        "microshard_volumes": [
            {"purpose": v.purpose, "type": v.type, "serial": v.serial, "device": v.device, "size_gib": v.size_gib}
            for v in host.volumes
        ],
    }
