"""What AWS and MongoDB document about EC2: volumes, images with MongoDB's packages, devices, zones, partitions.

ec2_facts.json has the facts with their source and the day they were read. The model checks values with them, the
planner and `microshard doctor` refuse what they forbid, and the simulation of tests/cloud obeys them. Types and prices
of instances are in microshard.backends.ec2.data.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

MIBPS_DEFAULT = 90.0  # of a volume type without a documented rate of its own


@functools.cache
def facts(section: str) -> dict[str, Any]:
    """Return a section of ec2_facts.json: mongodb_packages, volumes, devices, zones or partitions."""
    text = resources.files("microshard.model").joinpath("ec2_facts.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)[section]
    return found


@dataclass(frozen=True, slots=True)
class VolumeLimits:
    """What AWS documents of an EBS volume type. Units: GiB, IOPS, MiB/s; pairs are the least and the most."""

    gib: tuple[int, int]
    iops: tuple[int, int] | None = None  # that can be provisioned
    iops_per_gib: int = 0
    iops_required: bool = False
    mibps: tuple[int, int] | None = None  # that can be provisioned
    mibps_per_iops: float = 0.0
    mibps_per_iops_beyond: float = 0.0  # where that is more than `most_mibps`
    mibps_beyond: float = 0.0
    mibps_per_tib: float = 0.0
    base_iops: int = 0
    iops_for_each_gib: int = 0
    most_iops: int = 0
    base_mibps: float = 0.0
    most_mibps: float = MIBPS_DEFAULT

    def highest_iops(self, gib: int) -> int:
        """Return the most IOPS that can be provisioned for a size; 0 where none can."""
        return 0 if self.iops is None else min(self.iops[1], max(self.iops[0], gib * self.iops_per_gib))

    def highest_mibps(self, iops: int | None) -> int:
        """Return the most throughput that can be provisioned with these IOPS; 0 where none can."""
        if self.mibps is None or self.iops is None:
            return 0
        return min(self.mibps[1], max(self.mibps[0], int((iops or self.iops[0]) * self.mibps_per_iops)))

    def iops_of(self, gib: int, provisioned: int | None) -> int:
        """Return what such a volume can do at its best, IOPS."""
        if self.iops is not None:
            return provisioned or self.iops[0]
        return min(self.most_iops, max(self.base_iops, gib * self.iops_for_each_gib) or self.most_iops)

    def mibps_of(self, gib: int, iops: int | None, provisioned: int | None) -> float:
        """Return what such a volume can do at its best, MiB/s."""
        if self.mibps is not None:
            return provisioned or self.mibps[0]
        if self.iops is not None:
            small = min(self.most_mibps, (iops or 0) * self.mibps_per_iops)
            return max(small, min(self.mibps_beyond, (iops or 0) * self.mibps_per_iops_beyond))
        if self.mibps_per_tib:
            return min(self.most_mibps, self.mibps_per_tib * gib / 1024)
        # gp2 of 170 GiB or less has the lower rate.
        return self.base_mibps if self.base_mibps and gib <= 170 else self.most_mibps


@functools.cache
def ebs_types() -> Mapping[str, VolumeLimits]:
    """Return the EBS volume types with their limits."""
    found = {}
    for name, row in facts("volumes")["types"].items():
        given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}
        found[name] = VolumeLimits(**given)
    return found


@dataclass(frozen=True, slots=True)
class EbsOfInstance:
    """What all EBS volumes of an instance may do together; None where AWS gives no figure. MiB/s and IOPS."""

    type: str
    iops: float | None  # at any time
    mibps: float | None
    burst_iops: float | None  # for 30 minutes a day, where it is more
    burst_mibps: float | None


def baseline_share(instance_type: str) -> float | None:
    """Return the share of each core a burstable instance has without CPU credits; None for other types."""
    family, _, size = instance_type.partition(".")
    share = facts("burstable").get({"t3a": "t3", "t4g": "t3"}.get(family, family), {})
    return share[size] / 100 if isinstance(share, dict) and size in share else None


def package_problem(version: str, image: str, architecture: str) -> str | None:
    """Say why MongoDB's packages of a version cannot be installed on an image, and what would do; None when they can.

    None as well for an image that is not one of the named distributions: nobody knows what is in it.
    """
    images = facts("mongodb_packages")["images"]
    series = ".".join(version.split(".")[:2])
    if image not in images:
        return None
    if series in images[image].get(architecture, ()):
        first = facts("mongodb_packages")["first_release"].get(f"{image} {series}")
        if first and version.count(".") == 2 and _release(version) < _release(first):
            return f"MongoDB {version} has no packages for {image}: the first release there is {first}"
        return None
    having = [name for name, by in images.items() if series in by.get(architecture, ())]
    here = images[image].get(architecture, ())
    remedy = [f"images that have it: {', '.join(having)}"] if having else ["no image has it; use source tarball"]
    remedy += [f"versions {image} has: {', '.join(here)}"] if here else []
    return f"MongoDB {series} has no packages for {image} on {architecture}; {'; '.join(remedy)}"


def partition_of(region: str) -> str:
    """Return the partition of a region: aws, aws-us-gov or aws-cn."""
    prefixes: dict[str, str] = facts("partitions")["prefixes"]
    return next((name for prefix, name in prefixes.items() if region.startswith(prefix)), "aws")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
