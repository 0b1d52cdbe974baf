"""When a ladder ends, and where its knee is."""

from __future__ import annotations

from typing import Any

from microshard.model.phases.ycsb import Ladder
from microshard.workloads.ycsb.results import judge_ladder

RULE = Ladder().model_dump()


def rungs(*figures: tuple[float, float], limited: dict[int, str] | None = None) -> list[dict[str, Any]]:
    return [
        {
            "threads": 2**n,
            "value": value,
            "latency": {"ALL": {"percentiles": {"95": p / 2, "99": p}}},
            "limited": (limited or {}).get(n),
        }
        for n, (value, p) in enumerate(figures)
    ]


def test_it_goes_on_while_throughput_rises_even_if_latency_does() -> None:
    found = judge_ladder(rungs((100, 1), (190, 2), (300, 4)), RULE)
    assert (found.knee, found.stop) == (2, False)


def test_it_ends_when_throughput_stays_and_latency_rises_and_the_knee_is_the_best() -> None:
    found = judge_ladder(rungs((100, 1), (190, 2), (300, 4), (305, 8)), RULE)
    assert (found.knee, found.stop) == (2, True)
    assert "8 threads" in found.why


def test_flat_throughput_alone_does_not_end_it() -> None:
    assert not judge_ladder(rungs((100, 1), (101, 1), (102, 1)), RULE).stop


def test_p95_alone_counts_as_risen() -> None:
    two = rungs((100, 1), (100, 1))
    two[1]["latency"]["ALL"]["percentiles"]["95"] = 9
    assert judge_ladder(two, RULE).stop


def test_patience_waits_for_more_than_one_miss_in_a_row() -> None:
    rule = RULE | {"patience": 2}
    assert not judge_ladder(rungs((100, 1), (100, 2)), rule).stop
    assert judge_ladder(rungs((100, 1), (100, 2), (99, 3)), rule).stop
    assert not judge_ladder(rungs((100, 1), (100, 2), (200, 3), (200, 5)), rule).stop


def test_the_numbers_of_the_rule_decide() -> None:
    four = rungs((100, 1), (104, 2))
    assert judge_ladder(four, RULE).stop
    assert judge_ladder(four, RULE | {"min_gain": 0.03}).knee == 1
    assert not judge_ladder(four, RULE | {"latency_rise": 1.5}).stop


def test_a_rung_that_its_client_limited_is_never_the_best_beside_one_that_is_free() -> None:
    assert judge_ladder(rungs((100, 1), (190, 1), (300, 1), limited={2: "client"}), RULE).knee == 1
    assert judge_ladder(rungs((100, 1), (90, 1), limited={0: "router"}), RULE).knee == 1
    everything = {0: "client", 1: "client"}
    assert judge_ladder(rungs((100, 1), (190, 1), limited=everything), RULE).knee == 1
