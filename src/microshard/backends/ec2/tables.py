"""Facts and prices of instance types and volumes from dated tables (data/): no call to AWS is needed to plan."""

import difflib
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from microshard.backends.ec2.spec import GroupSpec, VolumeSpec
from microshard.model.ec2_facts import EbsOfInstance, ebs_types

# AWS bills provisioned storage by the second of a month of 30 days (EBS pricing page, examples).
HOURS_PER_MONTH = 720
# Above this io2 gets cheaper in steps (EBS pricing page); the table has the first step's price.
_IO2_FIRST_STEP_IOPS = 32000


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """What an instance of a type has. Mbps are 10⁶ bits a second, as AWS gives them; None where AWS gives none."""

    name: str
    vcpus: int
    cores: int
    memory_mib: int
    architecture: str  # x86_64 or arm64
    ebs_mbps: float | None  # at any time
    ebs_iops: int | None
    ebs_burst_mbps: float | None  # for 30 minutes a day where it is more than the former
    ebs_burst_iops: int | None
    disks: int  # of instance store
    disks_gb: int
    network: str
    ebs_nvme: bool  # built on Nitro: EBS volumes are NVMe devices with the volume's id as serial
    disks_nvme: bool  # the instance store's disks are NVMe devices; else they appear only where they are mapped
    ebs_volumes: int  # most, the root volume included

    @property
    def disk_gib(self) -> int:
        """Of each disk of its instance store; 0 where it has none."""
        return int(self.disks_gb / self.disks * 1e9 / 2**30) if self.disks else 0


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars an hour."""

    usd: float
    exact: bool  # False: it may be up to 10 % less; see data/extract.py
    date: str  # YYYY-MM-DD


@dataclass(frozen=True, slots=True)
class FleetPrice:
    """What a fleet costs an hour."""

    hourly_usd: float | None  # None as soon as one part is unknown
    known_usd: float  # the sum of the known parts
    exact: bool  # False: it may be less (see Price)
    unknown: tuple[str, ...]  # the parts without a price
    spot: bool  # some hosts are spot instances, which cost less than this
    dates: tuple[str, ...]  # of the price tables


@functools.cache
def _table(name: str) -> dict[str, Any]:
    text = resources.files("microshard.backends.ec2.data").joinpath(name).read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def instance_table_date() -> str:
    """Return the day of the table of instance types, YYYY-MM-DD."""
    return str(_table("instances.json")["date"])


MBPS_PER_MIBPS = 8 * 1024 * 1024 / 1e6


def ebs_of_instance(name: str) -> EbsOfInstance | None:
    """Return what the EBS volumes of an instance type may do together; None when the table does not have it."""
    known = find_instance(name)
    if known is None:
        return None
    always, burst = (None if mbps is None else mbps / MBPS_PER_MIBPS for mbps in (known.ebs_mbps, known.ebs_burst_mbps))
    return EbsOfInstance(name, known.ebs_iops, always, known.ebs_burst_iops, burst)


def find_instance(name: str) -> InstanceFacts | None:
    """Return the facts of an instance type; None when the table does not have it."""
    table = _table("instances.json")
    row = table["types"].get(name)
    return None if row is None else InstanceFacts(name, **dict(zip(table["columns"], row, strict=True)))


def similar_instances(name: str) -> list[str]:
    """Return names of known types that look like this one, the nearest first."""
    return difflib.get_close_matches(name, _table("instances.json")["types"], 3)


def types_with_disks(like: InstanceFacts, count: int, gib: int) -> list[str]:
    """Return the three cheapest types with so many instance store disks of a size, with no less vCPUs and RAM."""
    found = {}
    for name in _table("instances.json")["types"]:
        other, price = find_instance(name), instance_price(name, "us-east-1")
        if other is None or price is None or other.architecture != like.architecture or other.disks < count:
            continue
        large = other.vcpus >= like.vcpus and other.memory_mib >= like.memory_mib
        if large and other.disk_gib >= gib:
            found[name] = price.usd
    return sorted(found, key=found.__getitem__)[:3]


def instance_price(name: str, region: str) -> Price | None:
    """Return the on-demand Linux price of an instance; None when it is unknown, never 0."""
    table = _table("prices.json")
    for quality in ("exact", "at_most"):
        usd = table[quality].get(name, {}).get(region)
        if usd is not None:
            return Price(float(usd), quality == "exact", table["dates"][quality])
    return None


def volume_price(volume: VolumeSpec, region: str) -> Price | None:
    """Return the price of an EBS volume; None when it is unknown. Instance store is part of its instance's price."""
    table = _table("ebs_prices.json")
    if volume.type == "instance_store":
        return Price(0.0, True, table["date"])
    region_row = table["regions"].get(region, {})
    rates = region_row.get("types", {}).get(volume.type)
    if rates is None:
        return None
    limits = ebs_types()[volume.type]
    # What is provisioned beyond what a gp3 volume has by itself is paid for; of io1 and io2, all of it.
    free_iops, free_mibps = (limits.iops or (0, 0))[0] if limits.mibps else 0, (limits.mibps or (0, 0))[0]
    month = volume.size_gib * rates[0]
    month += max(0, (volume.iops or 0) - free_iops) * rates[1] if len(rates) > 1 else 0
    month += max(0, (volume.throughput_mibps or 0) - free_mibps) * rates[2] if len(rates) > 2 else 0
    exact = volume.type != "io2" or (volume.iops or 0) <= _IO2_FIRST_STEP_IOPS
    confirmed = volume.type not in region_row["unconfirmed"]
    return Price(month / HOURS_PER_MONTH, exact and confirmed, table["date"])


def volume_rate(volume_type: str, region: str) -> Price | None:
    """Return the price of a GiB of an EBS volume for a month; None when it is unknown."""
    table = _table("ebs_prices.json")
    row = table["regions"].get(region, {})
    rates = row.get("types", {}).get(volume_type)
    return None if rates is None else Price(rates[0], volume_type not in row["unconfirmed"], table["date"])


def address_price() -> Price:
    """Return the price of a public IPv4 address, in use or not, the same in every region."""
    table = _table("ebs_prices.json")
    return Price(table["public_ipv4_usd_an_hour"], True, table["date"])


def fleet_price(groups: Sequence[GroupSpec], region: str, *, public_addresses: bool = True) -> FleetPrice:
    """Return the price of all hosts with volumes and public addresses, at on-demand rates of the first listed types."""
    known, unknown, exact, dates = 0.0, dict[str, None](), True, set[str]()
    for group in groups:
        parts = [(group.instance_types[0], instance_price(group.instance_types[0], region))]
        parts += [(f"{v.type} volume", volume_price(v, region)) for v in (group.root_volume, *group.volumes)]
        if public_addresses:
            parts.append(("public IPv4 address", address_price()))
        for what, price in parts:
            if price is None:
                unknown[f"{what} in {region}"] = None
                continue
            known += price.usd * group.count
            exact = exact and price.exact
            dates.add(price.date)
    spot = any(g.market != "on_demand" for g in groups)
    return FleetPrice(None if unknown else known, known, exact, tuple(unknown), spot, tuple(sorted(dates)))
