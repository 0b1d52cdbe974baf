"""The documents of such a load: a function of their number, so that every `_id` is known without asking.

A document is {_id, n, f1 … f8, pad}: n is its number, f1 to f8 are pseudo-random 32-bit integers for secondary
indexes, pad is binary, random for one part and one repeated byte for the other.
"""

from __future__ import annotations

import math
import random
from typing import Any, Literal

from bson import Binary, Int64

from microshard.model.phases.traffic import FIELDS

Order = Literal["random", "ascending"]
WHOLE_SPAN = 1 << 62  # `_id`s of a collection that is not laid out in ranges
_MIX = 0x2545F4914F6CDD1D
_FIXED = 103  # bytes of a document without the content of its padding
_POOL = 1 << 20  # bytes of random padding, cut at different places


def span_of(key_ranges: int) -> int:
    """The `_id`s are below this: as many ranges of 2^32 as the plan has placed, or 2^62 where it has placed none."""
    return key_ranges << 32 if key_ranges else WHOLE_SPAN


def multiplier(span: int) -> int:
    """What a number is multiplied by: without a common divisor with the span, so that every key comes only once."""
    found = _MIX
    while math.gcd(found, span) != 1:
        found += 2
    return found


def key(number: int, order: Order, span: int = WHOLE_SPAN) -> int:
    """The `_id` of document `number`: itself, or scattered over 0 … span."""
    return number if order == "ascending" else (number * multiplier(span)) % span


class Maker:
    """Makes documents of one size. Equal numbers give equal keys and fields; padding differs by maker."""

    def __init__(self, document_bytes: int, compressible: float, order: Order, span: int) -> None:
        padding = max(document_bytes - _FIXED, 0)
        self._random_bytes = round(padding * (1 - compressible))
        self._same = b"x" * (padding - self._random_bytes)
        self._order, self._span = order, span
        # A fixed seed: the same experiment sends the same bytes.
        self._pool = random.Random(20170601).randbytes(_POOL + self._random_bytes)  # noqa: S311 - padding, no secret

    def document(self, number: int) -> dict[str, Any]:
        """Document `number`."""
        mixed = (number * _MIX + 0x632BE59BD9B4E019) % (1 << 64)
        fields = {f"f{n}": ((mixed >> (4 * n)) ^ (mixed >> 33)) % (1 << 31) for n in range(1, FIELDS + 1)}
        start = mixed % _POOL
        pad = Binary(self._pool[start : start + self._random_bytes] + self._same)
        return {"_id": Int64(key(number, self._order, self._span)), "n": Int64(number), **fields, "pad": pad}
