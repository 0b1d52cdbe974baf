"""Summaries of synthetic telemetry whose sums are known."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microshard.analysis.telemetry import attach, host_figures, parse, read_folder, server_use, summarise, window
from microshard.model.telemetry import HostRecord, HostUse, NetUse, ServerSums, ServerUse
from tests.unit.analysis import make
from tests.unit.analysis.make import host_records, server_records


def host_record(t: float, **changes: Any) -> dict[str, Any]:
    return {
        "t": t,
        "seconds": 1.0,
        "cpu": {"user": 0.5, "sys": 0.1, "iowait": 0.1, "idle": 0.3, "steal": 0.0},
        "cores": 2,
        "mem": {"total": 100, "available": 60},
        "disk": {"vda": {"r_ios": 10, "w_ios": 20, "r_bytes": 1000, "w_bytes": 2000, "util": 0.5}},
        "net": {"lo": {"rx_bytes": 7, "tx_bytes": 9}},
        "proc": {"shard01": {"pid": 5, "cpu": 0.8, "rss": 1000, "r_bytes": 100, "w_bytes": 200}},
    } | changes


def server_record(t: float, process: str = "shard01", **changes: Any) -> dict[str, Any]:
    return {
        "t": t,
        "process": process,
        "opcounters": {"insert": 100.0, "command": 2.0},
        "wt": {
            "cache_bytes": 50,
            "cache_max": 80,
            "dirty_bytes": 5,
            "read_into_bytes": 10.0,
            "tickets_read_out": 1,
            "tickets_write_out": 2,
        },
        "connections": 3,
        "page_faults": 1.0,
    } | changes


def test_constant_rates_add_up_over_the_window() -> None:
    found = host_figures(host_records(*(host_record(float(t)) for t in range(100, 121))), 105, 115)
    assert found.use.cpu == pytest.approx({"user": 0.5, "sys": 0.1, "iowait": 0.1, "idle": 0.3, "steal": 0})
    used = found.processes["shard01"]
    assert (used.cpu_mean, used.cpu_max, used.rss_max) == pytest.approx((0.8, 0.8, 1000))
    assert (used.r_bytes, used.w_bytes) == pytest.approx((1000, 2000))
    assert found.disk["vda"] == pytest.approx(
        {"r_ios_mean": 10, "w_ios_mean": 20, "r_bytes_mean": 1000, "w_bytes_mean": 2000, "util_mean": 0.5}
    )
    assert found.net["lo"] == NetUse(70, 90)


@given(st.floats(100, 119), st.floats(0.01, 20), st.lists(st.floats(0, 2), min_size=21, max_size=21))
def test_what_a_process_used_is_the_integral_of_its_rate(start: float, length: float, rates: list[float]) -> None:
    end = min(start + length, 120.0)
    every = (host_record(100.0 + k, proc={"x": {"cpu": rate, "w_bytes": rate}}) for k, rate in enumerate(rates))
    records = host_records(*every)
    covered = [max(0.0, min(100 + k, end) - max(99 + k, start)) for k in range(21)]
    used = sum(rate * seconds for rate, seconds in zip(rates, covered, strict=True))
    found = host_figures(records, start, end)
    if found.use.records:
        assert found.processes["x"].w_bytes == pytest.approx(used, abs=1e-6)
        assert found.processes["x"].cpu_mean * (end - start) == pytest.approx(used, abs=1e-6)


def test_a_secondary_lags_behind_what_its_primary_had_written() -> None:
    def member(t: float, process: str, state: str, written: float, replica_set: str = "rs0") -> dict[str, Any]:
        known = {"state": state, "replica_set": replica_set, "last_write": written}
        return server_record(t, process, **known)

    records = server_records(
        *(member(float(t), "a", "primary", float(t)) for t in range(100, 111)),
        *(member(t + 0.5, "b", "secondary", 103.0) for t in range(100, 111)),
        *(member(t + 0.5, "c", "secondary", float(t)) for t in range(100, 111)),
        *(member(t + 0.5, "other", "secondary", 1.0, "rs1") for t in range(100, 111)),
    )
    found = server_use(records, 100, 108)
    assert {name: use.lag_max for name, use in found.items()} == {"a": None, "b": 4.0, "c": 0.0, "other": None}


def test_checkpoints_cost_what_was_served_without_them() -> None:
    """Four of ten seconds with half the operations: a fifth is lost."""

    def records(running: set[int]) -> list[dict[str, Any]]:
        return [
            server_record(
                100.0 + t, seconds=1.0, wt={"checkpoint_running": float(t in running)},
                served={"reads": 50.0 if t in running else 100.0},
            )
            for t in range(1, 11)
        ]  # fmt: skip

    found = server_use(server_records(*records({3, 4, 5, 6})), 100, 110)["shard01"]
    assert found.checkpoint_loss == pytest.approx(0.2)
    rising = [r | {"served": {"reads": 10.0 * n}} for n, r in enumerate(records({3, 4}), 1)]
    assert server_use(server_records(*rising), 100, 110)["shard01"].checkpoint_loss == pytest.approx(0, abs=0.01)
    for running in ({3}, set(range(1, 11)), set()):
        assert server_use(server_records(*records(running)), 100, 110)["shard01"].checkpoint_loss is None


def test_a_window_shorter_than_the_interval_has_the_figures_of_its_record() -> None:
    records = host_records(*(host_record(float(t), cpu={"user": t / 1000, "idle": 0.0}) for t in range(100, 110)))
    found = host_figures(records, 103.2, 103.4).use
    assert found.records == 1
    assert found.cpu == pytest.approx({"user": 0.104, "idle": 0})


def test_means_and_maxima_of_a_process_that_was_there_for_half_of_the_window() -> None:
    records = host_records(*(host_record(float(t), **({} if t <= 105 else {"proc": {}})) for t in range(101, 111)))
    found = host_figures(records, 100, 110).processes["shard01"]
    assert found.cpu_mean == pytest.approx(0.4)
    assert found.cpu_max == 0.8


def test_the_size_of_db_paths_is_that_nearest_to_the_end() -> None:
    records = host_records(*(host_record(float(t), db_path_bytes={"shard01": t}) for t in (100, 105, 110, 115)))
    assert host_figures(records, 101, 111).db_path_bytes == {"shard01": 110}


def test_a_window_without_records_says_so() -> None:
    assert host_figures(host_records(host_record(100.0)), 200, 210).use == HostUse()


def test_without_their_length_records_begin_where_the_last_one_ended() -> None:
    records = host_records(*({"t": t} for t in (100.0, 103.0, 104.0)))
    parts = window(records, 101.0, 110.0)
    assert [part.seconds for part in parts] == [2.0, 1.0]


def test_servers_are_summed_one_by_one_and_together() -> None:
    every = (server_record(float(t), name) for t in range(100, 111) for name in ("shard01", "shard02"))
    found = summarise({}, server_records(*every), 100, 110)
    assert found.servers["shard01"] == ServerUse(
        records=10,
        operations={"command": 20, "insert": 1000},
        page_faults=10,
        cache_read_bytes=100,
        connections_max=3,
        cache_bytes_max=50,
        cache_max=80,
        dirty_bytes_max=5,
        tickets_read_out_max=1,
        tickets_write_out_max=2,
    )
    assert found.server_sums == ServerSums({"command": 40, "insert": 2000}, 20, 200)


def test_a_server_that_did_not_answer_is_counted_inside_the_window_only() -> None:
    silent = ({"t": float(t), "process": "shard01", "error": "NetworkTimeout"} for t in range(100, 111))
    assert server_use(server_records(*silent), 102, 105) == {"shard01": ServerUse(unanswered=4)}


def test_hosts_are_weighted_by_their_cores() -> None:
    busy = host_records(host_record(101.0, cpu={"user": 1.0}, cores=6))
    idle = host_records(host_record(101.0, cpu={"user": 0.0}, cores=2, proc={"client": {"cpu": 1, "rss": 1}}))
    found = summarise({"db": busy, "client": idle}, [], 100, 101)
    assert found.cpu["user"] == pytest.approx(0.75)
    assert set(found.processes) == {"shard01", "client"}
    assert set(found.disk) == {"db:vda", "client:vda"}


def test_clients_of_several_hosts_keep_their_figures_apart() -> None:
    def hosts(cores: float) -> list[HostRecord]:
        return host_records(host_record(1.0, proc={"client": {"cpu": cores}}))

    third = host_records(host_record(1.0))
    found = summarise({"h1": hosts(0.5), "h2": hosts(1.5), "h3": third}, [], 0.0, 1.0)
    used = {name: process.cpu_mean for name, process in found.processes.items()}
    assert used == pytest.approx({"client/h1": 0.5, "client/h2": 1.5, "shard01": 0.8})
    assert found.hosts["h2"].processes == ["client/h2"]
    alone = summarise({"h1": hosts(0.5)}, [], 0.0, 1.0)
    assert list(alone.processes) == ["client"]


def write(path: Path, *lines: dict[str, Any], torn: str = "") -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)


def test_telemetry_is_put_beside_each_phase(tmp_path: Path) -> None:
    write(tmp_path / "host-local.jsonl", *(host_record(float(t)) for t in range(100, 121)), torn='{"t": 121, "cp')
    write(tmp_path / "server.jsonl", *(server_record(float(t)) for t in range(100, 121)))
    load, measure, broken = make.phase(started=100.0, ended=110.0), make.phase(started=500.0, ended=510.0), make.phase()
    attach(make.result(load, measure, broken), read_folder(tmp_path))
    assert load.telemetry is not None
    assert load.telemetry.cpu["user"] == 0.5
    assert load.telemetry.processes["shard01"].cpu_mean == 0.8
    assert load.telemetry.servers["shard01"].operations == {"command": 20, "insert": 1000}
    assert load.telemetry.problems == ["host-local.jsonl:22: the last line is torn; left out"]
    assert measure.telemetry is not None
    assert "no record of local covers this phase" in measure.telemetry.problems
    assert broken.telemetry is None


def test_the_cpu_of_each_process_is_put_beside_each_rung(tmp_path: Path) -> None:
    write(tmp_path / "host-local.jsonl", *(host_record(float(t)) for t in range(100, 121)))
    rungs: list[dict[str, Any]] = [{"threads": 1, "started": 101.0, "ended": 104.0}, {"threads": 2}]
    phase = make.phase(started=100.0, ended=110.0, rungs=rungs)
    attach(make.result(phase), read_folder(tmp_path))
    first, second = (rung.telemetry for rung in phase.rungs)
    assert first is not None
    assert (first.processes["shard01"], first.cpu["user"]) == (0.8, 0.5)
    assert second is None


def test_a_folder_without_telemetry_leaves_the_result_alone(tmp_path: Path) -> None:
    result = make.result(make.phase(started=1.0, ended=2.0))
    attach(result, read_folder(tmp_path / "none"))
    assert result == make.result(make.phase(started=1.0, ended=2.0))


def test_lines_that_are_no_records_are_named_and_left_out() -> None:
    records, problems = parse(HostRecord, '{"t": 1}\nrubbish\n[1]\n{"t": 2}\n', "x.jsonl")
    assert [record.t for record in records] == [1, 2]
    assert problems == ["x.jsonl:2: not JSON; left out", "x.jsonl:3: not a record; left out"]


def test_queues_tickets_stalls_and_background_work_of_a_mongod() -> None:
    def record(t: float) -> dict[str, Any]:
        made = server_record(
            t, queue={"readers": 2, "writers": 1}, operation_time=1.5, migrations=0.2, round_trip=t / 1e6
        )
        made["wt"] |= {"stall": 0.5, "evicted_by_operations": 3.0, "checkpoint": 0.1, "checkpoint_running": 1}
        made["wt"] |= {"tickets_read_left": 0 if t <= 104 else 5, "tickets_write_left": 5}
        return made | {"state": "primary" if t < 109 else "other"}

    found = server_use(server_records(*(record(float(t)) for t in range(100, 111))), 100, 110)["shard01"]
    assert found.queue_mean == pytest.approx(3)
    assert found.no_ticket_share == pytest.approx(0.4)
    assert (found.operation_time_mean, found.cache_stall_mean) == pytest.approx((1.5, 0.5))
    assert (found.evicted_by_operations, found.migrations) == (30, 2)
    assert (found.checkpoint_seconds, found.checkpoint_running_share) == pytest.approx((1, 1))
    assert found.states == ["other", "primary"]
    assert found.round_trip_min == pytest.approx(101e-6)


def test_the_state_a_member_has_after_the_end_is_that_of_another_phase() -> None:
    records = [server_record(float(t)) | {"state": "primary" if t < 106 else "other"} for t in range(100, 111)]
    assert server_use(server_records(*records), 100, 105.5)["shard01"].states == ["primary"]


def test_a_server_that_reports_no_tickets_and_no_checkpoints_is_not_one_with_none() -> None:
    records = [server_record(float(t)) for t in range(100, 111)]
    for record in records:
        record["wt"] = {name: value for name, value in record["wt"].items() if "tickets" not in name}
    found = server_use(server_records(*records), 100, 110)["shard01"]
    assert (found.no_ticket_share, found.checkpoint_running_share, found.tickets_read_out_max) == (None, None, None)


def test_of_a_mongos_only_the_way_is_known() -> None:
    records = ({"t": float(t), "process": "mongos1", "round_trip": 1e-4} for t in range(100, 105))
    found = server_use(server_records(*records), 100, 104)
    assert found == {"mongos1": ServerUse(records=4, round_trip_min=1e-4)}


def test_limits_devices_stalls_and_segments_of_a_host() -> None:
    place = {"shard01": {"data": {"device": "vda", "limits": {"w_ios": 100}}}}
    more = {"stall": {"cpu": 0.4}, "vm": {"faults": 2.0}, "tcp": {"out": 100.0, "again": 1.0}}
    every = [host_record(float(t), devices=place, **more) for t in range(100, 111)]
    for made in every:
        made["proc"]["shard01"] |= {"limit": 1.5, "held": 0.25, "faults": 7.0}
        made["net"]["lo"]["speed"] = 1000
    records = host_records(*every)
    found = host_figures(records, 100, 110)
    used = found.processes["shard01"]
    assert (used.limit, used.held_mean, used.faults_mean) == pytest.approx((1.5, 0.25, 7))
    data = found.devices["shard01"]["data"]
    assert (data.device, data.limits, found.net["lo"].speed) == ("vda", {"w_ios": 100}, 1000)
    assert {key: getattr(found.use, key) for key in more} == {key: pytest.approx(v) for key, v in more.items()}
    both = summarise({"a": records, "b": []}, [], 100, 110)
    assert both.hosts["a"].processes == ["shard01"]
    many = summarise({"a": records, "b": records}, [], 100, 110)
    assert many.devices["shard01"]["data"].device in {"a:vda", "b:vda"}


def test_whole_records_alone_tell_the_level_of_a_short_phase() -> None:
    """Idle before and after: records that reach beyond the phase would dilute what went on in it."""
    idle = {"user": 0.0, "sys": 0.0, "iowait": 0.0, "idle": 1.0, "steal": 0.0}
    busy = idle | {"user": 1.0, "idle": 0.0}
    half = idle | {"user": 0.5, "idle": 0.5}
    records = host_records(
        *(
            host_record(float(t), cpu=busy if t in {102, 103} else half if t in {101, 104} else idle)
            for t in range(100, 108)
        )
    )
    assert host_figures(records, 100.5, 103.5).use.cpu["user"] == pytest.approx(2.5 / 3)
    assert host_figures(records, 100.5, 103.5, whole=True).use.cpu["user"] == pytest.approx(1)
    assert host_figures(records, 102.2, 102.8, whole=True).use == HostUse()


def test_times_of_a_host_whose_clock_is_ahead_are_put_back(tmp_path: Path) -> None:
    write(tmp_path / "host-db1.jsonl", *(host_record(float(t)) for t in range(190, 211)))
    phase = make.phase(started=100.0, ended=110.0)
    attach(make.result(phase), read_folder(tmp_path, {"db1": -100.0}))
    assert phase.telemetry is not None
    assert phase.telemetry.hosts["db1"].records > 0
    assert phase.telemetry.problems == []
