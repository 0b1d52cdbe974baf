"""The simulated account: what moto's model lacks, how it changes with time, and what is visible of it."""

import re
import secrets
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend, Zone
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS
from moto.ec2.models.instances import Instance

from .wire import Answer, ApiError, Call


def _tags_of(resource: Any) -> list[dict[str, str]]:
    """Look up the tags of one resource. moto searches all tags of the account: 15 s instead of 2 s for 64 hosts."""
    tags = resource.ec2_backend.tags.get(resource.id, {})
    return [{"key": key, "value": value, "resource_id": resource.id} for key, value in tags.items()]


TaggedEC2Resource.get_tags = _tags_of  # type: ignore[method-assign,assignment]

ACCOUNT = "123456789012"  # the account moto gives to dummy credentials

_OWNERS = {"amazon": "137112412989", "canonical": "099720109477", "debian": "136693071363"}

# Public SSM parameters of three distributions, as their makers document them, with the images behind them.
IMAGES = {
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64": (
        "ami-0a102300000000001", "al2023-ami-2023.6.20250107.0-kernel-6.1-x86_64", "x86_64", "/dev/xvda", "amazon"),
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64": (
        "ami-0a102300000000002", "al2023-ami-2023.6.20250107.0-kernel-6.1-arm64", "arm64", "/dev/xvda", "amazon"),
    "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id": (
        "ami-0b220400000000001", "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-20250112", "x86_64",
        "/dev/sda1", "canonical"),
    "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id": (
        "ami-0b240400000000001", "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20250115", "x86_64",
        "/dev/sda1", "canonical"),
    "/aws/service/debian/release/12/latest/amd64": (
        "ami-0c120000000000001", "debian-12-amd64-20250115-1993", "x86_64", "/dev/xvda", "debian"),
}  # fmt: skip


class Image(Ami):
    """A distribution's image, whose root volume has 8 GiB; moto's all have 15."""

    root_gib = 8

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        (mapping,) = super().block_device_mappings
        return [{**mapping, "Ebs": {**mapping["Ebs"], "VolumeSize": self.root_gib}}]


# An opted-in Local Zone beside the availability zones, as DescribeAvailabilityZones and DescribeInstanceTypeOfferings
# list it (EC2 user guide, Local Zones). moto has none.
LOCAL_ZONE = "us-east-1-bos-1a"
RegionsAndZonesBackend.zones["us-east-1"].append(Zone(LOCAL_ZONE, "us-east-1", "use1-bos1-az1", "local-zone"))
INSTANCE_TYPE_OFFERINGS["availability-zone"]["us-east-1"] += [
    {"InstanceType": name, "Location": LOCAL_ZONE} for name in ("c5.large", "c5.xlarge", "c5.2xlarge", "c5.4xlarge")
]

# The element of an answer that names the new resource.
_CREATED = {
    "CreateVpc": "vpcId",
    "CreateSubnet": "subnetId",
    "CreateSecurityGroup": "groupId",
    "CreateInternetGateway": "internetGatewayId",
    "ImportKeyPair": "keyName",
}
# The error for a resource that is not visible yet.
_NOT_FOUND = {
    "i": "InvalidInstanceID.NotFound",
    "vol": "InvalidVolume.NotFound",
    "eni": "InvalidNetworkInterfaceID.NotFound",
    "sg": "InvalidGroup.NotFound",
    "subnet": "InvalidSubnetID.NotFound",
    "vpc": "InvalidVpcID.NotFound",
    "igw": "InvalidInternetGatewayID.NotFound",
    "sir": "InvalidSpotInstanceRequestID.NotFound",
}
# Lists in answers and the element that says what an entry of the list is.
_LISTS = {
    "instancesSet": "instanceId",
    "volumeSet": "volumeId",
    "networkInterfaceSet": "networkInterfaceId",
    "subnetSet": "subnetId",
    "securityGroupInfo": "groupId",
    "internetGatewaySet": "internetGatewayId",
    "keySet": "keyName",
    "vpcSet": "vpcId",
}


@dataclass(slots=True)
class Timing:
    """How long things take in the simulated cloud, in seconds."""

    pending: float = 0.0  # an instance until it runs
    terminating: float = 0.0  # an instance until it is gone
    consistency: float = 0.0  # a new resource until Describe and other calls see it
    now: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class PlacementGroup:
    """A placement group; moto's have no rules."""

    id: str
    name: str
    strategy: str
    tags: dict[str, str]


@dataclass(slots=True)
class SpotRequest:
    """The request behind a spot instance; moto's RunInstances makes none."""

    id: str
    instance: str
    state: str
    tags: dict[str, str]


@dataclass(slots=True)
class Launch:
    """The launch a client token stands for."""

    fingerprint: str
    reservation: str


@dataclass(slots=True)
class Machines:
    """Real machines that stand for the simulated instances.

    An instance gets the next of `addresses`, when there is one, and `boot` is called with it, the key of its user, its
    user data, and its disks beside the root as their type shows them → GiB: on Nitro by a volume's id, on Xen by the
    device it is attached as: /dev/xvdf for /dev/sdf (EC2 user guide, "Device names for volumes"); NVMe disks of an
    instance store are there without being mapped, by a serial number that begins with AWS.
    `end` is called when it terminates.
    """

    addresses: list[str] = field(default_factory=list)
    boot: Callable[[str, str, str, dict[str, int]], None] = lambda _address, _key, _user_data, _volumes: None
    end: Callable[[str], None] = lambda _address: None


class Region:
    """One region of the account."""

    def __init__(self, name: str, timing: Timing, machines: Machines) -> None:
        self.machines = machines
        self.name = name
        self.timing = timing
        self.backend: Any = ec2_backends[ACCOUNT][name]
        self.placement: dict[str, PlacementGroup] = {}
        self.spot: dict[str, SpotRequest] = {}
        self.tokens: dict[str, Launch] = {}
        self.hidden: dict[str, float] = {}  # id or name → when it can be seen
        self._due: list[tuple[float, Instance, str]] = []
        for parameter in IMAGES.values():
            identity, label, architecture, root, owner = parameter
            self.backend.amis[identity] = Image(
                self.backend, identity, name=label, architecture=architecture, root_device_type="ebs",
                root_device_name=root, owner_id=_OWNERS[owner], owner_alias=owner, public=True, hypervisor="xen",
                virtualization_type="hvm", region_name=f"{name}a",
            )  # fmt: skip

    def advance(self) -> None:
        """Make the changes that are due by now."""
        now = self.timing.now()
        for entry in [e for e in self._due if e[0] <= now]:
            self._due.remove(entry)
            self._enter(entry[1], entry[2])
        self.hidden = {name: when for name, when in self.hidden.items() if when > now}

    def later(self, instance: Instance, state: str, seconds: float) -> None:
        """Change an instance's state after a time, or at once."""
        self._due = [e for e in self._due if e[1] is not instance]
        if seconds <= 0:
            self._enter(instance, state)
        else:
            self._due.append((self.timing.now() + seconds, instance, state))

    def hide(self, *names: str) -> None:
        """Make new resources invisible for a while."""
        if self.timing.consistency > 0:
            until = self.timing.now() + self.timing.consistency
            self.hidden.update(dict.fromkeys(names, until))

    def _enter(self, instance: Instance, state: str) -> None:
        if state == "terminated":
            if instance.state != "terminated":
                self.machines.end(str(instance.private_ip))
                instance.terminate()
            for request in self.spot.values():
                if request.instance == instance.id and request.state in {"open", "active"}:
                    request.state = "closed"
            return
        instance.instance_state.name = state
        instance.instance_state.code = {"pending": 0, "running": 16, "shutting-down": 32}[state]

    def instances(self) -> dict[str, Instance]:
        """All instances, terminated ones too."""
        return {i.id: i for reservation in self.backend.reservations.values() for i in reservation.instances}

    def terminate(self, instance: Instance, reason: str) -> str:
        """Start to terminate an instance; returns its state before."""
        before = instance.state
        if before != "terminated":
            self._enter(instance, "shutting-down")
            self.later(instance, "terminated", self.timing.terminating)
        instance.state_reason.code = reason
        return before

    def create_placement_group(self, name: str, strategy: str, tags: dict[str, str]) -> PlacementGroup:
        """Create a placement group. Raises ApiError."""
        if name in self.placement:
            raise ApiError("InvalidPlacementGroup.Duplicate", f"Placement Group '{name}' already exists.")
        group = PlacementGroup(f"pg-{secrets.token_hex(8)}", name, strategy, tags)
        self.placement[name] = group
        self.hide(name, group.id)
        return group

    def delete_placement_group(self, name: str) -> None:
        """Delete a placement group without instances. Raises ApiError."""
        if name not in self.placement:
            raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        if any(i.placement.group_name == name and i.state != "terminated" for i in self.instances().values()):
            raise ApiError(
                "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and cannot be deleted."
            )
        del self.placement[name]


@dataclass(slots=True)
class Account:
    """All regions that were called."""

    timing: Timing = field(default_factory=Timing)
    machines: Machines = field(default_factory=Machines)
    regions: dict[str, Region] = field(default_factory=dict)

    def region(self, name: str) -> Region:
        """The region of this name. Raises ApiError for a name AWS does not have."""
        if name not in self.regions:
            if name not in ec2_backends[ACCOUNT].regions:
                raise ApiError("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
            self.regions[name] = Region(name, self.timing, self.machines)
        return self.regions[name]

    def reset(self) -> None:
        """Empty the account, but for AWS's default resources."""
        for name in self.regions:
            ec2_backends[ACCOUNT][name].reset()
        self.regions.clear()

    def everything(self) -> dict[str, list[str]]:
        """Return what was created and still exists, by kind, read from the model and not over its API."""
        found: dict[str, list[str]] = {}
        for region in self.regions.values():
            for kind, ids in _contents(region).items():
                if ids:
                    found.setdefault(kind, []).extend(sorted(ids))
        return found


def _contents(region: Region) -> dict[str, list[str]]:
    backend = region.backend
    made = [v for v in backend.vpcs.values() if not v.is_default]
    vpcs = {v.id for v in made}
    subnets = [s.id for zone in backend.subnets.values() for s in zone.values() if s.vpc_id in vpcs]
    return {
        "instance": [i.id for i in region.instances().values() if i.state != "terminated"],
        "volume": list(backend.volumes),
        "network-interface": list(backend.enis),
        "security-group": [g.id for by_id in backend.groups.values() for g in by_id.values() if g.name != "default"],
        "key-pair": list(backend.key_pairs),
        "placement-group": list(region.placement),
        "spot-instances-request": [s.id for s in region.spot.values() if s.state in {"open", "active"}],
        "subnet": subnets,
        "internet-gateway": list(backend.internet_gateways),
        "route-table": [t.id for t in backend.route_tables.values() if t.vpc_id in vpcs],
        "vpc": [v.id for v in made],
    }


def hide_created(call: Call, answer: Answer, region: Region) -> None:
    """Hide what this call has created for a while."""
    name = _CREATED.get(call.action)
    if name and answer.status == 200 and region.timing.consistency > 0:
        found = re.search(f"<{name}>([^<]+)</{name}>", answer.body.decode())
        if found:
            region.hide(found[1])


def refuse_hidden(call: Call, region: Region) -> None:
    """Raise ApiError when the call names something that is not visible yet."""
    for name, value in call.parameters.items():
        if value in region.hidden and not name.startswith(("TagSpecification", "Filter")):
            if name == "KeyName" and call.action == "RunInstances":
                raise ApiError("InvalidKeyPair.NotFound", f"The key pair '{value}' does not exist")
            if name == "Placement.GroupName":
                raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{value}' is unknown.")
            code = _NOT_FOUND.get(value.partition("-")[0])
            if code and name not in {"KeyName", "GroupName"}:
                raise ApiError(code, f"The ID '{value}' does not exist")


def without_hidden(answer: Answer, region: Region) -> Answer:
    """Return a Describe answer without what is not visible yet."""
    if not region.hidden or answer.status != 200:
        return answer
    root = ET.fromstring(answer.body)  # noqa: S314 (moto's own answer)
    ET.register_namespace("", root.tag[1:].partition("}")[0])
    for list_name, identity in _LISTS.items():
        for entries in root.findall(f".//{{*}}{list_name}"):
            for item in list(entries):
                found = item.find(f"{{*}}{identity}")
                if found is not None and found.text in region.hidden:
                    entries.remove(item)
    for reservations in root.findall(".//{*}reservationSet"):
        for item in list(reservations):
            instances = item.find("{*}instancesSet")
            if instances is not None and not len(instances):
                reservations.remove(item)
    return Answer(ET.tostring(root, encoding="utf-8", xml_declaration=True), answer.status)
