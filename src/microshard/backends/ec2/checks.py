"""Check whether experiments can run in an account. Creates nothing: what would create something is a DryRun."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from microshard.backends.ec2.account import DISTRIBUTIONS, QUICK_RETRY, VPC_QUOTA, fetch_quotas, markets, planning_image
from microshard.backends.ec2.api import NO_LOGIN, Api, CloudError, default_region
from microshard.backends.ec2.cost_estimate import DEFAULT_REGION
from microshard.backends.ec2.limits import package_versions, package_violations
from microshard.backends.ec2.network import controller_cidrs
from microshard.backends.ec2.resources import find_by_owner
from microshard.backends.ec2.spec import GroupSpec, SpecError, group_specs
from microshard.backends.ec2.tables import find_instance, similar_instances
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.model.experiment import Experiment
from microshard.model.infrastructure import Ec2, Infrastructure
from microshard.run.backend import CheckRequest, CheckResult
from microshard.this_machine import user


def examine(request: CheckRequest) -> Iterator[CheckResult]:
    """Yield findings about an account and, with a file, its experiment. Raises DefinitionError for a wrong file."""
    experiments = _experiments(request)
    region = request.region or next(
        (e.infrastructure.ec2.region for e in experiments if e.infrastructure.ec2.region), None
    )
    return check_account(experiments, region, request.owner or user())


def check_account(experiments: Sequence[Experiment], region: str | None, owner: str) -> Iterator[CheckResult]:
    """Yield findings one after the other; ends early where all others would fail for the same reason."""
    infrastructures = [experiment.infrastructure for experiment in experiments]
    try:
        region = region or default_region() or DEFAULT_REGION
        api = Api(region, retry=QUICK_RETRY)
        number, arn = api.caller()
        yield CheckResult("credentials", "ok", f"account {number} pays; you are {arn}")
        vpcs = api.pages("describe_vpcs", "Vpcs")
        yield CheckResult("region", "ok", f"{region} answers")
    except CloudError as error:
        yield _failed("credentials" if error.code in NO_LOGIN else "region", error)
        return
    groups = _groups(infrastructures)
    yield from _permissions(api)
    yield from _vpc_quota(api, len(vpcs), infrastructures)
    yield from _vcpu_quotas(api, groups)
    yield from _images(api, groups)
    yield from _packages(groups, package_versions(e.topology.mongodb.model_dump() for e in experiments))
    yield from _types(api, groups, infrastructures)
    yield from _ssh_sources(infrastructures)
    yield from _leftovers(api, owner)


def _failed(what: str, error: CloudError) -> CheckResult:
    return CheckResult(what, "wrong", str(error))


def _experiments(request: CheckRequest) -> list[Experiment]:
    if request.file is None:
        return []
    return [point.experiment for point in expand(load(request.file, request.scale, request.overrides))]


def _groups(infrastructures: Sequence[Infrastructure]) -> tuple[GroupSpec, ...]:
    found: dict[GroupSpec, None] = {}
    for infrastructure in infrastructures:
        try:
            found |= dict.fromkeys(group_specs(infrastructure))
        except SpecError:
            continue  # `plan` reports it with its place in the file
    return tuple(found)


def _vcpu_quotas(api: Api, groups: Sequence[GroupSpec]) -> Iterator[CheckResult]:
    wanted = markets(groups) or [("c5.large", "on_demand"), ("c5.large", "spot")]
    try:
        quotas = fetch_quotas(api, wanted)
    except CloudError as error:
        yield CheckResult(
            "quotas", "unknown", str(error), "allow servicequotas:GetServiceQuota, or look in the console"
        )
        return
    smallest = min((facts.vcpus for name, _ in wanted if (facts := find_instance(name))), default=1)
    for (kind, market), quota in quotas.items():
        message = f"{quota.vcpus} vCPUs of {kind} {market.replace('_', ' ')} instances, {quota.used} in use"
        enough = quota.vcpus - quota.used >= smallest
        remedy = f"request more: Service Quotas, ec2 {quota.code}"
        yield CheckResult("quotas", "ok" if enough else "wrong", message, remedy)


def _vpc_quota(api: Api, existing: int, infrastructures: Sequence[Infrastructure]) -> Iterator[CheckResult]:
    if infrastructures and all(i.ec2.vpc_id or i.ec2.subnet_id for i in infrastructures):
        return
    try:
        most = int(api.quota("vpc", VPC_QUOTA))
    except CloudError:
        return  # reported with the other quotas
    message = f"{existing} of {most} VPCs of the region exist; a run creates one more"
    remedy = f"name infrastructure.ec2.vpc_id or subnet_id, or request more: Service Quotas, vpc {VPC_QUOTA}"
    yield CheckResult("VPC", "ok" if existing < most else "wrong", message, remedy)


def _images(api: Api, groups: Sequence[GroupSpec]) -> Iterator[CheckResult]:
    for name in dict.fromkeys(g.image for g in groups) or DISTRIBUTIONS:
        try:
            image = planning_image(api, groups, name)
        except CloudError as error:
            yield _failed("image", error)
        else:
            yield CheckResult("image", "ok", f"{name} is {image.id} ({image.name}), login {image.user}")


def _packages(groups: Sequence[GroupSpec], versions: Iterable[str]) -> Iterator[CheckResult]:
    wanted = tuple(dict.fromkeys(versions))
    problems = dict.fromkeys(violation.message for violation in package_violations(groups, wanted))
    for problem in problems:
        yield CheckResult("MongoDB", "wrong", problem)
    if wanted and not problems:
        images = ", ".join(dict.fromkeys(group.image for group in groups))
        yield CheckResult("MongoDB", "ok", f"packages of {', '.join(wanted)} exist for {images}")


def _types(api: Api, groups: Sequence[GroupSpec], infrastructures: Sequence[Infrastructure]) -> Iterator[CheckResult]:
    names = sorted({name for g in groups for name in g.instance_types})
    if not names:
        return
    try:
        offered = api.zones_offering(names)
    except CloudError as error:
        yield _failed("instance types", error)
        return
    allowed = {z for i in infrastructures for z in i.ec2.zones}
    for name in names:
        usable = [z for z in sorted(offered[name]) if not allowed or z in allowed]
        message = f"{name} is offered in {', '.join(usable) or 'none of the zones'}"
        remedy = f"use another type or region; similar: {', '.join(similar_instances(name))}"
        yield CheckResult("instance types", "ok" if usable else "wrong", message, remedy)


def _ssh_sources(infrastructures: Sequence[Infrastructure]) -> Iterator[CheckResult]:
    sections = {i.ec2.model_dump_json(): i.ec2 for i in infrastructures} or {"": Ec2()}
    for ec2 in sections.values():
        try:
            yield CheckResult("SSH", "ok", f"would be opened to {', '.join(controller_cidrs(ec2))} only")
        except CloudError as error:
            yield CheckResult("SSH", "wrong", error.message)


def _leftovers(api: Api, owner: str) -> Iterator[CheckResult]:
    try:
        runs = sorted({r.run for r in find_by_owner(api, owner)})
    except CloudError as error:
        yield _failed("runs", error)
        return
    message = f"{owner} has resources of {', '.join(runs)}" if runs else f"{owner} has no resources"
    yield CheckResult(
        "runs", "note" if runs else "ok", message, "microshard gc --on ec2 removes what is over or expired"
    )


def _permissions(api: Api) -> Iterator[CheckResult]:
    refused, unknown = [], []
    for action, parameters in DRY_RUNS.items():
        name = f"ec2:{action.title().replace('_', '')}"
        try:
            allowed = api.is_allowed(action, **parameters)
        except CloudError as error:
            yield _failed("permissions", error)
            return
        if allowed is None:
            unknown.append(name)
        elif not allowed:
            refused.append(name)
    total = len(DRY_RUNS)
    if refused:
        message = f"{len(refused)} of {total} are missing: {', '.join(refused)}"
        yield CheckResult("permissions", "wrong", message, "attach the policy of docs/ec2.md to the identity above")
    else:
        yield CheckResult("permissions", "ok", f"none of {total} was refused")
    if unknown:
        message = f"AWS does not say for {', '.join(unknown)} without an existing resource"
        yield CheckResult("permissions", "unknown", message, "a first run shows")


def _id(kind: str) -> str:
    return f"{kind}-00000000000000000"


def _tagged(kind: str) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": [{"Key": "microshard:run", "Value": "doctor"}]}]


_SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.1/32"}]}
# An ed25519 public key of zeros, for the DryRun of an import.
_KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA doctor"
_DESCRIBED = (
    "availability_zones", "instance_type_offerings", "instance_types", "instances", "internet_gateways", "key_pairs",
    "network_interfaces", "placement_groups", "route_tables", "security_groups", "spot_instance_requests",
    "subnets", "volumes", "vpcs",
)  # fmt: skip
# Every permission of the policy that supports DryRun, with resources that do not exist.
DRY_RUNS: dict[str, dict[str, Any]] = {
    **{f"describe_{name}": {} for name in _DESCRIBED},
    "describe_images": {"ImageIds": [_id("ami")]},
    "attach_internet_gateway": {"InternetGatewayId": _id("igw"), "VpcId": _id("vpc")},
    "authorize_security_group_ingress": {"GroupId": _id("sg"), "IpPermissions": [_SSH]},
    "create_internet_gateway": {"TagSpecifications": _tagged("internet-gateway")},
    "create_placement_group": {"GroupName": "microshard-doctor", "Strategy": "cluster"},
    "create_route": {"RouteTableId": _id("rtb"), "DestinationCidrBlock": "0.0.0.0/0", "GatewayId": _id("igw")},
    "create_security_group": {"GroupName": "microshard-doctor", "Description": "microshard", "VpcId": _id("vpc")},
    "create_subnet": {"VpcId": _id("vpc"), "CidrBlock": "10.87.0.0/20"},
    "create_vpc": {"CidrBlock": "10.87.0.0/16", "TagSpecifications": _tagged("vpc")},
    "import_key_pair": {"KeyName": "microshard-doctor", "PublicKeyMaterial": _KEY},
    "run_instances": {
        "ImageId": _id("ami"), "InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1,
        "TagSpecifications": _tagged("instance"),
    },
    "cancel_spot_instance_requests": {"SpotInstanceRequestIds": ["sir-00000000"]},
    "delete_internet_gateway": {"InternetGatewayId": _id("igw")},
    "delete_key_pair": {"KeyName": "microshard-doctor"},
    "delete_network_interface": {"NetworkInterfaceId": _id("eni")},
    "delete_placement_group": {"GroupName": "microshard-doctor"},
    "delete_security_group": {"GroupId": _id("sg")},
    "delete_subnet": {"SubnetId": _id("subnet")},
    "delete_volume": {"VolumeId": _id("vol")},
    "delete_vpc": {"VpcId": _id("vpc")},
    "detach_internet_gateway": {"InternetGatewayId": _id("igw"), "VpcId": _id("vpc")},
    "terminate_instances": {"InstanceIds": [_id("i")]},
}  # fmt: skip
