"""What every data set is: documents that can be made from any number on, by any loader, the same each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from microshard.engines.datasets.error import DataError

__all__ = ["DataError", "Dataset", "Encoded", "Index", "Ints", "fixed", "joined"]

Ints = NDArray[np.int64]
Encoded = tuple[bytes, Ints]  # documents behind one another, and where each begins (one entry more: the end)
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

    @abstractmethod
    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """Documents first, first + 1 … (as many as there are ids), each with its id as `_id`. Raises DataError."""


def joined(documents: Sequence[bytes]) -> Encoded:
    """Encoded documents as `encode` returns them."""
    return b"".join(documents), np.fromiter(accumulate(map(len, documents), initial=0), np.int64, len(documents) + 1)


def fixed(layout: Sequence[tuple[str, bytes, str]], values: dict[str, Any], count: int) -> Encoded:
    """Documents of equal length without a Python object per field.

    `layout` is the fields in order: name, BSON type byte, numpy type of the value ("<i8", "<f8", or "S…" for raw bytes
    such as a binary's length, subtype and content in one).
    """
    names, formats, offsets, row = ["size"], ["<i4"], [0], bytes(4)
    for name, kind, form in layout:
        row += kind + name.encode() + b"\0"
        names.append(name)
        formats.append(form)
        offsets.append(len(row))
        row += bytes(np.dtype(form).itemsize)
    row += b"\0"
    record = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": len(row)})
    rows = np.tile(np.frombuffer(row, dtype=np.uint8), (count, 1)).view(record)[:, 0]
    rows["size"] = len(row)
    for name, column in values.items():
        rows[name] = column
    return rows.tobytes(), np.arange(count + 1, dtype=np.int64) * len(row)
