"""Prices from a dated table. An unknown price is None and never 0."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

from microshard.backends.ec2.spec import VolumeSpec

# AWS bills provisioned storage by the second of a month of 30 days (EBS pricing page, examples).
HOURS_A_MONTH = 720
# Above this io2 gets cheaper in steps (EBS pricing page); the table has the first step's price.
_IO2_FIRST_STEP_IOPS = 32000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars an hour."""

    usd: float
    exact: bool  # False: it may be up to 10 % less; see data/extract.py
    date: str  # YYYY-MM-DD


@functools.cache
def _table() -> dict[str, Any]:
    text = resources.files("microshard.backends.ec2.data").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return table


def dates() -> dict[str, str]:
    """Days of the tables: `exact` and `at_most`."""
    return dict(_table()["dates"])


def instance(name: str, region: str) -> Price | None:
    """On-demand Linux price of an instance; None when it is not known."""
    table = _table()
    for quality in ("exact", "at_most"):
        usd = table[quality].get(name, {}).get(region)
        if usd is not None:
            return Price(float(usd), quality == "exact", table["dates"][quality])
    return None


def volume(wish: VolumeSpec, region: str) -> Price | None:
    """Price of an EBS volume; None when it is not known. Instance store costs nothing beside its instance."""
    table = _table()
    day = str(table["dates"]["exact"])
    if wish.type == "instance_store":
        return Price(0.0, True, day)
    told = table["ebs"].get(region, {}).get(wish.type)
    if told is None:
        return None
    month = wish.size_gib * told["gb"]
    if wish.iops is not None:
        month += max(0, wish.iops - told["free_iops"]) * told["iops"]
    if wish.throughput_mibps is not None:
        month += max(0, wish.throughput_mibps - told["free_throughput"]) * told["throughput"]
    exact = wish.type != "io2" or (wish.iops or 0) <= _IO2_FIRST_STEP_IOPS
    return Price(month / HOURS_A_MONTH, exact, day)
