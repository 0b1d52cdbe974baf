"""purchases: the documents of the insert benchmark, with padding of which a stated share can be compressed."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from microshard.model import datasets
from microshard.workloads.datasets.base import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, fixed
from microshard.workloads.splitmix import below, hashes, key, unit

# Ranges of the fields in iibench, the insert benchmark's client.
REGISTERS, CUSTOMERS, PRODUCTS, MAX_PRICE = 1_000, 100_000, 10_000, 500.0
OPENED_MS = 1_400_000_000_000  # the first purchase; a millisecond later the next
NOISE_BYTES = 4 << 20  # far more than the window of any block compressor, so no part of it is found again


class Purchases(Dataset[datasets.Purchases]):
    """{_id, dateandtime, cashregisterid, customerid, productid, price, pad}, indexed as iibench does.

    The indexes, in their order: (price, customerid), (cashregisterid, price, customerid), (price, dateandtime,
    customerid): all begin at a random place, so each insert touches a random leaf of each. `pad` is binary: the first
    half random bytes, the rest zeros, so that a compressor can take half of it away and no more.
    """

    @cached_property
    def _noise(self) -> NDArray[np.uint8]:
        """Incompressible bytes, the same in every process; long enough to begin anywhere."""
        half = self.info.padding // 2
        numbers = np.arange((NOISE_BYTES + half) // 8 + 1, dtype=np.uint64)
        return hashes(numbers, key(0, 77)).view(np.uint8)

    def _pad(self, starts: Ints) -> NDArray[np.bytes_]:
        """BSON's binary (length, subtype 0, content), one a document."""
        half = self.info.padding // 2
        rows = np.zeros((len(starts), 5 + self.info.padding), dtype=np.uint8)
        rows[:, :4] = np.frombuffer(self.info.padding.to_bytes(4, "little"), dtype=np.uint8)
        for row, start in zip(rows, starts.tolist(), strict=True):
            row[5 : 5 + half] = self._noise[start : start + half]
        return rows.view(f"V{5 + self.info.padding}")[:, 0]

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """The documents; the padding's content depends on the document alone."""
        numbers = np.arange(first, first + len(ids), dtype=np.uint64)

        def stream(number: int) -> NDArray[np.uint64]:
            return hashes(numbers, key(seed, number))

        layout = (
            ("_id", b"\x12", "<i8"),
            ("dateandtime", b"\x09", "<i8"),
            ("cashregisterid", b"\x10", "<i4"),
            ("customerid", b"\x10", "<i4"),
            ("productid", b"\x10", "<i4"),
            ("price", b"\x01", "<f8"),
            ("pad", b"\x05", f"V{5 + self.info.padding}"),
        )
        values = {
            "_id": ids,
            "dateandtime": numbers.astype(np.int64) + OPENED_MS,
            "cashregisterid": below(stream(1), REGISTERS),
            "customerid": below(stream(2), CUSTOMERS),
            "productid": below(stream(3), PRODUCTS),
            "price": np.round(unit(stream(4)) * MAX_PRICE, 2),
            "pad": self._pad(below(stream(5), NOISE_BYTES)),
        }
        return fixed(layout, values, len(ids))


DATASET = Purchases
