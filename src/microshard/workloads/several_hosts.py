"""Several client hosts that execute a phase together: one start, their clocks, and one result of their parts.

Each host does its part of what one client would do: the same streams of documents, seeds and intended times, divided
by number. Its engine prepares, compares its clock with a server's, reports `ready` and waits for the file `start`.
"""

import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

from microshard.hostlib.files import write_atomically
from microshard.model.job import Job
from microshard.model.result import OpenLoop, PhaseFailure, PhaseResult, Windows
from microshard.workloads.base import Context, PhaseError
from microshard.workloads.recording import decode, latencies, merge_named, operations_by_window
from microshard.workloads.servers import direct, with_data

POLL_SECONDS = 0.02
OTHER_HOSTS_SECONDS = 180.0  # for hosts that need longer to prepare than this one
CLOCK_QUESTIONS = 5  # the one that is answered quickest says the most
WATCH_SECONDS = 0.25
PAUSED_SECONDS = 2.0  # a busy host keeps a thread waiting too, but not for so long
STEP_SECONDS = 0.25


def share(total: int, job: Job) -> range:
    """The numbers below `total` of the clients that are this host's."""
    return range(job.part.index, total, job.part.of)


def is_first(job: Job) -> bool:
    """Whether this is the host that does what is done once."""
    return job.part.index == 0


def clock_offset(job: Job) -> float:
    """Seconds this host's clock is ahead of that of the point's first mongod, which all client hosts can reach."""
    answers: list[tuple[float, float]] = []
    with direct(with_data(job.point.processes)[0]) as client:
        for _ in range(CLOCK_QUESTIONS):
            sent = time.time()
            there = client.admin.command("isMaster")["localTime"].replace(tzinfo=UTC).timestamp()
            answered = time.time()
            answers.append((answered - sent, (sent + answered) / 2 - there))
    return min(answers)[1]


def agreed_start(context: Context, phase: str, check: Callable[[], object], patience: float) -> tuple[float, float]:
    """Report that this host is ready; the agreed start, epoch seconds of its own clock, and `clock_offset`.

    `check` raises what has gone wrong meanwhile. Raises PhaseError when no start is given in time.
    """
    assert context.folder is not None  # noqa: S101 - the program always gives one
    folder = context.folder / phase
    folder.mkdir(parents=True, exist_ok=True)
    start, offset = folder / "start", clock_offset(context.job)
    ready = {"clock_offset": offset, "server_time": time.time() - offset}
    write_atomically(str(folder / "ready"), json.dumps(ready))
    deadline = time.monotonic() + patience
    while not start.exists():
        check()
        if time.monotonic() > deadline:
            raise PhaseError("NoStartTime", "this client host was ready, but no start time was given")
        time.sleep(POLL_SECONDS)
    return int(start.read_text(encoding="ascii")) / 1000, offset


def begin_together(context: Context, phase: str) -> float:
    """Wait for the start of all hosts; the offset of this host's clock. Raises PhaseError."""
    start, offset = agreed_start(context, phase, lambda: None, OTHER_HOSTS_SECONDS)
    left = start - time.time()
    if left <= 0:
        raise PhaseError("TooLate", f"this client host was to begin {-left:.1f} s ago")
    time.sleep(left)
    return offset


def _both_clocks() -> tuple[float, float]:
    """Wall clock and monotonic clock of one moment: taken anew where this thread had to wait between them."""
    while True:
        before, wall, passed = time.monotonic(), time.time(), time.monotonic()
        if passed - before < STEP_SECONDS / 5:
            return wall, passed


class HostWatch(threading.Thread):
    """Notices that this host stood still, or that its clock was set, while a phase was executed."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self.problem: PhaseError | None = None

    def run(self) -> None:
        """Compare wall clock and monotonic clock until `stop`."""
        wall, passed = _both_clocks()
        while not self._ended.wait(WATCH_SECONDS):
            last_wall, last_passed, (wall, passed) = wall, passed, _both_clocks()
            still = passed - last_passed - WATCH_SECONDS
            step = (wall - last_wall) - (passed - last_passed)
            if still > PAUSED_SECONDS:
                self.problem = PhaseError("ClientPaused", f"this client host stood still for {still:.1f} s")
            elif abs(step) > STEP_SECONDS:
                self.problem = PhaseError("ClockStepped", f"the clock of this client host was set by {step:+.2f} s")

    def stop(self) -> None:
        """End watching; raises what was noticed."""
        self._ended.set()
        self.join()
        if self.problem is not None:
            raise self.problem


# --- one result of the parts ------------------------------------------------------------------------------------------


def merge_parts(named: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
    """One phase of the phases of all client hosts, by the names of the hosts; the engine adds its metric and figures.

    `together`: what one of them found after all had ended. A part that failed makes the whole fail; its error names the
    host. Histograms are added, so percentiles are those of all operations.
    """
    parts = list(named.values())
    merged = replace(
        parts[0],
        client_cpu_seconds=math.fsum(part.client_cpu_seconds or 0.0 for part in parts),
        seconds=max(part.seconds for part in parts),
        counters={n: sum(part.counters.get(n, 0) for part in parts) for other in parts for n in other.counters},
        samples=[sample for part in parts for sample in part.samples],
        storage=together.storage,
    )
    errors = [(who, part.error) for who, part in named.items() if part.error]
    if errors:
        who, error = errors[0]
        more = f" (and {len(errors) - 1} more hosts failed)" if len(errors) > 1 else ""
        merged.error = PhaseFailure(error.type, f"{who}: {error.message}{more}")
    if not all(part.metric for part in parts):
        # What the others measured is not that of all: it stays in their parts.
        return replace(merged, metric=None, samples=[], figures=[], latency={}, open_loop={}, windows=None)
    merged.started, merged.ended = min(part.started for part in parts), max(part.ended for part in parts)
    every = ({name: decode(one.histogram or "") for name, one in part.latency.items()} for part in parts)
    merged.latency = latencies(merge_named(every))
    # A host may have no client of some kind, such as the only writer.
    held = {name: [p.open_loop[name] for p in parts if name in p.open_loop] for p in parts for name in p.open_loop}
    merged.open_loop = {name: _held_together(loops) for name, loops in sorted(held.items())}
    if windows := [part.windows for part in parts if part.windows]:
        merged.windows = merge_windows(windows)
    merged.notes = {}
    for who, part in named.items():
        for key, note in part.notes.items():
            same = all(other.notes.get(key) == note for other in parts)
            merged.notes[key if same else f"{key} of {who}"] = note
    merged.notes |= together.notes
    return merged


def _held_together(parts: Sequence[OpenLoop]) -> OpenLoop:
    """How a rate was held by several hosts, each of which has a part of it."""
    return replace(
        parts[0],
        achieved=round(math.fsum(part.achieved for part in parts), 3),
        reached=all(part.reached for part in parts),
        operations=sum(part.operations for part in parts),
        backlog=sum(part.backlog for part in parts),
        behind_ms=max(part.behind_ms for part in parts),
        longest_wait_ms=max(part.longest_wait_ms for part in parts),
    )


def merge_windows(parts: Sequence[Windows]) -> Windows:
    """The windows of all hosts added by time, in the time that all hosts cover."""
    length = parts[0].seconds
    start = max(part.start for part in parts)
    end = min(part.start + length * len(part.values) for part in parts)
    counts = [
        ((part.start - start) / length + number, (part.start - start) / length + number + 1, value)
        for part in parts
        for number, value in enumerate(part.values)
    ]
    return Windows(start, length, [*operations_by_window(counts, 0.0, (end - start) / length)])


def clock_shifts(parts: Mapping[str, PhaseResult], known: Mapping[str, float]) -> dict[str, float]:
    """Seconds to add to the times of each host for those of the first one; `known` where clocks were not compared."""
    offsets: dict[str, Any] = {host: part.details.get("clock_offset") for host, part in parts.items()}
    first = next(iter(offsets.values()), None)
    return {
        host: known.get(host, 0.0) if offset is None or first is None else first - offset
        for host, offset in offsets.items()
    }
