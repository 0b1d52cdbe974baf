"""tpch: orders of TPC-H with their line items embedded, made by the program tpchgen-cli."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

import bson

from microshard.model import datasets
from microshard.model.datasets import TPCH_PART_ORDERS, DataError
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, joined

ORDERS = 1_500_000  # at scale factor 1, TPC-H 4.2.5


class Tpch(Dataset[datasets.Tpch]):
    """{_id, cname, status, totalprice, orderdate, comment, lineitems: [{…}]}: the published shape."""

    def __init__(self, info: datasets.Tpch) -> None:
        super().__init__(info)
        self._part = lru_cache(maxsize=2)(self._make_part)

    def count(self) -> int:
        """The number of orders, when the program is installed. Raises DataError."""
        self.info.check_available()
        return self.info.orders

    def _table(self, table: str, parts: int = 1, part: int = 1) -> Iterator[list[str]]:
        """Rows of a table's part, as lists of text. Raises DataError when the program fails."""
        command = [self.info.program(), "tbl", "-s", str(self.info.orders / ORDERS), "-T", table, "--parts", str(parts)]
        done = subprocess.run([*command, "--part", str(part), "--stdout"], check=False, capture_output=True)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise DataError(f"{' '.join(command)} ended with {done.returncode}: {words[-1] if words else 'no word'}")
        return (line.split("|") for line in done.stdout.decode("ascii").splitlines())

    @cached_property
    def _products(self) -> dict[str, tuple[str, str, str, str, int]]:
        """Part key → manufacturer, brand, type, container, size."""
        return {row[0]: (row[2], row[3], row[4], row[6], int(row[5])) for row in self._table("part")}

    @cached_property
    def _nations(self) -> dict[str, tuple[str, str]]:
        """Supplier key → nation, region."""
        regions = {row[0]: row[1] for row in self._table("region")}
        nations = {row[0]: (row[1], regions[row[2]]) for row in self._table("nation")}
        return {row[0]: nations[row[3]] for row in self._table("supplier")}

    def _make_part(self, number: int) -> list[dict[str, Any]]:
        """The orders of one part, with their items: the program cuts both tables at the same orders."""
        parts = self.info.orders // TPCH_PART_ORDERS
        orders: dict[str, dict[str, Any]] = {
            row[0]: {
                "cname": f"Customer#{int(row[1]):09d}",
                "status": row[2],
                "totalprice": float(row[3]),
                "orderdate": _date(row[4]),
                "comment": row[8],
                "lineitems": [],
            }
            for row in self._table("orders", parts, number + 1)
        }
        for row in self._table("lineitem", parts, number + 1):
            orders[row[0]]["lineitems"].append(self._item(row))
        if len(orders) != TPCH_PART_ORDERS:
            raise DataError(
                f"tpchgen-cli made {len(orders)} orders in part {number + 1} of {parts}, not {TPCH_PART_ORDERS}"
            )
        return list(orders.values())

    def _item(self, row: list[str]) -> dict[str, Any]:
        manufacturer, brand, kind, container, size = self._products[row[1]]
        nation, region = self._nations[row[2]]
        price, discount = float(row[5]), float(row[6])
        return {
            "lineitem": int(row[3]),
            "mfgr": manufacturer,
            "brand": brand,
            "type": kind,
            "container": container,
            "quantity": int(row[4]),
            "returnflag": row[8],
            "linestatus": row[9],
            "extprice": price,
            "discount": discount,
            "shipinstr": row[13],
            "realPrice": round(price * (1 - discount), 4),
            "shipmode": row[14],
            "commitDate": _date(row[11]),
            "shipDate": _date(row[10]),
            "receiptDate": _date(row[12]),
            "tax": float(row[7]),
            "size": size,
            "nation": nation,
            "region": region,
        }

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - TPC-H has a seed of its own
        """Orders in the order of their keys."""
        documents = []
        for offset, identifier in enumerate(ids.tolist()):
            part, place = divmod(first + offset, TPCH_PART_ORDERS)
            documents.append(bson.encode({"_id": identifier} | self._part(part)[place]))
        return joined(documents)


def _date(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


DATASET = Tpch
