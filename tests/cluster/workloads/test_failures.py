"""What goes wrong during a load is said, stops it, and leaves no process behind."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.workloads.mongods import Mongod, RunJob, Started, load, query

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


@pytest.mark.parametrize(
    ("name", "changes", "kind", "message"),
    [
        pytest.param("unique", {}, "WriteError", "code 11000: E11000 duplicate key", id="a duplicate key"),
        pytest.param("concern", {"write_concern": {"w": 2}}, None, "cannot use 'w' > 1", id="no such member"),
        pytest.param("full", {}, "NotEmpty", "holds documents already", id="a collection that is not empty"),
        # A capped collection drops its oldest documents without an error.
        pytest.param("capped", {}, "WrongCount", "20000 documents were acknowledged, ", id="documents that vanish"),
    ],
)
def test_what_keeps_documents_out_fails_the_load_by_name(
    shared_mongod: Mongod, run_job: RunJob, name: str, changes: dict[str, Any], kind: str | None, message: str
) -> None:
    with shared_mongod.client() as client:
        client.vosa.unique.create_index("k", unique=True)
        client.vosa.full.replace_one({"_id": 0}, {}, upsert=True)
        if "capped" not in client.vosa.list_collection_names():
            client.vosa.create_collection("capped", capped=True, size=100_000)
        code, result, _ = run_job([shared_mongod], load(namespace=f"vosa.{name}", **changes)).finish()
        assert client.vosa.full.count_documents({}) == 1
    error = result["phases"][0]["error"]
    assert (code, error["type"]) == (3, kind or error["type"])
    assert message in error["message"]
