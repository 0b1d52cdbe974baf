"""The published experiments as they are planned: small on this machine, at their size on EC2."""

import json
from pathlib import Path

import pytest

from microshard.analysis.reference import read_reference, reported
from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.model.datasets import DataError, dataset_info
from microshard.model.plan import Inputs, Plan
from microshard.plan.build import build_plan

FOLDER = Path(__file__).parents[3] / "experiments"
FILES = sorted(FOLDER.glob("*.yml"))
LAPTOP_SECONDS = 600  # on two cores
UNPUBLISHED = {"versions"}  # it reproduces nothing


def without_data(file: Path) -> str | None:
    """The data set that is not installed here and the experiment loads."""
    for name in ("flights", "tpch"):
        try:
            dataset_info(name, {"documents": 7_500}).check_available()
        except DataError as error:
            if name in file.read_text(encoding="utf-8"):
                return str(error)
    return None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_on_two_cores_an_experiment_takes_ten_minutes_at_most(file: Path) -> None:
    if lacks := without_data(file):
        pytest.skip(lacks)
    loaded = load(file, scale="laptop")
    pipelines = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in file.parent.glob("pipelines/*.json")}
    plan = build_plan(loaded.experiment, expand(loaded), Inputs(cores=2, ram_mib=24_000, pipelines=pipelines))
    assert 0 < plan.estimate_seconds <= LAPTOP_SECONDS


@pytest.mark.parametrize("scale", ["published", "today"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_at_its_own_size_it_can_be_planned_on_ec2_within_its_budget(file: Path, scale: str) -> None:
    if file.stem in UNPUBLISHED and scale == "published":
        with pytest.raises(DefinitionError, match="published"):
            load(file, scale=scale)
        return
    if lacks := without_data(file):
        pytest.skip(lacks)
    seen = plan_ec2(file, scale=scale, overrides={})
    seen.raise_on_violations()
    hours = seen.loaded.experiment.budget.max_hours
    assert hours is not None
    assert seen.plan.estimate_seconds < hours * 3600
    engines = {phase.engine for point in seen.plan.points for phase in point.phases if phase.kind == "load"}
    assert {each.partition(":")[0] for each in seen.plan.assumptions} >= {"deployment", "each fleet", *engines}
    if scale == "today":
        assert not seen.unsupported
        versions = {point.mongodb["version"] for point in seen.plan.points}
        assert versions == ({"6.0", "7.0", "8.0"} if file.stem == "versions" else {"8.0"})


def planned_ycsb(name: str) -> Plan:
    loaded = load(FOLDER / f"{name}.yml", scale="laptop")
    assert not loaded.warnings
    return build_plan(loaded.experiment, expand(loaded), Inputs(cores=2, ram_mib=24_000))


def test_a_standalone_is_the_first_point_next_to_the_micro_shards() -> None:
    plan = planned_ycsb("ycsb-microshard")
    assert [p.label for p in plan.points] == ["standalone", "2 shards", "4 shards", "8 shards"]
    assert [p.axes["topology.shards.count"] for p in plan.points] == [1, 2, 4, 8]
    assert plan.redeploy == "per_repetition"
    assert [phase.name for phase in plan.points[1].phases] == ["s1", "s2", "s3", "s4", "s5"]
    assert plan.estimate_seconds < 600


def test_the_ladder_takes_less_than_ten_minutes() -> None:
    plan = planned_ycsb("ycsb-thread-ladder")
    assert [phase.parameters["threads"] for phase in plan.points[0].phases] == [4, "ladder", "ladder", "ladder"]
    assert plan.estimate_seconds < 600


def test_published_figures_belong_to_the_phase_they_were_measured_in() -> None:
    definition = reported(load(FOLDER / "ycsb-microshard.yml").experiment.model_dump(mode="json"))
    found = {phase: read_reference(definition, phase, [1, 2]) for phase in ("s1", "s5", "other")}
    assert found["other"] is None
    assert [found[p].points[0].value for p in ("s1", "s5")] == [7295, 49020]  # type: ignore[union-attr]


def test_a_published_figure_of_a_phase_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    text = (FOLDER / "ycsb-microshard.yml").read_text(encoding="utf-8")
    (tmp_path / "x.yml").write_text(text.replace("{phase: s3, at", "{phase: s33, at"))
    with pytest.raises(DefinitionError, match="no phase of the workload is named s33"):
        load(tmp_path / "x.yml")
