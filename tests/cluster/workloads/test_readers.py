"""Readers and writers at a real replica set: what is counted on either side agrees."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from microshard.workloads import recording
from microshard.workloads.servers import replication_lag
from tests.cluster.workloads.mongods import Mongod, RunJob, load, start_job, start_replica_set, stop_mongod

pytestmark = pytest.mark.cluster
NAMESPACE, DOCUMENTS = "lab.documents", 4_000


def read(**changes: Any) -> dict[str, Any]:
    keys = {"namespace": NAMESPACE, "threads": 3, "duration_seconds": 3.0, "warm_up_seconds": 0.5, "write_batch": 20}
    return {"name": "m", "kind": "measure", "engine": "readers", "parameters": keys | changes}


@pytest.fixture(scope="module")
def replica_set(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[Mongod], str]]:
    """Two members that hold the documents; their connection string."""
    started = start_replica_set(tmp_path_factory.mktemp("rs"), 2)
    first = load(namespace=NAMESPACE, documents=DOCUMENTS, write_concern={"w": 2})
    assert start_job(tmp_path_factory.mktemp("load"), started[0], first, uri=started[1]).finish()[0] == 0
    yield started
    for mongod in started[0]:
        stop_mongod(mongod)


@pytest.fixture(scope="module")
def phase(replica_set: tuple[list[Mongod], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Three readers of the secondary beside two writers."""
    mongods, uri = replica_set
    code, result, errors = start_job(tmp_path_factory.mktemp("job"), mongods, read(writers=2), uri=uri).finish()
    assert (code, errors) == (0, "")
    found: dict[str, Any] = result["phases"][0]
    return found


@pytest.mark.long
def test_histogram_counter_and_windows_count_the_same_reads(phase: dict[str, Any]) -> None:
    reads = phase["counters"]["reads"]
    latency = phase["latency"]["READ"]
    assert reads > 50
    assert reads == latency["count"] == sum(phase["windows"]["values"])
    assert recording.decode(latency["histogram"]).get_total_count() == reads
    assert len(phase["windows"]["values"]) == 3
    figures = {f["name"]: f["value"] for f in phase["figures"]}
    assert figures["reads"] * 3.0 == pytest.approx(reads)
    assert phase["metric"]["value"] == latency["percentiles"]["95"] / 1000
    assert latency["min"] <= latency["percentiles"]["50"] <= latency["percentiles"]["99"] <= latency["max"]


@pytest.mark.long
def test_the_secondary_answers_and_the_primary_does_not(phase: dict[str, Any]) -> None:
    answered = dict(phase["table"]["rows"])
    reads = phase["counters"]["reads"]
    assert answered["rs0-2"] >= reads
    assert answered["rs0-1"] < reads / 4


@pytest.mark.long
def test_every_write_met_a_document(phase: dict[str, Any], replica_set: tuple[list[Mongod], str]) -> None:
    counters = phase["counters"]
    assert counters["documents_written"] == counters["writes"] * 20 == phase["latency"]["UPDATE"]["count"] * 20
    assert counters["missing"] == 0
    with MongoClient[dict[str, Any]](replica_set[1]) as client:
        assert client.lab.documents.count_documents({}) == DOCUMENTS
        assert 0 < client.lab.documents.count_documents({"w": {"$exists": True}}) <= DOCUMENTS


@pytest.mark.long
def test_the_lag_is_that_of_the_secondary(phase: dict[str, Any]) -> None:
    (series,) = phase["series"]
    assert list(series["lines"]) == ["rs0-2"]
    seen = [lag for lag in series["lines"]["rs0-2"] if lag is not None]
    assert len(series["t"]) == len(series["lines"]["rs0-2"]) >= 2
    figures = {f["name"]: f["value"] for f in phase["figures"]}
    assert figures["largest lag"] == max(seen) >= figures["p95 lag"] >= 0


def test_without_writers_nothing_is_written(replica_set: tuple[list[Mongod], str], run_job: RunJob) -> None:
    code, result, _ = run_job(replica_set[0], read(duration_seconds=1.0), uri=replica_set[1]).finish()
    phase = result["phases"][0]
    assert (code, phase["counters"]["writes"], list(phase["latency"])) == (0, 0, ["READ"])


def test_a_member_that_is_behind_is_reported_by_the_primary_alone() -> None:
    from datetime import UTC, datetime

    def member(name: str, state: int, second: int) -> dict[str, Any]:
        return {"name": name, "state": state, "optimeDate": datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC)}

    members = [member("a:1", 1, 9), member("b:1", 2, 4), member("c:1", 5, 0)]
    assert replication_lag({"myState": 1, "members": members}) == {"b:1": 5.0}
    assert replication_lag({"myState": 2, "members": members}) == {}


@pytest.mark.parametrize(
    ("change", "kind"), [({"namespace": "lab.nothing"}, "NoDocuments"), ({"namespace": "lab.texts"}, "NoNumbers")]
)
def test_what_cannot_be_read_is_refused(
    replica_set: tuple[list[Mongod], str], run_job: RunJob, change: dict[str, Any], kind: str
) -> None:
    with MongoClient[dict[str, Any]](replica_set[1]) as client:
        client.lab.texts.replace_one({"_id": "a"}, {}, upsert=True)
    code, result, _ = run_job(replica_set[0], read(**change), uri=replica_set[1]).finish()
    assert (code, result["phases"][0]["error"]["type"]) == (3, kind)
