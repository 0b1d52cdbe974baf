"""Latencies as HdrHistograms, and their part of a result (docs/contracts.md)."""

from __future__ import annotations

from typing import Any

from hdrh.histogram import HdrHistogram

LONGEST_US = 600_000_000  # ten minutes; what takes longer counts as that
DIGITS = 3
PERCENTILES = (50, 90, 95, 99, 99.9)


def histogram() -> HdrHistogram:
    """An empty histogram of microseconds, three significant digits."""
    return HdrHistogram(1, LONGEST_US, DIGITS)


def merged(encoded: list[str]) -> HdrHistogram:
    """Several encoded histograms (V2, compressed, base64) as one."""
    whole = histogram()
    for text in encoded:
        whole.decode_and_add(text)
    return whole


def as_json(found: HdrHistogram) -> dict[str, Any]:
    """`latency` of docs/contracts.md for one operation, in microseconds."""
    return {
        "count": found.get_total_count(),
        "mean": found.get_mean_value(),
        "min": found.get_min_value(),
        "max": found.get_max_value(),
        "percentiles": {f"{p:g}": found.get_value_at_percentile(p) for p in PERCENTILES},
        "histogram": found.encode().decode("ascii"),
    }
