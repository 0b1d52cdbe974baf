"""What every data set is: documents that can be made from any number on, by any loader, the same each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from microshard.model.datasets import DatasetInfo
from microshard.workloads.datasets.encoding import Encoded, Ints

Info = TypeVar("Info", bound=DatasetInfo)


class Dataset(ABC, Generic[Info]):
    """A generator or reader of documents. Its module calls its class DATASET."""

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
