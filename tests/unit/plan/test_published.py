"""The published experiments as they are planned: small on this machine, at their size on EC2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from microshard.backends.ec2.ec2_plan import plan_ec2
from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.model.datasets import DataError, dataset_info
from microshard.model.plan import Inputs
from microshard.plan.build import build_plan

FILES = sorted((Path(__file__).parents[3] / "experiments").glob("*.yml"))
LAPTOP_SECONDS = 600  # on two cores
HERE_ALONE = {"quickstart", "quickstart-disk"}  # this machine is their only size


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
    loaded = load(file, scale=None if file.stem in HERE_ALONE else "laptop")
    pipelines = {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in file.parent.glob("pipelines/*.json")}
    plan = build_plan(loaded.experiment, expand(loaded), Inputs(cores=2, ram_mib=24_000, pipelines=pipelines))
    assert 0 < plan.estimate_seconds <= LAPTOP_SECONDS


@pytest.mark.parametrize("file", [f for f in FILES if f.stem not in HERE_ALONE], ids=lambda file: file.stem)
def test_at_its_own_size_it_can_be_planned_on_ec2_within_its_budget(file: Path) -> None:
    if lacks := without_data(file):
        pytest.skip(lacks)
    scale = None if load(file).experiment.infrastructure.shard_hosts.instance_type else "ec2"
    seen = plan_ec2(file, scale=scale, overrides={})
    hours = load(file, scale=scale).experiment.budget.max_hours
    assert hours is not None
    assert seen.plan.estimate_seconds < hours * 3600
