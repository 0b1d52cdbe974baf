"""Generators and readers of the data sets whose facts are in model/datasets."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from microshard.model.datasets import DatasetInfo, dataset_info

if TYPE_CHECKING:
    from microshard.workloads.datasets.encoding import Encoded, Ints

Info = TypeVar("Info", bound=DatasetInfo)
CLASSES = {
    "mot": "mot.MotDocuments",
    "mot_compact": "mot.MotDocuments",
    "pairs": "numbers.PairDocuments",
    "purchases": "numbers.PurchaseDocuments",
    "mails": "texts.MailDocuments",
    "tweets": "texts.TweetDocuments",
    "chunks": "files.ChunkDocuments",
    "dump": "files.DumpDocuments",
    "flights": "external.FlightDocuments",
    "tpch": "external.TpchDocuments",
}


class Dataset(ABC, Generic[Info]):
    """Makes the documents of a data set from any number on, for any loader, the same each time."""

    def __init__(self, info: Info) -> None:
        self.info = info

    @property
    def average_bytes(self) -> float:
        """BSON bytes of a document with `_id`, on average."""
        return self.info.average_bytes

    def count(self) -> int | None:
        """How many documents there are; may read the data. None without an end. Raises DataError."""
        return self.info.total

    @abstractmethod
    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """Documents first, first + 1 … (as many as there are ids), each with its id as `_id`. Raises DataError."""


def make(name: str, keys: Mapping[str, Any]) -> Dataset[Any]:
    """The data set with its options from the keys of a phase. Raises DataError."""
    module, _, cls = CLASSES[name].partition(".")
    # By name: a worker imports the one data set it inserts (docs/benchmarks.md, row 6).
    made: Dataset[Any] = getattr(importlib.import_module(f"{__name__}.{module}"), cls)(dataset_info(name, keys))
    return made
