"""Which points become data images, and that everything which decides their content is in their name."""

import dataclasses
from typing import Any

import pytest

from microshard.model.plan import Inputs, Point
from microshard.plan.build import build_plan
from microshard.plan.checks import PlanError
from microshard.plan.data_images import data_image_policy, image_name, recipe
from tests.unit.plan.conftest import experiment, points

LOAD = {"load": {"engine": "insert", "documents": 1000, "seed": 7}}
QUERY = {"measure": {"engine": "aggregate", "pipeline": "mot_greenness"}}
WRITING = {"workload": [LOAD, {"measure": {**LOAD["load"], "namespace": "a.b"}}]}


def _volumes(**volumes: Any) -> dict[str, Any]:
    return {"infrastructure": {"shard_hosts": {"volumes": volumes}}}


def _point(**changes: Any) -> Point:
    base = experiment(**{"workload": [LOAD, QUERY], "load": {"image": "use"}, **changes})
    return build_plan(base, points(base, [2]), Inputs(cores=2, pipelines={"mot_greenness": [{"$count": "n"}]})).points[
        0
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"load": {"image": "never"}}, ""),
        ({"topology": {"storage": {"engine": "inMemory"}}}, "not WiredTiger"),
        ({"workload": [{"measure": LOAD["load"]}]}, "what its measurements load is never restored"),
        ({"workload": [QUERY, {**LOAD, "name": "later"}]}, "after another phase"),
        ({"topology": {"kind": "sharded", "balancer": {"enabled": True}}}, "balancer"),
        ({"topology": {"kind": "sharded", "security": {"authorization": True}}}, ""),
    ],
)
def test_points_whose_data_would_not_be_the_same_are_loaded(changes: dict[str, Any], words: str) -> None:
    policy = _point(**changes).data_image
    assert words in policy.refused
    assert bool(policy.refused) == bool(words)


def test_where_measurements_change_the_data_the_image_is_made_before_them() -> None:
    assert [_point().data_image.first, _point(**WRITING).data_image.first] == [False, True]


@pytest.mark.parametrize(
    ("backend", "changes", "words"),
    [
        ("hosts", {}, ""),
        ("hosts", _volumes(data={}), "volumes"),
        ("hosts", _volumes(journal={}), ""),
        ("ec2", WRITING | _volumes(data={}), ""),
        ("ec2", WRITING | _volumes(data={"policy": "per_shard"}), "volumes"),
        ("ec2", {}, "new in each run"),
        ("ec2", WRITING, ""),
        ("ec2", {**WRITING, "load": {"image": "only"}}, "new in each run"),
    ],
)
def test_data_are_kept_where_they_are_found_again(backend: str, changes: dict[str, Any], words: str) -> None:
    base = experiment(**{"workload": [LOAD, QUERY], "load": {"image": "use"}, **changes})
    refused = data_image_policy(base, backend).refused
    assert words in refused
    assert bool(refused) == bool(words)


def test_what_can_only_be_loaded_is_no_plan_where_it_may_only_be_restored() -> None:
    with pytest.raises(PlanError, match="what its measurements load is never restored"):
        _point(workload=[{"measure": LOAD["load"]}], load={"image": "only"})
    assert _point(load={"image": "only"}).data_image.mode == "only"


def _name(point: Point, mongod: str = "6.0.5", sha256: str = "0f") -> str:
    return image_name(recipe(point, mongod=mongod, mongod_sha256=sha256))


def _ports_moved(point: Point) -> Point:
    sets = tuple(
        dataclasses.replace(each, members=tuple(dataclasses.replace(m, endpoint="h:1") for m in each.members))
        for each in point.replica_sets
    )
    processes = tuple(dataclasses.replace(p, port=p.port + 1) for p in point.processes)
    return dataclasses.replace(point, processes=processes, replica_sets=sets)


def _other_options(point: Point) -> Point:
    return dataclasses.replace(
        point, processes=tuple(dataclasses.replace(p, options={"storage": {"engine": "x"}}) for p in point.processes)
    )


def _other_seed(point: Point) -> Point:
    load, query = point.phases
    return dataclasses.replace(
        point, phases=(dataclasses.replace(load, parameters={**load.parameters, "seed": 8}), query)
    )


def test_the_name_has_all_that_decides_the_data_and_nothing_else() -> None:
    point = _point()
    load, _ = point.phases
    others = [
        _other_options(point),
        _other_seed(point),
        dataclasses.replace(point, processes=point.processes[:-1]),
        dataclasses.replace(point, phases=(load, *point.phases)),
        dataclasses.replace(point, collections=()),
        dataclasses.replace(point, replica_sets=point.replica_sets[1:]),
        dataclasses.replace(point, balancer={**point.balancer, "chunk_size_mb": 1}),
    ]
    names = [_name(point), _name(point, mongod="6.0.6"), _name(point, sha256="1f"), *map(_name, others)]
    assert len(set(names)) == len(names)
    assert _name(_ports_moved(point)) == _name(point), "ports are rewritten"
    assert image_name(recipe(point, mongod="6.0.5", mongod_sha256="0f", empty=True)) not in names
    same = dataclasses.replace(point, id="p09", label="another", phases=(load,), measure_seconds=9.0)
    assert _name(same) == _name(point), "neither the point's id nor what is measured decides the data"
