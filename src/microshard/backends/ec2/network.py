"""The network of a fleet: VPC, subnets, security group, placement group and SSH keys, found or created."""

import ipaddress
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from microshard.backends.ec2.api import Api, CloudError, is_unclear
from microshard.backends.ec2.resources import CloudResource, find_resources, record_created, record_creating
from microshard.backends.ec2.spec import TAG_RUN, FleetSpec
from microshard.model.infrastructure import Ec2
from microshard.records.run_folder import Ledger

# A private network for the hosts of the run alone. One /20 (4,091 hosts) for each zone.
_VPC_CIDR = "10.87.0.0/16"
_SUBNET_PREFIX = 20
_ALREADY = ("Duplicate", "AlreadyExists", "AlreadyAssociated", "Conflict")

_CHECK_URL = "https://checkip.amazonaws.com/"  # answers with the caller's address (AWS VPC documentation names it)
_CHECK_TIMEOUT = 5.0  # seconds
_ADDRESS_REMEDY = "give infrastructure.ec2.controller_cidrs, for example [192.0.2.7/32]."


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The run's SSH keys, to log in with and for the hosts to prove their identity. Public keys in OpenSSH's form."""

    private_file: Path  # 0600; for ssh -i
    public: str
    host_private: str  # given to the hosts in their user data
    host_public: str
    known_hosts: Path


def ensure_keys(folder: Path) -> RunKeys:
    """Return the run's keys, generated if missing. The folder gets 0700, private keys 0600. Raises OSError.

    All hosts of a run share one host key: hosts of a group share one RunInstances and so one user data. It is known
    before the first connection, is only in this folder and on these hosts, and is gone with them.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _, public = _ensure_key(folder / "id_ed25519", "microshard")
    host_private, host_public = _ensure_key(folder / "host_ed25519", "microshard-host")
    return RunKeys(folder / "id_ed25519", public, host_private, host_public, folder / "known_hosts")


def write_known_hosts(keys: RunKeys, addresses: list[str]) -> None:
    """Write exactly these addresses with the run's host key: ssh runs with StrictHostKeyChecking=yes."""
    _write_private(keys.known_hosts, "".join(f"{address} {keys.host_public}\n" for address in sorted(set(addresses))))


def _ensure_key(path: Path, comment: str) -> tuple[str, str]:
    try:
        return path.read_text(encoding="ascii"), path.with_suffix(".pub").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode("ascii")
    public = f"{key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode('ascii')} {comment}"
    # The public key first: then a private key always has its public key, whenever the process ends.
    _write_private(path.with_suffix(".pub"), public + "\n")
    _write_private(path, private)
    return private, public


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
    temporary.replace(path)


def controller_cidrs(ec2: Ec2) -> tuple[str, ...]:
    """Return the networks SSH is opened to: those given, or this machine's address. Raises CloudError."""
    if ec2.controller_cidrs != "auto":
        return tuple(ec2.controller_cidrs)
    return (f"{public_address() if ec2.public_addresses else _private_address()}/32",)


def public_address() -> str:
    """Return this machine's address as AWS sees it. Raises CloudError."""
    import urllib3  # noqa: PLC0415 - with boto3, only for EC2

    try:
        answer = urllib3.PoolManager().request("GET", _CHECK_URL, timeout=_CHECK_TIMEOUT, retries=1)
        return str(ipaddress.IPv4Address(answer.data.decode("ascii").strip()))
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        reason = type(getattr(error, "reason", error)).__name__
        message = f"this machine's public address is not known ({_CHECK_URL}: {reason}); {_ADDRESS_REMEDY}"
        raise CloudError("checkip", "NoAddress", message) from error


def _private_address() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.87.0.1", 9))  # sends nothing: the kernel only says which address it would use
        except OSError as error:
            message = f"this machine has no network ({error}); {_ADDRESS_REMEDY}"
            raise CloudError("address", "NoAddress", message) from error
        return str(probe.getsockname()[0])


@dataclass(slots=True)
class FleetNetwork:
    """The network a launch uses."""

    vpc_id: str
    created: bool  # the VPC belongs to the run
    security_group: str
    subnets: dict[str, str]  # zone → subnet, as far as they exist
    placement_group: str | None


def existing_subnets(api: Api, spec: FleetSpec) -> tuple[str | None, dict[str, str]]:
    """Return the VPC that is named, and its subnets by zone; None where the run creates one. Raises CloudError."""
    if spec.subnet_id is not None:
        subnet = api.call("describe_subnets", SubnetIds=[spec.subnet_id])["Subnets"][0]
        return str(subnet["VpcId"]), {str(subnet["AvailabilityZone"]): spec.subnet_id}
    if spec.vpc_id is None:
        return None, {}
    subnets: dict[str, str] = {}
    listed = find_resources(api, "subnet", "vpc-id", [spec.vpc_id])
    for found in _reachable(api, spec.vpc_id, listed) if spec.public_addresses else listed:
        subnets.setdefault(str(found.description["AvailabilityZone"]), found.id)
    if not subnets:
        what = "has no subnet, or does not exist in " + api.region
        if listed:
            what = (
                "has no subnet with a route to an internet gateway; name another VPC or a subnet, or set "
                "infrastructure.ec2.public_addresses: false where this machine is in the same network"
            )
        raise CloudError("DescribeSubnets", "NoSubnet", f"{spec.vpc_id} {what}.")
    return spec.vpc_id, subnets


def _reachable(api: Api, vpc_id: str, subnets: list[CloudResource]) -> list[CloudResource]:
    """Return the subnets whose route table, their own or the VPC's main one, leads to an internet gateway."""
    filters = [{"Name": "vpc-id", "Values": [vpc_id]}]
    leads: dict[str | None, bool] = {}  # by subnet; None is the main table
    for table in api.pages("describe_route_tables", "RouteTables", Filters=filters):
        public = any(str(route.get("GatewayId", "")).startswith("igw-") for route in table.get("Routes", ()))
        for association in table.get("Associations", ()):
            leads[None if association.get("Main") else association.get("SubnetId")] = public
    return [subnet for subnet in subnets if leads.get(subnet.id, leads.get(None, False))]


class NetworkBuilder:
    """Finds or creates what the hosts need around them; each creation is recorded in the ledger first."""

    def __init__(self, api: Api, spec: FleetSpec, ledger: Ledger) -> None:
        self.api = api
        self.spec = spec
        self.ledger = ledger

    def ensure_key_pair(self, keys: RunKeys) -> None:
        """Import the run's public key; the private key never leaves this machine."""
        self._ensure(
            "key-pair", "import_key_pair", ("KeyName",),
            KeyName=self.spec.name, PublicKeyMaterial=keys.public.encode(),
        )  # fmt: skip

    def ensure_network(self) -> FleetNetwork:
        """Find or create VPC, security group and placement group; `ensure_subnet` creates subnets when needed."""
        spec = self.spec
        vpc_id, subnets = existing_subnets(self.api, spec)
        created = vpc_id is None
        vpc_id = vpc_id or self._ensure_vpc()
        placement_group = None
        if spec.placement_group:
            placement_group = spec.name
            path = ("PlacementGroup", "GroupName")
            self._ensure("placement-group", "create_placement_group", path, GroupName=spec.name, Strategy="cluster")
        return FleetNetwork(vpc_id, created, self._ensure_security_group(vpc_id), subnets, placement_group)

    def ensure_subnet(self, network: FleetNetwork, zone: str, zones: list[str]) -> str:
        """Return the subnet of a zone; in a VPC of the run it is created when it is missing."""
        if zone not in network.subnets:
            blocks = list(ipaddress.ip_network(_VPC_CIDR).subnets(new_prefix=_SUBNET_PREFIX))
            network.subnets[zone] = self._ensure(
                "subnet", "create_subnet", ("Subnet", "SubnetId"), zone=zone,
                VpcId=network.vpc_id, AvailabilityZone=zone, CidrBlock=str(blocks[zones.index(zone) % len(blocks)]),
            )  # fmt: skip
        return network.subnets[zone]

    def _ensure_vpc(self) -> str:
        vpc_id = self._ensure("vpc", "create_vpc", ("Vpc", "VpcId"), CidrBlock=_VPC_CIDR)
        path = ("InternetGateway", "InternetGatewayId")
        gateway = self._ensure("internet-gateway", "create_internet_gateway", path)
        self._apply("attach_internet_gateway", InternetGatewayId=gateway, VpcId=vpc_id)
        # The VPC's main route table is used: it is created and deleted with the VPC.
        main = [{"Name": "vpc-id", "Values": [vpc_id]}, {"Name": "association.main", "Values": ["true"]}]
        for _ in self.api.retry.polls(self.api.retry.visible):
            tables = self.api.pages("describe_route_tables", "RouteTables", Filters=main)
            if tables:
                break
        else:
            message = f"{vpc_id} shows no main route table."
            raise CloudError("DescribeRouteTables", "InvalidRouteTableID.NotFound", message)
        table = str(tables[0]["RouteTableId"])
        self._apply("create_route", RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
        return vpc_id

    def _ensure_security_group(self, vpc_id: str) -> str:
        spec = self.spec
        group = self._ensure(
            "security-group", "create_security_group", ("GroupId",), GroupName=spec.name, VpcId=vpc_id,
            Description="microshard: SSH from the controller, MongoDB within the run",
        )  # fmt: skip
        controllers = [{"CidrIp": cidr} for cidr in spec.controller_cidrs]
        first, last = spec.ports
        for rule in (
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": controllers},
            {"IpProtocol": "tcp", "FromPort": first, "ToPort": last, "UserIdGroupPairs": [{"GroupId": group}]},
        ):
            self._apply("authorize_security_group_ingress", GroupId=group, IpPermissions=[rule])
        return group

    def _ensure(
        self, kind: str, action: str, id_path: tuple[str, ...], *, zone: str | None = None, **parameters: Any
    ) -> str:
        """Return the id of the run's resource of this kind (and zone), found or created. Raises CloudError.

        `id_path` leads to the id in the answer. An answer that was lost does not create it twice: each attempt searches
        first. A VPC created a moment ago may not be visible to the call yet, which is then repeated.
        """
        name = f"{self.spec.name}-{zone}" if zone else self.spec.name
        parameters["TagSpecifications"] = [{"ResourceType": kind, "Tags": self.spec.tags()}]
        problem: CloudError | None = None
        for attempt in range(self.api.retry.attempts):
            found = find_resources(self.api, kind, f"tag:{TAG_RUN}", [self.spec.run])
            identity = next((r.id for r in found if zone in (None, r.description.get("AvailabilityZone"))), None)
            if identity is None:
                record_creating(self.ledger, kind, name, run=self.spec.run, region=self.api.region)
                try:
                    answer: Any = self.api.call_when_visible(action, creates=True, **parameters)
                except CloudError as error:
                    if not (is_unclear(error) or error.code.endswith(_ALREADY)):
                        raise
                    problem = error
                    self.api.retry.back_off(attempt)
                    continue
                for key in id_path:
                    answer = answer[key]
                identity = str(answer)
            record_created(self.ledger, kind, name, [identity])
            return identity
        raise problem or CloudError(action, "NoAttempts", "RetryPolicy.attempts is 0")

    def _apply(self, action: str, **parameters: Any) -> None:
        """Make a change that is in force afterwards, by this call or by one whose answer was lost."""
        try:
            self.api.call_when_visible(action, **parameters)
        except CloudError as error:
            if not error.code.endswith(_ALREADY):
                raise
