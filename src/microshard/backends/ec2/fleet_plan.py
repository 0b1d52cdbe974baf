"""What a fleet costs, which limits it breaks, and which points can share hosts. Pure: no call, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from microshard.backends.ec2 import instances, prices
from microshard.backends.ec2.instances import InstanceType
from microshard.backends.ec2.quota import Quotas, bucket
from microshard.backends.ec2.spec import GROUPS, GroupSpec, VolumeSpec
from microshard.model.infrastructure import Infrastructure, Volume

# EBS user guide, volume types: most IOPS for each GiB, and MiB/s for each IOPS of gp3.
_IOPS_PER_GIB = {"gp3": 500, "io1": 50, "io2": 1000}
_LEAST_IOPS = {"gp3": 3000, "io1": 100, "io2": 100}
_GP3_MIBPS_PER_IOPS = 0.25
_GP3_LEAST_MIBPS = 125
_MBPS_PER_MIBPS = 8 * 1024 * 1024 / 1e6
# EC2 user guide, volume limits of Nitro instances: 28 attachments, the root volume and one network interface included.
_MOST_VOLUMES = 26
# Share of RAM the caches may take: mongod needs memory beside its cache, and so does the page cache (MongoDB
# production notes take 50 % of RAM as the default for one mongod).
_CACHE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Cost:
    """What a fleet costs an hour."""

    hourly_usd: float | None  # None as soon as one part is unknown
    known_usd: float  # the sum of the known parts
    exact: bool  # False: it may be less (see prices.Price)
    unknown: tuple[str, ...]  # the parts without a price
    spot: bool  # some hosts are spot instances, which cost less than what is given here
    dates: tuple[str, ...]  # of the tables the prices are from

    def total(self, hours: float) -> float | None:
        """US dollars for so many hours; None when the hourly price is not known."""
        return None if self.hourly_usd is None else self.hourly_usd * hours


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """A limit the fleet breaks."""

    key: str  # dotted, as in the experiment file
    message: str
    severity: Literal["error", "warning"]  # error: EC2 or the host refuses; warning: it runs slower than it says


@dataclass(frozen=True, slots=True)
class SharedHosts:
    """Points that run on the same hosts, one after the other."""

    points: tuple[str, ...]
    infrastructure: Infrastructure  # with the most hosts any of the points needs
    forced_by: tuple[str, ...]  # why these cannot be the hosts of the points before; empty for the first


def cost(groups: Sequence[GroupSpec], region: str) -> Cost:
    """The price of all hosts with all their volumes, at on-demand rates of the first listed types."""
    known, unknown, exact, dates = 0.0, dict[str, None](), True, set[str]()
    for group in groups:
        parts = [(group.instance_types[0], prices.instance(group.instance_types[0], region))]
        root = VolumeSpec("root", "gp3", group.root_gib)
        parts += [(f"{v.type} volume", prices.volume(v, region)) for v in (root, *group.volumes)]
        for what, price in parts:
            if price is None:
                unknown[f"{what} in {region}"] = None
                continue
            known += price.usd * group.count
            exact = exact and price.exact
            dates.add(price.date)
    spot = any(g.market != "on_demand" for g in groups)
    return Cost(None if unknown else known, known, exact, tuple(unknown), spot, tuple(sorted(dates)))


def broken_limits(
    groups: Sequence[GroupSpec],
    *,
    cache_mib: Mapping[str, float] | None = None,
    quotas: Quotas | None = None,
) -> list[LimitViolation]:
    """Every limit the groups break.

    `cache_mib` is the sum of the caches on one host, by group; `quotas` the account's, None when it was not asked.
    """
    found: list[LimitViolation] = []
    vcpus: dict[tuple[str, str], int] = {}
    for group in groups:
        here = f"infrastructure.{group.name}"
        for volume in group.volumes:
            if volume.number == 1:
                found += _of_volume(f"{here}.volumes.{volume.purpose}", volume)
        for number, name in enumerate(group.instance_types):
            facts = instances.find(name)
            if facts is None:
                near = instances.near(name)
                hint = f"; near it: {', '.join(near)}" if near else ""
                found.append(
                    LimitViolation(
                        f"{here}.instance_type", f"{name} is not in the table of {instances.date()}{hint}", "warning"
                    )
                )
                continue
            if number == 0:
                of = bucket(name), "on_demand" if group.market == "on_demand" else "spot"
                vcpus[of] = vcpus.get(of, 0) + facts.vcpus * group.count
            found += _of_instance(here, group, facts)
            found += _of_memory(here, facts, (cache_mib or {}).get(group.name, 0.0))
    found += [broken for of, needed in vcpus.items() for broken in _of_quota(of, needed, groups, quotas)]
    return found


def _of_quota(
    of: tuple[str, str], needed: int, groups: Sequence[GroupSpec], quotas: Quotas | None
) -> Iterator[LimitViolation]:
    quota = quotas.of.get(of) if quotas is not None else None
    if quota is None or needed <= quota.vcpus - quota.used:
        return
    kind, market = of
    message = (
        f"{needed} vCPUs of {kind} {market.replace('_', ' ')} instances are needed; the account's quota is "
        f"{quota.vcpus}, {quota.used} of it in use. Ask for more (Service Quotas, {quota.code}), or use fewer or "
        "smaller hosts"
    )
    falls_back = market == "spot" and all(g.market != "spot" for g in groups)
    yield LimitViolation("infrastructure", message, "warning" if falls_back else "error")


def _of_volume(key: str, volume: VolumeSpec) -> Iterator[LimitViolation]:
    if volume.iops is not None and volume.type in _IOPS_PER_GIB:
        most = max(_LEAST_IOPS[volume.type], volume.size_gib * _IOPS_PER_GIB[volume.type])
        if volume.iops > most:
            ratio = f"{_IOPS_PER_GIB[volume.type]} IOPS for each GiB"
            yield LimitViolation(
                f"{key}.iops",
                f"{volume.type} has at most {ratio}: {most} for {volume.size_gib} GiB, not {volume.iops}",
                "error",
            )
    if volume.type == "gp3" and volume.throughput_mibps is not None:
        rate = volume.iops or _LEAST_IOPS["gp3"]
        most_mibps = max(_GP3_LEAST_MIBPS, int(rate * _GP3_MIBPS_PER_IOPS))
        if volume.throughput_mibps > most_mibps:
            yield LimitViolation(
                f"{key}.throughput_mibps",
                f"gp3 has at most 0.25 MiB/s for each IOPS: {most_mibps} for {rate}, not {volume.throughput_mibps}",
                "error",
            )


def _of_instance(here: str, group: GroupSpec, facts: InstanceType) -> Iterator[LimitViolation]:
    ebs = [v for v in group.volumes if v.type != "instance_store"]
    total_iops = sum(iops(v) for v in ebs)
    mbps = sum(mibps(v) for v in ebs) * _MBPS_PER_MIBPS
    limits = (
        ("IOPS", total_iops, facts.ebs_iops, facts.ebs_burst_iops),
        ("Mbps", mbps, facts.ebs_mbps, facts.ebs_burst_mbps),
    )
    for unit, wanted, always, burst in limits:
        if burst is not None and wanted > burst:
            message = (
                f"the volumes can do {wanted:.0f} {unit} together, {facts.name} carries at most {burst:.0f} to EBS"
            )
            yield LimitViolation(f"{here}.volumes", message, "warning")
        elif always is not None and wanted > always:
            message = (
                f"the volumes can do {wanted:.0f} {unit} together, {facts.name} carries {always:.0f} to EBS "
                f"and {burst:.0f} only for half an hour a day: figures will change while it is measured"
            )
            yield LimitViolation(f"{here}.volumes", message, "warning")
    if len(ebs) > _MOST_VOLUMES:
        message = f"{len(ebs)} volumes beside the root are asked for; most types take {_MOST_VOLUMES}"
        yield LimitViolation(f"{here}.volumes", message, "error")
    stores = [v for v in group.volumes if v.type == "instance_store"]
    if stores and facts.nvme_disks < len(stores):
        message = f"{facts.name} has {facts.nvme_disks or 'no'} instance store disks, {len(stores)} are asked for"
        yield LimitViolation(f"{here}.volumes", message, "error")


def _of_memory(here: str, facts: InstanceType, cache_mib: float) -> Iterator[LimitViolation]:
    if cache_mib > facts.memory_mib:
        message = (
            f"the caches of one host add up to {cache_mib:.0f} MiB, {facts.name} has {facts.memory_mib} MiB of RAM"
        )
        yield LimitViolation(f"{here}.instance_type", message, "error")
    elif cache_mib > _CACHE_SHARE * facts.memory_mib:
        message = (
            f"the caches of one host add up to {cache_mib:.0f} MiB, more than {_CACHE_SHARE:.0%} of the "
            f"{facts.memory_mib} MiB of {facts.name}: it may run out of memory"
        )
        yield LimitViolation(f"{here}.instance_type", message, "warning")


def iops(volume: VolumeSpec) -> int:
    """What a volume can do, IOPS (EBS user guide)."""
    if volume.type == "gp2":
        return min(16000, max(100, 3 * volume.size_gib))
    if volume.type == "standard":
        return 200
    return volume.iops or _LEAST_IOPS.get(volume.type, 500)


def mibps(volume: VolumeSpec) -> float:
    """What a volume can do, MiB/s (EBS user guide)."""
    match volume.type:
        case "gp3":
            return volume.throughput_mibps or _GP3_LEAST_MIBPS
        case "gp2":
            return 128 if volume.size_gib <= 170 else 250
        case "io1" | "io2":
            return min(1000.0, (volume.iops or 0) * 0.25)
        case "st1":
            return min(500.0, 250.0 * volume.size_gib / 1024)
        case _:
            return 90


def share_hosts(points: Sequence[tuple[str, Infrastructure]]) -> list[SharedHosts]:
    """Sort points (id, infrastructure) into those that can use the same hosts, in the order of their first point.

    Hosts are shared when network, types, images and volumes are the same. A point that needs fewer of them leaves some
    idle, and kernel and NUMA settings are set anew for each point, so neither forces new hosts.
    """
    shared: dict[str, list[tuple[str, Infrastructure]]] = {}
    for name, infrastructure in points:
        shared.setdefault(repr(sorted(_needs(infrastructure).items())), []).append((name, infrastructure))
    found: list[SharedHosts] = []
    for members in shared.values():
        most = _with_most_hosts([i for _, i in members])
        forced = _difference(_needs(found[-1].infrastructure), _needs(most)) if found else ()
        found.append(SharedHosts(tuple(name for name, _ in members), most, forced))
    return found


_FIXED_AT_LAUNCH = ("instance_type", "alternative_types", "image", "market", "threads_per_core", "root_size_gib")


def _needs(infrastructure: Infrastructure) -> dict[str, Any]:
    """What hosts are made of, by dotted key."""
    needs: dict[str, Any] = {f"ec2.{k}": v for k, v in infrastructure.ec2.model_dump().items()}
    for name in GROUPS:
        group = getattr(infrastructure, name)
        needs[name] = "own hosts" if group is not None else "no hosts of their own"
        if group is not None:
            needs |= {f"{name}.{key}": getattr(group, key) for key in _FIXED_AT_LAUNCH}
            needs |= {f"{name}.volumes.{purpose}": None for purpose in ("data", "journal", "log")}
            needs |= {f"{name}.volumes.{purpose}": _volume_needs(volume) for purpose, volume in group.volumes.named()}
    return needs


def _volume_needs(volume: Volume) -> dict[str, Any]:
    """Type and size, and what else is not as usual."""
    return {"type": volume.type, "size_gib": volume.size_gib, **volume.model_dump(exclude_defaults=True)}


def _with_most_hosts(members: Sequence[Infrastructure]) -> Infrastructure:
    most = members[0]
    for name in GROUPS:
        groups = [getattr(i, name) for i in members]
        if groups[0] is not None:
            count = max(g.count for g in groups)
            most = most.model_copy(update={name: groups[0].model_copy(update={"count": count})})
    return most


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
    return tuple(f"infrastructure.{k}: {_shown(before.get(k))} → {_shown(after.get(k))}" for k in keys)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(str(v) for v in value.values())
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
