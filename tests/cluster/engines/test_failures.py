"""What goes wrong during a load is said, stops it, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.engines.mongods import Mongod, RunJob, Started, load, query

pytestmark = pytest.mark.cluster
MANY = 20_000_000  # never reached: the test ends the load


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return True


def loading(job: Started) -> list[int]:
    """Wait until documents are coming in; the pids of the workers."""
    until(lambda: job.progress.exists() and job.progress.read_text().count("\n") > 0)
    workers = children(job.process.pid)
    assert len(workers) == 2
    return workers


def test_a_mongod_that_dies_during_the_load_fails_it(mongod: Mongod, run_job: RunJob) -> None:
    job = run_job([mongod], load(documents=MANY), query())
    workers = loading(job)
    mongod.process.kill()
    code, result, errors = job.finish()
    assert code == 3
    (phase,) = result["phases"]
    assert phase["error"]["type"] in {"AutoReconnect", "NetworkTimeout", "ServerSelectionTimeoutError"}
    assert f":{mongod.port}" in phase["error"]["message"]
    assert 0 < phase["counters"]["documents"] < MANY
    assert phase["counters"]["errors"] == 1
    assert result["valid"] is False
    assert errors.startswith("microshard.workloads: load: ")
    assert all(map(gone, workers))


def test_sigterm_ends_the_load_and_leaves_a_result(shared_mongod: Mongod, run_job: RunJob) -> None:
    job = run_job([shared_mongod], load(namespace="vosa.sigterm", documents=MANY), query())
    workers = loading(job)
    job.process.send_signal(signal.SIGTERM)
    code, result, _ = job.finish(10)
    assert code == 143
    (phase,) = result["phases"]
    assert phase["error"] == {"type": "Terminated", "message": "ended by SIGTERM"}
    assert phase["counters"]["documents"] > 0
    assert all(map(gone, workers))


def test_workers_die_with_a_killed_engine(shared_mongod: Mongod, run_job: RunJob) -> None:
    job = run_job([shared_mongod], load(namespace="vosa.sigkill", documents=MANY))
    workers = loading(job)
    job.process.kill()
    until(lambda: all(map(gone, workers)))


def test_a_worker_that_is_killed_fails_the_load(shared_mongod: Mongod, run_job: RunJob) -> None:
    job = run_job([shared_mongod], load(namespace="vosa.worker", documents=MANY))
    workers = loading(job)
    os.kill(workers[0], signal.SIGKILL)
    code, result, _ = job.finish()
    assert code == 3
    assert result["phases"][0]["error"]["type"] == "WorkerDied"
    assert "by signal 9" in result["phases"][0]["error"]["message"]
    assert gone(workers[1])


def test_a_duplicate_key_fails_the_load_with_its_code(shared_mongod: Mongod, run_job: RunJob) -> None:
    with shared_mongod.client() as client:
        client.vosa.unique.create_index("k", unique=True)
    code, result, _ = run_job([shared_mongod], load(namespace="vosa.unique")).finish()
    assert code == 3
    error = result["phases"][0]["error"]
    assert error["type"] == "WriteError"
    assert error["message"].startswith("code 11000: E11000 duplicate key error")


def test_a_write_concern_that_cannot_be_met_fails_the_load(shared_mongod: Mongod, run_job: RunJob) -> None:
    code, result, _ = run_job([shared_mongod], load(namespace="vosa.concern", write_concern={"w": 2})).finish()
    assert code == 3
    assert "cannot use 'w' > 1" in result["phases"][0]["error"]["message"]


def test_a_collection_that_is_not_empty_is_not_loaded_into(shared_mongod: Mongod, run_job: RunJob) -> None:
    with shared_mongod.client() as client:
        client.vosa.full.insert_one({})
        code, result, _ = run_job([shared_mongod], load(namespace="vosa.full")).finish()
        assert client.vosa.full.count_documents({}) == 1
    assert code == 3
    assert result["phases"][0]["error"]["type"] == "NotEmpty"


def test_documents_that_vanish_are_missed_when_counting(shared_mongod: Mongod, run_job: RunJob) -> None:
    """A capped collection drops its oldest documents without an error."""
    with shared_mongod.client() as client:
        client.vosa.create_collection("capped", capped=True, size=100_000)
    code, result, _ = run_job([shared_mongod], load(namespace="vosa.capped")).finish()
    assert code == 3
    assert result["phases"][0]["error"]["type"] == "WrongCount"
    assert result["phases"][0]["error"]["message"].startswith("20000 documents were acknowledged, ")
