"""What only EC2 asks for: where hosts are bought, how close they are, and who may reach them."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from microshard.model.base import InWords, Model

InstanceType = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,30}\.[a-z0-9-]{1,20}$"),
    InWords("an EC2 instance type such as c5.4xlarge"),
]
Image = Annotated[
    str,
    StringConstraints(
        pattern=r"^(al2023|ubuntu-22\.04|ubuntu-24\.04|debian-12|ami-[0-9a-f]{8,17}|ssm:/[A-Za-z0-9_./{}-]{1,200}|name:.{1,128})$"
    ),
    InWords("al2023, ubuntu-22.04, ubuntu-24.04, debian-12, ami-…, ssm:/path or name:PATTERN"),
]
Market = Literal["on_demand", "spot", "spot_or_on_demand"]
_Region = Annotated[
    str, StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]$"), InWords("a region such as us-east-1")
]
_Zone = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z]{2,4}(-[a-z]+)+-[0-9]([a-z]|-[a-z0-9-]+)$"),
    InWords("an availability zone such as us-east-1a"),
]
_Vpc = Annotated[
    str, StringConstraints(pattern=r"^vpc-[0-9a-f]{8,17}$"), InWords("the id of a VPC such as vpc-0123abcd")
]
_Subnet = Annotated[
    str, StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$"), InWords("the id of a subnet such as subnet-0123abcd")
]
_Owner = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"),
    InWords("a name of letters, digits and . _ @ + - (at most 64)"),
]


class Ec2(Model):
    """Where on EC2 the hosts are, and who may reach them."""

    region: _Region | None = None
    """Region; null takes that of the AWS configuration (AWS_REGION, profile), else us-east-1."""
    zones: Annotated[list[_Zone], Field(max_length=20)] = Field(default=[])
    """Availability zones to try, in this order; empty tries all that have the types. All hosts are in one."""
    placement_group: bool = False
    """Whether all hosts are placed close together (a placement group with the strategy cluster)."""
    vpc_id: _Vpc | None = None
    """VPC to use, with a subnet in each zone that may be taken; null makes one for the run."""
    subnet_id: _Subnet | None = None
    """Subnet to use, and with it its VPC and zone."""
    public_addresses: bool = True
    """Whether hosts get public addresses; false where the controller is in the same network."""
    controller_cidrs: Annotated[list[str], Field(min_length=1, max_length=20)] | Literal["auto"] = "auto"
    """IPv4 networks SSH is opened to; auto asks AWS (checkip.amazonaws.com) for this machine's address at the run."""
    owner: _Owner | None = None
    """Tag microshard:owner of everything made, by which `microshard gc` finds it; null takes the user's name."""

    @model_validator(mode="after")
    def _one_network(self) -> Ec2:
        if self.vpc_id is not None and self.subnet_id is not None:
            raise ValueError("vpc_id: a subnet has its VPC already; give one of vpc_id and subnet_id")
        if self.subnet_id is not None and self.zones:
            raise ValueError("zones: a subnet is in one zone already; give one of zones and subnet_id")
        if self.region is not None:
            far = next((zone for zone in self.zones if not zone.startswith(self.region)), None)
            if far is not None:
                raise ValueError(f"zones: {far} is not in {self.region}")
        if len(set(self.zones)) != len(self.zones):
            raise ValueError("zones: one is there twice")
        return self

    @model_validator(mode="after")
    def _reachable_by_few(self) -> Ec2:
        for cidr in () if self.controller_cidrs == "auto" else self.controller_cidrs:
            try:
                network = ipaddress.ip_network(cidr)
            except ValueError as error:
                raise ValueError(f"controller_cidrs: {error}") from error
            if network.version != 4:
                raise ValueError(f"controller_cidrs: {cidr}: the hosts have IPv4 addresses; give the controller's")
            if network.prefixlen < 8:
                raise ValueError(f"controller_cidrs: {cidr} opens SSH to too many; give this machine's own address")
        return self
