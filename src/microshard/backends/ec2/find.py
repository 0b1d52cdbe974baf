"""Everything of a run that is in the account: by tag, and by the names and groups untagged things would hang on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2.api import Api
from microshard.backends.ec2.spec import TAG_EXPIRES, TAG_OWNER, TAG_RUN, resource_name

_LIVING = ["pending", "running", "shutting-down", "stopping", "stopped"]
_FILTER_VALUES = 200  # most values a filter takes (EC2 API reference)


@dataclass(frozen=True, slots=True)
class Kind:
    """How things of one kind are listed."""

    name: str
    action: str
    key: str  # of the list in the answer
    id: str
    filters: tuple[tuple[str, tuple[str, ...]], ...] = ()


# In the order in which they must go.
KINDS = (
    Kind(
        "spot-instances-request",
        "describe_spot_instance_requests",
        "SpotInstanceRequests",
        "SpotInstanceRequestId",
        (("state", ("open", "active")),),
    ),
    Kind("instance", "describe_instances", "Reservations", "InstanceId", (("instance-state-name", tuple(_LIVING)),)),
    Kind("volume", "describe_volumes", "Volumes", "VolumeId"),
    Kind("network-interface", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    Kind("security-group", "describe_security_groups", "SecurityGroups", "GroupId"),
    Kind("key-pair", "describe_key_pairs", "KeyPairs", "KeyName"),
    Kind("placement-group", "describe_placement_groups", "PlacementGroups", "GroupName"),
    Kind("subnet", "describe_subnets", "Subnets", "SubnetId"),
    Kind("internet-gateway", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    Kind("vpc", "describe_vpcs", "Vpcs", "VpcId"),
)
_BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Thing:
    """Something in the account."""

    kind: str
    id: str
    tags: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict, compare=False)  # as AWS describes it

    @property
    def run(self) -> str:
        """The run it is tagged with; empty when it is not."""
        return self.tags.get(TAG_RUN, "")

    @property
    def expires_at(self) -> int | None:
        """Epoch seconds after which it should not be there; None when its tag says nothing readable."""
        text = self.tags.get(TAG_EXPIRES, "")
        return int(text) if text.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def by_run(api: Api, run: str) -> list[Thing]:
    """Everything tagged with the run. Raises CloudError."""
    return _everything(api, f"tag:{TAG_RUN}", run)


def by_owner(api: Api, owner: str) -> list[Thing]:
    """Everything tagged with the owner, of all runs. Raises CloudError."""
    return _everything(api, f"tag:{TAG_OWNER}", owner)


def untagged(api: Api, run: str, tagged: Sequence[Thing], known: Iterable[str] = ()) -> list[Thing]:
    """Living things that hang on what belongs to the run alone, whatever their tags say.

    Looked for: the key pair, security group and placement group of the run's name, instances with its key, in its
    security group or in subnets made for it, network interfaces in these, and volumes and instances by the ids in
    `known`.
    What carries another run's tag is never among them. Raises CloudError.
    """
    name = resource_name(run)
    found = [
        *of_kind(api, "key-pair", "key-name", [name]),
        *of_kind(api, "security-group", "group-name", [name]),
        *of_kind(api, "placement-group", "group-name", [name]),
        *of_kind(api, "instance", "key-name", [name]),
    ]
    groups = sorted({t.id for t in [*tagged, *found] if t.kind == "security-group"})
    found += of_kind(api, "instance", "instance.group-id", groups)
    found += of_kind(api, "network-interface", "group-id", groups)
    subnets = sorted(t.id for t in tagged if t.kind == "subnet")
    found += of_kind(api, "instance", "subnet-id", subnets)
    found += of_kind(api, "network-interface", "subnet-id", subnets)
    found += of_kind(api, "volume", "volume-id", sorted(i for i in known if i.startswith("vol-")))
    found += of_kind(api, "instance", "instance-id", sorted(i for i in known if i.startswith("i-")))
    seen = {(t.kind, t.id) for t in tagged}
    return list({(t.kind, t.id): t for t in found if (t.kind, t.id) not in seen and t.run in {"", run}}.values())


def of_kind(api: Api, kind: str, filter_name: str, values: Sequence[str]) -> list[Thing]:
    """Things of one kind that pass a filter; none for no values. Raises CloudError."""
    how = _BY_NAME[kind]
    found: list[Thing] = []
    for start in range(0, len(values), _FILTER_VALUES):
        wanted = {"Name": filter_name, "Values": list(values[start : start + _FILTER_VALUES])}
        found += _listed(api, how, [wanted, *({"Name": n, "Values": list(v)} for n, v in how.filters)])
    return found


def _everything(api: Api, filter_name: str, value: str) -> list[Thing]:
    return [thing for kind in KINDS for thing in of_kind(api, kind.name, filter_name, [value])]


def _listed(api: Api, kind: Kind, filters: list[dict[str, Any]]) -> list[Thing]:
    more = {"MaxResults": 1000} if kind.name in {"instance", "volume"} else {}
    entries = api.pages(kind.action, kind.key, Filters=filters, **more)
    if kind.name == "instance":
        entries = [instance for reservation in entries for instance in reservation.get("Instances", ())]
    things = []
    for entry in entries:
        # Network interfaces alone call them TagSet.
        tags = {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags", entry.get("TagSet", ()))}
        things.append(Thing(kind.name, str(entry[kind.id]), tags, entry))
    return things
