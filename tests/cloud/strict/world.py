"""What the simulated account holds beside moto's own model, and how it changes with time."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instances import Instance

from .wire import ApiError


def _own_tags(resource: Any) -> list[dict[str, str]]:
    """The tags of one thing. moto looks through all tags of the account for each:

    64 hosts with four volumes took 15 s instead of 2 s to be made."""
    kept = resource.ec2_backend.tags.get(resource.id, {})
    return [{"key": key, "value": value, "resource_id": resource.id} for key, value in kept.items()]


TaggedEC2Resource.get_tags = _own_tags  # type: ignore[method-assign,assignment]

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


@dataclass(slots=True)
class Timing:
    """How long things take in the simulated cloud, in seconds."""

    pending: float = 0.0  # an instance until it runs
    terminating: float = 0.0  # an instance until it is gone
    consistency: float = 0.0  # a new thing until Describe and other calls see it
    now: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class PlacementGroup:
    """A placement group; moto has none."""

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
    """What a client token stands for."""

    fingerprint: str
    reservation: str


@dataclass(slots=True)
class Boots:
    """What becomes of an instance beside its entry in the account: machines that stand for it.

    An instance gets the next of `addresses`, when there is one, and `boot` is told of it: with the key of its user, its
    user data, and its data volumes, id → GiB, in the order in which they are attached.
    """

    addresses: list[str] = field(default_factory=list)
    boot: Callable[[str, str, str, dict[str, int]], None] = lambda _address, _key, _user_data, _volumes: None
    end: Callable[[str], None] = lambda _address: None


class Region:
    """One region of the account."""

    def __init__(self, name: str, timing: Timing, boots: Boots) -> None:
        self.boots = boots
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
            self.backend.amis[identity] = Ami(
                self.backend, identity, name=label, architecture=architecture, root_device_type="ebs",
                root_device_name=root, owner_id=_OWNERS[owner], owner_alias=owner, public=True, hypervisor="xen",
                virtualization_type="hvm", region_name=f"{name}a",
            )  # fmt: skip

    def advance(self) -> None:
        """Let happen what is due by now."""
        now = self.timing.now()
        for entry in [e for e in self._due if e[0] <= now]:
            self._due.remove(entry)
            self._enter(entry[1], entry[2])
        self.hidden = {name: when for name, when in self.hidden.items() if when > now}

    def later(self, instance: Instance, state: str, seconds: float) -> None:
        """Bring an instance to a state after a time, or at once."""
        self._due = [e for e in self._due if e[1] is not instance]
        if seconds <= 0:
            self._enter(instance, state)
        else:
            self._due.append((self.timing.now() + seconds, instance, state))

    def hide(self, *names: str) -> None:
        """New things cannot be seen for a while."""
        if self.timing.consistency > 0:
            until = self.timing.now() + self.timing.consistency
            self.hidden.update(dict.fromkeys(names, until))

    def _enter(self, instance: Instance, state: str) -> None:
        if state == "terminated":
            if instance.state != "terminated":
                self.boots.end(str(instance.private_ip))
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
        """Start the end of an instance; returns its state before."""
        before = instance.state
        if before != "terminated":
            self._enter(instance, "shutting-down")
            self.later(instance, "terminated", self.timing.terminating)
        instance.state_reason.code = reason
        return before

    def make_placement_group(self, name: str, strategy: str, tags: dict[str, str]) -> PlacementGroup:
        """A new placement group. Raises ApiError."""
        if name in self.placement:
            raise ApiError("InvalidPlacementGroup.Duplicate", f"Placement Group '{name}' already exists.")
        group = PlacementGroup(f"pg-{secrets.token_hex(8)}", name, strategy, tags)
        self.placement[name] = group
        self.hide(name, group.id)
        return group

    def drop_placement_group(self, name: str) -> None:
        """Remove a placement group no living instance is in. Raises ApiError."""
        if name not in self.placement:
            raise ApiError("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")
        if any(i.placement.group_name == name and i.state != "terminated" for i in self.instances().values()):
            raise ApiError(
                "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and cannot be deleted."
            )
        del self.placement[name]


@dataclass(slots=True)
class World:
    """All regions that have been spoken to."""

    timing: Timing = field(default_factory=Timing)
    boots: Boots = field(default_factory=Boots)
    regions: dict[str, Region] = field(default_factory=dict)

    def region(self, name: str) -> Region:
        """The region of this name. Raises ApiError for a name AWS does not have."""
        if name not in self.regions:
            if name not in ec2_backends[ACCOUNT].regions:
                raise ApiError("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
            self.regions[name] = Region(name, self.timing, self.boots)
        return self.regions[name]

    def reset(self) -> None:
        """An empty account: what AWS puts there itself, and nothing else."""
        for name in self.regions:
            ec2_backends[ACCOUNT][name].reset()
        self.regions.clear()

    def everything(self) -> dict[str, list[str]]:
        """What was made in the account and still lives, by kind, read from the model itself and not over its API."""
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
