"""A whole fleet: provisioned, read back, and described for the inventory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.backends.ec2 import find, images, keys, request, userdata, volumes
from microshard.backends.ec2.api import Api
from microshard.backends.ec2.errors import CloudError
from microshard.backends.ec2.images import Image
from microshard.backends.ec2.launch import Instance, Launcher, describe
from microshard.backends.ec2.ledger import Ledger
from microshard.backends.ec2.network import Builder, Network
from microshard.backends.ec2.request import TypeFacts
from microshard.backends.ec2.spec import TAG_GROUP, TAG_RUN, FleetSpec, GroupSpec
from microshard.backends.ec2.volumes import HostVolume

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Host:
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
        """Where the controller reaches it."""
        return self.public_address or self.private_address


@dataclass(frozen=True, slots=True)
class Fleet:
    """The hosts of a run and how to reach them."""

    run: str
    region: str
    zone: str
    vpc_id: str
    security_group: str
    hosts: tuple[Host, ...]
    key_file: str
    known_hosts: str
    images: dict[str, str]  # AMI by group
    notes: tuple[str, ...]  # where the fleet differs from the first wish: other zone, type or market
    launched: int  # instances this call has launched; 0 when everything was there

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def provision(api: Api, spec: FleetSpec, book: Ledger, key_folder: Path, say: Say = lambda _: None) -> Fleet:
    """Bring the fleet into being; what is there already is taken over, so calling it again changes nothing.

    Everything is written to the ledger before it is made, and tagged as it is made. On any error the caller tears the
    run down, and nothing is made that `teardown` does not find. Raises CloudError, OSError.
    """
    types = _types(api, spec)
    chosen = _images(api, spec, types)
    offered = _offered(api, spec, types)
    living = _living(api, spec, book)
    zone = next((str(i["Placement"]["AvailabilityZone"]) for some in living.values() for i in some), None)
    run_keys = keys.ensure_keys(key_folder)
    builder = Builder(api, spec, book)
    builder.key_pair(run_keys)
    network = builder.network()
    launcher = Launcher(
        api=api,
        spec=spec,
        book=book,
        builder=builder,
        network=network,
        types=types,
        images=chosen,
        offered=offered,
        zones=_zones(spec, network, offered),
        user_data=userdata.user_data(run_keys.host_private, run_keys.host_public, spec.expires_at),
    )
    say(f"launching {sum(g.count for g in spec.groups)} hosts in {len(spec.groups)} groups")
    before = {name: [str(i["InstanceId"]) for i in some] for name, some in living.items()}
    ids = launcher.launch(before, zone)
    say("reading volumes back")
    hosts = _hosts(api, spec, ids, chosen, types)
    keys.write_known_hosts(run_keys, [h.ssh_address for h in hosts])
    group_of = {g.name: g for g in spec.groups}
    return Fleet(
        run=spec.run,
        region=api.region,
        zone=hosts[0].zone,
        vpc_id=network.vpc_id,
        security_group=network.group_id,
        hosts=tuple(hosts),
        key_file=str(run_keys.private_file),
        known_hosts=str(run_keys.known_hosts),
        images={h.group: chosen[group_of[h.group].image, types[h.instance_type].architecture].id for h in hosts},
        notes=_notes(spec, hosts, launcher.tried),
        launched=len(hosts) - sum(map(len, before.values())),
    )


def lost_hosts(api: Api, hosts: Mapping[str, str]) -> dict[str, str]:
    """Hosts (name → instance) that do not run any more, with AWS's reason: an interruption, or somebody ended them.

    To be asked when a host does not answer during a measurement. Raises CloudError.
    """
    seen = {str(i["InstanceId"]): i for i in describe(api, list(hosts.values()))}
    lost = {}
    for name, identity in hosts.items():
        instance = seen.get(identity)
        if instance is None:
            lost[name] = "EC2 does not know it any more"
        elif instance["State"]["Name"] != "running":
            reason = instance.get("StateReason", {})
            lost[name] = str(reason.get("Code") or reason.get("Message") or instance["State"]["Name"])
    return lost


def _types(api: Api, spec: FleetSpec) -> dict[str, TypeFacts]:
    names = sorted({name for group in spec.groups for name in group.instance_types})
    try:
        found = api.pages("describe_instance_types", "InstanceTypes", InstanceTypes=names)
    except CloudError as error:
        if error.code in {"InvalidInstanceType", "InvalidParameterValue"}:
            raise CloudError(error.action, "InvalidInstanceType", f"{error.message} ({', '.join(names)})") from error
        raise
    types = {facts.name: facts for facts in map(TypeFacts.of, found)}
    missing = [name for name in names if name not in types]
    if missing:
        raise CloudError("DescribeInstanceTypes", "InvalidInstanceType", f"{api.region} has no {', '.join(missing)}.")
    for group in spec.groups:
        for name in group.instance_types:
            request.check(group, types[name], placement=spec.placement_group)
    return types


def _images(api: Api, spec: FleetSpec, types: dict[str, TypeFacts]) -> dict[tuple[str, str], Image]:
    wanted = {(g.image, types[t].architecture) for g in spec.groups for t in g.instance_types}
    return {(wish, architecture): images.resolve(api, wish, architecture) for wish, architecture in sorted(wanted)}


def _offered(api: Api, spec: FleetSpec, types: dict[str, TypeFacts]) -> dict[str, list[str]]:
    chosen = {"Name": "instance-type", "Values": sorted(types)}
    found = api.pages(
        "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone", Filters=[chosen]
    )
    offered: dict[str, list[str]] = {name: [] for name in types}
    for entry in found:
        zone = str(entry["Location"])
        if not spec.zones or zone in spec.zones:
            offered[str(entry["InstanceType"])].append(zone)
    return offered


def _zones(spec: FleetSpec, network: Network, offered: dict[str, list[str]]) -> list[str]:
    known = {zone for zones in offered.values() for zone in zones}
    if not network.made:
        known &= set(network.subnets)
    return [z for z in spec.zones if z in known] if spec.zones else sorted(known)


def _living(api: Api, spec: FleetSpec, book: Ledger) -> dict[str, list[Instance]]:
    """Instances of the run that are there already, by group; more than were asked for are given back."""
    found: dict[str, list[Instance]] = {}
    for thing in find.of_kind(api, "instance", f"tag:{TAG_RUN}", [spec.run]):
        if thing.facts["State"]["Name"] in {"pending", "running"}:
            found.setdefault(thing.tags.get(TAG_GROUP, ""), []).append(thing.facts)
    wanted = {g.name: g.count for g in spec.groups}
    surplus: list[str] = []
    for name, some in found.items():
        some.sort(key=lambda i: (str(i.get("LaunchTime", "")), int(i.get("AmiLaunchIndex", 0)), str(i["InstanceId"])))
        surplus += [str(i["InstanceId"]) for i in some[wanted.get(name, 0) :]]
        del some[wanted.get(name, 0) :]
    if surplus:
        book.append(kind="ec2", state="removing", what="instance", ids=surplus)
        api.call("terminate_instances", InstanceIds=surplus)
    return found


def _hosts(
    api: Api,
    spec: FleetSpec,
    ids: dict[str, list[str]],
    chosen: dict[tuple[str, str], Image],
    types: dict[str, TypeFacts],
) -> list[Host]:
    group_of = {i: group for group in spec.groups for i in ids[group.name]}
    instances = describe(api, list(group_of))
    roots = {
        str(i["InstanceId"]): _image(group_of[str(i["InstanceId"])], i, chosen, types).root_device for i in instances
    }
    attached = volumes.read_back(api, instances, {i: group.volumes for i, group in group_of.items()}, roots)
    hosts = []
    for group in spec.groups:
        own = [i for i in instances if group_of[str(i["InstanceId"])] is group]
        own.sort(key=lambda i: (str(i.get("LaunchTime", "")), int(i.get("AmiLaunchIndex", 0)), str(i["InstanceId"])))
        for number, instance in enumerate(own, 1):
            identity = str(instance["InstanceId"])
            hosts.append(
                Host(
                    name=f"{group.name}-{number}",
                    group=group.name,
                    instance_id=identity,
                    instance_type=str(instance["InstanceType"]),
                    zone=str(instance["Placement"]["AvailabilityZone"]),
                    market=str(instance.get("InstanceLifecycle", "on-demand")),
                    private_address=str(instance["PrivateIpAddress"]),
                    public_address=instance.get("PublicIpAddress") or None,
                    user=_image(group, instance, chosen, types).user,
                    client_python=_image(group, instance, chosen, types).client_python,
                    volumes=attached[identity],
                )
            )
    return hosts


def _image(
    group: GroupSpec, instance: Instance, chosen: dict[tuple[str, str], Image], types: dict[str, TypeFacts]
) -> Image:
    return chosen[group.image, types[str(instance["InstanceType"])].architecture]


def _notes(spec: FleetSpec, hosts: Sequence[Host], tried: Sequence[str]) -> tuple[str, ...]:
    """Where the fleet differs from the first wish."""
    first = {g.name: g.instance_types[0] for g in spec.groups}
    other = {
        f"{h.group}: {h.instance_type} instead of {first[h.group]}" for h in hosts if h.instance_type != first[h.group]
    }
    return (*(f"tried in vain: {entry}" for entry in tried), *sorted(other))
