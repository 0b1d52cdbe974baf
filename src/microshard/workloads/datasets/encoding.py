"""Documents as their data set hands them over: BSON behind one another, where it can be without an object a field.

Apart from base, so that a definition which names a data set does not pay for numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Encoded = tuple[bytes, Ints]  # documents behind one another, and where each begins (one entry more: the end)


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
