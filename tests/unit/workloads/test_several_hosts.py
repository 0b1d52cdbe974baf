"""What is noticed of a client host, and how clocks that were compared shift its times."""

import time
from typing import Any

import pytest

from microshard.model.result import Latency, Metric, OpenLoop, PhaseFailure, PhaseResult, Windows
from microshard.workloads import several_hosts
from microshard.workloads.aggregate import AggregateEngine
from microshard.workloads.base import PhaseError
from microshard.workloads.several_hosts import HostWatch, clock_shifts, merge_parts, merge_windows
from microshard.workloads.traffic import TrafficEngine


class Clock:
    """The clocks of this machine with something added."""

    def __init__(self) -> None:
        self.wall = self.passed = 0.0

    def time(self) -> float:
        return time.time() + self.wall

    def monotonic(self) -> float:
        return time.monotonic() + self.passed


@pytest.mark.parametrize(
    ("wall", "passed", "kind"),
    [(3600.0, 0.0, "ClockStepped"), (-2.0, 0.0, "ClockStepped"), (5.0, 5.0, "ClientPaused"), (0.0, 0.0, "")],
)
def test_a_clock_that_is_set_and_a_host_that_stands_still_are_noticed(
    monkeypatch: pytest.MonkeyPatch, wall: float, passed: float, kind: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(several_hosts, "time", clock)
    monkeypatch.setattr(several_hosts, "WATCH_SECONDS", 0.05)
    watch = HostWatch()
    watch.start()
    time.sleep(0.2)
    clock.wall, clock.passed = wall, passed
    time.sleep(0.3)
    if not kind:
        watch.stop()
        return
    with pytest.raises(PhaseError) as raised:
        watch.stop()
    assert raised.value.kind == kind


def part(answer: Any = None, sha: str | None = None, **changes: Any) -> PhaseResult:
    return PhaseResult(
        metric=Metric("x", "s", 1.0), started=10.0, ended=20.0, answer=answer, answer_sha256=sha, **changes
    )


def test_compared_clocks_shift_to_that_of_the_first_host() -> None:
    parts = {"c1": part(details={"clock_offset": 2.0}), "c2": part(details={"clock_offset": -1.0}), "c3": part()}
    assert clock_shifts(parts, {"c2": 7.0, "c3": 4.0}) == {"c1": 0.0, "c2": 3.0, "c3": 4.0}


def test_rates_add_up_and_the_latest_host_counts() -> None:
    loops = [
        OpenLoop(100, "poisson", 40.0, True, 400, 0, 1.0, 2.0),
        OpenLoop(100, "poisson", 50.0, False, 510, 9, 30, 1),
    ]
    parts = {f"c{n}": part(open_loop={"ALL": loop}, counters={"n": 3}) for n, loop in enumerate(loops)}
    merged = merge_parts(parts, PhaseResult())
    assert merged.open_loop == {"ALL": OpenLoop(100, "poisson", 90.0, False, 910, 9, 30, 2.0)}
    assert merged.counters == {"n": 6}


def test_windows_of_ten_seconds_are_divided_by_time() -> None:
    parts = [Windows(100.0, 10.0, [10, 10, 10]), Windows(105.0, 10.0, [0, 100, 0])]
    assert merge_windows(parts) == Windows(105.0, 10.0, [10, 110])


def test_notes_that_differ_name_their_host() -> None:
    parts = {"c1": part(notes={"a": "1", "b": "2"}), "c2": part(notes={"a": "1", "b": "3"})}
    assert merge_parts(parts, PhaseResult()).notes == {"a": "1", "b of c1": "2", "b of c2": "3"}


def test_different_answers_of_two_hosts_are_an_error_by_name() -> None:
    parts = {"c1": part([1], "x", samples=[1.0]), "c2": part([2], "y", samples=[3.0])}
    merged = AggregateEngine.merge(parts, PhaseResult())
    assert merged.error is not None
    assert merged.error.type == "AnswersDiffer"
    assert merged.error.message.startswith("c1 and c2: ")
    assert AggregateEngine.merge(dict.fromkeys(parts, parts["c1"]), PhaseResult()).error is None


@pytest.mark.parametrize(("found", "error"), [(27, None), (26, "WrongCount")])
def test_the_inserts_of_all_hosts_are_held_against_what_is_there(found: int, error: str | None) -> None:
    parts = {n: part(counters={"documents": 10}, details={"documents_before": 7}) for n in ("c1", "c2")}
    merged = TrafficEngine.merge(parts, PhaseResult(details={"documents_found": found}))
    assert (merged.error.type if merged.error else None) == error
    assert merged.metric == Metric("x", "s", 2.0)


def test_an_error_is_that_of_its_host_and_no_latency_is_made_up() -> None:
    failed = PhaseResult(error=PhaseFailure("WorkerDied", "it ended"))
    merged = merge_parts({"c1": part(latency={"READ": Latency(3)}), "c2": failed}, PhaseResult())
    assert merged.error == PhaseFailure("WorkerDied", "c2: it ended")
    assert (merged.metric, merged.latency) == (None, {})
