"""The two published experiments as they are planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from microshard.analysis.reference import read_reference, reported
from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.model.plan import Inputs, Plan
from microshard.plan.build import build_plan

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


def planned(name: str) -> Plan:
    loaded = load(EXPERIMENTS / f"{name}.yml", scale="laptop")
    assert not loaded.warnings
    return build_plan(loaded.experiment, expand(loaded), Inputs(cores=2, ram_mib=24_000))


def test_a_standalone_is_the_first_point_next_to_the_micro_shards() -> None:
    plan = planned("ycsb-microshard")
    assert [p.label for p in plan.points] == ["standalone", "2 shards", "4 shards", "8 shards"]
    assert [p.axes["topology.shards.count"] for p in plan.points] == [1, 2, 4, 8]
    assert plan.redeploy == "per_repetition"
    assert [phase.name for phase in plan.points[1].phases] == ["s1", "s2", "s3", "s4", "s5"]
    assert plan.estimate_seconds < 600


def test_the_ladder_takes_less_than_ten_minutes() -> None:
    plan = planned("ycsb-thread-ladder")
    assert [phase.parameters["threads"] for phase in plan.points[0].phases] == [4, "ladder", "ladder", "ladder"]
    assert plan.estimate_seconds < 600


def test_published_figures_belong_to_the_phase_they_were_measured_in() -> None:
    definition = reported(load(EXPERIMENTS / "ycsb-microshard.yml").experiment.model_dump(mode="json"))
    found = {phase: read_reference(definition, phase, [1, 2]) for phase in ("s1", "s5", "other")}
    assert found["other"] is None
    assert [found[p].points[0].value for p in ("s1", "s5")] == [7295, 49020]  # type: ignore[union-attr]


def test_a_published_figure_of_a_phase_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    text = (
        (EXPERIMENTS / "ycsb-microshard.yml").read_text(encoding="utf-8").replace("{phase: s3, at", "{phase: s33, at")
    )
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(DefinitionError, match="no phase of the workload is named s33"):
        load(tmp_path / "x.yml")
