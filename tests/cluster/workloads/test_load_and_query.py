"""Loading and querying a real mongod through the command."""

import json
import os
import signal
import time
from typing import Any

import pytest

from microshard.model.job import ProcessInfo
from microshard.workloads.answers import canonical
from microshard.workloads.link import SlowLink
from microshard.workloads.servers import operation_times
from microshard.workloads.streams import cut
from tests.cluster.workloads.mongods import QUERY, Mongod, RunJob, load, query, start_job
from tests.mot_documents import AVERAGE_BYTES, expected_greenness, mot_documents

pytestmark = pytest.mark.cluster
DOCUMENTS = 20_000
SEED = 3


@pytest.fixture(scope="module")
def loaded(shared_mongod: Mongod, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], list[Any]]:
    """The result and the progress lines of a load of 4 key ranges by 2 processes, followed by 3 rounds of 2 queries."""
    phases = load(), query(connections=2, iterations=3)
    job = start_job(tmp_path_factory.mktemp("job"), [shared_mongod], *phases, ranges=4)
    code, result, errors = job.finish()
    assert (code, errors) == (0, "")
    return result, [json.loads(line) for line in job.progress.read_text().splitlines()]


def test_the_answer_is_the_one_computed_without_mongodb(loaded: tuple[dict[str, Any], list[Any]]) -> None:
    measure = loaded[0]["phases"][1]
    assert measure["answer"] == canonical(expected_greenness(DOCUMENTS, SEED))


def test_the_load_is_counted_verified_and_measured(loaded: tuple[dict[str, Any], list[Any]]) -> None:
    phase = loaded[0]["phases"][0]
    assert (phase["name"], phase["kind"], phase["engine"], "error" in phase) == ("load", "load", "insert", False)
    assert phase["counters"]["documents"] == DOCUMENTS
    assert phase["counters"]["bytes"] == pytest.approx(DOCUMENTS * AVERAGE_BYTES, rel=0.01)
    seconds = phase["ended"] - phase["started"]
    assert phase["metric"] | {"value": 0} == {
        "name": "load rate",
        "unit": "documents/s",
        "value": 0,
        "better": "higher",
    }
    assert phase["metric"]["value"] * seconds == pytest.approx(DOCUMENTS, rel=1e-4)  # epoch seconds as floats
    storage = phase["storage"]
    assert storage["by_shard"] == {"mongod1": {"documents": DOCUMENTS, "data_bytes": storage["data_bytes"]}}
    assert DOCUMENTS * 20 < storage["data_bytes"] < DOCUMENTS * AVERAGE_BYTES
    assert 0 < storage["index_bytes"] < storage["data_bytes"]
    assert storage["db_path_bytes"] > storage["data_bytes"] + storage["index_bytes"]
    assert phase["client_cpu_seconds"] > 0


def test_every_query_is_a_sample(loaded: tuple[dict[str, Any], list[Any]]) -> None:
    phase = loaded[0]["phases"][1]
    assert len(phase["samples"]) == 6
    assert phase["metric"]["value"] == pytest.approx(sum(sorted(phase["samples"])[2:4]) / 2)
    assert phase["counters"] == {"queries": 6, "errors": 0}
    assert phase["notes"]["cache"] == "warm"


def test_progress_is_reported_up_to_the_end(loaded: tuple[dict[str, Any], list[Any]]) -> None:
    lines = loaded[1]
    assert all(set(line) == {"phase", "done", "of", "unit", "time", "note"} for line in lines)
    assert [line["done"] for line in lines if line["phase"] == "load"][-1] == DOCUMENTS
    assert [line["done"] for line in lines if line["phase"] == "measure"][-1] == 6


def test_documents_are_in_the_database_as_generated(
    loaded: tuple[dict[str, Any], list[Any]], shared_mongod: Mongod
) -> None:
    with shared_mongod.client() as client:
        for key_range, (first, count) in enumerate(cut(DOCUMENTS, 4)):
            offset = count - 7
            found = client.vosa.mot_results.find_one({"_id": (key_range << 32) | offset})
            assert found is not None
            (expected,) = mot_documents(first + offset, 1, SEED)
            assert found == expected | {"_id": found["_id"]}


def test_the_answer_does_not_depend_on_loaders(
    loaded: tuple[dict[str, Any], list[Any]], shared_mongod: Mongod, run_job: RunJob
) -> None:
    other = {"namespace": "vosa.other"}
    code, result, _ = run_job([shared_mongod], load(**other, processes=1, batch_size=777), query(**other)).finish()
    assert code == 0
    assert result["phases"][1]["answer_sha256"] == loaded[0]["phases"][1]["answer_sha256"]


def test_capacities_at_the_limits_are_in_the_upper_band(shared_mongod: Mongod) -> None:
    """Inspections rarely have such engines, so the loaded data would not show a wrong comparison."""
    cases = {999: 1, 1000: 2, 1199: 2, 1200: 3, 1600: 4, 1999: 4, 2000: 5, 2499: 5, 2500: 6, 3499: 6, 3500: 7, 9000: 7}
    with shared_mongod.client() as client:
        collection = client.vosa.limits
        for capacity, band in cases.items():
            for fuel, factor in (("P", 1), ("D", 1.5)):
                collection.drop()
                collection.insert_one({"e": capacity, "f": fuel, "m": 5})
                assert list(collection.aggregate(QUERY["pipeline"])) == [{"_id": band * factor, "count": 1, "miles": 5}]


def test_answers_that_differ_fail_the_phase(shared_mongod: Mongod, run_job: RunJob) -> None:
    random = [{"$documents": [{}]}, {"$project": {"x": {"$rand": {}}}}]
    with shared_mongod.client() as client:
        client.vosa.one.insert_one({})
    differing = query(namespace="vosa.one", pipeline=random[1:], warm_up_iterations=0)
    code, result, errors = run_job([shared_mongod], differing, query()).finish()
    assert code == 3
    assert result["phases"][0]["error"]["type"] == "AnswersDiffer"
    assert "differ in document 0" in errors
    assert len(result["phases"]) == 1, "later phases are not run"


def test_a_pipeline_the_server_refuses_is_an_error_with_its_words(shared_mongod: Mongod, run_job: RunJob) -> None:
    code, result, _ = run_job([shared_mongod], query(pipeline=[{"$nonsense": {}}])).finish()
    assert code == 3
    assert "Unrecognized pipeline stage name" in result["phases"][0]["error"]["message"]
    assert result["valid"] is False
    assert result["problems"] == [f"measure: OperationFailure: {result['phases'][0]['error']['message']}"]


def test_what_the_way_costs_is_not_in_the_time_of_the_server(
    loaded: tuple[dict[str, Any], list[Any]], shared_mongod: Mongod, run_job: RunJob
) -> None:
    link = SlowLink("relay", 100, None)
    try:
        way = f"mongodb://127.0.0.1:{link.start('127.0.0.1', shared_mongod.port)}/?directConnection=true"
        code, result, errors = run_job([shared_mongod], query(iterations=3), uri=way).finish()
    finally:
        link.close()
    assert (code, errors) == (0, "")
    (measure,) = result["phases"]
    reads = measure["server_latency"]["reads"]
    assert 3 <= reads["count"] <= 6  # a warm-up perhaps, and what the engine asks about the collection
    assert min(measure["samples"]) > reads["mean"] / 1e6 + 0.19  # there and back
    assert reads["percentiles"]["50"] <= reads["percentiles"]["99"]
    assert "server_latency" not in loaded[0]["phases"][0]  # a load has other figures


def test_a_mongod_that_does_not_answer_holds_up_nothing(mongod: Mongod) -> None:
    os.kill(mongod.pid(), signal.SIGSTOP)
    try:
        before = time.monotonic()
        info = ProcessInfo(**mongod.info)
        assert operation_times([info], ["vosa.mot_results"]) == {}
        assert time.monotonic() - before < 5
    finally:
        os.kill(mongod.pid(), signal.SIGCONT)
    assert operation_times([info], ["vosa.mot_results"])["mongod1"]["reads"]
