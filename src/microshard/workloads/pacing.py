"""When an operation is sent, and from when its latency counts: the one clock of all engines.

In a closed loop a client sends when its last answer has come. A server that stalls then gets fewer operations, and the
time in which none could be sent is in no latency. In an open loop every operation has an intended time that does not
depend on the answers. An operation that is late is sent as soon as its client is free, none is left out, and its
latency counts from the intended time. Both histograms are kept.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from hdrh.histogram import HdrHistogram

from microshard.model.result import INTENDED, OpenLoop, PhaseResult
from microshard.workloads import recording

Schedule = Mapping[str, Any]  # of model.pacing.Paced.schedule
LATE_SECONDS = 0.05  # more than a sleep that lasted too long: the client had not caught up
LATE_SHARE = 0.2  # of the measured time: a client that was late for so long up to the end does not keep its rate


def intended_times(schedule: Schedule, client: int, of: int) -> Iterator[float]:
    """Seconds from the start at which client `client` of `of` is to send, endless; together they have the rate."""
    rate = schedule["rate"]
    if schedule["arrivals"] == "poisson":
        # Poisson processes add up to one, so each client can have one of its own.
        gaps = random.Random(f"{schedule['seed']}-{client}")  # noqa: S311 - arrivals, no secret
        at = 0.0
        while True:
            at += gaps.expovariate(rate / of)
            yield at
    number = client
    while True:
        yield number / rate
        number += of


class Pacer:
    """The clock of one client: one operation on its way at a time. All times are those of time.monotonic()."""

    def __init__(self, schedule: Schedule | None, client: int, of: int) -> None:
        self.open = schedule is not None
        self._offsets = intended_times(schedule, client, of) if schedule is not None else iter(())
        self._began = self._next = 0.0
        self._until = float("inf")

    def begin(self, seconds: float | None = None) -> float:
        """The schedule starts now and lasts so long; returns now."""
        self._began = time.monotonic()
        self._until = float("inf") if seconds is None else self._began + seconds
        self._advance()
        return self._began

    def _advance(self) -> None:
        self._next = self._began + next(self._offsets, 0.0)

    def wait(self, stop: threading.Event | None = None) -> float | None:
        """Wait until the next operation is due; its intended time. None at the end of the time, and after `stop`.

        In a closed loop an operation is due at once.
        """
        now = time.monotonic()
        intended = self._next if self.open else now
        # What was due before the end and could not be sent is not sent any more: `unsent` has it.
        if max(intended, now) >= self._until or (stop is not None and stop.is_set()):
            return None
        if intended > now:
            if stop is None:
                time.sleep(intended - now)
            elif stop.wait(intended - now):
                return None
        if self.open:
            self._advance()
        return intended

    def unsent(self, until: float) -> Iterator[float]:
        """The intended times before `until` of operations that were never sent."""
        while self.open and self._next < until:
            yield self._next
            self._advance()


@dataclass(slots=True)
class PacedLatency:
    """Latencies of one kind of operation, from the sending and from the intended time."""

    sent: HdrHistogram = field(default_factory=recording.new_histogram)
    intended: HdrHistogram = field(default_factory=recording.new_histogram)
    unsent: int = 0  # operations that were due and not sent by the end
    behind: float = 0.0  # s, how late the sending was at the end
    longest_wait: float = 0.0  # s, from the intended time to the sending
    late_for: float = 0.0  # s, how long before the end a client last sent on time
    _late_since: float | None = None

    def record(self, intended: float, sent: float, ended: float) -> None:
        """Record an operation."""
        recording.record(self.sent, (ended - sent) * 1e6)
        recording.record(self.intended, (ended - intended) * 1e6)
        self._waited(intended, sent - intended)

    def finish(self, until: float, unsent: Iterable[float] = ()) -> None:
        """The time is over. Operations never sent are recorded with what they had waited, or it would flatter."""
        behind = 0.0
        # Counted by the millisecond: at a rate far too high they are millions.
        for milliseconds, group in groupby(unsent, lambda at: int((until - at) * 1000)):
            count = sum(1 for _ in group)
            recording.record(self.intended, milliseconds * 1000, count)
            self.unsent += count
            behind = max(behind, milliseconds / 1000)
        if behind:
            self._waited(until - behind, behind)
        if self._late_since is not None:
            self.late_for = max(self.late_for, until - self._late_since)

    def _waited(self, intended: float, seconds: float) -> None:
        self.behind = seconds
        if seconds <= LATE_SECONDS:
            self._late_since = None
        elif self._late_since is None:
            self._late_since = intended
        self.longest_wait = max(self.longest_wait, seconds)

    def add(self, other: PacedLatency) -> None:
        """Add the latencies of another client."""
        recording.add(self.sent, other.sent)
        recording.add(self.intended, other.intended)
        self.unsent += other.unsent
        self.behind = max(self.behind, other.behind)
        self.longest_wait = max(self.longest_wait, other.longest_wait)
        self.late_for = max(self.late_for, other.late_for)

    def message(self) -> dict[str, Any]:
        """It as a worker sends it."""
        return {
            "sent": recording.encode(self.sent),
            "intended": recording.encode(self.intended),
            "unsent": self.unsent,
            "behind": self.behind,
            "longest_wait": self.longest_wait,
            "late_for": self.late_for,
        }

    @classmethod
    def of_message(cls, found: Mapping[str, Any]) -> PacedLatency:
        """It as a worker has sent it."""
        histograms = {name: recording.decode(found[name]) for name in ("sent", "intended")}
        return cls(**{**found, **histograms})


def merged(parts: Iterable[PacedLatency]) -> PacedLatency:
    """The latencies of several clients or operations as one."""
    whole = PacedLatency()
    for part in parts:
        whole.add(part)
    return whole


def report(
    result: PhaseResult, found: Mapping[str, PacedLatency], schedules: Mapping[str, Schedule | None], seconds: float
) -> None:
    """Put latencies by operation into a result, and how their rates were held in the measured `seconds`.

    `schedules`: by operation, None in a closed loop; ALL is that of all operations together.
    """
    histograms = {name: one.sent for name, one in found.items()}
    for name, schedule in schedules.items():
        if schedule is None:
            continue
        operations = found if name == "ALL" else {name: found[name]}
        histograms |= {INTENDED + operation: one.intended for operation, one in operations.items()}
        result.open_loop[name] = held(merged(operations.values()), schedule, seconds)
    result.latency = recording.latencies(histograms)


def held(whole: PacedLatency, schedule: Schedule, seconds: float) -> OpenLoop:
    """How a rate was held in the measured `seconds`."""
    each, sent = schedule["each"], whole.sent.get_total_count()
    return OpenLoop(
        rate=schedule["rate"] * each,
        arrivals=schedule["arrivals"],
        achieved=round(sent * each / seconds, 3) if seconds > 0 else 0.0,
        reached=whole.late_for <= LATE_SHARE * seconds,
        operations=sent + whole.unsent,
        backlog=whole.unsent,
        behind_ms=round(whole.behind * 1000, 3),
        longest_wait_ms=round(whole.longest_wait * 1000, 3),
    )
