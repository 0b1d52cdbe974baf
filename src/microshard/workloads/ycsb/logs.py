"""The logs of YCSB's clients: HdrHistogram logs with an interval a second, and the binding's report."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hdrh.histogram import HdrHistogram

from microshard.model.result import INTENDED
from microshard.workloads.recording import EDGE_SECONDS, add, decode, merge, new_histogram, operations_by_window

BUFFERED = "INSERT-BATCHED_OK"  # inserts that are in a client's batch and not yet sent
_OPERATIONS = ("READ", "UPDATE", "INSERT", "SCAN", "DELETE", "READ-MODIFY-WRITE")


@dataclass(frozen=True, slots=True)
class LogInterval:
    """One line of a log: a histogram, still encoded, of the time between two epoch seconds."""

    started: float
    ended: float
    encoded: str

    def histogram(self) -> HdrHistogram:
        """The histogram."""
        return decode(self.encoded)


def parse_log(text: str) -> list[LogInterval]:
    """The intervals of an HdrHistogram log (format 1.3). An incomplete last line is ignored."""
    base = 0.0
    found = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        if line.startswith("#[StartTime:"):
            base = float(line.split(":", 1)[1].split()[0])
        elif line and line[0].isdigit():
            start, length, _, encoded = line.rsplit(",", 3)
            began = base + float(start)
            found.append(LogInterval(began, began + float(length), encoded))
    return found


Log = dict[str, list[LogInterval]]  # of one client, by series


def read_log(prefix: Path) -> Log:
    """All series of a client whose files begin with `prefix`-."""
    found = {}
    for path in sorted(prefix.parent.glob(f"{prefix.name}-*.hdr")):
        series = path.name.removeprefix(f"{prefix.name}-").removesuffix(".hdr")
        found[series] = parse_log(path.read_text(encoding="ascii", errors="replace"))
    return found


def logged_until(prefix: Path, until: float) -> bool:
    """Whether every log of a client was written after a time and its last line is complete.

    The line of an interval is written at its end.
    """
    paths = list(prefix.parent.glob(f"{prefix.name}-*.hdr"))
    return bool(paths) and all(path.stat().st_mtime > until + EDGE_SECONDS and _is_complete(path) for path in paths)


def _is_complete(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 1))
        return file.read() == b"\n"


def inside(intervals: Iterable[LogInterval], started: float, ended: float) -> list[LogInterval]:
    """The intervals that lie wholly between two times."""
    return [i for i in intervals if i.started >= started - EDGE_SECONDS and i.ended <= ended + EDGE_SECONDS]


def measured_series(log: Mapping[str, Any]) -> list[str]:
    """Names of the series that are latencies of operations: not of clean-up, buffering, checks or failures."""
    return [name for name in log if name.removeprefix(INTENDED) in _OPERATIONS]


@dataclass(slots=True)
class OperationSummary:
    """The operations of all clients between two times."""

    started: float = 0.0
    ended: float = 0.0
    rate: float = 0.0  # operations a second: the sum of each client's rate over the time of its intervals
    operations: int = 0
    histograms: dict[str, HdrHistogram] = field(default_factory=dict)
    windows: list[float] = field(default_factory=list)  # operations in each second from `started` on


def summarize(logs: Sequence[Log], started: float, ended: float, *, buffered: bool = False) -> OperationSummary:
    """Operations, rate, latencies and one-second windows of the intervals that lie wholly between two times.

    The intervals of a client are a second long and begin at any fraction of one; its rate is therefore that of the
    time they cover, and windows divide an interval by time. READ-MODIFY-WRITE is one operation that YCSB also records
    as a READ and an UPDATE. With `buffered`, inserts that only went into a batch count as operations, too: they are
    documents of a load, though their times are no latencies. Raises ValueError when a client has no interval.
    """
    found = OperationSummary(math.inf, 0.0)
    counts: list[tuple[float, float, float]] = []
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
                    add(found.histograms.setdefault(name, new_histogram()), histogram)
                if name.startswith(INTENDED):
                    continue
                # A read-modify-write is counted three times: as itself, as READ and as UPDATE.
                many = count * (-1 if name == "READ-MODIFY-WRITE" else 1)
                operations += many
                counts.append((interval.started, interval.ended, many))
        found.rate += operations / (end - begin)
        found.operations += operations
        found.started, found.ended = min(found.started, begin), max(found.ended, end)
    found.windows = operations_by_window(counts, found.started, found.ended)
    return found


def all_operations(histograms: Mapping[str, HdrHistogram]) -> HdrHistogram:
    """Service times of all operations in one histogram."""
    return merge(h for name, h in histograms.items() if not name.startswith(INTENDED) and name != "READ-MODIFY-WRITE")


def failures(logs: Sequence[Log], reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Failed operations of a whole run, by operation and code: {"operation", "code", "name", "count", "first"}.

    The binding counts errors by code. A missing record is no error for it: those are the other operations in YCSB's
    series of failed operations.
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
            first = "the record does not exist"
            found[operation, 0, "NOT_FOUND"] = {
                "operation": operation, "code": 0, "name": "NOT_FOUND", "count": missing, "first": first,
            }  # fmt: skip
    return [found[key] for key in sorted(found)]
