"""The specification of a fleet: its groups of hosts with their volumes, and what surrounds them."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, with_config

from microshard.model.ec2_facts import ebs_types
from microshard.model.infrastructure import HostGroup, Infrastructure, Market
from microshard.model.plan import HOST_GROUPS

# Group → the group whose hosts it uses where an experiment gives it no hosts (model.infrastructure).
STAND_IN = {"config_hosts": "shard_hosts", "mongos_hosts": "client_hosts"}

OTHERS = "other_shard_hosts"  # a child of the group shard_hosts

TAG_RUN = "microshard:run"
TAG_OWNER = "microshard:owner"
TAG_EXPERIMENT = "microshard:experiment"
TAG_EXPIRES = "microshard:expires-at"  # epoch seconds
TAG_GROUP = "microshard:group"
TAG_SERVES = "microshard:serves"  # the groups of an inventory the host is in
TAG_USER = "microshard:user"  # to log in as

# /dev/sdf to /dev/sdp are the names EC2 recommends for data volumes on HVM images.
_DEVICES = {"data": "/dev/sdf", "journal": "/dev/sdg", "log": "/dev/sdh"}
# More volumes of a purpose; /dev/xvd[a-d][a-z] are free for volumes as well.
_MORE_DEVICES = {"data": "/dev/xvdb", "journal": "/dev/xvdc", "log": "/dev/xvdd"}
# MongoDB's and this project's ports; open between the hosts of a run, to nobody else.
CLUSTER_PORTS = (27000, 32000)
_STRICT = ConfigDict(extra="forbid")


class SpecError(ValueError):
    """A fleet that EC2 cannot provide: the message names the key."""


def _checked_network(cidr: str) -> str:
    network = ipaddress.ip_network(cidr)
    if network.prefixlen == 0:
        raise ValueError("SSH is not opened to the whole Internet; give the controller's address")
    if network.version != 4:
        raise ValueError(f"{cidr}: the hosts have IPv4 addresses; give the controller's")
    return cidr


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A volume each host of a group gets. Units: GiB, IOPS, MiB/s; None is the type's default rate."""

    purpose: Annotated[str, StringConstraints(pattern="^(data|journal|log)$")]
    type: str
    size_gib: int
    iops: int | None = None
    throughput_mibps: int | None = None
    number: int = 1  # of several of one purpose, from 1

    @property
    def device(self) -> str:
        """The device name it is attached as; on Nitro the disk is found by its serial, the volume's id."""
        if self.number == 1:
            return _DEVICES[self.purpose]
        return _MORE_DEVICES[self.purpose] + chr(ord("a") + self.number - 2)

    @property
    def most_iops(self) -> int:
        """What it can do at its best, IOPS; 0 for instance store, whose rate AWS gives by instance type."""
        limits = ebs_types().get(self.type)
        return limits.iops_of(self.size_gib, self.iops) if limits else 0

    @property
    def most_mibps(self) -> float:
        """What it can do at its best, MiB/s."""
        limits = ebs_types().get(self.type)
        return limits.mibps_of(self.size_gib, self.iops, self.throughput_mibps) if limits else 0.0


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Hosts of one kind: one RunInstances."""

    name: str
    count: Annotated[int, Field(ge=1)]
    # The first is preferred; the others are used, in order, when capacity is missing.
    instance_types: Annotated[tuple[str, ...], Field(min_length=1)]
    volumes: tuple[VolumeSpec, ...] = ()
    image: str = "al2023"
    market: Market = "on_demand"
    threads_per_core: int | None = None  # 1 disables hyper-threading; None keeps the type's default
    root_gib: int = 16

    @property
    def root_volume(self) -> VolumeSpec:
        """The volume the operating system is on."""
        return VolumeSpec("root", "gp3", self.root_gib)


@with_config(_STRICT)
@dataclass(frozen=True, slots=True)
class FleetSpec:
    """All hosts of a run and what surrounds them."""

    run: str
    owner: str
    experiment: str
    expires_at: int  # epoch seconds; the instances terminate automatically then
    groups: Annotated[tuple[GroupSpec, ...], Field(min_length=1)]
    # Networks SSH is allowed from.
    controller_cidrs: Annotated[tuple[Annotated[str, AfterValidator(_checked_network)], ...], Field(min_length=1)]
    ports: tuple[int, int] = CLUSTER_PORTS
    placement_group: bool = False  # all hosts close to each other (cluster strategy)
    zones: tuple[str, ...] = ()  # empty: every zone that offers the types
    vpc_id: str | None = None  # None: a VPC is created for the run
    subnet_id: str | None = None
    public_addresses: bool = True

    @property
    def name(self) -> str:
        """The name of the run's key pair, security group and placement group."""
        return resource_name(self.run)

    def serves(self, group: str) -> list[str]:
        """Return the inventory groups of a group's hosts: the group itself, and those it stands in for."""
        names = {g.name for g in self.groups}
        parents = ["shard_hosts"] if group == OTHERS else []
        return [group, *parents, *(name for name, other in STAND_IN.items() if other == group and name not in names)]

    def tags(self, **more: str) -> list[dict[str, str]]:
        """Return the tags every resource of the run carries."""
        tags = {
            "Name": self.name,
            TAG_RUN: self.run,
            TAG_OWNER: self.owner,
            TAG_EXPERIMENT: self.experiment,
            TAG_EXPIRES: str(self.expires_at),
            **more,
        }
        return [{"Key": key, "Value": value} for key, value in tags.items()]


def resource_name(run: str) -> str:
    """Return the name of a run's key pair, security group and placement group."""
    return f"microshard-{run}"


def group_spec(name: str, group: HostGroup) -> GroupSpec:
    """Convert a group of the experiment file into hosts of EC2. Raises SpecError."""
    if group.instance_type is None:
        raise SpecError(f"infrastructure.{name}.instance_type: required on EC2")
    volumes = []
    for purpose, volume in group.volumes.named():
        if volume.type in {"emulated", "existing"}:
            raise SpecError(f"infrastructure.{name}.volumes.{purpose}.type: EC2 has no {volume.type} volumes")
        volumes += [
            VolumeSpec(purpose, volume.type, volume.size_gib, volume.iops, volume.throughput_mibps, number)
            for number in range(1, volume.count + 1)
        ]
    return GroupSpec(
        name=name,
        count=group.count,
        instance_types=(group.instance_type, *group.alternative_types),
        volumes=tuple(volumes),
        image=group.image,
        market=group.market,
        threads_per_core=group.threads_per_core,
        root_gib=group.root_size_gib,
    )


def group_specs(infrastructure: Infrastructure) -> tuple[GroupSpec, ...]:
    """Convert the groups that have hosts, in the order of HOST_GROUPS. Raises SpecError."""
    groups = ((name, getattr(infrastructure, name)) for name in HOST_GROUPS)
    return tuple(group_spec(name, group) for name, group in groups if group is not None)


def fleet_spec(
    infrastructure: Infrastructure,
    *,
    run: str,
    owner: str,
    experiment: str,
    expires_at: int,
    controller_cidrs: tuple[str, ...],
) -> FleetSpec:
    """Return the fleet an experiment's infrastructure describes. Raises SpecError."""
    ec2 = infrastructure.ec2
    return FleetSpec(
        run=run,
        owner=ec2.owner or owner,
        experiment=experiment,
        expires_at=expires_at,
        groups=group_specs(infrastructure),
        controller_cidrs=controller_cidrs,
        placement_group=ec2.placement_group,
        zones=tuple(ec2.zones),
        vpc_id=ec2.vpc_id,
        subnet_id=ec2.subnet_id,
        public_addresses=ec2.public_addresses,
    )


def from_mapping(value: Mapping[str, Any]) -> FleetSpec:
    """Read a specification from plain data (JSON, YAML, Ansible), as dataclasses.asdict writes it. Raises SpecError."""
    try:
        spec = TypeAdapter(FleetSpec).validate_python(value)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()]
        raise SpecError("; ".join(problems)) from error
    if len({group.name for group in spec.groups}) != len(spec.groups):
        raise SpecError("groups: two have the same name")
    return spec
