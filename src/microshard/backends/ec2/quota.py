"""How many vCPUs the account may run at a time, and how many it runs already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2 import instances
from microshard.backends.ec2.api import Api

# Codes of Service Quotas (EC2 user guide, On-Demand and Spot Instance quotas), by what instances count together as:
# on demand, spot. Standard is A, C, D, H, I, M, R, T and Z.
_CODES: dict[str, tuple[str, str | None]] = {
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
_FAMILIES = {
    "dl": "DL", "f": "F", "g": "G and VT", "gr": "G and VT", "vt": "G and VT", "u": "High Memory", "hpc": "HPC",
    "inf": "Inf", "p": "P", "trn": "Trn", "x": "X",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quota:
    """vCPUs of one kind of instances."""

    code: str  # under which Service Quotas has it
    vcpus: int
    used: int  # by what runs now


@dataclass(frozen=True, slots=True)
class Quotas:
    """The account's quotas of one region, by (kind, on_demand or spot)."""

    of: Mapping[tuple[str, str], Quota]


def bucket(instance_type: str) -> str:
    """What an instance type counts as: Standard, X, P …"""
    family = re.match(r"[a-z]+", instance_type)
    return _FAMILIES.get(family[0] if family else "", "Standard")


def ask(api: Api, wanted: Iterable[tuple[str, str]]) -> Quotas:
    """The account's quotas of these kinds, (instance type, market) each, and what is in use. Raises CloudError."""
    needed = sorted({(bucket(name), "on_demand" if market == "on_demand" else "spot") for name, market in wanted})
    used = _used(api)
    found = {}
    for kind, market in needed:
        code = _CODES[kind][market == "spot"]
        if code is not None:
            found[kind, market] = Quota(code, int(api.quota("ec2", code)), used.get((kind, market), 0))
    return Quotas(found)


def _used(api: Api) -> dict[tuple[str, str], int]:
    living = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    used: dict[tuple[str, str], int] = {}
    for reservation in api.pages("describe_instances", "Reservations", Filters=living, MaxResults=1000):
        for instance in reservation.get("Instances", ()):
            of = bucket(str(instance["InstanceType"])), "spot" if instance.get("InstanceLifecycle") else "on_demand"
            used[of] = used.get(of, 0) + _vcpus(instance)
    return used


def _vcpus(instance: Mapping[str, Any]) -> int:
    # Switched-off threads count all the same (EC2 user guide, CPU options): the type's own number.
    facts = instances.find(str(instance["InstanceType"]))
    options = instance.get("CpuOptions", {})
    return facts.vcpus if facts else int(options.get("CoreCount", 1)) * int(options.get("ThreadsPerCore", 1))
