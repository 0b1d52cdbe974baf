"""A server that stalls: an open loop sees it in its latencies, a closed loop asks less meanwhile and does not."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient

from tests.cluster.workloads.mongods import LOAD as INSERT
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
    # In the closed loop one: a stall is met by each, and must stay below one read in a hundred on a slow machine too.
    keys = {"namespace": "lab.documents", "threads": 4 if changes else 1, "read_preference": "primary"}
    parameters = keys | {"warm_up_seconds": 0.5, "duration_seconds": 8.0} | changes
    return {"name": "m", "kind": "measure", "engine": "readers", "parameters": parameters}


def insert(**changes: Any) -> dict[str, Any]:
    # In the closed loop many more documents: it has to meet some stalls, too.
    keys = {"dataset": "pairs", "namespace": f"lab.insert{len(changes)}", "documents": 4_800 if changes else 80_000}
    common = {"batch_size": 10, "processes": 2}
    return {"name": "m", "kind": "measure", "engine": "insert", "parameters": INSERT | common | keys | changes}


def traffic(**changes: Any) -> dict[str, Any]:
    load = {"threads": 4, "processes": 2, "batch_size": 10, "reads": 0.5} | changes
    keys = {"namespace": f"lab.traffic{len(changes)}", "load": load, "seconds_long": 8.0}
    return {"name": "m", "kind": "measure", "engine": "traffic", "parameters": keys}


def aggregate(**changes: Any) -> dict[str, Any]:
    keys: dict[str, Any] = {"namespace": "lab.documents", "pipeline": [{"$match": {"_id": 7}}], "pipeline_name": None}
    keys |= {"iterations": 120 if changes else 1500, "connections": 4}
    return {"name": "m", "kind": "measure", "engine": "aggregate", "parameters": keys | changes}


def p99_ms(phase: dict[str, Any], operation: str) -> float:
    if operation not in phase.get("latency", {}):  # a query of a closed loop has its time in the samples
        samples: list[float] = sorted(phase["samples"])
        return 1000 * samples[len(samples) * 99 // 100]
    found: float = phase["latency"][operation]["percentiles"]["99"] / 1000
    return found


# Each sends 60 operations a second in the open loop; `held` is in the unit of its rate.
CASES: dict[str, tuple[str, Callable[..., dict[str, Any]], float, str]] = {
    "readers": ("READ", readers, 60.0, "READ"),
    "insert": ("INSERT", insert, 600.0, "INSERT"),
    "traffic": ("READ", traffic, 60.0, "ALL"),
    "aggregate": ("AGGREGATE", aggregate, 60.0, "AGGREGATE"),
}
OTHERS = [name for name in CASES if name != "readers"]


@pytest.mark.parametrize("engine", ["readers", *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_the_open_loop_sees_a_stalled_server_and_the_closed_loop_does_not(
    engine: str, filled: Mongod, run_job: RunJob
) -> None:
    operation, phase_of, rate, loop = CASES[engine]
    with stalling(filled):
        closed = run_job([filled], phase_of()).finish(150)[1]["phases"][0]
        opened = run_job([filled], phase_of(rate=rate)).finish(150)[1]["phases"][0]
    seen = p99_ms(opened, f"Intended-{operation}")
    assert seen > 200
    assert p99_ms(closed, operation) < seen / 3
    # Timed from the sending, only those of them are slow that were on their way, and not all that had to wait.
    sent, intended = (opened["latency"][name]["percentiles"]["90"] for name in (operation, f"Intended-{operation}"))
    assert sent < intended / 2
    assert f"Intended-{operation}" not in closed.get("latency", {})
    held = opened["open_loop"][loop]
    assert held["reached"], held
    assert held["rate"] == rate == pytest.approx(held["achieved"], rel=0.08)  # it may end in a stall
    assert held["operations"] == pytest.approx(60 * 8, rel=0.05)


def test_a_client_that_stood_still_has_measured_nothing(filled: Mongod, run_job: RunJob) -> None:
    """A closed loop would hardly notice: it has sent nothing meanwhile."""
    started = run_job([filled], readers(duration_seconds=5.0))
    deadline = time.monotonic() + 30
    while '"m"' not in (started.progress.read_text() if started.progress.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.5)
    os.kill(started.process.pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(started.process.pid, signal.SIGCONT)
    code, result, _ = started.finish()
    assert code == 3
    assert result["phases"][0]["error"]["type"] == "ClientPaused"
    assert "stood still for" in result["phases"][0]["error"]["message"]


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


def test_a_search_ends_at_the_rate_that_is_not_reached_and_reports_the_one_before(
    filled: Mongod, run_job: RunJob
) -> None:
    search = {"metric": "p99_ms", "at_most": 500.0, "first": 20.0, "factor": 16.0, "last": 1e6, "rung_seconds": 3}
    code, result, _ = run_job([filled], readers(search=search | {"settle_seconds": 1})).finish(120)
    phase = result["phases"][0]
    rows = phase["table"]["rows"]
    assert code == 0
    assert [row[0] for row in rows] == [20 * 16**n for n in range(len(rows))]
    assert [row[-1] for row in rows] == ["yes"] * (len(rows) - 1) + ["no"]
    # The figure, the latencies and the interval are those of the last rung that held.
    assert phase["metric"]["value"] == rows[-2][0] == phase["open_loop"]["READ"]["rate"]
    assert phase["open_loop"]["READ"]["reached"]
    assert phase["ended"] - phase["started"] == pytest.approx(3, abs=0.1)


def test_a_search_whose_first_rate_does_not_hold_has_no_figure(filled: Mongod, run_job: RunJob) -> None:
    search = {"at_most": 20.0, "first": 60.0, "last": 60.0, "rung_seconds": 4, "settle_seconds": 0}
    with stalling(filled):
        code, result, _ = run_job([filled], readers(search=search)).finish()
    error = result["phases"][0]["error"]
    assert (code, error["type"]) == (3, "NoRateHeld")
    assert "60/s did not hold: p99_ms" in error["message"]
