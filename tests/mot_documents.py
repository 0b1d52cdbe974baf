"""Documents of the data set `mot` as Python values, and the answer of the greenness query computed from them."""

from itertools import pairwise
from typing import Any

import bson
import numpy as np

from microshard.workloads.datasets import mot

AVERAGE_BYTES = 237  # measured over 1,000,000 documents
# Engine capacity in cc below which a vehicle is in band 1, 2 … 6; the rest is in band 7 (the source's table).
BAND_LIMITS = (1000, 1200, 1600, 2000, 2500, 3500)


def mot_documents(first: int, count: int, seed: int) -> list[dict[str, Any]]:
    """Documents first … first + count - 1, with their numbers as `_id`."""
    encoded, starts = mot.encode(mot.columns(first, count, seed), np.arange(first, first + count))
    return [bson.decode(encoded[a:b]) for a, b in pairwise(starts.tolist())]


def expected_greenness(documents: int, seed: int) -> list[Any]:
    """Per band, ascending: `_id` (band, times 1.5 for diesels), `count` and `miles` (sum of m)."""
    bands: dict[float, dict[str, Any]] = {}
    for document in mot_documents(0, documents, seed):
        number = next((n for n, limit in enumerate(BAND_LIMITS, 1) if document["e"] < limit), 7)
        band = number * (1.5 if document["f"] == "D" else 1.0)
        found = bands.setdefault(band, {"_id": band, "count": 0, "miles": 0})
        found["count"] += 1
        found["miles"] += document["m"]
    return [bands[band] for band in sorted(bands)]
