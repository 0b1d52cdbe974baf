"""Facts of instance types, from a dated table: no call to AWS is needed to plan."""

from __future__ import annotations

import difflib
import functools
import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What one instance of a type has. Mbps are 10⁶ bits a second, as AWS gives them; None where AWS gives none."""

    name: str
    vcpus: int
    cores: int
    memory_mib: int
    architecture: str  # x86_64 or arm64
    ebs_mbps: float | None  # at any time
    ebs_iops: int | None
    ebs_burst_mbps: float | None  # for 30 minutes a day where it is more than the former
    ebs_burst_iops: int | None
    nvme_disks: int
    nvme_gb: int
    network: str


@dataclass(frozen=True, slots=True)
class _Table:
    date: str
    types: dict[str, InstanceType]


@functools.cache
def _table() -> _Table:
    told = json.loads(
        resources.files("microshard.backends.ec2.data").joinpath("instances.json").read_text(encoding="utf-8")
    )
    columns = told["columns"]
    types = {name: InstanceType(name, **dict(zip(columns, row, strict=True))) for name, row in told["types"].items()}
    return _Table(told["date"], types)


def date() -> str:
    """Day of the table, YYYY-MM-DD."""
    return _table().date


def find(name: str) -> InstanceType | None:
    """The type of this name; None when the table does not know it."""
    return _table().types.get(name)


def near(name: str) -> list[str]:
    """Names of known types that look like this one, the nearest first."""
    return difflib.get_close_matches(name, _table().types, 3)
