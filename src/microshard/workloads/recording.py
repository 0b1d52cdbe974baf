"""Latency histograms (HdrHistogram, microseconds) and operation rates, and their parts of a result."""

import base64
import binascii
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from hdrh.codec import HdrCookieException, HdrHistogramEncoder, HdrLengthException
from hdrh.histogram import HdrHistogram

from microshard.model.result import Latency, Windows

LONGEST_MICROSECONDS = 3_600_000_000  # an hour; what takes longer counts as that
SIGNIFICANT_DIGITS = 3
PERCENTILES = ("50", "90", "95", "99", "99.9")
_OUTER = struct.Struct(">ii")  # HdrHistogram V2, compressed: cookie, bytes of the zlib stream
_HIGHEST_AT = 24  # of the trackable values, in the inner header: >iiiiqqd, cookie … lowest, highest, ratio


def new_histogram() -> HdrHistogram:
    """An empty histogram of microseconds."""
    return HdrHistogram(1, LONGEST_MICROSECONDS, SIGNIFICANT_DIGITS)


def record(histogram: HdrHistogram, microseconds: float, count: int = 1) -> None:
    """Record a latency, within the histogram's range, so many times."""
    histogram.record_value(min(max(int(microseconds), 1), LONGEST_MICROSECONDS), count)


def encode(histogram: HdrHistogram) -> str:
    """A histogram as text: V2, compressed, base64."""
    return str(histogram.encode().decode("ascii"))


def decode(encoded: str) -> HdrHistogram:
    """An encoded histogram, in the size of `new_histogram`. Raises ValueError when the text is not a histogram.

    Java's histograms grow while they record and can hold more than the highest value in their header; the library
    then overruns its array. With the header raised to our size everything fits, and histograms of one size are added
    fifty times as fast.
    """
    try:
        raw = base64.b64decode(encoded, validate=True)
        cookie, _ = _OUTER.unpack_from(raw)
        inner = bytearray(zlib.decompress(raw[_OUTER.size :]))
        (highest,) = struct.unpack_from(">q", inner, _HIGHEST_AT)
        struct.pack_into(">q", inner, _HIGHEST_AT, max(highest, LONGEST_MICROSECONDS))
        packed = zlib.compress(bytes(inner), 1)
        return HdrHistogram.decode(base64.b64encode(_OUTER.pack(cookie, len(packed)) + packed))
    except (binascii.Error, struct.error, zlib.error, IndexError, HdrCookieException, HdrLengthException) as error:
        raise ValueError(f"a histogram cannot be read: {error}") from None


def add(whole: HdrHistogram, part: HdrHistogram) -> None:
    """Add `part` to `whole`, unless it is empty: that would bring its minimum of 0 along."""
    if part.get_total_count():
        whole.add(part)


def merge(parts: Iterable[HdrHistogram]) -> HdrHistogram:
    """Several histograms as one."""
    whole = new_histogram()
    for part in parts:
        add(whole, part)
    return whole


def merge_named(parts: Iterable[Mapping[str, HdrHistogram]]) -> dict[str, HdrHistogram]:
    """Histograms by operation, of several processes or hosts, merged operation by operation."""
    merged: dict[str, HdrHistogram] = {}
    for histograms in parts:
        for name, histogram in histograms.items():
            add(merged.setdefault(name, new_histogram()), histogram)
    return merged


def latency(histogram: HdrHistogram, *, with_histogram: bool = True) -> Latency:
    """The `latency` of one operation in a result."""
    count = histogram.get_total_count()
    return Latency(
        count=count,
        mean=round(histogram.get_mean_value(), 2) if count else 0.0,
        min=histogram.get_min_value() if count else 0,
        max=histogram.get_max_value() if count else 0,
        percentiles={p: histogram.get_value_at_percentile(float(p)) for p in PERCENTILES},
        histogram=encode(histogram) if with_histogram else None,
    )


def latencies(histograms: Mapping[str, HdrHistogram], *, with_histograms: bool = True) -> dict[str, Latency]:
    """The `latency` of a result; operations that never happened are left out."""
    return {
        name: latency(histogram, with_histogram=with_histograms)
        for name, histogram in sorted(histograms.items())
        if histogram.get_total_count()
    }


def merged_percentiles(encoded: Sequence[str]) -> dict[str, float] | None:
    """Percentiles of several encoded histograms as one; None when one of them cannot be read.

    HdrHistogram's way to a percentile walks over all of its counters in Python; a cumulated sum of the counters that
    are not zero is much faster.
    """
    import numpy as np  # noqa: PLC0415 - engines record latencies without numpy

    try:
        payloads = [HdrHistogramEncoder.decode(one) for one in encoded]
        heads = [payload.payload for payload in payloads]
        scales = {(h.lowest_trackable_value, h.highest_trackable_value, h.significant_figures) for h in heads}
        if len(scales) > 1:  # their counters stand for different values
            scale, first = merge(map(decode, encoded)), 0
            counts = np.frombuffer(scale.counts, dtype=np.int64)
        else:
            scale = _empty_histogram(*scales.pop())
            spans = []
            for payload in payloads:
                found = payload.init_counts(scale.counts_len)
                if found["total"]:
                    spans.append((found["min_nonzero_index"], found["max_nonzero_index"] + 1, payload.counts))
            first, last = min((start for start, *_ in spans), default=0), max((end for _, end, _ in spans), default=0)
            counts = np.zeros(last - first, dtype=np.int64)
            for start, end, part in spans:
                counts[start - first : end - first] += np.frombuffer(part, dtype=np.int64)[start:end]
    except Exception:  # noqa: BLE001 - a damaged histogram raises whatever its decoder meets
        return None
    reached = np.cumsum(counts)
    total = int(reached[-1]) if len(reached) else 0
    if total == 0:
        return None
    needed = [max(1, int(float(name) / 100 * total + 0.5)) for name in PERCENTILES]  # as HdrHistogram rounds
    indices = first + np.searchsorted(reached, needed)
    values = (scale.get_value_from_index(index) for index in indices.tolist())
    return {n: float(scale.get_highest_equivalent_value(v)) for n, v in zip(PERCENTILES, values, strict=True)}


@lru_cache(maxsize=16)
def _empty_histogram(lowest: int, highest: int, digits: int) -> HdrHistogram:
    return HdrHistogram(lowest, highest, digits)


EDGE_SECONDS = 0.02  # one clock is read at both ends, but a log rounds to milliseconds


def operations_by_window(counts: Iterable[tuple[float, float, float]], started: float, ended: float) -> list[float]:
    """Operations in each whole second from `started` on; `counts` are (begin, end, operations), spread evenly."""
    found = [0.0] * max(0, math.floor(ended - started + EDGE_SECONDS))
    for begin, end, operations in counts:
        if end <= begin:
            continue
        for window in range(max(0, int(begin - started)), min(len(found), int(end - started) + 1)):
            common = min(end, started + window + 1) - max(begin, started + window)
            found[window] += operations * max(0.0, common) / (end - begin)
    return [round(value, 2) for value in found]


@dataclass(slots=True)
class OperationRates:
    """Counts operations in windows of `seconds` each, by the time at which they were reported."""

    seconds: float
    counts: list[int] = field(default_factory=list)

    def add(self, after: float, operations: int) -> None:
        """Count `operations`, reported `after` seconds from the start."""
        number = int(after / self.seconds)
        self.counts.extend([0] * (number + 1 - len(self.counts)))
        self.counts[number] += operations

    def whole(self, duration: float) -> list[int]:
        """The windows that lie entirely within `duration` seconds."""
        number = int(duration / self.seconds)
        return [*self.counts[:number], *([0] * (number - len(self.counts)))]

    def windows(self, start: float, duration: float) -> Windows | None:
        """The `windows` of a result; None when none was whole."""
        values = self.whole(duration)
        return Windows(start, self.seconds, [*values]) if values else None


def rate_reached_in(share: float, windows: Windows | None) -> float | None:
    """The rate per second that at least this share of the windows reached; None without windows."""
    rates = sorted(windows.rates, reverse=True) if windows else []
    return rates[min(-(-int(share * 1000) * len(rates) // 1000), len(rates)) - 1] if rates else None
