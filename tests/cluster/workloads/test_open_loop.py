"""A server that stalls: an open loop sees it in its latencies, a closed loop asks less meanwhile and does not."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient

from tests.cluster.workloads.mongods import Mongod, RunJob

pytestmark = pytest.mark.cluster
STALL_SECONDS, EVERY_SECONDS = 0.3, 2.0  # 15 % of the time
DOCUMENTS = 2_000


@contextmanager
def stalling(mongod: Mongod) -> Iterator[None]:
    """The mongod is stopped by SIGSTOP for 0.3 s every 2 s."""
    over, pid = threading.Event(), mongod.process.pid

    def stall() -> None:
        while not over.wait(EVERY_SECONDS - STALL_SECONDS):
            os.kill(pid, signal.SIGSTOP)
            over.wait(STALL_SECONDS)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stall)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def filled(shared_mongod: Mongod) -> Mongod:
    with MongoClient[dict[str, Any]]("127.0.0.1", shared_mongod.port) as client:
        client.lab.documents.insert_many([{"_id": n, "n": n} for n in range(DOCUMENTS)])
    return shared_mongod


def readers(**changes: Any) -> dict[str, Any]:
    keys = {"namespace": "lab.documents", "threads": 2, "read_preference": "primary", "warm_up_seconds": 0.5}
    parameters = keys | {"duration_seconds": 8.0} | changes
    return {"name": "m", "kind": "measure", "engine": "readers", "parameters": parameters}


def p99_ms(phase: dict[str, Any], operation: str) -> float:
    found: float = phase["latency"][operation]["percentiles"]["99"] / 1000
    return found


CASES = {"readers": ("READ", readers, {"rate": 200.0})}


@pytest.mark.parametrize("engine", CASES)
def test_the_open_loop_sees_a_stalled_server_and_the_closed_loop_does_not(
    engine: str, filled: Mongod, run_job: RunJob
) -> None:
    operation, phase_of, rate = CASES[engine]
    with stalling(filled):
        closed = run_job([filled], phase_of()).finish()[1]["phases"][0]
        opened = run_job([filled], phase_of(**rate)).finish()[1]["phases"][0]
    assert p99_ms(closed, operation) < 50
    assert p99_ms(opened, f"Intended-{operation}") > 200
    # The same operations, timed from the sending, do not see it either: only the few that were on their way.
    assert p99_ms(opened, operation) < p99_ms(opened, f"Intended-{operation}")
    assert f"Intended-{operation}" not in closed["latency"]
    held = opened["open_loop"][operation]
    assert held["reached"], held
    assert held["operations"] == pytest.approx(200 * 8, rel=0.02)


def test_a_rate_no_server_reaches_is_reported_with_its_backlog(filled: Mongod, run_job: RunJob) -> None:
    code, result, _ = run_job([filled], readers(rate=1e5, duration_seconds=2.0)).finish()
    phase = result["phases"][0]
    held = phase["open_loop"]["READ"]
    assert code == 0
    assert not held["reached"]
    assert held["achieved"] < 5e4 < held["backlog"]
    # What was never sent is in the histogram from the intended time, with the time it had waited.
    sent, intended = (phase["latency"][name]["count"] for name in ("READ", "Intended-READ"))
    assert intended == sent + held["backlog"]
