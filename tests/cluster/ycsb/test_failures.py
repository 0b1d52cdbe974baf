"""What goes wrong under YCSB's clients is an error by name; what was measured before is kept."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.lab import children, wait_until
from tests.cluster.workloads.mongods import Mongod, RunJob, Started, start_mongod, stop_mongod
from tests.cluster.ycsb.conftest import phase

Records = Callable[..., None]


def failure(started: Started, seconds: float = 60) -> tuple[str, str]:
    code, result, errors = started.finish(seconds)
    assert code == 3, errors
    assert "Traceback" not in errors
    assert not result["valid"]
    error = result["phases"][-1]["error"]
    return error["type"], error["message"]


def java_of(started: Started) -> int:
    found: list[int] = wait_until(lambda: children(started.process.pid), what="the client")
    return found[0]


def running(started: Started, operation: str = "READ") -> None:
    """Wait until a client's log has a second of operations."""
    log = started.out.with_suffix("") / "measure" / f"client1-{operation}.hdr"
    wait_until(lambda: log.exists() and log.read_text().count("\n") > 4, what="the first operations")


@pytest.mark.parametrize(
    ("documents", "given", "error", "message"),
    [
        (0, phase("measure"), "TooFewRecords", "ycsb.usertable holds 0 documents"),
        (1, phase("load"), "NotEmpty", "ycsb.usertable holds documents"),
        (0, phase("load", properties={"mongodb.compressors": "lzma"}), "ClientDied",
         "mongodb.compressors=lzma: not one of snappy, zlib, zstd"),
    ],
)  # fmt: skip
def test_what_cannot_begin_is_refused_by_name(
    mongod: Mongod, run_job: RunJob, records: Records, documents: int, given: dict[str, Any], error: str, message: str
) -> None:
    if documents:
        with mongod.client() as client:
            records(client, documents)
    kind, text = failure(run_job([mongod], given))
    assert kind == error
    assert message in text


def test_a_client_that_dies_is_named_and_the_phase_before_is_kept(mongod: Mongod, run_job: RunJob) -> None:
    started = run_job([mongod], phase("load", batch_size=100), phase("measure", clients=2, duration_seconds=60))
    running(started)
    pid = java_of(started)
    os.kill(pid, signal.SIGKILL)
    kind, message = failure(started)
    assert kind == "ClientDied"
    assert f"(pid {pid}) was killed by SIGKILL" in message
    _, result, _ = started.finish()
    assert [phase["error"] is None if "error" in phase else True for phase in result["phases"]] == [True, False]


@pytest.mark.long
def test_records_that_are_not_there_make_the_measurement_invalid(
    mongod: Mongod, run_job: RunJob, records: Records
) -> None:
    with mongod.client() as client:
        records(client)
    kind, message = failure(run_job([mongod], phase("measure", warm_up_seconds=0, duration_seconds=2)))
    assert kind == "Errors"
    assert "NOT_FOUND" in message


@pytest.mark.long
def test_a_mongod_that_dies_is_named(run_job: RunJob, tmp_path: Path) -> None:
    mongod = start_mongod(tmp_path / "mongod7")
    try:
        started = run_job([mongod], phase("load", batch_size=100), phase("measure", duration_seconds=60))
        running(started)
        os.kill(mongod.pid(), signal.SIGKILL)
        kind, message = failure(started)
        assert kind == "ProcessDied"
        assert f"mongod7 (127.0.0.1:{mongod.port}) ended during the measurement" in message
        _, result, _ = started.finish()
        assert result["phases"][1]["counters"]["errors"] > 0
    finally:
        stop_mongod(mongod)


@pytest.mark.long
def test_a_terminated_engine_takes_its_clients_along(mongod: Mongod, run_job: RunJob) -> None:
    started = run_job([mongod], phase("load", batch_size=100), phase("measure", duration_seconds=60))
    running(started)
    pid = java_of(started)
    started.process.terminate()
    code, result, _ = started.finish()
    assert code == 143
    assert "ended by SIGTERM" in result["problems"][0]
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.long
def test_a_primary_that_steps_down_makes_the_measurement_invalid(run_job: RunJob, tmp_path: Path) -> None:
    mongod = start_mongod(tmp_path / "rs", "--replSet", "rs", "--oplogSize", "16")
    try:
        with mongod.client() as client:
            host = f"127.0.0.1:{mongod.port}"
            client.admin.command("replSetInitiate", {"_id": "rs", "members": [{"_id": 0, "host": host}]})
            wait_until(lambda: client.admin.command("hello")["isWritablePrimary"], what="the primary")
            updates: Any = {"update": 1.0}
            started = run_job(
                [mongod], phase("load", batch_size=100), phase("measure", duration_seconds=60, proportions=updates)
            )
            running(started, "UPDATE")
            client.admin.command({"replSetStepDown": 5, "force": True})
        kind, message = failure(started)
        assert kind == "OperationFailed"
        assert "UPDATE failed with" in message
        _, result, _ = started.finish()
        counters = result["phases"][1]["counters"]
        assert any(name.startswith("errors UPDATE") and many > 0 for name, many in counters.items()), counters
    finally:
        stop_mongod(mongod)
