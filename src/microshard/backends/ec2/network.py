"""Where the hosts live: VPC, subnets, security group, key pair and placement group, found or made."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2 import find, ledger
from microshard.backends.ec2.api import Api, is_unclear
from microshard.backends.ec2.errors import CloudError
from microshard.backends.ec2.find import Thing
from microshard.backends.ec2.keys import RunKeys
from microshard.backends.ec2.ledger import Ledger
from microshard.backends.ec2.spec import TAG_RUN, FleetSpec

# A network of its own: seen by nobody but the hosts of the run. One /20 (4,091 hosts) for each zone.
_VPC_CIDR = "10.87.0.0/16"
_SUBNET_PREFIX = 20
_ALREADY = ("Duplicate", "AlreadyExists", "AlreadyAssociated", "Conflict")


@dataclass(slots=True)
class Network:
    """What a launch needs to know of its surroundings."""

    vpc_id: str
    made: bool  # the VPC belongs to the run
    group_id: str
    subnets: dict[str, str]  # zone → subnet, as far as they exist
    placement: str | None


class Builder:
    """Makes what is missing, one thing after the other, each written into the ledger first."""

    def __init__(self, api: Api, spec: FleetSpec, book: Ledger) -> None:
        self.api = api
        self.spec = spec
        self.book = book

    def ensure(self, what: str, name: str, look: Callable[[], str | None], action: str, **parameters: Any) -> str:
        """The id of the one thing of this name: found, or made. Raises CloudError.

        An answer that was lost is no reason to make it twice: the next attempt looks first.
        """
        problem: CloudError | None = None
        for attempt in range(self.api.patience.attempts):
            found = look()
            if found is not None:
                ledger.made(self.book, what, name, [found])
                return found
            ledger.creating(self.book, what, name, run=self.spec.run, region=self.api.region)
            try:
                answer = self.api.make(action, **parameters)
            except CloudError as error:
                if not (is_unclear(error) or error.code.endswith(_ALREADY)):
                    raise
                problem = error
                self.api.pause(attempt)
                continue
            identity = _identity(what, answer)
            ledger.made(self.book, what, name, [identity])
            return identity
        raise problem or CloudError(action, "NoAttempts", "patience.attempts is 0")

    def _tagged(self, kind: str) -> Thing | None:
        found = find.of_kind(self.api, kind, f"tag:{TAG_RUN}", [self.spec.run])
        return found[0] if found else None

    def _tagged_id(self, kind: str) -> str | None:
        thing = self._tagged(kind)
        return thing.id if thing else None

    def _tags(self, kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": self.spec.tags()}]

    def key_pair(self, keys: RunKeys) -> None:
        """The run's public key is known to EC2; the private one never leaves this machine."""
        name = self.spec.name
        self.ensure(
            "key-pair", name, lambda: self._tagged_id("key-pair"), "import_key_pair",
            KeyName=name, PublicKeyMaterial=keys.public.encode(), TagSpecifications=self._tags("key-pair"),
        )  # fmt: skip

    def network(self) -> Network:
        """VPC, security group and placement group; subnets of a VPC of our own are made by `subnet`."""
        spec = self.spec
        subnets: dict[str, str] = {}
        if spec.subnet_id is not None:
            subnet = self.api.call("describe_subnets", SubnetIds=[spec.subnet_id])["Subnets"][0]
            vpc_id, subnets = str(subnet["VpcId"]), {str(subnet["AvailabilityZone"]): spec.subnet_id}
        elif spec.vpc_id is not None:
            vpc_id = spec.vpc_id
            for thing in find.of_kind(self.api, "subnet", "vpc-id", [vpc_id]):
                subnets.setdefault(str(thing.facts["AvailabilityZone"]), thing.id)
            if not subnets:
                raise CloudError(
                    "DescribeSubnets", "NoSubnet", f"{vpc_id} has no subnet, or does not exist in {self.api.region}."
                )
        else:
            vpc_id = self._vpc()
        made = spec.vpc_id is None and spec.subnet_id is None
        placement = self._placement() if spec.placement_group else None
        return Network(vpc_id, made, self._security_group(vpc_id), subnets, placement)

    def _vpc(self) -> str:
        name = self.spec.name
        vpc_id = self.ensure(
            "vpc", name, lambda: self._tagged_id("vpc"), "create_vpc",
            CidrBlock=_VPC_CIDR, TagSpecifications=self._tags("vpc"),
        )  # fmt: skip
        gateway = self.ensure(
            "internet-gateway", name, lambda: self._tagged_id("internet-gateway"), "create_internet_gateway",
            TagSpecifications=self._tags("internet-gateway"),
        )  # fmt: skip
        self._once("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc_id)
        # The VPC's own main route table is used: it comes and goes with the VPC.
        tables: list[dict[str, Any]] = []
        for _ in self.api.patience.looks(self.api.patience.visible):
            tables = self.api.pages(
                "describe_route_tables", "RouteTables",
                Filters=[{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "association.main", "Values": ["true"]}],
            )  # fmt: skip
            if tables:
                break
        else:
            raise CloudError(
                "DescribeRouteTables", "InvalidRouteTableID.NotFound", f"{vpc_id} shows no main route table."
            )
        table = str(tables[0]["RouteTableId"])
        self._once("create_route", RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        return vpc_id

    def subnet(self, network: Network, zone: str, zones: list[str]) -> str:
        """The subnet of a zone; in a VPC of our own it is made when it is needed."""
        if zone in network.subnets:
            return network.subnets[zone]
        blocks = list(ipaddress.ip_network(_VPC_CIDR).subnets(new_prefix=_SUBNET_PREFIX))

        def look() -> str | None:
            found = find.of_kind(self.api, "subnet", f"tag:{TAG_RUN}", [self.spec.run])
            return next((t.id for t in found if t.facts["AvailabilityZone"] == zone), None)

        network.subnets[zone] = self._fresh(
            lambda: self.ensure(
                "subnet", f"{self.spec.name}-{zone}", look, "create_subnet",
                VpcId=network.vpc_id, AvailabilityZone=zone, CidrBlock=str(blocks[zones.index(zone) % len(blocks)]),
                TagSpecifications=self._tags("subnet"),
            )
        )  # fmt: skip
        return network.subnets[zone]

    def _security_group(self, vpc_id: str) -> str:
        spec = self.spec
        group = self._fresh(
            lambda: self.ensure(
                "security-group", spec.name, lambda: self._tagged_id("security-group"), "create_security_group",
                GroupName=spec.name, Description="microshard: SSH from the controller, MongoDB within the run",
                VpcId=vpc_id, TagSpecifications=self._tags("security-group"),
            )
        )  # fmt: skip
        first, last = spec.ports
        rules = [
            {
                "IpProtocol": "tcp",
                "FromPort": 22,
                "ToPort": 22,
                "IpRanges": [{"CidrIp": c} for c in spec.controller_cidrs],
            },
            {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "UserIdGroupPairs": [{"GroupId": group}]},
        ]
        for rule in rules:
            self._once("authorize_security_group_ingress", GroupId=group, IpPermissions=[rule])
        return group

    def _placement(self) -> str:
        name = self.spec.name
        self.ensure(
            "placement-group", name, lambda: self._tagged_id("placement-group"), "create_placement_group",
            GroupName=name, Strategy="cluster", TagSpecifications=self._tags("placement-group"),
        )  # fmt: skip
        return name

    def _once(self, action: str, **parameters: Any) -> None:
        """A change that is in force afterwards, whether by this call or by one whose answer was lost."""
        try:
            self.api.when_visible(action, **parameters)
        except CloudError as error:
            if not error.code.endswith(_ALREADY):
                raise

    def _fresh(self, make: Callable[[], str]) -> str:
        """Make something inside a thing that was made a moment ago and may not be visible yet."""
        problem: CloudError | None = None
        for _ in self.api.patience.looks(self.api.patience.visible):
            try:
                return make()
            except CloudError as error:
                if not error.code.endswith("NotFound"):
                    raise
                problem = error
        raise problem or CloudError("ensure", "NoAttempts", "patience.visible is 0")


def _identity(what: str, answer: dict[str, Any]) -> str:
    match what:
        case "vpc":
            return str(answer["Vpc"]["VpcId"])
        case "subnet":
            return str(answer["Subnet"]["SubnetId"])
        case "internet-gateway":
            return str(answer["InternetGateway"]["InternetGatewayId"])
        case "security-group":
            return str(answer["GroupId"])
        case "key-pair":
            return str(answer["KeyName"])
        case _:
            return str(answer["PlacementGroup"]["GroupName"])
