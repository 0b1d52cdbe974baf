"""pairs: two random numbers a document, for questions that compare fields."""

from __future__ import annotations

import numpy as np

from microshard.model import datasets
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, fixed
from microshard.workloads.splitmix import hashes, key, unit

LIMIT = 1000.0  # of both fields, as published
_LAYOUT = (("_id", b"\x12", "<i8"), ("a", b"\x01", "<f8"), ("b", b"\x01", "<f8"))


class Pairs(Dataset[datasets.Pairs]):
    """{_id, a, b}: doubles, equally distributed over 0 ≤ x < 1000 and independent of each other."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """Forty bytes a document."""
        numbers = np.arange(first, first + len(ids), dtype=np.uint64)
        a, b = (unit(hashes(numbers, key(seed, stream))) * LIMIT for stream in (1, 2))
        return fixed(_LAYOUT, {"_id": ids, "a": a, "b": b}, len(ids))


DATASET = Pairs
