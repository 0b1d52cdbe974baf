"""Asks an account whether experiments can run in it. Makes nothing: what would make something is a DryRun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from microshard.backends.ec2 import controller_address as address
from microshard.backends.ec2 import find, images, instances, quota
from microshard.backends.ec2.account_limits import RETRY_POLICY, markets
from microshard.backends.ec2.api import Api, default_region
from microshard.backends.ec2.cost_estimate import DEFAULT_REGION
from microshard.backends.ec2.errors import NO_LOGIN, CloudError
from microshard.backends.ec2.spec import GroupSpec, SpecError, group_specs
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.model.infrastructure import Infrastructure
from microshard.run.backend import CheckRequest, CheckResult
from microshard.this_machine import user

_VPCS = "L-F678F1CE"  # Service Quotas: VPCs per Region
_POLICY = "put the policy of docs/ec2.md on whoever this is"


def examine(request: CheckRequest) -> Iterator[CheckResult]:
    """Findings one after the other; ends early where all others would fail for the same reason.

    Raises DefinitionError for a wrong file.
    """
    wishes = _infrastructures(request)
    region = request.region or next((w.ec2.region for w in wishes if w.ec2.region), None)
    try:
        region = region or default_region() or DEFAULT_REGION
        api = Api(region, patience=RETRY_POLICY)
        number, arn = api.account()
        yield CheckResult("credentials", "ok", f"account {number} pays; you are {arn}")
        vpcs = api.pages("describe_vpcs", "Vpcs")
        yield CheckResult("region", "ok", f"{region} answers")
    except CloudError as error:
        yield _failed("credentials" if error.code in NO_LOGIN else "region", error)
        return
    groups = _groups(wishes)
    yield from _permissions(api)
    yield from _room_for_a_vpc(api, len(vpcs), wishes)
    yield from _quotas(api, groups)
    yield from _images(api, groups)
    yield from _types(api, groups, wishes)
    yield from _address(wishes)
    yield from _leftovers(api, request.owner or user())


def _failed(what: str, error: CloudError) -> CheckResult:
    return CheckResult(what, "wrong", str(error))


def _infrastructures(request: CheckRequest) -> list[Infrastructure]:
    if request.file is None:
        return []
    return [p.experiment.infrastructure for p in expand(load(request.file, None, {}))]


def _groups(wishes: Sequence[Infrastructure]) -> tuple[GroupSpec, ...]:
    found: dict[GroupSpec, None] = {}
    for wish in wishes:
        try:
            found |= dict.fromkeys(group_specs(wish))
        except SpecError:
            continue  # `plan` names it with its place in the file
    return tuple(found)


def _quotas(api: Api, groups: Sequence[GroupSpec]) -> Iterator[CheckResult]:
    wanted = markets(groups) or [("c5.large", "on_demand"), ("c5.large", "spot")]
    try:
        known = quota.ask(api, wanted)
    except CloudError as error:
        yield CheckResult(
            "quotas", "unknown", str(error), "allow servicequotas:GetServiceQuota, or look in the console"
        )
        return
    for (kind, market), found in known.of.items():
        told = f"{found.vcpus} vCPUs of {kind} {market.replace('_', ' ')} instances, {found.used} in use"
        least = min((f.vcpus for name, _ in wanted if (f := instances.find(name))), default=1)
        enough = found.vcpus - found.used >= least
        yield CheckResult(
            "quotas", "ok" if enough else "wrong", told, f"ask for more: Service Quotas, ec2 {found.code}"
        )


def _room_for_a_vpc(api: Api, there: int, wishes: Sequence[Infrastructure]) -> Iterator[CheckResult]:
    if wishes and all(w.ec2.vpc_id or w.ec2.subnet_id for w in wishes):
        return
    try:
        most = int(api.quota("vpc", _VPCS))
    except CloudError:
        return  # told with the other quotas
    told = f"{there} of {most} VPCs of the region are there; a run makes one more"
    remedy = f"name infrastructure.ec2.vpc_id or subnet_id, or ask for more: Service Quotas, vpc {_VPCS}"
    yield CheckResult("VPC", "ok" if there < most else "wrong", told, remedy)


def _images(api: Api, groups: Sequence[GroupSpec]) -> Iterator[CheckResult]:
    for wish in dict.fromkeys(g.image for g in groups) or images.DISTRIBUTIONS:
        facts = next((instances.find(g.instance_types[0]) for g in groups if g.image == wish), None)
        try:
            found = images.resolve(api, wish, facts.architecture if facts else "x86_64")
        except CloudError as error:
            yield _failed("image", error)
        else:
            yield CheckResult("image", "ok", f"{wish} is {found.id} ({found.name}), login {found.user}")


def _types(api: Api, groups: Sequence[GroupSpec], wishes: Sequence[Infrastructure]) -> Iterator[CheckResult]:
    names = sorted({name for g in groups for name in g.instance_types})
    if not names:
        return
    only = {"Name": "instance-type", "Values": names}
    try:
        found = api.pages(
            "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone",
            Filters=[only],
        )  # fmt: skip
    except CloudError as error:
        yield _failed("instance types", error)
        return
    zones = {z for w in wishes for z in w.ec2.zones}
    for name in names:
        offered = sorted(str(f["Location"]) for f in found if f["InstanceType"] == name)
        usable = [z for z in offered if not zones or z in zones]
        told = f"{name} is offered in {', '.join(usable) or 'none of the zones'}"
        near = ", ".join(instances.near(name))
        yield CheckResult(
            "instance types", "ok" if usable else "wrong", told, f"take another type or region; near: {near}"
        )


def _address(wishes: Sequence[Infrastructure]) -> Iterator[CheckResult]:
    for wish in dict.fromkeys(w.ec2.model_dump_json() for w in wishes) or ["{}"]:
        ec2 = type(Infrastructure().ec2).model_validate_json(wish)
        try:
            yield CheckResult("SSH", "ok", f"would be opened to {', '.join(address.controller_cidrs(ec2))} only")
        except CloudError as error:
            yield CheckResult("SSH", "wrong", error.message)


def _leftovers(api: Api, owner: str) -> Iterator[CheckResult]:
    try:
        runs = sorted({t.run for t in find.by_owner(api, owner)})
    except CloudError as error:
        yield _failed("runs", error)
        return
    told = f"{owner} has things of {', '.join(runs)} here" if runs else f"nothing of {owner} is here"
    yield CheckResult("runs", "note" if runs else "ok", told, "microshard gc --on ec2 removes what is over or expired")


def _permissions(api: Api) -> Iterator[CheckResult]:
    refused, untried = [], []
    for action, parameters in _TRIALS:
        name = f"ec2:{''.join(part.capitalize() for part in action.split('_'))}"
        try:
            allowed = api.may(action, **parameters)
        except CloudError as error:
            yield _failed("permissions", error)
            return
        if allowed is None:
            untried.append(name)
        elif not allowed:
            refused.append(name)
    total = len(_TRIALS)
    if refused:
        yield CheckResult(
            "permissions", "wrong", f"{len(refused)} of {total} are missing: {', '.join(refused)}", _POLICY
        )
    else:
        yield CheckResult("permissions", "ok", f"none of {total} was refused")
    if untried:
        told = f"AWS did not say for {', '.join(untried)} without a thing to try it on"
        yield CheckResult("permissions", "unknown", told, "a first run shows")


def _id(kind: str) -> str:
    return f"{kind}-00000000000000000"


_TAGS = {"Key": "microshard:run", "Value": "doctor"}


def _tagged(kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [_TAGS]}]


_SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
# A key of nobody: ed25519 with a public half of zeros. It is never imported.
_KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA doctor"
# Every permission of the policy that EC2 lets one try, on things that are not there.
_TRIALS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("describe_images", {"ImageIds": [_id("ami")]}),
    ("describe_instance_type_offerings", {}),
    ("describe_instance_types", {}),
    ("describe_instances", {}),
    ("describe_internet_gateways", {}),
    ("describe_key_pairs", {}),
    ("describe_network_interfaces", {}),
    ("describe_placement_groups", {}),
    ("describe_route_tables", {}),
    ("describe_security_groups", {}),
    ("describe_spot_instance_requests", {}),
    ("describe_subnets", {}),
    ("describe_volumes", {}),
    ("describe_vpcs", {}),
    ("attach_internet_gateway", {"InternetGatewayId": _id("igw"), "VpcId": _id("vpc")}),
    ("authorize_security_group_ingress", {"GroupId": _id("sg"), "IpPermissions": [_SSH]}),
    ("create_internet_gateway", {"TagSpecifications": _tagged("internet-gateway")}),
    ("create_placement_group", {"GroupName": "microshard-doctor", "Strategy": "cluster"}),
    ("create_route", {"RouteTableId": _id("rtb"), "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": _id("igw")}),
    ("create_security_group", {"GroupName": "microshard-doctor", "Description": "microshard", "VpcId": _id("vpc")}),
    ("create_subnet", {"VpcId": _id("vpc"), "CidrBlock": "10.87.0.0/20"}),
    ("create_vpc", {"CidrBlock": "10.87.0.0/16", "TagSpecifications": _tagged("vpc")}),
    ("import_key_pair", {"KeyName": "microshard-doctor", "PublicKeyMaterial": _KEY}),
    (
        "run_instances",
        {
            "ImageId": _id("ami"), "InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1,
            "TagSpecifications": _tagged("instance"),
        },
    ),
    ("cancel_spot_instance_requests", {"SpotInstanceRequestIds": ["sir-00000000"]}),
    ("delete_internet_gateway", {"InternetGatewayId": _id("igw")}),
    ("delete_key_pair", {"KeyName": "microshard-doctor"}),
    ("delete_network_interface", {"NetworkInterfaceId": _id("eni")}),
    ("delete_placement_group", {"GroupName": "microshard-doctor"}),
    ("delete_security_group", {"GroupId": _id("sg")}),
    ("delete_subnet", {"SubnetId": _id("subnet")}),
    ("delete_volume", {"VolumeId": _id("vol")}),
    ("delete_vpc", {"VpcId": _id("vpc")}),
    ("detach_internet_gateway", {"InternetGatewayId": _id("igw"), "VpcId": _id("vpc")}),
    ("terminate_instances", {"InstanceIds": [_id("i")]}),
)  # fmt: skip
