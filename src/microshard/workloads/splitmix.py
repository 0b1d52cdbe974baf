"""Random access to random numbers: what is in document n is a pure function of (seed, n), whoever makes it.

A counter is hashed by SplitMix64 (Steele, Lea and Flood 2014); `key` selects one of 2^64 streams.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def hashes(numbers: Hashes, key: int) -> Hashes:
    """The SplitMix64 output at these positions of the stream that `key` selects."""
    state = (numbers + np.uint64(1)) * _GOLDEN + np.uint64(key)
    state = (state ^ (state >> np.uint64(30))) * _MIX1
    state = (state ^ (state >> np.uint64(27))) * _MIX2
    return state ^ (state >> np.uint64(31))


def key(seed: int, stream: int) -> int:
    """Where the stream of one seed starts; streams of different seeds have nothing in common."""
    start = hashes(np.array([seed & (2**64 - 1)], dtype=np.uint64), 0)
    return int(hashes(start, stream)[0])


def unit(values: Hashes) -> NDArray[np.float64]:
    """Hashes as doubles, equally distributed over 0 ≤ x < 1: the upper 53 bits."""
    return (values >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def below(values: Hashes, limit: int) -> NDArray[np.int64]:
    """Hashes as whole numbers, equally distributed over 0 ≤ x < limit (limit up to 2^32)."""
    return (((values >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32)).astype(np.int64)
