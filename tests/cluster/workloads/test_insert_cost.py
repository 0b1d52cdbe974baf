"""What a load with secondary indexes says of its cost, held against the server and against itself."""

from typing import Any

import pytest

from microshard.model.datasets import Purchases
from tests.cluster.workloads.mongods import Mongod, RunJob, load, start_job

pytestmark = pytest.mark.cluster
DOCUMENTS, PADDING, NAMESPACE = 120_000, 256, "ib.purchases"


def purchases(**changes: Any) -> dict[str, Any]:
    keys = {"dataset": "purchases", "namespace": NAMESPACE, "documents": DOCUMENTS, "padding": PADDING}
    return load(**(keys | {"window_seconds": 0.5, "secondary_indexes": 2} | changes))


@pytest.fixture(scope="module")
def phase(shared_mongod: Mongod, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    job = start_job(tmp_path_factory.mktemp("job"), [shared_mongod], purchases())
    code, result, errors = job.finish()
    assert (code, errors) == (0, "")
    found: dict[str, Any] = result["phases"][0]
    return found


def figures(phase: dict[str, Any]) -> dict[str, float]:
    return {figure["name"]: figure["value"] for figure in phase["figures"]}


def test_every_byte_and_document_is_accounted_for(phase: dict[str, Any], shared_mongod: Mongod) -> None:
    found, storage = figures(phase), phase["storage"]
    assert phase["counters"]["documents"] == DOCUMENTS
    assert phase["counters"]["bytes"] == DOCUMENTS * Purchases(PADDING).average_bytes
    assert found["data and indexes"] == found["data"] + found["indexes"]
    assert (found["data"], found["indexes"]) == (storage["data_bytes"], storage["index_bytes"])
    with shared_mongod.client() as client:
        stats = client.ib.command("collStats", "purchases")
        assert stats["size"] == phase["counters"]["bytes"]
        assert stats["totalIndexSize"] == found["indexes"] == sum(stats["indexSizes"].values())


def test_what_is_on_storage_was_written(phase: dict[str, Any]) -> None:
    found = figures(phase)
    written = found["storage written per insert"] * DOCUMENTS
    # At the least the compressed data once to its file and once to the journal.
    assert written > 1.5 * found["data"]
    assert found["storage reads per insert"] >= 0
    assert found["resident memory"] > 50_000_000


def test_windows_hold_no_more_than_was_inserted_and_give_the_steady_rate(phase: dict[str, Any]) -> None:
    windows = phase["windows"]
    lasted = phase["ended"] - phase["started"]
    assert len(windows["values"]) == int(lasted / windows["seconds"])
    assert 0 < sum(windows["values"]) <= DOCUMENTS
    rate = figures(phase)["rate in 95% of windows of 0.5 s"]
    reached = [value / windows["seconds"] >= rate for value in windows["values"]]
    assert sum(reached) >= 0.95 * len(reached)
    assert rate in [value / windows["seconds"] for value in windows["values"]]


def test_the_indexes_requested_are_there(phase: dict[str, Any], shared_mongod: Mongod) -> None:
    with shared_mongod.client() as client:
        found = [list(dict(i["key"]).items()) for i in client.ib.purchases.list_indexes()]
    assert found == [[("_id", 1)], *[list(index.items()) for index in Purchases.indexes[:2]]]


def test_half_of_the_padding_can_be_compressed(phase: dict[str, Any]) -> None:
    """snappy takes the zeros away and nothing of the noise: what is left of 371 bytes are 128 and the fields."""
    average = figures(phase)["data"] / DOCUMENTS
    assert PADDING / 2 < average < PADDING / 2 + Purchases(0).average_bytes + 40


def test_more_indexes_than_the_data_set_has_are_refused(shared_mongod: Mongod, run_job: RunJob) -> None:
    code, _, errors = run_job([shared_mongod], purchases(secondary_indexes=4)).finish()
    assert code == 2
    assert "secondary_indexes: at most 3 of the data set purchases" in errors
