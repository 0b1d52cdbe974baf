"""Results of YCSB phases: when a ladder ends and where its knee is; several client hosts as one."""

from dataclasses import replace
from typing import Any

import pytest

from microshard.model.phases.ycsb import Ladder
from microshard.model.result import Latency, Metric, PhaseFailure, PhaseResult, Rung, Windows
from microshard.workloads import recording
from microshard.workloads.base import PhaseError
from microshard.workloads.several_hosts import merge_windows
from microshard.workloads.ycsb.logs import summarize
from microshard.workloads.ycsb.results import fill_result, judge_ladder, merge_phases, rung_result
from tests.unit.workloads.ycsb.test_logs import BASE, log

RULE = Ladder().model_dump()
CPU = {"client": 1.0, "routers": {}, "servers": 0.0, "by_server": {}, "cores": 4, "busy": 0.4}


@pytest.mark.parametrize(
    ("rule", "figures", "limited", "knee", "stop"),
    [
        pytest.param({}, [(100, 1), (190, 2), (300, 4)], {}, 2, False, id="throughput rises as latency does"),
        pytest.param({}, [(100, 1), (190, 2), (300, 4), (305, 8)], {}, 2, True, id="only latency rises: best is knee"),
        pytest.param({}, [(100, 1), (101, 1), (102, 1)], {}, 0, False, id="flat throughput alone does not end it"),
        pytest.param({"patience": 2}, [(100, 1), (100, 2)], {}, 0, False, id="one miss of two"),
        pytest.param({"patience": 2}, [(100, 1), (100, 2), (99, 3)], {}, 0, True, id="two misses in a row"),
        pytest.param(
            {"patience": 2}, [(100, 1), (100, 2), (200, 3), (200, 5)], {}, 2, False, id="a gain between misses"
        ),
        pytest.param({}, [(100, 1), (104, 2)], {}, 0, True, id="too small a gain"),
        pytest.param({"min_gain": 0.03}, [(100, 1), (104, 2)], {}, 1, False, id="smaller min_gain"),
        pytest.param({"latency_rise": 1.5}, [(100, 1), (104, 2)], {}, 0, False, id="larger latency_rise"),
        pytest.param({}, [(100, 1), (190, 1), (300, 1)], {2: "client"}, 1, False, id="a limited rung is not the best"),
        pytest.param({}, [(100, 1), (90, 1)], {0: "router"}, 1, False, id="a free rung replaces a limited one"),
        pytest.param({}, [(100, 1), (190, 1)], {0: "client", 1: "client"}, 1, False, id="all limited"),
    ],
)
def test_a_ladder_is_judged(
    rule: dict[str, Any], figures: list[tuple[float, float]], limited: dict[int, str], knee: int, stop: bool
) -> None:
    rungs = [
        Rung(2**n, value, latency={"ALL": Latency(percentiles={"95": p99 / 2, "99": p99})}, limited=limited.get(n))
        for n, (value, p99) in enumerate(figures)
    ]
    found = judge_ladder(rungs, RULE | rule)
    assert (found.knee, found.stop) == (knee, stop)
    assert not stop or f"{rungs[-1].threads} threads" in found.why


def test_p95_alone_counts_as_risen() -> None:
    rungs = [Rung(1, 100, latency={"ALL": Latency(percentiles={"95": p95, "99": 1})}) for p95 in (1, 9)]
    assert judge_ladder(rungs, RULE).stop


def part(
    *seconds: list[int], kind: str = "measure", cpu: dict[str, Any] | None = None, rate: float | None = None
) -> PhaseResult:
    """A phase as the engine of one host measures it."""
    outcome = PhaseResult("measure", kind, "ycsb")
    found = summarize([{"READ": log(*seconds)}], BASE, BASE + len(seconds))
    fill_result(outcome, found, cpu or CPU, {"clients": 1, "threads": 4, "target": rate})
    outcome.counters["errors"] = 0
    return outcome


def merged_of(*parts: PhaseResult) -> PhaseResult:
    """The one phase of these phases of hosts c1, c2 …"""
    return merge_phases({f"c{number}": part for number, part in enumerate(parts, 1)}, PhaseResult())


def value_of(phase: PhaseResult) -> float:
    assert phase.metric is not None
    return phase.metric.value


@pytest.mark.parametrize(("rate", "reached", "backlog"), [(120, True, 0), (121, True, 3), (200, False, 240)])
def test_the_rate_of_all_hosts_is_compared_with_what_they_did_together(
    rate: float, reached: bool, backlog: int
) -> None:
    merged = merged_of(*[part(*[[10] * 60] * 3, rate=rate) for _ in range(2)])
    loop = merged.open_loop["ALL"]
    assert (loop.achieved, loop.reached, loop.backlog, loop.operations) == (120, reached, backlog, rate * 3)


def test_percentiles_are_those_of_all_hosts_values_together() -> None:
    first, second = [[10, 20, 30] * 50] * 3, [[500, 900] * 20] * 3
    merged = merged_of(part(*first), part(*second))
    raw = recording.new_histogram()
    for value in (v for host in (first, second) for interval in host for v in interval):
        raw.record_value(value)
    assert merged.latency["READ"] == recording.latency(raw)
    assert merged.counters["operations"] == 3 * (150 + 40)


def test_rates_windows_clients_and_cpu_add_up() -> None:
    merged = merged_of(part([1] * 100, [1] * 100), part([1] * 50, [1] * 50))
    assert value_of(merged) == pytest.approx(150)
    assert merged.windows is not None
    assert merged.windows.values == pytest.approx([150, 150])
    assert (merged.details["clients"], merged.details["cpu"]["client"]) == (2, 2.0)
    assert "limited" not in merged.notes
    # Windows that begin at different fractions of a second are divided by time.
    assert merge_windows([Windows(0.0, 1.0, [10, 10, 10]), Windows(0.5, 1.0, [0, 100, 0])]) == Windows(
        0.5, 1.0, [10, 110]
    )


def test_one_host_that_is_limited_or_failed_marks_the_whole() -> None:
    merged = merged_of(part([1]), part([1], cpu=CPU | {"client": 3.9}))
    assert merged.details["limited"] == "client"
    assert "limited of c2" in merged.notes
    failed = replace(part([1]), error=PhaseFailure("ClientDied", "client2 …"), metric=None)
    assert merged_of(part([1]), failed).error == PhaseFailure("ClientDied", "c2: client2 …")


def test_a_load_ends_with_the_last_host() -> None:
    parts = [part([1] * 100, kind="load"), part([1] * 100, [1] * 100, kind="load")]
    for each, documents in zip(parts, (100, 200), strict=True):
        each.counters["documents"] = documents
    assert value_of(merged_of(*parts)) == pytest.approx(150, rel=0.01)


def ladder(values: list[int], percentile: list[int]) -> PhaseResult:
    """A host's ladder: operations a second and latency of every rung."""
    rungs = [summarize([{"READ": log([p] * v)}], BASE, BASE + 1) for v, p in zip(values, percentile, strict=True)]
    phase = part([1])
    phase.rungs = [rung_result(2**n, found, CPU) for n, found in enumerate(rungs)]
    phase.figures = [Metric("threads at the knee", "threads", 1)]
    phase.details |= {"rule": RULE, "rungs": [{"READ": recording.encode(r.histograms["READ"])} for r in rungs]}
    return phase


def test_rungs_are_judged_on_what_all_hosts_did_together() -> None:
    # Alone, the first host would have ended at its second rung; together the second rung is the best.
    first, second = ladder([100, 90, 80], [10, 20, 50]), ladder([100, 200, 190], [10, 11, 50])
    merged = merged_of(first, second)
    assert [rung.value for rung in merged.rungs] == pytest.approx([200, 290, 270])
    assert merged.figures[0].value == 2
    assert value_of(merged) == pytest.approx(290)
    assert merged.latency["READ"].count == 290
    assert merged.rungs[1].latency["READ"].percentiles["99"] == 20
    # Rungs after the end are left out.
    merged = merged_of(*[ladder([100, 100, 500], [10, 20, 30])] * 2)
    assert [rung.threads for rung in merged.rungs] == [1, 2]
    assert merged.figures[0].value == 1


def test_ladders_of_different_threads_are_refused() -> None:
    other = ladder([100, 200], [10, 20])
    other.rungs[1].threads = 3
    with pytest.raises(PhaseError, match=r"\[2, 3\]"):
        merged_of(ladder([100, 200], [10, 20]), other)
