"""What the account answers before anything is created: machine images and vCPU quotas."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2.api import Api, CloudError, RetryPolicy, may_have_credentials
from microshard.backends.ec2.spec import GroupSpec, group_specs
from microshard.backends.ec2.tables import find_instance
from microshard.model.ec2_facts import facts, partition_of
from microshard.model.infrastructure import Infrastructure

# Somebody waits for a plan: a missing network must show soon.
QUICK_RETRY = RetryPolicy(connect=3.0, answer=10.0, attempts=2)

# Public SSM parameters as documented by their makers (Amazon Linux user guide, Ubuntu on AWS, Debian wiki).
# {arch} is amd64 or arm64, {machine} x86_64 or arm64.
_PARAMETERS = {
    "al2023": "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{machine}",
    "ubuntu-22.04": "/aws/service/canonical/ubuntu/server/22.04/stable/current/{arch}/hvm/ebs-gp2/ami-id",
    "ubuntu-24.04": "/aws/service/canonical/ubuntu/server/24.04/stable/current/{arch}/hvm/ebs-gp3/ami-id",
    "debian-12": "/aws/service/debian/release/12/latest/{arch}",
}
DISTRIBUTIONS = tuple(_PARAMETERS)
# Login users, by a part of the image's name.
_USERS = (("ubuntu", "ubuntu"), ("debian", "admin"), ("al2023", "ec2-user"), ("amzn", "ec2-user"))
# Parts of the names of images whose python3 is 3.9 or 3.10 (and which have a package python3.11).
_OLD_PYTHON = ("al2023", "ubuntu-jammy-22.04")

# Codes of Service Quotas (EC2 user guide, On-Demand and Spot Instance quotas), by the kind of instances they count:
# on demand, spot. Standard is A, C, D, H, I, M, R, T and Z.
_QUOTA_CODES: dict[str, tuple[str, str | None]] = {
    "Standard": ("L-1216C47A", "L-34B43A08"),
    "DL": ("L-6E869C2A", "L-85EED4F7"),
    "F": ("L-74FC7D96", "L-88CF9481"),
    "G and VT": ("L-DB2E81BA", "L-3819A6DF"),
    "High Memory": ("L-43DA4232", None),
    "HPC": ("L-F7808C92", None),
    "Inf": ("L-1945791B", "L-B5D1601B"),
    "P": ("L-417A185B", "L-7212CCBC"),
    "Trn": ("L-2C3B7624", "L-6B0D517C"),
    "X": ("L-7295265B", "L-E3A00192"),
}
VPC_QUOTA = "L-F678F1CE"  # Service Quotas: VPCs per Region
_FAMILIES = {
    "dl": "DL", "f": "F", "g": "G and VT", "gr": "G and VT", "vt": "G and VT", "u": "High Memory", "hpc": "HPC",
    "inf": "Inf", "p": "P", "trn": "Trn", "x": "X",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An image that can be launched."""

    id: str
    name: str
    architecture: str  # x86_64 or arm64
    root_device: str
    root_gib: int  # of its snapshot: the least a root volume may have; 0 where AWS does not say
    user: str  # to log in as

    @property
    def client_python(self) -> str | None:
        """A Python of 3.11 or newer where the image's default python3 is older; None where it is not."""
        return "/usr/bin/python3.11" if any(part in self.name for part in _OLD_PYTHON) else None


def resolve_image(api: Api, name: str, architecture: str) -> MachineImage:
    """Find the image of a distribution, `ssm:/path`, `ami-…`, or `name:PATTERN` (the newest match).

    Raises CloudError when there is none, or none of this architecture.
    """
    filters: dict[str, Any]
    if name.startswith("ami-"):
        filters = {"ImageIds": [name]}
    elif name in _PARAMETERS or name.startswith("ssm:"):
        path = _PARAMETERS.get(name, name.removeprefix("ssm:"))
        path = path.format(arch={"x86_64": "amd64"}.get(architecture, architecture), machine=architecture)
        filters = {"ImageIds": [_image_parameter(api, path)]}
    elif name.startswith("name:"):
        by_name = {"Name": "name", "Values": [name.removeprefix("name:")]}
        # Images of Amazon, of distributions that publish in this partition, and the caller's.
        filters = {"Owners": ["amazon", "self", *facts("partitions")["owners"][partition_of(api.region)]]}
        filters["Filters"] = [by_name, {"Name": "architecture", "Values": [architecture]}]
    else:
        raise CloudError(
            "image", "UnknownImage", f"{name} is none of {', '.join(DISTRIBUTIONS)}, ssm:/path, ami-…, name:PATTERN."
        )
    found = api.pages("describe_images", "Images", **filters)
    if not found:
        raise CloudError("DescribeImages", "InvalidAMIID.NotFound", f"{api.region} has no {architecture} image {name}.")
    newest = max(found, key=lambda image: str(image.get("CreationDate", "")))
    image_name = str(newest.get("Name", ""))
    root_device = str(newest.get("RootDeviceName", "/dev/xvda"))
    sizes = {m["DeviceName"]: m.get("Ebs", {}).get("VolumeSize", 0) for m in newest.get("BlockDeviceMappings", ())}
    image = MachineImage(
        id=str(newest["ImageId"]),
        name=image_name,
        architecture=str(newest["Architecture"]),
        root_device=root_device,
        root_gib=int(sizes.get(root_device, 0)),
        user=next((user for part, user in _USERS if part in image_name), "ec2-user"),
    )
    if image.architecture != architecture:
        raise CloudError(
            "DescribeImages", "WrongArchitecture", f"{name} is for {image.architecture}, the hosts are {architecture}."
        )
    return image


def _image_parameter(api: Api, path: str) -> str:
    try:
        return api.parameter(path)
    except CloudError as error:
        if error.code == "ParameterNotFound":
            raise CloudError("GetParameter", error.code, f"{path} does not exist in {api.region}.") from error
        raise


def planning_image(api: Api, groups: Sequence[GroupSpec], name: str) -> MachineImage:
    """Find an image for the architecture of the first group that uses it. Raises CloudError."""
    facts = next((find_instance(g.instance_types[0]) for g in groups if g.image == name), None)
    return resolve_image(api, name, facts.architecture if facts else "x86_64")


@dataclass(frozen=True, slots=True)
class Quota:
    """vCPUs of one kind of instances."""

    code: str  # in Service Quotas
    vcpus: int
    used: int  # by the instances that run now


# By (kind, on_demand or spot), in one region.
Quotas = Mapping[tuple[str, str], Quota]


def quota_kind(instance_type: str) -> str:
    """Return the kind an instance type counts as: Standard, X, P …"""
    family = re.match(r"[a-z]+", instance_type)
    return _FAMILIES.get(family[0] if family else "", "Standard")


def fetch_quotas(api: Api, wanted: Iterable[tuple[str, str]]) -> Quotas:
    """Return the account's quotas for (instance type, market) pairs, with what is in use. Raises CloudError."""
    needed = sorted({(quota_kind(name), "on_demand" if market == "on_demand" else "spot") for name, market in wanted})
    used = _used_vcpus(api)
    found = {}
    for kind, market in needed:
        code = _QUOTA_CODES[kind][market == "spot"]
        if code is not None:
            found[kind, market] = Quota(code, int(api.quota("ec2", code)), used.get((kind, market), 0))
    return found


def _used_vcpus(api: Api) -> dict[tuple[str, str], int]:
    running = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    used: dict[tuple[str, str], int] = {}
    for reservation in api.pages("describe_instances", "Reservations", Filters=running, MaxResults=1000):
        for instance in reservation.get("Instances", ()):
            name = str(instance["InstanceType"])
            # Disabled threads count all the same (EC2 user guide, CPU options): the type's number counts.
            facts, options = find_instance(name), instance.get("CpuOptions", {})
            vcpus = facts.vcpus if facts else int(options.get("CoreCount", 1)) * int(options.get("ThreadsPerCore", 1))
            key = quota_kind(name), "spot" if instance.get("InstanceLifecycle") else "on_demand"
            used[key] = used.get(key, 0) + vcpus
    return used


def markets(groups: Sequence[GroupSpec]) -> list[tuple[str, str]]:
    """Return every (instance type, market) a launch of these groups may use."""
    return [
        (name, market)
        for group in groups
        for name in group.instance_types
        for market in (("spot", "on_demand") if group.market == "spot_or_on_demand" else (group.market,))
    ]


@dataclass(slots=True)
class AccountLimits:
    """Quotas and images of the account, by region; `notes` says what is unknown."""

    quotas: dict[str, Quotas] = field(default_factory=dict)
    images: dict[tuple[str, str], str] = field(default_factory=dict)  # (region, image of the experiment) → id and name
    notes: list[str] = field(default_factory=list)
    free_vpcs: dict[str, int] = field(default_factory=dict)  # region → VPCs that may be created

    def __str__(self) -> str:
        known = [
            f"{kind} {market.replace('_', ' ')} in {region}: {q.vcpus} vCPUs, {q.used} in use"
            for region, quotas in sorted(self.quotas.items())
            for (kind, market), q in quotas.items()
        ]
        return "; ".join([*known, *self.notes]) or "not requested"


def fetch_account_limits(
    infrastructures: Iterable[Infrastructure], region: str, *, vpcs: bool = False
) -> AccountLimits:
    """Fetch quotas and images of every region the infrastructures name; `region` where they name none.

    With `vpcs` also how many VPCs may be created.

    Never raises for AWS: without credentials or a network the plan is made all the same, and says what it lacks.
    """
    limits = AccountLimits()
    if not may_have_credentials():
        limits.notes.append("not requested (no AWS credentials)")
        return limits
    by_region: dict[str, dict[GroupSpec, None]] = {}
    for infrastructure in infrastructures:
        groups = by_region.setdefault(infrastructure.ec2.region or region, {})
        groups |= dict.fromkeys(group_specs(infrastructure))
    for name, groups in by_region.items():
        try:
            api = Api(name, retry=QUICK_RETRY)
            limits.quotas[name] = fetch_quotas(api, markets(tuple(groups)))
            if vpcs:
                limits.free_vpcs[name] = int(api.quota("vpc", VPC_QUOTA)) - len(api.pages("describe_vpcs", "Vpcs"))
            for image in dict.fromkeys(group.image for group in groups):
                found = planning_image(api, tuple(groups), image)
                limits.images[name, image] = f"{found.id} ({found.name})"
        except CloudError as error:
            limits.notes.append(f"unknown in {name} ({error.code}: {error.message})")
    return limits
