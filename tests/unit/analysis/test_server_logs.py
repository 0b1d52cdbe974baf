"""Summaries of logs made of lines as MongoDB 6.0.5 wrote them."""

import gzip
import json
from pathlib import Path
from typing import Any

from microshard.analysis.server_logs import shape_of, summarise, summarise_folder
from microshard.model.run_records import LogSummary, SlowOperations


def line(message: str, severity: str = "I", component: str = "COMMAND", **attributes: Any) -> str:
    record = {"t": {"$date": "2026-11-21T06:24:10.1+00:00"}, "s": severity, "c": component, "id": 1, "msg": message}
    return json.dumps(record | {"attr": attributes}, separators=(",", ":"))


def slow(namespace: str, milliseconds: int, plan: str = "COLLSCAN", **command: Any) -> str:
    return line(
        "Slow query", type="command", ns=namespace, command=command, planSummary=plan, docsExamined=50,
        durationMillis=milliseconds,
    )  # fmt: skip


PIPELINE = [{"$match": {"e": 1000}}, {"$group": {"_id": "$make"}}]


def test_slow_operations_are_counted_by_shape_the_costliest_first() -> None:
    found = summarise(
        [
            slow("vosa.mot", 120, find="mot", filter={"make": "FORD", "mileage": {"$gt": 9, "$lt": 99}}),
            slow("vosa.mot", 300, aggregate="mot", pipeline=PIPELINE),
            slow("vosa.mot", 500, aggregate="mot", pipeline=PIPELINE),
            slow("config.chunks", 9000, find="chunks"),
            slow("local.oplog.rs", 9000, getMore=1),
        ]
    )
    assert found.slow == 3
    first, second = found.shapes
    assert first == SlowOperations("aggregate", "vosa.mot", "$match → $group", "COLLSCAN", 2, 800, 500, 100)
    assert second.shape == "{make: 1, mileage: $gt $lt}"


def test_no_value_of_a_query_is_in_its_shape() -> None:
    assert "FORD" not in shape_of({"find": "mot", "filter": {"make": "FORD", "$or": [{"a": "secret"}]}})
    assert shape_of({"ping": 1}) == ""


def test_connections_elections_migrations_warnings_and_errors_are_counted() -> None:
    found = summarise(
        [
            line("Connection accepted", component="NETWORK", connectionCount=4),
            line("Connection accepted", component="NETWORK", connectionCount=9),
            line("Connection accepted", component="NETWORK", connectionCount=7),
            line("Election succeeded, assuming primary role", component="ELECTION"),
            line("Starting chunk migration donation", component="MIGRATE"),
            line("Access control is not enabled", severity="W", component="CONTROL"),
            line("Invariant", severity="F", component="ASSERT"),
            line("Failed", severity="E", component="STORAGE"),
        ]
    )
    assert found == LogSummary(
        connections=3, connections_max=9, elections=1, migrations=1, warnings=1, errors=2, unread=0
    )


def test_lines_that_are_no_json_are_counted_and_passed_over() -> None:
    found = summarise(["2015-07-03T10:00:00 I - old", '{"msg":"Slow query", torn', line("x", severity="W")])
    assert (found.unread, found.warnings) == (2, 1)


def test_a_log_that_is_cut_says_what_it_had(tmp_path: Path) -> None:
    lines = "\n".join(slow("a.b", 200 + n, find="b", filter={f"f{n % 7}": n}) for n in range(5000))
    whole = gzip.compress(lines.encode())
    (tmp_path / "shard01.log.gz").write_bytes(whole)
    (tmp_path / "shard02.log.gz").write_bytes(whole[: len(whole) // 2])
    found = summarise_folder(tmp_path)
    assert found["shard01"].slow == 5000
    assert 0 < found["shard02"].slow < 5000
