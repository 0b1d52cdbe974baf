"""The logs of YCSB clients: what is read, summarized and merged."""

import os
import random
from pathlib import Path

import pytest

from microshard.workloads import recording
from microshard.workloads.ycsb import logs

BASE = 1_000_000.0
HEAD = f'#[Logging for: READ]\n#[StartTime: {BASE} (seconds since epoch), whenever]\n"StartTimestamp","…"\n'


def encoded(values: list[int]) -> str:
    histogram = recording.new_histogram()
    for value in values:
        histogram.record_value(value)
    return recording.encode(histogram)


def log(*seconds: list[int], offset: float = 0.0) -> list[logs.LogInterval]:
    lines = [f"{offset + n:.3f},1.000,0.001,{encoded(values)}\n" for n, values in enumerate(seconds)]
    return logs.parse_log(HEAD + "".join(lines))


def test_intervals_have_epoch_seconds_and_a_torn_line_is_left_out() -> None:
    text = HEAD + f"0.500,1.001,0.001,{encoded([5, 7])}\n1.501,1.000,0.0"
    [interval] = logs.parse_log(text)
    assert (interval.started, interval.ended) == (BASE + 0.5, BASE + 1.501)
    assert interval.histogram().get_total_count() == 2


def test_merged_percentiles_are_those_of_the_concatenated_raw_values() -> None:
    source = random.Random(3)
    clients = [[[int(source.lognormvariate(6, 1.5)) + 1 for _ in range(500)] for _ in range(5)] for _ in range(3)]
    found = logs.summarize([{"READ": log(*seconds)} for seconds in clients], BASE, BASE + 5)
    raw = recording.new_histogram()
    for value in (value for seconds in clients for second in seconds for value in second):
        raw.record_value(value)
    merged = recording.latency(found.histograms["READ"])
    assert merged == recording.latency(raw)
    values = sorted(value for seconds in clients for second in seconds for value in second)
    exact = values[-(-len(values) * 99 // 100) - 1]
    assert abs(merged.percentiles["99"] - exact) <= exact / 1000 + 1


def test_what_is_not_wholly_in_the_time_is_left_out() -> None:
    found = logs.summarize([{"READ": log([1] * 10, [2] * 20, [3] * 30, [4] * 40, offset=0.5)}], BASE + 1, BASE + 4)
    assert found.operations == 50
    assert (found.started, found.ended) == (BASE + 1.5, BASE + 3.5)
    assert found.rate == pytest.approx(25)


def test_rates_of_clients_whose_seconds_begin_elsewhere_add_up() -> None:
    first, second = log(*[[1] * 100] * 6), log(*[[1] * 300] * 6, offset=0.4)
    found = logs.summarize([{"READ": first}, {"READ": second}], BASE, BASE + 6)
    assert found.rate == pytest.approx(400)
    assert found.windows[1:5] == pytest.approx([400] * 4)


@pytest.mark.parametrize(
    ("series", "operations", "histograms"),
    [
        pytest.param(["READ", "UPDATE", "READ-MODIFY-WRITE"], 10, 20, id="read-modify-write is one operation"),
        pytest.param(["READ", "READ-FAILED", "CLEANUP", "Intended-CLEANUP", "INSERT-BATCHED_OK", "VERIFY"], 10, 10,
                     id="neither failures nor buffering nor clean-up are operations"),
        pytest.param(["READ", "Intended-READ"], 10, 10, id="intended times are no operations"),
    ],
)  # fmt: skip
def test_only_operations_count(series: list[str], operations: int, histograms: int) -> None:
    found = logs.summarize([dict.fromkeys(series, log([1] * 10))], BASE, BASE + 1)
    assert found.operations == operations
    assert logs.all_operations(found.histograms).get_total_count() == histograms


def test_documents_of_a_load_are_batches_and_what_went_into_them() -> None:
    one = {"INSERT": log([900] * 10), "INSERT-BATCHED_OK": log([1] * 90)}
    found = logs.summarize([one], BASE, BASE + 1, buffered=True)
    assert (found.operations, found.windows) == (100, [100.0])
    assert found.histograms["INSERT"].get_min_value() >= 900


def test_a_second_without_an_operation_is_no_shortest_time() -> None:
    found = logs.summarize([{"READ": log([700] * 10, []), "UPDATE": log([], [])}], BASE, BASE + 2)
    assert recording.latencies(found.histograms)["READ"].min == 700
    assert logs.all_operations(found.histograms).get_min_value() >= 700


def test_intended_times_are_kept_apart() -> None:
    found = logs.summarize([{"READ": log([10] * 5), "Intended-READ": log([1000] * 5)}], BASE, BASE + 1)
    latency = recording.latencies(found.histograms)
    assert (latency["READ"].max, latency["Intended-READ"].max) == (10, 1000)


def test_a_client_without_anything_in_the_time_is_named() -> None:
    with pytest.raises(ValueError, match="client 2"):
        logs.summarize([{"READ": log([1])}, {"READ": []}], BASE, BASE + 1)


def test_errors_are_counted_by_code_over_all_clients_and_what_is_left_was_not_found() -> None:
    error = {"operation": "READ", "code": 50, "name": "MaxTimeMSExpired", "count": 3, "first": "…"}
    found = logs.failures([{"READ-FAILED": log([1] * 10)}], [{"errors": [error]}, {"errors": [error]}])
    assert [(f["operation"], f["code"], f["name"], f["count"]) for f in found] == [
        ("READ", 0, "NOT_FOUND", 4),
        ("READ", 50, "MaxTimeMSExpired", 6),
    ]


def test_the_series_of_a_client_are_those_of_its_own_files(tmp_path: Path) -> None:
    for name in ("client1-READ", "client1-Intended-READ", "client11-READ"):
        (tmp_path / f"{name}.hdr").write_text(HEAD)
    assert set(logs.read_log(tmp_path / "client1")) == {"READ", "Intended-READ"}


def test_a_log_reaches_a_time_once_every_series_was_written_after_it(tmp_path: Path) -> None:
    prefix = tmp_path / "client1"
    assert not logs.logged_until(prefix, 100.0)
    for name in ("READ", "UPDATE"):
        path = tmp_path / f"client1-{name}.hdr"
        path.write_text("whole\n")
        os.utime(path, (101.0, 101.0))
    (tmp_path / "client11-READ.hdr").write_text("another client's")
    assert logs.logged_until(prefix, 100.0)
    assert not logs.logged_until(prefix, 101.0)
    path.write_text("whole\ntor")
    assert not logs.logged_until(prefix, 100.0)
    path.write_text("")
    assert not logs.logged_until(prefix, 100.0)
