"""pairs and purchases: generated documents of equal length."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from microshard.model.datasets import Pairs, Purchases
from microshard.workloads.datasets import Dataset
from microshard.workloads.datasets.encoding import Encoded, Ints, below, fixed_length, hashes, stream_key, unit

PAIR_LIMIT = 1000.0  # of both fields, as published
# Ranges of the fields in iibench, the insert benchmark's client.
REGISTERS, CUSTOMERS, PRODUCTS, MAX_PRICE = 1_000, 100_000, 10_000, 500.0
OPENED_MS = 1_400_000_000_000  # the first purchase; a millisecond later the next
NOISE_BYTES = 4 << 20  # far more than the window of any block compressor, so no part of it is found again


class PairDocuments(Dataset[Pairs]):
    """Two random numbers, for queries that compare fields."""

    def encode(self, first: int, ids: Ints, seed: int) -> Encoded:
        """Forty bytes a document."""
        numbers = np.arange(first, first + len(ids), dtype=np.uint64)
        a, b = (unit(hashes(numbers, stream_key(seed, stream))) * PAIR_LIMIT for stream in (1, 2))
        fields = (("_id", b"\x12", "<i8"), ("a", b"\x01", "<f8"), ("b", b"\x01", "<f8"))
        return fixed_length(fields, {"_id": ids, "a": a, "b": b}, len(ids))


class PurchaseDocuments(Dataset[Purchases]):
    """The documents of the insert benchmark, with padding of which half can be compressed."""

    @cached_property
    def _noise(self) -> NDArray[np.uint8]:
        """Incompressible bytes, the same in every process; long enough to begin anywhere."""
        half = self.info.padding // 2
        numbers = np.arange((NOISE_BYTES + half) // 8 + 1, dtype=np.uint64)
        return hashes(numbers, stream_key(0, 77)).view(np.uint8)

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
        streams = [hashes(numbers, stream_key(seed, stream)) for stream in range(1, 6)]
        fields = (
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
            "cashregisterid": below(streams[0], REGISTERS),
            "customerid": below(streams[1], CUSTOMERS),
            "productid": below(streams[2], PRODUCTS),
            "price": np.round(unit(streams[3]) * MAX_PRICE, 2),
            "pad": self._pad(below(streams[4], NOISE_BYTES)),
        }
        return fixed_length(fields, values, len(ids))
