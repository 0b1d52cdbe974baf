"""What a run has in the account: found by tag, name and what it is attached to, and recorded in the run's ledger."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.backends.ec2.api import Api
from microshard.backends.ec2.spec import TAG_EXPIRES, TAG_OWNER, TAG_RUN, resource_name
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import Ledger, RunFolder

_FILTER_VALUES = 200  # most values a filter takes (EC2 API reference)

# Kind → Describe call, key of the list in the answer, key of the id; in the order of removal.
_KINDS = {
    "spot-instances-request": (
        "describe_spot_instance_requests", "SpotInstanceRequests", "SpotInstanceRequestId"
    ),
    "instance": ("describe_instances", "Reservations", "InstanceId"),
    "volume": ("describe_volumes", "Volumes", "VolumeId"),
    "network-interface": ("describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    "security-group": ("describe_security_groups", "SecurityGroups", "GroupId"),
    "key-pair": ("describe_key_pairs", "KeyPairs", "KeyName"),
    "placement-group": ("describe_placement_groups", "PlacementGroups", "GroupName"),
    "subnet": ("describe_subnets", "Subnets", "SubnetId"),
    "internet-gateway": ("describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "vpc": ("describe_vpcs", "Vpcs", "VpcId"),
}  # fmt: skip
# Where the console shows them.
_CONSOLE = {
    "spot-instances-request": "EC2, Spot Requests", "instance": "EC2, Instances", "volume": "EC2, Volumes",
    "network-interface": "EC2, Network Interfaces", "security-group": "EC2, Security Groups",
    "key-pair": "EC2, Key Pairs", "placement-group": "EC2, Placement Groups", "subnet": "VPC, Subnets",
    "internet-gateway": "VPC, Internet gateways", "vpc": "VPC, Your VPCs",
}  # fmt: skip
# Those that have ended stay listed for a while.
_LIVE_STATES = {
    "spot-instances-request": {"Name": "state", "Values": ["open", "active"]},
    "instance": {
        "Name": "instance-state-name", "Values": ["pending", "running", "shutting-down", "stopping", "stopped"]
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CloudResource:
    """Something in the account."""

    kind: str
    id: str
    tags: dict[str, str] = field(default_factory=dict)
    description: dict[str, Any] = field(default_factory=dict, compare=False)  # as AWS describes it

    @property
    def run(self) -> str:
        """The run it is tagged with; empty when it is not."""
        return self.tags.get(TAG_RUN, "")

    @property
    def expires_at(self) -> int | None:
        """Epoch seconds after which it should be gone; None when its tag is not a number."""
        text = self.tags.get(TAG_EXPIRES, "")
        return int(text) if text.isdecimal() else None

    @property
    def located(self) -> str:
        """The resource and where the console shows it."""
        return f"{self} (console: {_CONSOLE[self.kind]})"

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def find_by_run(api: Api, run: str) -> list[CloudResource]:
    """Find everything tagged with the run. Raises CloudError."""
    return [found for kind in _KINDS for found in find_resources(api, kind, f"tag:{TAG_RUN}", [run])]


def find_by_owner(api: Api, owner: str) -> list[CloudResource]:
    """Find everything tagged with the owner, of all runs. Raises CloudError."""
    return [found for kind in _KINDS for found in find_resources(api, kind, f"tag:{TAG_OWNER}", [owner])]


def find_all(api: Api, run: str, known: Iterable[str] = ()) -> list[CloudResource]:
    """Find everything of a run, whatever its tags say. Raises CloudError.

    Beside what is tagged: the key pair, security group and placement group of the run's name, instances with its key,
    in its security group or in its subnets, network interfaces in these, and volumes and instances whose ids are in
    `known`. What carries another run's tag is never among them.
    """
    tagged, name, ids = find_by_run(api, run), resource_name(run), sorted(known)
    found = [
        *find_resources(api, "key-pair", "key-name", [name]),
        *find_resources(api, "security-group", "group-name", [name]),
        *find_resources(api, "placement-group", "group-name", [name]),
        *find_resources(api, "instance", "key-name", [name]),
    ]
    groups = sorted({r.id for r in [*tagged, *found] if r.kind == "security-group"})
    subnets = sorted(r.id for r in tagged if r.kind == "subnet")
    found += [
        *find_resources(api, "instance", "instance.group-id", groups),
        *find_resources(api, "network-interface", "group-id", groups),
        *find_resources(api, "instance", "subnet-id", subnets),
        *find_resources(api, "network-interface", "subnet-id", subnets),
        *find_resources(api, "volume", "volume-id", [i for i in ids if i.startswith("vol-")]),
        *find_resources(api, "instance", "instance-id", [i for i in ids if i.startswith("i-")]),
    ]
    unique = {(r.kind, r.id): r for r in [*found, *tagged] if r.run in {"", run}}
    return list(unique.values())


def find_resources(api: Api, kind: str, filter_name: str, values: Sequence[str]) -> list[CloudResource]:
    """Find resources of one kind that match a filter; none for no values. Raises CloudError."""
    action, key, id_key = _KINDS[kind]
    paging = {"MaxResults": 1000} if kind in {"instance", "volume"} else {}
    found = []
    for start in range(0, len(values), _FILTER_VALUES):
        filters: list[dict[str, Any]] = [{"Name": filter_name, "Values": list(values[start : start + _FILTER_VALUES])}]
        if kind in _LIVE_STATES:
            filters.append(_LIVE_STATES[kind])
        entries = api.pages(action, key, Filters=filters, **paging)
        if kind == "instance":
            entries = [instance for reservation in entries for instance in reservation.get("Instances", ())]
        for entry in entries:
            # Only network interfaces call them TagSet.
            tags = {tag["Key"]: tag.get("Value", "") for tag in entry.get("Tags", entry.get("TagSet", ()))}
            found.append(CloudResource(kind, str(entry[id_key]), tags, entry))
    return found


def record_creating(ledger: Ledger, what: str, name: str, **details: Any) -> None:
    """Record that a resource is about to be created; called before the call that creates it."""
    ledger.append(LedgerRecord("ec2", "creating", what=what, name=name, **details))


def record_created(ledger: Ledger, what: str, name: str, ids: Iterable[str]) -> None:
    """Record the ids it was created with; none where AWS refused."""
    ledger.append(LedgerRecord("ec2", "made", what=what, name=name, ids=list(ids)))


def recorded_ids(ledger: Ledger | None, what: str) -> set[str]:
    """Return the ids of everything of this kind in the ledger."""
    return {
        identity
        for record in _ec2_records(ledger)
        if record.state == "made" and record.what == what
        for identity in record.ids or ()
    }


def unanswered_since(ledger: Ledger | None) -> float | None:
    """Return the time (epoch seconds) of the last creation without a recorded result; None when all have one.

    The answer may have been lost, and the resource may become visible only after a while.
    """
    waiting: dict[tuple[Any, Any], float] = {}
    for record in _ec2_records(ledger):
        key = record.what, record.name
        if record.state == "creating":
            waiting[key] = record.t
        elif record.state == "made":
            waiting.pop(key, None)
    return max(waiting.values(), default=None)


def is_gone(folder: RunFolder) -> bool:
    """Whether everything the run's ledger names on EC2 was seen gone since."""
    states = [r.state for r in _ec2_records(folder.ledger) if r.state in {"creating", "gone", "left"}]
    return not states or states[-1] == "gone"


def regions_in_use(folder: RunFolder) -> set[str]:
    """Return the regions in which a run has created something that was not seen gone since."""
    regions: set[str] = set()
    for record in _ec2_records(folder.ledger):
        if record.state == "creating" and record.region:
            regions.add(record.region)
        elif record.state == "gone":
            regions.clear()
    return regions


def _ec2_records(ledger: Ledger | None) -> list[LedgerRecord]:
    return [r for r in ledger.records() if r.kind == "ec2"] if ledger is not None else []
