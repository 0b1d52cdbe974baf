"""The same question in several forms, against a real mongod and against the generator's own numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from microshard.workloads import datasets
from tests.cluster.workloads.mongods import Mongod, RunJob, load, start_job

pytestmark = pytest.mark.cluster
DOCUMENTS, SEED, NAMESPACE = 8_000, 3, "lab.pairs"
EXPERIMENT = YAML(typ="safe").load(Path(__file__).parents[3] / "experiments/query-forms.yml")
FORMS = EXPERIMENT["workload"][1]["measure"]["forms"]
SAME = [name for name, form in FORMS.items() if form["asks"] == "b < 5 and a > b"]


def ask(form: str, **changes: Any) -> dict[str, Any]:
    keys = {"namespace": NAMESPACE, "forms": FORMS, "form": form, "iterations": 2, "warm_up_iterations": 1}
    return {"name": f"m-{form}", "kind": "measure", "engine": "queries", "parameters": keys | changes}


def pair_numbers(documents: int, seed: int) -> tuple[Any, Any]:
    """Fields a and b of all documents as the generator writes them."""
    raw, _ = datasets.make("pairs", {}).encode(0, np.arange(documents), seed)
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(documents, 40)
    a, b = (rows[:, column : column + 8].copy().view("<f8")[:, 0] for column in (20, 31))
    return a, b


@pytest.fixture(scope="module")
def phases(shared_mongod: Mongod, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The phases' results by form."""
    first = load(dataset="pairs", namespace=NAMESPACE, documents=DOCUMENTS, seed=SEED)
    job = start_job(tmp_path_factory.mktemp("job"), [shared_mongod], first, *map(ask, FORMS))
    code, result, errors = job.finish()
    assert (code, errors) == (0, "")
    return {phase["name"].removeprefix("m-"): phase for phase in result["phases"]}


def test_forms_that_ask_the_same_count_the_same_and_what_is_there(phases: dict[str, Any]) -> None:
    a, b = pair_numbers(DOCUMENTS, SEED)
    right = int(((b < 5) & (a > b)).sum())
    assert right > 20
    assert len(SAME) == 4
    for form in SAME:
        assert phases[form]["answer"] == [{"count": {"$numberLong": str(right)}}], form
    assert phases["plain"]["answer"] == [{"count": {"$numberLong": str(int((a < 1).sum()))}}]


def test_a_scan_examines_every_document_and_an_index_only_its_range(phases: dict[str, Any]) -> None:
    _, b = pair_numbers(DOCUMENTS, SEED)
    in_range = int((b < 5).sum())
    for form in ("plain", "where"):
        assert phases[form]["counters"]["documents_examined"] == DOCUMENTS
        assert phases[form]["counters"]["keys_examined"] == 0
        assert "COLLSCAN" in phases[form]["notes"]["plan"]
    for form in ("index-where", "aggregation", "expr"):
        assert phases[form]["counters"]["documents_examined"] == in_range
        # One key more may be looked at to see that the range has ended.
        assert in_range <= phases[form]["counters"]["keys_examined"] <= in_range + 1
        assert "IXSCAN" in phases[form]["notes"]["plan"]


def test_time_plan_and_count_stand_side_by_side(phases: dict[str, Any]) -> None:
    for form, phase in phases.items():
        if form == "load":
            continue
        (row,) = phase["table"]["rows"]
        cells = dict(zip([c["name"] for c in phase["table"]["columns"]], row, strict=True))
        assert cells["form"] == form
        assert cells["time"] == phase["metric"]["value"] == pytest.approx(sum(phase["samples"]) / 2)
        assert cells["count"] == phase["answer"][0]["count"]["$numberLong"]
        assert cells["plan"] == phase["notes"]["plan"]
        assert cells["keys examined"] == phase["counters"]["keys_examined"]
        assert {f["name"]: f["value"] for f in phase["figures"]} == {
            name: cells[name] for name in ("keys examined", "documents examined")
        }


def test_an_index_is_gone_after_its_form(phases: dict[str, Any], shared_mongod: Mongod) -> None:
    with shared_mongod.client() as client:
        assert list(client.lab.pairs.index_information()) == ["_id_"]


@pytest.mark.parametrize(
    ("form", "kind", "words"),
    [
        ({"asks": "x", "pipeline": [{"$match": {"b": {"$lt": 5}}}]}, "NoCount", "must end in one document"),
        ({"asks": "x", "filter": {"$nonsense": 1}}, "OperationFailure", "nonsense"),
    ],
)
def test_a_form_that_cannot_be_counted_fails_by_name(
    phases: dict[str, Any], shared_mongod: Mongod, run_job: RunJob, form: dict[str, Any], kind: str, words: str
) -> None:
    code, result, _ = run_job([shared_mongod], ask("it", forms={"it": form})).finish()
    assert code == 3
    assert result["phases"][0]["error"]["type"] == kind
    assert words in result["phases"][0]["error"]["message"]


def test_an_empty_collection_is_no_answer(shared_mongod: Mongod, run_job: RunJob) -> None:
    code, result, _ = run_job([shared_mongod], ask("plain", namespace="lab.nothing")).finish()
    assert (code, result["phases"][0]["error"]["type"]) == (3, "NoDocuments")
