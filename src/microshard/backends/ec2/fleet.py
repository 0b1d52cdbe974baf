"""Provision a whole fleet, compare it with what was requested, and describe it as an Ansible inventory."""

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends.ec2.account import MachineImage, resolve_image
from microshard.backends.ec2.api import Api, CloudError
from microshard.backends.ec2.launch import HostVolume, Instance, Launcher, describe_instances, read_volumes
from microshard.backends.ec2.network import NetworkBuilder, ensure_keys, write_known_hosts
from microshard.backends.ec2.request import TypeDescription, user_data
from microshard.backends.ec2.resources import find_resources
from microshard.backends.ec2.spec import OTHERS, STAND_IN, TAG_GROUP, TAG_RUN, FleetSpec, GroupSpec
from microshard.model.plan import HOST_GROUPS
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import Ledger

_Images = Mapping[tuple[str, str], MachineImage]  # by name in the experiment and architecture
_SSH_OPTIONS = {
    "GlobalKnownHostsFile": "/dev/null",
    "StrictHostKeyChecking": "yes",
    "HostKeyAlgorithms": "ssh-ed25519",
    "IdentitiesOnly": "yes",
    "ConnectTimeout": "10",
    # A terminated host does not close its connections: after a minute of silence it counts as gone.
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",
}


@dataclass(frozen=True, slots=True)
class Ec2Host:
    """A running instance."""

    name: str  # GROUP-NUMBER
    group: str
    instance_id: str
    instance_type: str
    zone: str
    market: str
    private_address: str  # for the cluster
    public_address: str | None  # for SSH, where there is one
    user: str
    client_python: str | None
    volumes: tuple[HostVolume, ...]

    @property
    def ssh_address(self) -> str:
        """The address the controller connects to."""
        return self.public_address or self.private_address


@dataclass(frozen=True, slots=True)
class Ec2Fleet:
    """The hosts of a run and how to connect to them."""

    run: str
    region: str
    zone: str
    vpc_id: str
    security_group: str
    hosts: tuple[Ec2Host, ...]
    key_file: str
    known_hosts: str
    images: dict[str, str]  # AMI by group
    notes: tuple[str, ...]  # where the fleet differs from the first choice: other zone, type or market
    launched: int  # instances this call has launched; 0 when all were running already

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    def inventory(self, python: str) -> dict[str, Any]:
        """Return an inventory in Ansible's YAML form: every inventory group, over SSH with known host keys only.

        `python` is the controller's interpreter. A host's volumes are in its variable `microshard_volumes`.
        """
        controller = {"ansible_connection": "local", "ansible_python_interpreter": python}
        children: dict[str, Any] = {"controller": {"hosts": {"local": controller}}}
        names = {g: [h.name for h in self.hosts if h.group == g] for g in HOST_GROUPS}
        for group in HOST_GROUPS:
            members = names[group] or names[STAND_IN.get(group, group)]
            children[group] = {"hosts": {name: {} for name in members}}
        if (others := children.pop(OTHERS))["hosts"]:
            children["shard_hosts"]["children"] = {OTHERS: others}
        return {"all": {"hosts": {h.name: self._variables(h) for h in self.hosts}, "children": children}}

    def _variables(self, host: Ec2Host) -> dict[str, Any]:
        options = {"UserKnownHostsFile": self.known_hosts, **_SSH_OPTIONS}
        python = {"microshard_client_python": host.client_python} if host.client_python else {}
        return {
            **python,
            "ansible_host": host.ssh_address,
            "ansible_user": host.user,
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": self.key_file,
            "ansible_ssh_common_args": " ".join(f"-o {shlex.quote(f'{k}={v}')}" for k, v in options.items()),
            "microshard_address": host.private_address,  # between the processes of the cluster
            "microshard_instance": host.instance_id,
            "microshard_volumes": [entry for v in host.volumes if (entry := v.inventory_entry) is not None],
        }


def provision(
    api: Api, spec: FleetSpec, ledger: Ledger, key_folder: Path, log: Callable[[str], None] = lambda _: None
) -> Ec2Fleet:
    """Create the fleet; what exists already is reused, so calling it again changes nothing.

    Everything is recorded in the ledger before it is created, and tagged as it is created. On any error the caller
    tears the run down; `teardown` finds everything that was created. Raises CloudError, OSError.
    """
    types = describe_types(api, spec)
    images = resolve_images(api, spec, types)
    offered = zones_offering(api, spec, types)
    existing = _existing_instances(api, spec, ledger)
    zone = next((str(i["Placement"]["AvailabilityZone"]) for found in existing.values() for i in found), None)
    keys = ensure_keys(key_folder)
    builder = NetworkBuilder(api, spec, ledger)
    builder.ensure_key_pair(keys)
    network = builder.ensure_network()
    launcher = Launcher(
        api=api,
        spec=spec,
        ledger=ledger,
        builder=builder,
        network=network,
        types=types,
        images=images,
        offered=offered,
        zones=usable_zones(spec, None if network.created else network.subnets, offered),
        user_data=user_data(keys.host_private, keys.host_public, spec.expires_at),
    )
    log(f"launching {sum(g.count for g in spec.groups)} hosts in {len(spec.groups)} groups")
    before = {name: [str(i["InstanceId"]) for i in found] for name, found in existing.items()}
    ids = launcher.launch(before, zone)
    log("comparing volumes with what was requested")
    hosts = _hosts(api, spec, ids, images, types)
    write_known_hosts(keys, [h.ssh_address for h in hosts])
    preferred = {g.name: g.instance_types[0] for g in spec.groups}
    others = {(h.group, h.instance_type) for h in hosts if h.instance_type != preferred[h.group]}
    notes = [f"{group}: {other} instead of {preferred[group]}" for group, other in sorted(others)]
    if launcher.failed_attempts:
        notes.append(f"no capacity for {'; '.join(launcher.failed_attempts)}")
    image_of = {g.name: g.image for g in spec.groups}
    return Ec2Fleet(
        run=spec.run,
        region=api.region,
        zone=hosts[0].zone,
        vpc_id=network.vpc_id,
        security_group=network.security_group,
        hosts=tuple(hosts),
        key_file=str(keys.private_file),
        known_hosts=str(keys.known_hosts),
        images={h.group: images[image_of[h.group], types[h.instance_type].architecture].id for h in hosts},
        notes=tuple(notes),
        launched=len(hosts) - sum(map(len, before.values())),
    )


def lost_hosts(api: Api, hosts: Mapping[str, str]) -> dict[str, str]:
    """Return the hosts (name → instance) that no longer run, with AWS's reason: an interruption, a termination.

    For hosts that do not answer during a measurement. Raises CloudError.
    """
    found = {str(i["InstanceId"]): i for i in describe_instances(api, list(hosts.values()))}
    lost = {}
    for name, identity in hosts.items():
        instance = found.get(identity)
        if instance is None:
            lost[name] = "unknown to EC2"
        elif instance["State"]["Name"] != "running":
            reason = instance.get("StateReason", {})
            lost[name] = str(reason.get("Code") or reason.get("Message") or instance["State"]["Name"])
    return lost


def describe_types(api: Api, spec: FleetSpec) -> dict[str, TypeDescription]:
    """Return what AWS says about every type of the fleet. Raises CloudError where one lacks what its group needs."""
    names = sorted({name for group in spec.groups for name in group.instance_types})
    try:
        found = api.pages("describe_instance_types", "InstanceTypes", InstanceTypes=names)
    except CloudError as error:
        if error.code in {"InvalidInstanceType", "InvalidParameterValue"}:
            raise CloudError(error.action, "InvalidInstanceType", f"{error.message} ({', '.join(names)})") from error
        raise
    types = {description.name: description for description in map(TypeDescription.of, found)}
    missing = [name for name in names if name not in types]
    if missing:
        raise CloudError("DescribeInstanceTypes", "InvalidInstanceType", f"{api.region} has no {', '.join(missing)}.")
    for group in spec.groups:
        for name in group.instance_types:
            types[name].check(group, placement_group=spec.placement_group)
    return types


def resolve_images(api: Api, spec: FleetSpec, types: Mapping[str, TypeDescription]) -> _Images:
    """Return the images of the fleet by name and architecture. Raises CloudError."""
    wanted = {(g.image, types[t].architecture) for g in spec.groups for t in g.instance_types}
    images = {(name, architecture): resolve_image(api, name, architecture) for name, architecture in sorted(wanted)}
    for group in spec.groups:
        least = max(images[group.image, types[t].architecture].root_gib for t in group.instance_types)
        if group.root_volume.size_gib < least:
            message = f"{group.image} needs {least} GiB: set infrastructure.{group.name}.root_size_gib to it or more."
            raise CloudError("DescribeImages", "RootVolumeTooSmall", message)
    return images


def zones_offering(api: Api, spec: FleetSpec, types: Iterable[str]) -> dict[str, list[str]]:
    """Return the zones that offer each type, of those the fleet may use. Raises CloudError."""
    return {
        name: [zone for zone in zones if not spec.zones or zone in spec.zones]
        for name, zones in api.zones_offering(list(types)).items()
    }


def usable_zones(spec: FleetSpec, subnets: Iterable[str] | None, offered: Mapping[str, list[str]]) -> list[str]:
    """Return the zones in the order in which they are tried; `subnets`: zones that have one, None where all can."""
    usable = {zone for zones in offered.values() for zone in zones}
    if subnets is not None:
        usable &= set(subnets)
    return [z for z in spec.zones if z in usable] if spec.zones else sorted(usable)


def _launch_order(instance: Instance) -> tuple[str, int, str]:
    return str(instance.get("LaunchTime", "")), int(instance.get("AmiLaunchIndex", 0)), str(instance["InstanceId"])


def _existing_instances(api: Api, spec: FleetSpec, ledger: Ledger) -> dict[str, list[Instance]]:
    """Return the run's instances that exist already, by group; those beyond the group's count are terminated."""
    found: dict[str, list[Instance]] = {}
    for resource in find_resources(api, "instance", f"tag:{TAG_RUN}", [spec.run]):
        if resource.description["State"]["Name"] in {"pending", "running"}:
            found.setdefault(resource.tags.get(TAG_GROUP, ""), []).append(resource.description)
    counts = {g.name: g.count for g in spec.groups}
    surplus: list[str] = []
    for name, instances in found.items():
        instances.sort(key=_launch_order)
        surplus += [str(i["InstanceId"]) for i in instances[counts.get(name, 0) :]]
        del instances[counts.get(name, 0) :]
    if surplus:
        ledger.append(LedgerRecord("ec2", "removing", what="instance", ids=surplus))
        api.call("terminate_instances", InstanceIds=surplus)
    return found


def _hosts(
    api: Api, spec: FleetSpec, ids: Mapping[str, list[str]], images: _Images, types: Mapping[str, TypeDescription]
) -> list[Ec2Host]:
    group_of = {i: group for group in spec.groups for i in ids[group.name]}
    instances = sorted(describe_instances(api, list(group_of)), key=_launch_order)

    def image_of(group: GroupSpec, instance: Instance) -> MachineImage:
        return images[group.image, types[str(instance["InstanceType"])].architecture]

    requested = {}
    for instance in instances:
        identity = str(instance["InstanceId"])
        group = group_of[identity]
        root = {image_of(group, instance).root_device: group.root_volume}
        requested[identity] = {**root, **{volume.device: volume for volume in group.volumes}}
    attached = read_volumes(api, instances, requested, types)
    return [
        Ec2Host(
            name=f"{group.name}-{number}",
            group=group.name,
            instance_id=str(instance["InstanceId"]),
            instance_type=str(instance["InstanceType"]),
            zone=str(instance["Placement"]["AvailabilityZone"]),
            market=str(instance.get("InstanceLifecycle", "on-demand")),
            private_address=str(instance["PrivateIpAddress"]),
            public_address=instance.get("PublicIpAddress") or None,
            user=image_of(group, instance).user,
            client_python=image_of(group, instance).client_python,
            volumes=attached[str(instance["InstanceId"])],
        )
        for group in spec.groups
        for number, instance in enumerate((i for i in instances if group_of[str(i["InstanceId"])] is group), 1)
    ]
