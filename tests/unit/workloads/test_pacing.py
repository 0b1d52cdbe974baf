"""Schedules of an open loop, and what is recorded of operations that are late or never sent."""

import itertools
import threading
import time
from typing import Any

import pytest

from microshard.model.pacing import RateSearch
from microshard.workloads import pacing
from microshard.workloads.pacing import PacedLatency, Pacer


def schedule(rate: float, arrivals: str = "constant", seed: int = 1) -> dict[str, Any]:
    return {"rate": rate, "each": 1.0, "arrivals": arrivals, "seed": seed}


def times(made: dict[str, Any], clients: int, until: float) -> list[float]:
    """What all clients together intend before `until`."""
    each = (pacing.intended_times(made, client, clients) for client in range(clients))
    return sorted(itertools.chain(*(itertools.takewhile(lambda at: at < until, one) for one in each)))


@pytest.mark.parametrize("clients", [1, 3, 7])
def test_constant_gaps_are_those_of_the_rate_however_many_clients(clients: int) -> None:
    found = times(schedule(50), clients, 2.0)
    assert found == pytest.approx([n / 50 for n in range(100)])


def test_poisson_arrivals_have_the_rate_and_its_scatter_and_repeat_with_the_seed() -> None:
    found = times(schedule(1000, "poisson"), 4, 20.0)
    gaps = [b - a for a, b in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(0.001, rel=0.03)
    assert deviation == pytest.approx(mean, rel=0.05)  # of an exponential distribution
    assert found == times(schedule(1000, "poisson"), 4, 20.0) != times(schedule(1000, "poisson", 2), 4, 20.0)


def test_a_late_client_sends_all_it_has_missed_and_counts_from_when_it_was_due() -> None:
    pacer, latency = Pacer(schedule(100), 0, 1), PacedLatency()
    began = pacer.begin(0.5)
    slept = False
    while (intended := pacer.wait()) is not None:
        sent = time.monotonic()
        if not slept:
            time.sleep(0.3)  # as a server that stalls
            slept = True
        latency.record(intended, sent, time.monotonic())
    assert list(pacer.unsent(began + 0.5)) == []
    latency.finish(began + 0.5)
    found = pacing.held(latency, schedule(100), 0.5)
    assert (found.operations, found.backlog, found.reached) == (50, 0, True)
    assert found.longest_wait_ms >= 280, "what was due 10 ms after the stall began"
    # 30 of 50 operations were late: the 75th percentile sees it from the intended time, and not from the sending.
    assert latency.intended.get_value_at_percentile(75) > 100_000 > latency.sent.get_value_at_percentile(75)


def test_what_was_never_sent_is_recorded_with_what_it_had_waited() -> None:
    pacer, latency = Pacer(schedule(1000), 0, 1), PacedLatency()
    until = pacer.begin(0.2) + 0.2
    intended = pacer.wait()
    time.sleep(0.25)
    assert intended is not None
    latency.record(intended, intended, time.monotonic())
    assert pacer.wait() is None
    latency.finish(until, pacer.unsent(until))
    found = pacing.held(latency, schedule(1000), 0.2)
    assert (found.operations, found.backlog, found.reached) == (200, 199, False)
    assert found.behind_ms == pytest.approx(199, abs=2)
    assert latency.intended.get_total_count() == 200
    assert latency.sent.get_total_count() == 1
    assert "199 operations waited" in found.sentence
    copy = PacedLatency.of_message(latency.message())
    assert pacing.merged([copy, copy]).unsent == 398


def test_a_closed_loop_is_always_due_and_ends_when_it_is_stopped() -> None:
    pacer, stop = Pacer(None, 0, 1), threading.Event()
    pacer.begin()
    due = pacer.wait(stop)
    assert due is not None
    assert time.monotonic() - due < 1
    stop.set()
    assert pacer.wait(stop) is None
    assert list(pacer.unsent(time.monotonic())) == []


def test_the_rates_of_a_search_rise_by_its_factor_and_none_is_above_the_last() -> None:
    assert RateSearch(at_most=5.0, first=100.0, factor=2.0, last=800.0).rates() == [100, 200, 400, 800]
    assert RateSearch(at_most=5.0, first=100.0, factor=2.0, last=799.0).rates() == [100, 200, 400]
    with pytest.raises(ValueError, match="below first"):
        RateSearch(at_most=5.0, first=100.0, last=99.0)
