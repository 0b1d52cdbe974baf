"""Such a load as an engine drives it: begin, mark the moments that matter, end, and ask what it saw."""

from __future__ import annotations

import base64
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hdrh.histogram import HdrHistogram

from microshard.model.phases.traffic import Traffic
from microshard.workloads.background_load.documents import span_of
from microshard.workloads.base import PhaseError
from microshard.workloads.workers import Workers

LONGEST = 3_600_000_000  # µs a latency may be
PERCENTILES = (50, 90, 95, 99, 99.9)
END_SECONDS = 60.0  # for the operations under way when a load is told to end


def histogram() -> HdrHistogram:
    """For latencies of 1 µs to an hour, three significant figures."""
    return HdrHistogram(1, LONGEST, 3)


def summary(hist: HdrHistogram) -> dict[str, Any]:
    """A latency as docs/contracts.md has it, µs."""
    encoded = hist.encode()
    return {
        "count": hist.get_total_count(),
        "mean": round(hist.get_mean_value(), 1),
        "min": hist.get_min_value(),
        "max": hist.get_max_value(),
        "percentiles": {str(p): hist.get_value_at_percentile(p) for p in PERCENTILES},
        "histogram": encoded.decode("ascii") if isinstance(encoded, bytes) else base64.b64encode(encoded).decode(),
    }


@dataclass(slots=True)
class Period:
    """The load from one mark to the next."""

    name: str
    began: float  # epoch seconds
    ended: float | None = None
    documents: int = 0
    latency: dict[str, HdrHistogram] = field(default_factory=lambda: defaultdict(histogram))

    def seconds(self, now: float) -> float:
        """How long it is or was."""
        return (self.ended if self.ended is not None else now) - self.began


class Load:
    """A load of several processes. A thread listens to them; `check` raises what they met."""

    def __init__(self, keys: Traffic) -> None:
        self.keys = keys
        self.workers = Workers("microshard.workloads.background_load.worker")
        self.periods: list[Period] = []
        self.inserted = 0
        self.cpu_seconds = 0.0
        self.began = 0.0
        self.ended: float | None = None  # epoch seconds; when the last worker had finished
        self.by_second: dict[int, int] = defaultdict(int)  # epoch second → documents inserted
        self.operations: dict[int, int] = defaultdict(int)  # epoch second → inserts and reads
        self._slow: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def prepare(
        self,
        uri: str,
        targets: Sequence[tuple[str, str]],
        *,
        known: int = 0,
        key_ranges: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the workers. `known`: documents 0 … known - 1 are there already and may be read.

        `key_ranges`: ranges of 2^32 `_id`s the plan has placed. `options` are of MongoClient. Raises PhaseError.
        """
        keys, count = self.keys, min(self.keys.processes, self.keys.threads)
        works = []
        for n in range(count):
            share = None if keys.documents is None else keys.documents // count + (n < keys.documents % count)
            rate = keys.documents_per_second
            works.append(
                keys.work()
                | {
                    "uri": uri,
                    "targets": [list(target) for target in targets],
                    "options": dict(options or {}),
                    "threads": keys.threads // count + (n < keys.threads % count),
                    "documents": share,
                    "documents_per_second": None if rate is None else rate / count,
                    "first": known + n,
                    "step": count,
                    "known": known,
                    "span": span_of(key_ranges),
                    "seed": n + 1,
                }
            )
        self.workers.start(works)
        for _ in self.workers.messages():
            pass  # each says it is ready

    def begin(self, period: str) -> float:
        """Let it run; the moment, epoch seconds."""
        self.began = time.time()
        self.periods.append(Period(period, self.began))
        self.workers.go()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self.began

    def mark(self, period: str) -> float:
        """From now on the load belongs to another period; the moment, epoch seconds."""
        now = time.time()
        with self._lock:
            self.periods[-1].ended = now
            self.periods.append(Period(period, now))
        return now

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether a worker met an error."""
        return self._error is not None

    def check(self) -> None:
        """Raises what a worker met."""
        if self._error is not None:
            raise self._error

    def _listen(self) -> None:
        try:
            for message in self.workers.messages():
                with self._lock:
                    self._take(message)
        except (PhaseError, OSError, ValueError) as error:
            self._error = error
        self.ended = time.time()

    def _take(self, message: dict[str, Any]) -> None:
        self.cpu_seconds += message.get("cpu_seconds", 0.0)
        self.inserted += message.get("documents", 0)
        inserts = message.get("inserts", ())
        each = message.get("documents", 0) / len(inserts) if inserts else 0.0
        for name, samples in (("INSERT", inserts), ("READ", message.get("reads", ()))):
            for at, micros in samples:
                period = next((p for p in reversed(self.periods) if p.began <= at), self.periods[0])
                period.latency[name].record_value(min(max(micros, 1), LONGEST))
                self.operations[int(at)] += 1
                self._slow[name, int(at)].append(micros)
                if name == "INSERT":
                    period.documents += round(each)
                    self.by_second[int(at)] += round(each)

    def end(self) -> None:
        """Tell the workers to finish what is under way, and wait for that. Raises what they met."""
        self.workers.tell("stop")
        self.join(END_SECONDS)

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of a load that ends by itself. Raises what it met, or PhaseError when it does not end."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                raise PhaseError("DoesNotEnd", f"the load did not end within {seconds:.0f} s of being told to")
        if self.periods and self.periods[-1].ended is None:
            self.periods[-1].ended = self.ended or time.time()
        self.check()

    def close(self) -> None:
        """Kill what is left of it. Safe to call again."""
        self.workers.end()

    def whole_seconds(self) -> tuple[int, list[int]]:
        """The first whole epoch second of the load and the seconds that lie entirely within it."""
        first, last = int(self.began) + 1, int(self.ended or time.time())
        return first, list(range(first, last))

    def p95(self, name: str, second: int) -> float | None:
        """95th percentile of the latencies that ended in this second, µs; None when there were none."""
        values = sorted(self._slow.get((name, second), ()))
        return float(values[max(0, -(-len(values) * 95 // 100) - 1)]) if values else None

    def latency(self) -> dict[str, Any]:
        """The whole load's latencies, as docs/contracts.md has them."""
        total: dict[str, HdrHistogram] = defaultdict(histogram)
        for period in self.periods:
            for name, hist in period.latency.items():
                total[name].add(hist)
        return {name: summary(hist) for name, hist in sorted(total.items())}

    def windows(self) -> dict[str, Any] | None:
        """Operations of each whole second."""
        first, seconds = self.whole_seconds()
        if not seconds:
            return None
        return {"start": float(first), "seconds": 1.0, "values": [self.operations.get(s, 0) for s in seconds]}

    def by_period(self) -> dict[str, Any]:
        """A table: what the load achieved before, during and after the event."""
        now = time.time()
        rows = []
        for period in self.periods:
            seconds = period.seconds(now)
            row: list[Any] = [period.name, round(seconds, 3), period.documents]
            row.append(round(period.documents / seconds, 1) if seconds > 0 else None)
            for name in ("INSERT", "READ"):
                hist = period.latency.get(name)
                row += [round(hist.get_value_at_percentile(p) / 1000, 3) if hist else None for p in (50, 95, 99)]
            rows.append(row)
        columns = [("period", ""), ("time", "s"), ("inserted", "documents"), ("rate", "documents/s")]
        columns += [(f"{name} p{p}", "ms") for name in ("insert", "read") for p in (50, 95, 99)]
        return {"columns": [{"name": name, "unit": unit} for name, unit in columns], "rows": rows}
