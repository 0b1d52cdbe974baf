"""A load of inserts and reads that runs in worker processes next to what an engine measures."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.model.phases.traffic import Traffic
from microshard.model.result import Column, PhaseResult, Series, Table, Windows
from microshard.workloads.base import Engine, PhaseError
from microshard.workloads.pacing import PacedLatency, merged, report
from microshard.workloads.several_hosts import share
from microshard.workloads.streams import cut
from microshard.workloads.workers import Workers

POLL_SECONDS = 0.05
END_SECONDS = 60.0  # for the operations in progress when a load is ended


@dataclass(slots=True)
class LoadPeriod:
    """The load from one mark to the next."""

    name: str
    began: float  # epoch seconds
    ended: float | None = None
    documents: int = 0
    latency: dict[str, PacedLatency] = field(default_factory=lambda: defaultdict(PacedLatency))

    def seconds(self, now: float) -> float:
        """How long it is or was."""
        return (self.ended if self.ended is not None else now) - self.began


def wrong_count(before: int, inserted: int, found: int) -> str:
    """A sentence, unless every acknowledged document is there once."""
    if found == before + inserted:
        return ""
    return f"{before} documents and {inserted} acknowledged inserts, but {found} are there"


class BackgroundLoad:
    """A load of several processes. A thread reads their reports; `check` raises the first error of them."""

    def __init__(self, keys: Traffic) -> None:
        self.keys = keys
        self.schedule = keys.schedule(keys.rate)
        self.workers = Workers("microshard.workloads.background_load_worker")
        self.periods: list[LoadPeriod] = []
        self.inserted = 0
        self.cpu_seconds = 0.0
        self.began = 0.0
        self.ended: float | None = None  # epoch seconds; when the last worker had finished
        self.by_second: dict[int, int] = defaultdict(int)  # epoch second → documents inserted
        self.operations: dict[int, int] = defaultdict(int)  # epoch second → inserts and reads
        self._latencies: dict[tuple[str, int], list[int]] = defaultdict(list)  # operation, epoch second → µs
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def prepare(
        self,
        engine: Engine[Any],
        namespaces: Sequence[str],
        known: int,
        *,
        uri: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the workers of a phase, which end with it, and wait until they are connected. Raises PhaseError.

        `known`: documents 0 … known - 1 exist already and may be read. `uri` is the point's unless it is given;
        `options` are of MongoClient.
        """
        job = engine.context.job
        keys, count = self.keys, max(min(self.keys.processes, self.keys.threads), job.part.of)
        works = []
        threads = cut(keys.threads, count)
        for n in share(count, job):
            documents = None if keys.documents is None else keys.documents // count + (n < keys.documents % count)
            works.append(
                keys.work()
                | {
                    "uri": uri or job.connection_string,
                    "namespaces": list(namespaces),
                    "options": dict(options or {}),
                    "client": threads[n][0],
                    "threads": threads[n][1],
                    "clients": keys.threads,
                    "schedule": self.schedule,
                    "documents": documents,
                    "first": known + n,
                    "step": count,
                    "known": known,
                    "key_ranges": job.point.key_ranges(namespaces[0]),
                    "seed": n + 1,
                }
            )
        engine.on_close(self.workers.end)
        self.workers.start(works)
        self.workers.wait_ready()

    def measure(self, engine: Engine[Any], seconds: float | None) -> None:
        """Let it run to its end, or for so many seconds, as the measurement of a phase. Raises PhaseError."""
        result = engine.outcome
        with engine.measured(lambda: self.cpu_seconds):
            try:
                began = self.begin("load")
                while self.running:
                    passed = time.time() - began
                    note = f"{self.inserted / passed:,.0f} documents/s" if passed > 0 else ""
                    if seconds is None:
                        engine.report_progress(self.inserted, self.keys.documents or 0, "documents", note)
                    else:
                        engine.report_progress(min(passed, seconds), seconds, "s", note)
                        if passed >= seconds:
                            self.end()
                    time.sleep(POLL_SECONDS)
                self.join()
            finally:
                self.fill(result)
        result.started, result.ended = self.began, self.ended or result.ended
        engine.set_metric("load rate", "documents/s", self.inserted / (result.ended - result.started), "higher")

    def fill(self, result: PhaseResult) -> None:
        """Put counters, latencies and windows of the whole load into a result."""
        result.counters |= {"documents": self.inserted, "errors": int(self._error is not None)}
        named = {name: [p.latency[name] for p in self.periods if name in p.latency] for name in ("INSERT", "READ")}
        latency = {name: merged(parts) for name, parts in named.items() if parts}
        for name, whole in latency.items():  # what counts is how late it was at the end, not at that of a period
            last = self.periods[-1].latency[name]
            last.finish(self.ended or time.time())
            whole.behind, whole.late_for = last.behind, last.late_for
        report(result, latency, {"ALL": self.schedule}, (self.ended or time.time()) - self.began)
        first, seconds = self.whole_seconds()
        if seconds:
            result.windows = Windows(float(first), 1.0, [self.operations.get(s, 0) for s in seconds])

    def check_count(self, before: int, found: int) -> None:
        """Raise PhaseError unless every acknowledged document is there once."""
        if wrong := wrong_count(before, self.inserted, found):
            raise PhaseError("WrongCount", wrong)

    def begin(self, period: str) -> float:
        """Let it run; returns the moment, epoch seconds."""
        self.began = time.time()
        self.periods.append(LoadPeriod(period, self.began))
        self.workers.go()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        return self.began

    def mark(self, period: str) -> None:
        """Begin another period of the load."""
        now = time.time()
        with self._lock:
            self.periods[-1].ended = now
            self.periods.append(LoadPeriod(period, now))

    @property
    def running(self) -> bool:
        """Whether it has begun and not ended."""
        return self._thread is not None and self._thread.is_alive()

    def check(self) -> None:
        """Raise the first error of the workers."""
        if self._error is not None:
            raise self._error

    def _listen(self) -> None:
        try:
            for message in self.workers.messages():
                with self._lock:
                    self._add(message)
        except (PhaseError, OSError, ValueError) as error:
            self._error = error
        self.ended = time.time()

    def _add(self, message: dict[str, Any]) -> None:
        self.cpu_seconds += message.get("cpu_seconds", 0.0)
        self.inserted += message.get("documents", 0)
        for name, unsent in message.get("unsent", {}).items():
            if unsent["unsent"]:
                self.periods[-1].latency[name].add(PacedLatency.of_message(unsent))
        inserts = message.get("inserts", ())
        documents = round(message.get("documents", 0) / len(inserts)) if inserts else 0  # of each insert
        for name, samples in (("INSERT", inserts), ("READ", message.get("reads", ()))):
            for at, micros, waited in samples:
                period = next((p for p in reversed(self.periods) if p.began <= at), self.periods[0])
                sent = at - micros / 1e6
                period.latency[name].record(sent - waited / 1e6, sent, at)
                self.operations[int(at)] += 1
                self._latencies[name, int(at)].append(waited + micros)
                if name == "INSERT":
                    period.documents += documents
                    self.by_second[int(at)] += documents

    def end(self) -> None:
        """Let the workers finish the operations in progress, and wait for that. Raises their errors."""
        self.workers.send("stop")
        self.join(END_SECONDS)

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the load. Raises the workers' errors, or PhaseError when it does not end in time."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                raise PhaseError("DoesNotEnd", f"the load did not end within {seconds:.0f} s of the request to stop")
        if self.periods and self.periods[-1].ended is None:
            self.periods[-1].ended = self.ended or time.time()
        self.check()

    def whole_seconds(self) -> tuple[int, list[int]]:
        """The first whole epoch second of the load and all seconds that lie entirely within it."""
        first, last = int(self.began) + 1, int(self.ended or time.time())
        return first, list(range(first, last))

    def p95(self, name: str, second: int) -> float | None:
        """95th percentile of the latencies that ended in this second, µs, in an open loop from the intended time; None
        when there were none."""
        values = sorted(self._latencies.get((name, second), ()))
        return float(values[max(0, -(-len(values) * 95 // 100) - 1)]) if values else None

    def by_period(self) -> Table:
        """A table: what the load achieved before, during and after the event."""
        now = time.time()
        rows = []
        for period in self.periods:
            seconds = period.seconds(now)
            row: list[Any] = [period.name, round(seconds, 3), period.documents]
            row.append(round(period.documents / seconds, 1) if seconds > 0 else None)
            for name in ("INSERT", "READ"):
                paced = period.latency.get(name)
                hist = paced and (paced.intended if self.schedule else paced.sent)
                row += [round(hist.get_value_at_percentile(p) / 1000, 3) if hist else None for p in (50, 95, 99)]
            rows.append(row)
        columns = Column.several("period; time, s; inserted, documents; rate, documents/s")
        basis = " from the intended time" if self.schedule else ""
        columns += [Column(f"{name} p{p}{basis}", "ms") for name in ("insert", "read") for p in (50, 95, 99)]
        return Table(columns, rows)

    def report_rates(self, engine: Engine[Any]) -> None:
        """Add to a result the documents inserted in each second, and how the rate changed after the event."""
        result = engine.outcome
        _, seconds = self.whole_seconds()
        times = [round(second - result.started, 3) for second in seconds]
        rate: list[float | None] = [self.by_second.get(second, 0) for second in seconds]
        result.series.append(Series("load", "documents/s", t=times, lines={"inserted": rate}))
        rates = {p.name: p.documents / s for p in self.periods if (s := p.seconds(result.ended)) > 0}
        if rates.get("before"):
            change = round(rates.get("during", 0.0) / rates["before"], 4)
            engine.add_figure("load rate, during over before", "", change, "higher")
