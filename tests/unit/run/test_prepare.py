import json
from pathlib import Path
from typing import Any

import pytest

from microshard.backends.local import LocalBackend
from microshard.errors import PlaceError
from microshard.experiment.errors import DefinitionError
from microshard.model.plan import Inputs
from microshard.plan.build import build_plan
from microshard.records.run_folder import RunFolder
from microshard.run.backend import Backend, Binaries
from microshard.run.prepare import pipelines, prepared, write_variables
from tests.unit.plan.conftest import experiment, points

_HEAD = "microshard: 1\nname: sample\n"


def _problems(tmp_path, text):
    path = tmp_path / "sample.yml"
    path.write_text(_HEAD + text)
    with pytest.raises(DefinitionError) as caught, prepared(path, runs=tmp_path, backend=LocalBackend()):
        pass
    return [(p.line, p.column, p.key_path, p.message) for p in caught.value.problems]


def test_what_this_machine_cannot_do_is_reported_with_its_place_in_the_file(tmp_path):
    text = "budget: {max_cost_usd: 5.25}\nworkload:\n  - measure: {engine: aggregate, pipeline: mot_greennes}\n"
    (budget, pipeline) = _problems(tmp_path, text)
    assert budget == (3, 24, "budget.max_cost_usd", "not supported by this backend yet: local costs nothing")
    assert pipeline[:3] == (5, 44, "workload.0.measure.pipeline")
    assert "no pipeline is named mot_greennes;" in pipeline[3]
    assert "mot_greenness" in pipeline[3]


def test_pipelines_beside_the_experiment_are_found_in_json_and_yaml(tmp_path):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "one.json").write_text('[{"$count": "n"}]')
    (tmp_path / "pipelines" / "two.yml").write_text("- {$match: {e: 1000}}\n")
    found = pipelines(tmp_path / "sample.yml")
    assert found["one"] == [{"$count": "n"}]
    assert found["two"] == [{"$match": {"e": 1000}}]
    assert "mot_greenness" in found


@pytest.mark.parametrize("text", ["{}", "[1]", "[", '[{"$a": 1, "$b": 2}]'])
def test_a_pipeline_that_is_none_is_named(tmp_path, text):
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "broken.json").write_text(text)
    with pytest.raises(PlaceError, match=r"broken\.json"):
        pipelines(tmp_path / "sample.yml")


def test_restarts_are_requested_of_the_play_on_hosts_and_of_nobody_here(tmp_path, monkeypatch):
    cold = {"engine": "aggregate", "pipeline": [{"$count": "n"}], "cache": "cold", "iterations": 3}
    load: dict[str, Any] = {"load": {"engine": "insert", "documents": 1000}}
    base = experiment(workload=[load, {"measure": cold}, {"measure": {**cold, "cache": "warm"}, "name": "warm"}])
    plan = build_plan(base, points(base, [1]), Inputs(cores=2, ram_mib=16384.0))
    found = Binaries(Path("/bin/mongod"), None, embedded=True, version="6.0.5")

    def restarts(backend: Backend) -> Any:
        path = write_variables(RunFolder(tmp_path), plan.points[0], found, plan.steps[0], backend=backend)
        return json.loads(path.read_text())["microshard_step"]["restarts"]

    assert restarts(LocalBackend()) == 0
    monkeypatch.setattr(LocalBackend, "remote", True)
    assert restarts(LocalBackend()) == 3
