"""What YCSB's clients wrote down: HdrHistogram logs, one interval a second, and the binding's report."""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hdrh.codec import HdrCookieException, HdrLengthException
from hdrh.histogram import HdrHistogram

HIGHEST_MICROSECONDS = 3_600_000_000  # an hour
DIGITS = 3  # significant, as YCSB records them
PERCENTILES = ("50", "90", "95", "99", "99.9")
INTENDED = "Intended-"
EDGE_SECONDS = 0.02  # the clients' clock and ours are one, but a log rounds to milliseconds
_OPERATIONS = ("READ", "UPDATE", "INSERT", "SCAN", "DELETE", "READ-MODIFY-WRITE")
BUFFERED = "INSERT-BATCHED_OK"  # inserts that went into a batch and not yet to a server
ALL = "ALL"  # every operation, once


def empty() -> HdrHistogram:
    """A histogram of microseconds that takes what any client recorded."""
    return HdrHistogram(1, HIGHEST_MICROSECONDS, DIGITS)


_OUTER = struct.Struct(">ii")  # HdrHistogram V2, compressed: cookie, bytes of the zlib stream
_HIGHEST_AT = 24  # of the trackable values, in the inner header: >iiiiqqd, cookie … lowest, highest, ratio


def decode(encoded: str) -> HdrHistogram:
    """A histogram as a client wrote it (HdrHistogram V2, compressed, base64), in the size of `empty`.

    Java's histograms grow while they record and can hold more than the highest value their header says; the library
    then overruns its array. With the header raised to our own size all fits, and all are of one size, which are
    added fifty times as fast. Raises ValueError for what is no histogram.
    """
    try:
        raw = base64.b64decode(encoded, validate=True)
        cookie, _ = _OUTER.unpack_from(raw)
        inner = bytearray(zlib.decompress(raw[_OUTER.size :]))
        (highest,) = struct.unpack_from(">q", inner, _HIGHEST_AT)
        struct.pack_into(">q", inner, _HIGHEST_AT, max(highest, HIGHEST_MICROSECONDS))
        packed = zlib.compress(bytes(inner), 1)
        return HdrHistogram.decode(base64.b64encode(_OUTER.pack(cookie, len(packed)) + packed))
    except (binascii.Error, struct.error, zlib.error, IndexError, HdrCookieException, HdrLengthException) as error:
        raise ValueError(f"a histogram cannot be read: {error}") from None


@dataclass(frozen=True, slots=True)
class Interval:
    """One line of a log: a histogram, still encoded, of the time between two epoch seconds."""

    started: float
    ended: float
    encoded: str

    def histogram(self) -> HdrHistogram:
        """The histogram."""
        return decode(self.encoded)


def parse_log(text: str) -> list[Interval]:
    """The intervals of an HdrHistogram log (format 1.3). A last line that is not whole yet is left out."""
    base = 0.0
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        if line.startswith("#[StartTime:"):
            base = float(line.split(":", 1)[1].split()[0])
        elif line and line[0].isdigit():
            start, length, _, encoded = line.rsplit(",", 3)
            began = base + float(start)
            found.append(Interval(began, began + float(length), encoded))
    return found


Log = dict[str, list[Interval]]  # of one client, by series


def read_log(prefix: Path) -> Log:
    """All series of a client whose files begin with `prefix`-."""
    found = {}
    for path in sorted(prefix.parent.glob(f"{prefix.name}-*.hdr")):
        series = path.name.removeprefix(f"{prefix.name}-").removesuffix(".hdr")
        found[series] = parse_log(path.read_text(encoding="ascii", errors="replace"))
    return found


def reaches(prefix: Path, until: float) -> bool:
    """Whether every log of a client was written after a time, and its last line is whole: the line of an interval comes
    with its end."""
    paths = list(prefix.parent.glob(f"{prefix.name}-*.hdr"))
    return bool(paths) and all(path.stat().st_mtime > until + EDGE_SECONDS and _is_whole(path) for path in paths)


def _is_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1))
        return file.read() == b"\n"


def read_report(path: Path) -> dict[str, Any] | None:
    """The binding's report, None when the client left none."""
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report


def inside(intervals: Iterable[Interval], started: float, ended: float) -> list[Interval]:
    """The intervals that lie wholly between two times."""
    return [i for i in intervals if i.started >= started - EDGE_SECONDS and i.ended <= ended + EDGE_SECONDS]


def measured_series(log: Mapping[str, Any]) -> list[str]:
    """Names of the series that are latencies of operations: not of clean-up, buffering, checks or failures."""
    return [name for name in log if name.removeprefix(INTENDED) in _OPERATIONS]


@dataclass(slots=True)
class Slice:
    """What all clients did between two times."""

    started: float = 0.0
    ended: float = 0.0
    rate: float = 0.0  # operations a second: the sum of every client's own rate over its own intervals
    operations: int = 0
    histograms: dict[str, HdrHistogram] = field(default_factory=dict)
    windows: list[float] = field(default_factory=list)  # operations in each second from `started` on


def cut_out(logs: Sequence[Log], started: float, ended: float, *, buffered: bool = False) -> Slice:
    """Operations, rate, latencies and one-second windows of what lies wholly between two times.

    Each client's intervals are its own, a second long and beginning at any fraction of one; its rate is therefore
    taken over what it covers, and windows share an interval out by time. READ-MODIFY-WRITE is one operation that YCSB
    files as a READ and an UPDATE, too. With `buffered`, inserts that only went into a batch count as operations, too:
    they are documents of a load, though their times are no latencies. Raises ValueError when a client has nothing.
    """
    found = Slice(math.inf, 0.0)
    counts: list[tuple[Interval, float]] = []
    for number, log in enumerate(logs, 1):
        mine = {name: inside(log[name], started, ended) for name in measured_series(log)}
        plain = [(name, i) for name, intervals in mine.items() if not name.startswith(INTENDED) for i in intervals]
        if not plain:
            raise ValueError(f"client {number} recorded nothing in the measured time")
        begin, end = min(i.started for _, i in plain), max(i.ended for _, i in plain)
        operations = 0
        if buffered:
            mine[BUFFERED] = inside(log.get(BUFFERED, []), started, ended)
        for name, intervals in mine.items():
            for interval in intervals:
                histogram = interval.histogram()
                count = histogram.get_total_count()
                if name != BUFFERED:
                    put_in(found.histograms.setdefault(name, empty()), histogram)
                if name.startswith(INTENDED):
                    continue
                # A read-modify-write is counted three times: as itself, as READ and as UPDATE.
                many = count * (-1 if name == "READ-MODIFY-WRITE" else 1)
                operations += many
                counts.append((interval, many))
        found.rate += operations / (end - begin)
        found.operations += operations
        found.started, found.ended = min(found.started, begin), max(found.ended, end)
    found.windows = windows(counts, found.started, found.ended)
    return found


def windows(counts: Iterable[tuple[Interval, float]], started: float, ended: float) -> list[float]:
    """Operations in each whole second from `started` on; an interval's are spread evenly over its time."""
    found = [0.0] * max(0, math.floor(ended - started + EDGE_SECONDS))
    for interval, many in counts:
        length = interval.ended - interval.started
        if length <= 0:
            continue
        for window in range(
            max(0, int(interval.started - started)), min(len(found), int(interval.ended - started) + 1)
        ):
            common = min(interval.ended, started + window + 1) - max(interval.started, started + window)
            found[window] += many * max(0.0, common) / length
    return [round(value, 2) for value in found]


def over_all(histograms: Mapping[str, HdrHistogram]) -> HdrHistogram:
    """Service times of all operations in one histogram."""
    every = empty()
    for name, histogram in histograms.items():
        if not name.startswith(INTENDED) and name != "READ-MODIFY-WRITE":
            put_in(every, histogram)
    return every


def put_in(whole: HdrHistogram, part: HdrHistogram) -> None:
    """Add one to another, unless it is empty: that would bring its minimum of 0 along."""
    if part.get_total_count():
        whole.add(part)


def as_latency(histogram: HdrHistogram, *, with_histogram: bool = True) -> dict[str, Any]:
    """A histogram as docs/contracts.md has it, in microseconds."""
    count = histogram.get_total_count()
    found: dict[str, Any] = {
        "count": count,
        "mean": round(histogram.get_mean_value(), 2) if count else 0.0,
        "min": histogram.get_min_value() if count else 0,
        "max": histogram.get_max_value() if count else 0,
        "percentiles": {p: histogram.get_value_at_percentile(float(p)) for p in PERCENTILES},
    }
    if with_histogram:
        found["histogram"] = histogram.encode().decode("ascii")
    return found


def latencies(histograms: Mapping[str, HdrHistogram], *, with_histograms: bool = True) -> dict[str, Any]:
    """`latency` of a result; series in which nothing happened are left out."""
    return {
        name: as_latency(histogram, with_histogram=with_histograms)
        for name, histogram in sorted(histograms.items())
        if histogram.get_total_count()
    }


def packed(histograms: Mapping[str, HdrHistogram]) -> dict[str, str]:
    """Histograms as text; those in which nothing happened are left out."""
    return {
        name: histogram.encode().decode("ascii")
        for name, histogram in sorted(histograms.items())
        if histogram.get_total_count()
    }


def failures(logs: Sequence[Log], reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What went wrong in a whole run, by operation and code: {"operation", "code", "name", "count", "first"}.

    The binding counts errors by code. A record that was not there is no error to it: those are what is left of
    YCSB's series of failed operations.
    """
    found: dict[tuple[str, int, str], dict[str, Any]] = {}
    for report in reports:
        for error in report["errors"]:
            key = (error["operation"], error["code"], error["name"])
            known = found.setdefault(key, {**error, "count": 0})
            known["count"] += error["count"]
    for operation in ("READ", "UPDATE", "SCAN"):
        failed = sum(
            interval.histogram().get_total_count() for log in logs for interval in log.get(f"{operation}-FAILED", [])
        )
        missing = failed - sum(e["count"] for (name, *_), e in found.items() if name == operation)
        if missing > 0:
            first = "the record asked for was not there"
            found[operation, 0, "NOT_FOUND"] = {
                "operation": operation, "code": 0, "name": "NOT_FOUND", "count": missing, "first": first,
            }  # fmt: skip
    return [found[key] for key in sorted(found)]
