"""What every data set is: documents that can be made from any number on, by any loader, the same each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from microshard.workloads.datasets.error import DataError

if TYPE_CHECKING:
    from microshard.workloads.datasets.encoding import Encoded, Ints

__all__ = ["DataError", "Dataset", "Index"]

Index = dict[str, int]  # field → 1 or -1, in the order of the index


class Dataset(ABC):
    """A data set. Its module calls its class DATASET; `options` are the keys of the phase it is made with."""

    options: ClassVar[tuple[str, ...]] = ()
    """Keys of the phase that belong to this data set."""
    indexes: ClassVar[tuple[Index, ...]] = ()
    """Its secondary indexes, in the order in which `secondary_indexes` counts them."""
    own_ids: ClassVar[bool] = False
    """Whether documents bring their own `_id`, so that key ranges cannot be loaded."""

    @property
    @abstractmethod
    def average_bytes(self) -> float:
        """BSON bytes of a document with `_id`, on average: for estimates."""

    @property
    def total(self) -> int | None:
        """How many documents there are; None when there is no end, or when only `count` can tell."""
        return None

    def secondary_indexes(self) -> Sequence[Index]:
        """Those there are. Raises DataError when a file that should say it cannot be read."""
        return self.indexes

    def indexes_stand(self) -> str:
        """Why there are no more of them, for people."""
        return "the data set has no more secondary indexes"

    def available(self) -> None:
        """Raises DataError when what the data set needs is not installed; reads nothing. For planning."""
        return

    def count(self) -> int | None:
        """As total, but may read the data. Raises DataError when it is missing or malformed."""
        return self.total

    def get_ready(self) -> None:
        """Import what encoding needs and a definition does not; before a load is timed."""
        return

    @abstractmethod
    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """Documents first, first + 1 … (as many as there are ids), each with its id as `_id`. Raises DataError."""
