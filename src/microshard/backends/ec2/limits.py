"""Limits of EC2, EBS and the account that a fleet violates. Pure: no call, no clock."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from microshard.backends.ec2.account import Quotas, quota_kind
from microshard.backends.ec2.spec import GroupSpec, SpecError, group_spec
from microshard.backends.ec2.tables import (
    MBPS_PER_MIBPS,
    InstanceFacts,
    find_instance,
    instance_table_date,
    similar_instances,
    types_with_disks,
)
from microshard.experiment.load import LoadedExperiment
from microshard.experiment.matrix import PointDefinition
from microshard.model.ec2_facts import facts as facts_of
from microshard.model.ec2_facts import package_problem
from microshard.model.plan import HOST_GROUPS

# Share of RAM the caches may take: mongod needs memory beside its cache, and so does the page cache (MongoDB
# production notes take 50 % of RAM as the default for one mongod).
_CACHE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """A limit the fleet violates."""

    key: str  # dotted, as in the experiment file
    message: str
    severity: Literal["error", "warning"]  # error: EC2 or the host refuses; warning: it runs slower than requested


def limit_violations(
    groups: Sequence[GroupSpec], *, cache_mib: Mapping[str, float] | None = None, quotas: Quotas | None = None
) -> list[LimitViolation]:
    """Return every limit the groups violate.

    `cache_mib` is the sum of the caches on one host, by group; `quotas` the account's, None when they are not known.
    """
    found: list[LimitViolation] = []
    for group in groups:
        key = f"infrastructure.{group.name}"
        for name in group.instance_types:
            facts = find_instance(name)
            if facts is None:
                near = similar_instances(name)
                message = f"{name} is not in the table of {instance_table_date()}"
                message += f"; similar: {', '.join(near)}" if near else ""
                found.append(LimitViolation(f"{key}.instance_type", message, "warning"))
                continue
            found += _instance_violations(f"{key}.volumes", group, facts)
            found += _memory_violations(f"{key}.instance_type", facts, (cache_mib or {}).get(group.name, 0.0))
    for kind, needed in vcpus_needed(groups).items():
        found += _quota_violations(kind, needed, groups, quotas or {})
    return found


def vcpus_needed(groups: Iterable[GroupSpec]) -> Counter[tuple[str, str]]:
    """Return the vCPUs of the groups' first types, by what quotas count: (kind, on_demand or spot)."""
    found: Counter[tuple[str, str]] = Counter()
    for group in groups:
        name = group.instance_types[0]
        if (facts := find_instance(name)) is not None:
            found[quota_kind(name), "on_demand" if group.market == "on_demand" else "spot"] += facts.vcpus * group.count
    return found


def refuse_what_ec2_lacks(loaded: LoadedExperiment, points: Iterable[PointDefinition]) -> None:
    """Raise DefinitionError, with the places in the file, where types, volumes or packages do not go together.

    For groups with an instance type; AWS is not called. Quotas and caches are checked with the plan.
    """
    errors: dict[tuple[str, str], None] = {}
    for point in points:
        experiment = point.experiment
        hosts = {name: getattr(experiment.infrastructure, name) for name in HOST_GROUPS}
        try:
            groups = [group_spec(name, g) for name, g in hosts.items() if g is not None and g.instance_type is not None]
        except SpecError:
            continue  # a volume of hosts that exist, or of this machine
        versions = package_versions([experiment.topology.mongodb.model_dump()])
        found = [*limit_violations(groups), *package_violations(groups, versions)]
        errors |= dict.fromkeys((v.key, v.message) for v in found if v.severity == "error")
    if errors:
        raise loaded.error(list(errors))


def package_versions(mongodb: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the versions that come from MongoDB's packages, of `topology.mongodb` as plain data."""
    return (m["version"] for m in mongodb if m["source"] == "packages")


def package_violations(groups: Sequence[GroupSpec], versions: Iterable[str]) -> Iterator[LimitViolation]:
    """Yield where MongoDB's packages of a version do not exist for a group's image and processors.

    The hosts of every group install them.
    """
    versions = tuple(dict.fromkeys(versions))
    for group in groups:
        known = [facts for name in group.instance_types if (facts := find_instance(name)) is not None]
        for architecture in dict.fromkeys(facts.architecture for facts in known):
            for version in versions:
                if problem := package_problem(version, group.image, architecture):
                    yield LimitViolation(f"infrastructure.{group.name}.image", problem, "error")


def _quota_violations(
    kind: tuple[str, str], needed: int, groups: Sequence[GroupSpec], quotas: Quotas
) -> Iterator[LimitViolation]:
    quota = quotas.get(kind)
    if quota is None or needed <= quota.vcpus - quota.used:
        return
    name, market = kind
    message = (
        f"{needed} vCPUs of {name} {market.replace('_', ' ')} instances are needed; the account's quota is "
        f"{quota.vcpus}, {quota.used} of it in use. Request more (Service Quotas, {quota.code}), or use fewer or "
        "smaller hosts"
    )
    falls_back = market == "spot" and all(g.market != "spot" for g in groups)
    yield LimitViolation("infrastructure", message, "warning" if falls_back else "error")


def _instance_violations(key: str, group: GroupSpec, facts: InstanceFacts) -> Iterator[LimitViolation]:
    ebs = [v for v in group.volumes if v.type != "instance_store"]
    total_mbps = sum(v.most_mibps for v in ebs) * MBPS_PER_MIBPS
    for unit, total, always, burst in (
        ("IOPS", sum(v.most_iops for v in ebs), facts.ebs_iops, facts.ebs_burst_iops),
        ("Mbps", total_mbps, facts.ebs_mbps, facts.ebs_burst_mbps),
    ):
        message = f"the volumes provide {total:.0f} {unit} together, the EBS limit of {facts.name} is"
        if burst is not None and total > burst:
            yield LimitViolation(key, f"{message} {burst:.0f}", "warning")
        elif always is not None and total > always:
            message += f" {always:.0f}, and {burst:.0f} for half an hour a day: results will change during the run"
            yield LimitViolation(key, message, "warning")
    if len(ebs) + 1 > facts.ebs_volumes:
        message = f"{len(ebs)} volumes beside the root volume are requested; {facts.name} takes {facts.ebs_volumes - 1}"
        yield LimitViolation(key, message, "error")
    weak = facts_of("volumes")["iops_without_nitro"]
    for volume in ebs:
        if not facts.ebs_nvme and (volume.iops or 0) > weak:
            message = f"{facts.name} is not built on Nitro: of {volume.iops} IOPS a volume delivers at most {weak}"
            yield LimitViolation(f"{key}.{volume.purpose}.iops", message, "warning")
    stores = [v for v in group.volumes if v.type == "instance_store"]
    largest = max((v.size_gib for v in stores), default=0)
    if facts.disks < len(stores) or largest > facts.disk_gib:
        message = f"{facts.name} has {facts.disks or 'no'} instance store disks, {len(stores)} are requested"
        if facts.disks >= len(stores):
            message = f"the instance store disks of {facts.name} have {facts.disk_gib} GiB each, not {largest}"
        others = ", ".join(types_with_disks(facts, len(stores), largest)) or "none in the table"
        yield LimitViolation(key, f"{message}; types that have them: {others}", "error")


def _memory_violations(key: str, facts: InstanceFacts, cache_mib: float) -> Iterator[LimitViolation]:
    message = f"the caches of one host add up to {cache_mib:.0f} MiB, "
    if cache_mib > facts.memory_mib:
        message += f"{facts.name} has {facts.memory_mib} MiB of RAM"
        yield LimitViolation(key, message, "error")
    elif cache_mib > _CACHE_SHARE * facts.memory_mib:
        message += (
            f"more than {_CACHE_SHARE:.0%} of the {facts.memory_mib} MiB of {facts.name}: it may run out of memory"
        )
        yield LimitViolation(key, message, "warning")
