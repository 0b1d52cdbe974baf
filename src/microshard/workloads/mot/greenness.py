"""The answer of the greenness query computed from the generator alone, to hold MongoDB's answer against."""

from __future__ import annotations

import numpy as np

from microshard.workloads.mot import catalog
from microshard.workloads.mot.columns import columns

# Engine capacity in cc below which a vehicle is in band 1, 2 … 6; the rest is in band 7 (the source's table).
BAND_LIMITS = (1000, 1200, 1600, 2000, 2500, 3500)
DIESEL_FACTOR = 1.5
BLOCK = 100_000  # documents at a time: bounds memory


def expected_greenness(documents: int, seed: int) -> list[dict[str, float | int]]:
    """Per band, ascending: `_id` (band, times 1.5 for diesels), `count` and `miles` (sum of m, exact)."""
    diesel = np.array([variant.fuel == "D" for variant in catalog.variants()])
    # Twice the band is an integer also for diesels, so it can index an array.
    counts = np.zeros(2 * 11, dtype=np.int64)
    miles = np.zeros_like(counts)
    for first in range(0, documents, BLOCK):
        cols = columns(first, min(BLOCK, documents - first), seed)
        band = np.searchsorted(BAND_LIMITS, cols.e, side="right") + 1
        doubled = np.where(diesel[cols.variant], band * int(2 * DIESEL_FACTOR), 2 * band)
        counts += np.bincount(doubled, minlength=len(counts))
        np.add.at(miles, doubled, cols.m)
    return [
        {"_id": int(doubled) / 2, "count": int(counts[doubled]), "miles": int(miles[doubled])}
        for doubled in np.flatnonzero(counts)
    ]
