"""The server sampler: records from serverStatus, and what becomes of a server that is silent."""

import json
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from microshard.workloads import server_telemetry as server

STATUS: dict[str, Any] = {
    "uptime": 50.0,
    "version": "6.0.5",
    "opcounters": {"insert": 10, "query": 2, "deprecated": {"total": 5}},
    "connections": {"current": 4},
    "globalLock": {"currentQueue": {"total": 5, "readers": 3, "writers": 2}},
    "repl": {
        "isWritablePrimary": False,
        "secondary": False,
        "setName": "rs0",
        "lastWrite": {"lastWriteDate": datetime(2026, 11, 24, tzinfo=UTC)},
    },
    "locks": {
        "Global": {"timeAcquiringMicros": {"r": 100, "w": 20}},
        "Collection": {"timeAcquiringMicros": {"W": 30}, "acquireCount": {"W": 5}},
        "ReplicationStateTransition": {"timeAcquiringMicros": {"w": 9000}},
    },
    "flowControl": {"timeAcquiringMicros": 60},
    "metrics": {"getLastError": {"wtime": {"num": 2, "totalMillis": 7}}},
    "opLatencies": {"reads": {"latency": 900, "ops": 2}, "writes": {"latency": 100, "ops": 1}},
    "shardingStatistics": {"countDonorMoveChunkStarted": 1, "countRecipientMoveChunkStarted": 2},
    "extra_info": {"page_faults": 3},
    "wiredTiger": {
        "cache": {
            "bytes read into cache": 100,
            "bytes currently in the cache": 70,
            "maximum bytes configured": 80,
            "tracked dirty bytes in the cache": 9,
            "pages evicted by application threads": 6,
            "application threads page read from disk to cache time (usecs)": 500,
            "application threads page write from cache to disk time (usecs)": 40,
        },
        "thread-yield": {"application thread time waiting for cache (usecs)": 7},
        "transaction": {"transaction checkpoint total time (msecs)": 30, "transaction checkpoint currently running": 1},
        "concurrentTransactions": {"read": {"out": 1, "available": 127}, "write": {"out": 2, "available": 126}},
    },
}


def test_counters_are_what_only_grows() -> None:
    found = {"opcounters.insert": 10, "opcounters.query": 2, "page_faults": 3, "read_into_bytes": 100, "stall_us": 547}
    found |= {"evicted_by_operations": 6, "checkpoint_ms": 30, "migrations": 3}
    found |= {"waits_us.lock": 150, "waits_us.flow_control": 60, "waits_us.write_concern": 7000}
    found |= {"served.reads": 2, "served.writes": 1, "serving_us.reads": 900, "serving_us.writes": 100}
    assert server.counters(STATUS) == found


def test_a_record_has_rates_and_levels() -> None:
    rates = {"opcounters.insert": 5.0, "opcounters.query": 0.0, "page_faults": 1.0, "read_into_bytes": 2.0}
    rates |= {"evicted_by_operations": 8.0, "stall_us": 5e5, "checkpoint_ms": 250.0}
    rates |= {"served.reads": 3.0, "serving_us.reads": 2e6, "serving_us.writes": 5e5, "migrations": 0.5}
    rates |= {"waits_us.lock": 2e6}
    found = server.record("shard01", 7.0, STATUS, rates)
    assert found.pop("wt") == {
        "cache_bytes": 70,
        "cache_max": 80,
        "dirty_bytes": 9,
        "read_into_bytes": 2.0,
        "evicted_by_operations": 8.0,
        "tickets_read_out": 1,
        "tickets_write_out": 2,
        "tickets_read_left": 127,
        "tickets_write_left": 126,
        "stall": 0.5,
        "checkpoint": 0.25,
        "checkpoint_running": 1,
    }
    assert found == {
        "t": 7.0,
        "process": "shard01",
        "version": "6.0.5",
        "state": "other",
        "connections": 4,
        "page_faults": 1.0,
        "operation_time": 2.5,
        "served": {"reads": 3.0},
        "serving": {"reads": 2.0, "writes": 0.5},
        "migrations": 0.5,
        "opcounters": {"insert": 5.0, "query": 0.0},
        "queue": {"readers": 3, "writers": 2},
        "waits": {"lock": 2.0},
        "replica_set": "rs0",
        "last_write": 1795478400.0,
    }
    without_engine = {key: value for key, value in STATUS.items() if key != "wiredTiger"}
    assert "wt" not in server.record("old", 7.0, without_engine, rates)


# Fields of serverStatus by version: tickets until 6.0 are seen on the packaged servers (tests/cluster/run/
# test_versions.py), the rest is from the manual, "serverStatus", and WiredTiger's dist/stat_data.py.
RUNNING, SPENT = "transaction checkpoint currently running", "transaction checkpoint total time (msecs)"
TICKETS = {"read": {"out": 1, "available": 127}, "write": {"out": 2, "available": 126}}
REPORTED = {"tickets_read_out": 1, "tickets_write_out": 2, "tickets_read_left": 127, "tickets_write_left": 126}


@pytest.mark.parametrize(
    ("engine", "rest", "reported"),
    [
        ({"concurrentTransactions": TICKETS, "transaction": {RUNNING: 1, SPENT: 30}}, {},
         REPORTED | {"checkpoint": 0.25, "checkpoint_running": 1}),
        ({"checkpoint": {"progress state": 3, "total time (msecs)": 30}}, {"queues": {"execution": TICKETS}},
         REPORTED | {"checkpoint": 0.25, "checkpoint_running": 1}),
        ({"checkpoint": {"progress state": 0, "total time (msecs)": 30}}, {},
         {"checkpoint": 0.25, "checkpoint_running": 0}),
        ({}, {}, {}),
    ],
    ids=["4.4 to 7.0", "8.0", "8.0 without tickets", "neither"],
)  # fmt: skip
def test_what_a_version_does_not_report_is_absent(
    engine: dict[str, Any], rest: dict[str, Any], reported: dict[str, float]
) -> None:
    moved = ("concurrentTransactions", "transaction")
    kept = {key: value for key, value in STATUS["wiredTiger"].items() if key not in moved}
    status = STATUS | rest | {"wiredTiger": kept | engine}
    found = server.counters(status)
    assert ("checkpoint_ms" in found) == ("checkpoint" in reported)
    line = server.record("shard01", 7.0, status, found | ({"checkpoint_ms": 250.0} if "checkpoint" in reported else {}))
    named = {key: value for key, value in line["wt"].items() if key.startswith(("tickets", "checkpoint"))}
    assert named == reported


def test_a_pool_is_full_when_a_shard_has_no_connection_to_give() -> None:
    def stats(**shard: int) -> dict[str, Any]:
        """As a mongos says it: the pool of the registry of shards is none of a client's."""
        quiet = {"inUse": 0, "available": 3, "created": 3, "refreshing": 0}
        busy = {"inUse": 0, "available": 1, "created": 1, "refreshing": 0} | shard
        config = {"inUse": 5, "available": 0, "created": 5, "refreshing": 2}
        pools = {"NetworkInterfaceTL-TaskExecutorPool-0": {"poolInUse": 9, "h:1": busy, "h:2": quiet}}
        return {"pools": {**pools, "NetworkInterfaceTL-ShardRegistry": {"h:0": config}}}

    assert server.pool_use(stats(inUse=3), 4, 2) == {"in_use": 3, "available": 4, "refreshing": 0, "full": 0}
    assert server.pool_use(stats(inUse=3, refreshing=1), 4, 2)["full"] == 1, "all it may have"
    assert server.pool_use(stats(available=0, refreshing=2), 4, 2)["full"] == 1, "all that may be opened at a time"
    assert server.pool_use({"pools": {}}, 4, 2)["full"] == 0


@pytest.mark.parametrize(
    ("mine", "state"),
    [
        ({"isWritablePrimary": True}, "primary"),
        ({"ismaster": True}, "primary"),
        ({"isWritablePrimary": False, "secondary": True}, "secondary"),
        ({"isWritablePrimary": False, "secondary": False}, "other"),
    ],
)
def test_a_member_that_neither_leads_nor_follows_is_seen(mine: dict[str, Any], state: str) -> None:
    status = STATUS | {"repl": mine}
    assert server.record("shard01", 7.0, status, server.counters(status))["state"] == state


def test_the_min_round_trip_is_that_of_the_own_connection() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        assert server.min_round_trip(endpoint) is None
        with socket.create_connection(listener.getsockname()):
            found = server.min_round_trip(endpoint)
            assert found is not None
            assert 0 < found < 0.05, "loopback takes microseconds, in seconds"


def test_mongods_are_found_in_a_job_by_endpoint_or_address() -> None:
    processes: list[dict[str, Any]] = [{"name": "a", "role": "shard", "endpoint": "h:1"}]
    processes.append({"name": "m", "role": "mongos", "address": "h", "port": 2})
    found = server.targets({"point": {"processes": processes}})
    assert found == [("a", "h:1", "mongodb://h:1/", False), ("m", "h:2", "mongodb://h:2/", True)]


def test_a_silent_server_is_recorded_and_sigterm_ends_at_once(tmp_path: Path) -> None:
    """A listener that accepts and never answers, and a port where nobody listens."""
    with socket.socket() as silent, socket.socket() as closed:
        for each in (silent, closed):
            each.bind(("127.0.0.1", 0))
        silent.listen()
        processes = [
            {"name": name, "role": "shard", "endpoint": f"127.0.0.1:{each.getsockname()[1]}"}
            for name, each in (("silent", silent), ("closed", closed))
        ]
        job, out = tmp_path / "job.json", tmp_path / "server.jsonl"
        job.write_text(json.dumps({"point": {"processes": processes}}))
        command = [sys.executable, "-m", "microshard.workloads.server_telemetry", "--job", str(job), "--out", str(out)]
        sampler = subprocess.Popen([*command, "--interval", "0.2"])
        try:
            deadline = time.monotonic() + 60
            named: set[str] = set()
            while named != {"silent", "closed"}:
                assert time.monotonic() < deadline
                text = out.read_text() if out.exists() else ""
                lines = [json.loads(line) for line in text.splitlines()]
                assert all("error" in line for line in lines)
                named = {line["process"] for line in lines}
                time.sleep(0.05)
            sampler.send_signal(signal.SIGTERM)
            assert sampler.wait(1) == 0, "it does not wait for the time-out of the silent one"
        finally:
            sampler.kill()
            sampler.wait()


def test_a_job_that_cannot_be_read_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "job.json").write_text("{}")
    code = server.main(["--job", str(tmp_path / "job.json"), "--out", str(tmp_path / "out")])
    assert code == 2
    assert "job.json" in capsys.readouterr().err
