"""YCSB's clients against a real mongod: loads, runs, ladders."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram

from microshard.workloads.recording import latency, new_histogram
from microshard.workloads.ycsb.logs import measured_series, read_log
from tests.cluster.workloads.mongods import Mongod, RunJob
from tests.cluster.ycsb.conftest import RECORDS, phase


def test_two_clients_load_and_run_as_one(mongod: Mongod, run_job: RunJob, tmp_path: Path) -> None:
    mix = {"read": 0.5, "update": 0.3, "insert": 0.2}
    measure = phase("measure", clients=2, warm_up_seconds=1, duration_seconds=3, rate=200, proportions=mix)
    started = run_job([mongod], phase("load", clients=2, batch_size=50), measure)
    code, result, errors = started.finish(90)
    assert code == 0, errors
    load, run = result["phases"]
    with mongod.client() as client:
        there = client["ycsb"]["usertable"].count_documents({})
        sample = client["ycsb"]["usertable"].find_one({"_id": {"$regex": "^user"}})
    assert load["counters"]["documents"] == RECORDS
    assert load["counters"]["commands"] == RECORDS / 50
    assert load["storage"]["by_shard"]["mongod1"]["documents"] == RECORDS
    assert sample is not None
    assert len(sample) == 11
    # Clients insert under distinct keys: otherwise there would be errors and fewer documents.
    assert there > RECORDS
    assert run["counters"]["errors"] == 0
    assert set(run["latency"]) >= {"READ", "UPDATE", "INSERT", "Intended-READ"}
    assert run["latency"]["READ"]["count"] == run["counters"]["read"]
    assert "Intended-INSERT" not in load["latency"]
    assert 2 <= run["ended"] - run["started"] <= 3.1
    assert len(run["windows"]["values"]) == int(run["ended"] - run["started"] + 0.02)
    assert run["details"]["cpu"]["client"] > 0
    assert run["details"]["cpu"]["by_server"]["mongod1"] > 0
    folder = started.out.with_suffix("") / "measure"
    assert not list(folder.glob("*.properties"))
    _is_what_the_kept_logs_say(run, folder)


@pytest.mark.long
def test_a_search_goes_through_rates_and_holds_each_with_clients_of_its_own(mongod: Mongod, run_job: RunJob) -> None:
    search = {"at_most": 5000.0, "first": 20, "factor": 2.0, "last": 40, "rung_seconds": 4, "settle_seconds": 2}
    code, result, errors = run_job([mongod], phase("load", batch_size=50), phase("measure", search=search)).finish(120)
    assert code == 0, errors
    run = result["phases"][1]
    rows = run["table"]["rows"]
    assert [row[0] for row in rows] == [20, 40]
    assert [row[1] for row in rows] == pytest.approx([20, 40], rel=0.25)  # a busy machine sends late and catches up
    held = [row[0] for row in rows if row[-1] == "yes"]
    assert run["metric"]["value"] == run["open_loop"]["ALL"]["rate"] == held[-1]
    assert run["open_loop"]["ALL"]["reached"]


def _is_what_the_kept_logs_say(run: dict[str, Any], folder: Path) -> None:
    """The merged histogram is the one of the lines of all clients' logs within the measured interval."""
    again = new_histogram()
    for client in (1, 2):
        log = read_log(folder / f"client{client}")
        assert {"READ", "UPDATE", "INSERT"} <= set(measured_series(log))
        for interval in log["READ"]:
            if interval.started >= run["started"] - 0.02 and interval.ended <= run["ended"] + 0.02:
                again.add(interval.histogram())
    assert asdict(latency(again)) == run["latency"]["READ"]
    assert HdrHistogram.decode(run["latency"]["READ"]["histogram"]).get_total_count() == run["counters"]["read"]


@pytest.mark.long
def test_a_ladder_measures_its_rungs_in_one_jvm_and_finds_a_knee(mongod: Mongod, run_job: RunJob) -> None:
    ladder = {"last": 4, "rung_seconds": 2, "patience": 3}
    measure = phase("measure", threads="ladder", ladder=ladder, proportions={"read": 1.0})
    started = run_job([mongod], phase("load", batch_size=50), measure)
    code, result, errors = started.finish(120)
    assert code == 0, errors
    run = result["phases"][1]
    assert [rung["threads"] for rung in run["rungs"]] == [1, 2, 4]
    for before, after in zip(run["rungs"], run["rungs"][1:], strict=False):
        assert before["ended"] < after["started"]
    knee = run["figures"][0]["value"]
    best = next(rung for rung in run["rungs"] if rung["threads"] == knee)
    assert run["metric"]["value"] == best["value"]
    assert run["latency"]["READ"]["count"] == best["latency"]["READ"]["count"]
    assert len(list((started.out.with_suffix("") / "measure").glob("*.out"))) == 1


@pytest.mark.long
def test_a_run_of_given_operations_ends_with_them(mongod: Mongod, run_job: RunJob) -> None:
    started = run_job(
        [mongod], phase("load", batch_size=50), phase("measure", operations=20_000, warm_up_seconds=0, clients=2)
    )
    code, result, errors = started.finish(120)
    assert code == 0, errors
    assert result["phases"][1]["counters"]["operations"] == 20_000
