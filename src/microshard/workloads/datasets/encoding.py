"""What data sets are made of: random numbers by position, and BSON documents without a Python object per field.

What is in document n is a pure function of (seed, n), whoever makes it: a counter is hashed by SplitMix64 (Steele, Lea
and Flood 2014); `stream_key` selects one of 2^64 streams.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Encoded = tuple[bytes, Ints]  # documents one after the other, and where each begins (one entry more: the end)
Field = tuple[str, bytes, str]  # name, BSON type byte (none: no BSON element), numpy type of the value

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def hashes(numbers: Hashes, key: int) -> Hashes:
    """The SplitMix64 output at these positions of the stream that `key` selects."""
    state = (numbers + np.uint64(1)) * _GOLDEN + np.uint64(key)
    state = (state ^ (state >> np.uint64(30))) * _MIX1
    state = (state ^ (state >> np.uint64(27))) * _MIX2
    return state ^ (state >> np.uint64(31))


def stream_key(seed: int, stream: int) -> int:
    """Where the stream of one seed starts; streams of different seeds have nothing in common."""
    start = hashes(np.array([seed & (2**64 - 1)], dtype=np.uint64), 0)
    return int(hashes(start, stream)[0])


def unit(values: Hashes) -> NDArray[np.float64]:
    """Hashes as doubles, uniformly distributed over 0 ≤ x < 1: the upper 53 bits."""
    return (values >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def below(values: Hashes, limit: int) -> Ints:
    """Hashes as integers, uniformly distributed over 0 ≤ x < limit (limit up to 2^32)."""
    return (((values >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)


def concatenate(documents: Sequence[bytes]) -> Encoded:
    """Encoded documents as `encode` returns them."""
    return b"".join(documents), np.fromiter(accumulate(map(len, documents), initial=0), np.int64, len(documents) + 1)


def record_rows(fields: Iterable[Field], values: Mapping[str, Any], count: int) -> Bytes:
    """A matrix of bytes, a row for each document: these fields one after the other with their values."""
    names, formats, offsets, row = [], [], [], b""
    for name, kind, form in fields:
        row += kind + name.encode() + b"\0" if kind else b""
        names.append(name)
        formats.append(form)
        offsets.append(len(row))
        row += bytes(np.dtype(form).itemsize)
    layout = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": len(row)})
    rows = np.tile(np.frombuffer(row, dtype=np.uint8), (count, 1))
    records = rows.view(layout)[:, 0]
    for name, column in values.items():
        records[name] = column
    return rows


def fixed_length(fields: Sequence[Field], values: Mapping[str, Any], count: int) -> Encoded:
    """Documents of equal length; a binary field's value has its length and subtype in front."""
    whole = [("size", b"", "<i4"), *fields, ("end", b"", "u1")]
    size = sum(len(kind + name.encode()) + 1 if kind else 0 for name, kind, _ in whole)
    size += sum(np.dtype(form).itemsize for *_, form in whole)
    return record_rows(whole, {"size": size, **values}, count).tobytes(), np.arange(count + 1, dtype=np.int64) * size
