"""Limits of EC2, EBS and the account that a fleet violates. Pure: no call, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from microshard.backends.ec2.account import Quotas, quota_kind
from microshard.backends.ec2.spec import GroupSpec, VolumeSpec
from microshard.backends.ec2.tables import InstanceFacts, find_instance, instance_table_date, similar_instances

# EBS user guide, volume types: most IOPS for each GiB, and MiB/s for each IOPS of gp3.
_IOPS_PER_GIB = {"gp3": 500, "io1": 50, "io2": 1000}
_MIN_IOPS = {"gp3": 3000, "io1": 100, "io2": 100}
_GP3_MIBPS_PER_IOPS = 0.25
_GP3_MIN_MIBPS = 125
_MBPS_PER_MIBPS = 8 * 1024 * 1024 / 1e6
# EC2 user guide, volume limits of Nitro instances: 28 attachments, the root volume and one network interface included.
_MAX_VOLUMES = 26
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
    vcpus: dict[tuple[str, str], int] = {}
    for group in groups:
        key = f"infrastructure.{group.name}"
        for volume in group.volumes:
            if volume.number == 1:
                found += _volume_violations(f"{key}.volumes.{volume.purpose}", volume)
        for number, name in enumerate(group.instance_types):
            facts = find_instance(name)
            if facts is None:
                near = similar_instances(name)
                message = f"{name} is not in the table of {instance_table_date()}"
                message += f"; similar: {', '.join(near)}" if near else ""
                found.append(LimitViolation(f"{key}.instance_type", message, "warning"))
                continue
            if number == 0:
                kind = quota_kind(name), "on_demand" if group.market == "on_demand" else "spot"
                vcpus[kind] = vcpus.get(kind, 0) + facts.vcpus * group.count
            found += _instance_violations(f"{key}.volumes", group, facts)
            found += _memory_violations(f"{key}.instance_type", facts, (cache_mib or {}).get(group.name, 0.0))
    for kind, needed in vcpus.items():
        found += _quota_violations(kind, needed, groups, quotas or {})
    return found


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


def _volume_violations(key: str, volume: VolumeSpec) -> Iterator[LimitViolation]:
    if volume.iops is not None and volume.type in _IOPS_PER_GIB:
        ratio = _IOPS_PER_GIB[volume.type]
        most = max(_MIN_IOPS[volume.type], volume.size_gib * ratio)
        if volume.iops > most:
            message = f"{volume.type} has at most {ratio} IOPS for each GiB: {most} for {volume.size_gib} GiB"
            yield LimitViolation(f"{key}.iops", f"{message}, not {volume.iops}", "error")
    if volume.type == "gp3" and volume.throughput_mibps is not None:
        rate = volume.iops or _MIN_IOPS["gp3"]
        most_mibps = max(_GP3_MIN_MIBPS, int(rate * _GP3_MIBPS_PER_IOPS))
        if volume.throughput_mibps > most_mibps:
            message = f"gp3 has at most 0.25 MiB/s for each IOPS: {most_mibps} for {rate}"
            yield LimitViolation(f"{key}.throughput_mibps", f"{message}, not {volume.throughput_mibps}", "error")


def _instance_violations(key: str, group: GroupSpec, facts: InstanceFacts) -> Iterator[LimitViolation]:
    ebs = [v for v in group.volumes if v.type != "instance_store"]
    total_mbps = sum(volume_mibps(v) for v in ebs) * _MBPS_PER_MIBPS
    for unit, total, always, burst in (
        ("IOPS", sum(volume_iops(v) for v in ebs), facts.ebs_iops, facts.ebs_burst_iops),
        ("Mbps", total_mbps, facts.ebs_mbps, facts.ebs_burst_mbps),
    ):
        message = f"the volumes provide {total:.0f} {unit} together, the EBS limit of {facts.name} is"
        if burst is not None and total > burst:
            yield LimitViolation(key, f"{message} {burst:.0f}", "warning")
        elif always is not None and total > always:
            message += f" {always:.0f}, and {burst:.0f} for half an hour a day: results will change during the run"
            yield LimitViolation(key, message, "warning")
    if len(ebs) > _MAX_VOLUMES:
        message = f"{len(ebs)} volumes beside the root volume are requested; most types take {_MAX_VOLUMES}"
        yield LimitViolation(key, message, "error")
    stores = [v for v in group.volumes if v.type == "instance_store"]
    if facts.nvme_disks < len(stores):
        message = f"{facts.name} has {facts.nvme_disks or 'no'} instance store disks, {len(stores)} are requested"
        yield LimitViolation(key, message, "error")


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


def volume_iops(volume: VolumeSpec) -> int:
    """Return what a volume can do, IOPS (EBS user guide)."""
    if volume.type == "gp2":
        return min(16000, max(100, 3 * volume.size_gib))
    if volume.type == "standard":
        return 200
    return volume.iops or _MIN_IOPS.get(volume.type, 500)


def volume_mibps(volume: VolumeSpec) -> float:
    """Return what a volume can do, MiB/s (EBS user guide)."""
    match volume.type:
        case "gp3":
            return volume.throughput_mibps or _GP3_MIN_MIBPS
        case "gp2":
            return 128 if volume.size_gib <= 170 else 250
        case "io1" | "io2":
            return min(1000.0, (volume.iops or 0) * 0.25)
        case "st1":
            return min(500.0, 250.0 * volume.size_gib / 1024)
        case _:
            return 90
