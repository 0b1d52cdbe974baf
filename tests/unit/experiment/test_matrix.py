import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from microshard.experiment import yaml_reader
from microshard.experiment.load import build, load
from microshard.experiment.matrix import MAX_POINTS, expand
from tests.unit.experiment.lab import BASE, Lab

SHARDS, MONGOS, DOCUMENTS = "topology.shards.count", "topology.mongos.count", "workload.0.load.documents"


def axes(lab: Lab, matrix: str) -> list[tuple[Any, ...]]:
    return [tuple(p.axes.values()) for p in lab.points(f"{BASE}matrix: {matrix}\n")]


def wrong(lab: Lab, matrix: str) -> list[str]:
    """Headlines; the matrix begins at line 9, column 9."""
    return lab.wrong(f"{BASE}matrix: {matrix}\n")


def test_a_file_without_matrix_has_one_point(lab: Lab) -> None:
    (point,) = lab.points(BASE)
    assert point.axes == {}
    assert point.experiment == lab.load(BASE).experiment


def test_axes_are_combined_in_file_order_the_last_fastest(lab: Lab) -> None:
    found = axes(lab, f"{{{SHARDS}: [4, 1], {MONGOS}: [1, 2], {DOCUMENTS}: [5, 6]}}")
    assert found == list(itertools.product([4, 1], [1, 2], [5, 6]))


def test_a_point_is_a_whole_experiment_with_its_values_in_their_places(lab: Lab) -> None:
    points = lab.points(f"{BASE}matrix: {{{SHARDS}: [1, 16], {DOCUMENTS}: [7]}}\n")
    assert [p.experiment.topology.shards.count for p in points] == [1, 16]
    assert {p.experiment.workload[0].phase.model_dump()["documents"] for p in points} == {7}
    assert points[1].experiment.topology.collections == lab.load(BASE).experiment.topology.collections
    assert points[1].experiment.name == "base"
    assert points[1].experiment.matrix.axes == {}


def test_zip_goes_in_step_and_is_the_fastest_axis(lab: Lab) -> None:
    found = axes(lab, f"{{zip: {{{MONGOS}: [1, 2], {DOCUMENTS}: [5, 6]}}, {SHARDS}: [1, 2]}}")
    assert found == [(1, 1, 5), (1, 2, 6), (2, 1, 5), (2, 2, 6)]


def test_exclude_takes_out_what_has_all_its_values_and_nothing_else(lab: Lab) -> None:
    found = axes(lab, f"{{{SHARDS}: [1, 2], {MONGOS}: [1, 2], exclude: [{{{SHARDS}: 1, {MONGOS}: 2}}]}}")
    assert found == [(1, 1), (2, 1), (2, 2)]
    found = axes(lab, f"{{{SHARDS}: [1, 2], {MONGOS}: [1, 2], exclude: [{{{SHARDS}: 1}}]}}")
    assert found == [(2, 1), (2, 2)]


def test_include_adds_points_and_fills_what_they_leave_out_from_the_experiment(lab: Lab) -> None:
    points = lab.points(
        f"{BASE}matrix: {{{SHARDS}: [1], include: [{{{SHARDS}: 8, {MONGOS}: 3}}, {{{DOCUMENTS}: 5}}]}}\n"
    )
    assert [p.axes for p in points] == [
        {SHARDS: 1, MONGOS: 1, DOCUMENTS: 100},
        {SHARDS: 8, MONGOS: 3, DOCUMENTS: 100},
        {SHARDS: 2, MONGOS: 1, DOCUMENTS: 5},
    ]
    assert points[2].experiment.topology.shards.count == 2


def test_include_may_bring_back_what_exclude_took_out(lab: Lab) -> None:
    assert axes(lab, f"{{{SHARDS}: [1, 2], exclude: [{{{SHARDS}: 1}}], include: [{{{SHARDS}: 1}}]}}") == [(2,), (1,)]


def test_include_alone_makes_only_its_points(lab: Lab) -> None:
    assert axes(lab, f"{{include: [{{{SHARDS}: 8}}, {{{SHARDS}: 9}}]}}") == [(8,), (9,)]


def test_whole_mappings_and_lists_may_be_axes(lab: Lab) -> None:
    volume = "infrastructure.shard_hosts.volumes.data"
    points = lab.points(f"{BASE}matrix: {{{volume}: [null, {{type: io1, iops: 500}}, {{type: gp3}}]}}\n")
    volumes = [p.experiment.infrastructure.shard_hosts.volumes.data for p in points]
    assert [v and v.type for v in volumes] == [None, "io1", "gp3"]


def test_options_of_mongod_may_be_axes(lab: Lab) -> None:
    points = lab.points(f"{BASE}matrix: {{topology.mongod.setParameter.ttlMonitorEnabled: [true, false]}}\n")
    assert [p.experiment.topology.mongod for p in points] == [
        {"setParameter": {"ttlMonitorEnabled": True}},
        {"setParameter": {"ttlMonitorEnabled": False}},
    ]


def test_warnings_of_a_point_are_those_the_experiment_has_not(lab: Lab) -> None:
    text = BASE.replace("shards: {count: 2}", "replica_set: {members: 1}")
    text = text.replace("{_id: 1}}", "{_id: hashed}, presplit: {policy: hashed}}")
    first, second = lab.points(f"{text}matrix: {{topology.balancer.enabled: [false, true]}}\n")
    assert first.warnings == ()
    (warning,) = second.warnings
    assert warning.startswith("topology.collections.0.presplit: the balancer")


def many_axes(count: int) -> str:
    return f"{{{', '.join(f'topology.mongod.setParameter.p{i}: [1, 2]' for i in range(count))}}}"


REFUSED = {
    "unknown key": ("{topology.shards.cuont: [1]}", "9:10: matrix.axes.topology.shards.cuont: unknown key;"),
    "unknown section": ("{topologi.shards.count: [1]}", "9:10: matrix.axes.topologi.shards.count: cannot be"),
    "key that is none of a point": ("{order.seed: [1]}", "9:10: matrix.axes.order.seed: cannot be an"),
    "the matrix itself": ("{matrix.axes.x: [1]}", "9:10: matrix.axes.matrix.axes.x: cannot be an axis;"),
    "no dots": ("{repetitions: [1]}", "9:10: matrix.repetitions: unknown key; there is"),
    "item that is not there": (
        "{workload.2.measure.iterations: [1]}",
        "9:10: matrix.axes.workload.2.measure.iterations",
    ),
    "no values": ("{SHARDS: []}", "9:33: matrix.axes.SHARDS: found an empty"),
    "value instead of a list": ("{SHARDS: 4}", "9:33: matrix.axes.SHARDS: found the"),
    "wrong value": ("{SHARDS: [1, 0]}", "9:37: SHARDS: found the number 0,"),
    "wrong value in zip": ("{zip: {SHARDS: [1, 2], MONGOS: [1, x]}}", "9:74: MONGOS"),
    "wrong value in include": ("{include: [{SHARDS: -1}]}", "9:44: SHARDS: found the"),
    "value twice": ("{SHARDS: [1, 2, 1]}", "9:40: SHARDS: 1 is given twice"),
    "row twice": ("{zip: {SHARDS: [1, 1], MONGOS: [2, 2]}}", "9:74: MONGOS"),
    "lists of unequal length": ("{zip: {SHARDS: [1, 2], MONGOS: [1]}}", "9:47: matrix.zip.MONGOS"),
    "in axes and in zip": ("{SHARDS: [1], zip: {SHARDS: [2]}}", "9:44: matrix.zip.SHARDS"),
    "part and its whole": ("{topology.shards: [{count: 1}], SHARDS: [2]}", "9:41: matrix.axes.SHARDS"),
    "exclude that takes out nothing": ("{SHARDS: [1, 2], exclude: [{SHARDS: 3}]}", "9:51: matrix.exclude.0"),
    "exclude that takes true for 1": ("{SHARDS: [1, 2], exclude: [{SHARDS: true}]}", "9:51: matrix.exclude.0"),
    "exclude of what is no axis": (
        "{SHARDS: [1, 2], exclude: [{topology.shards.members: 1}]}",
        "9:52: matrix.exclude.0.topology.shards.members",
    ),
    "everything excluded": ("{SHARDS: [1], exclude: [{SHARDS: 1}]}", "9:38: matrix.exclude"),
    "include that is there already": ("{SHARDS: [1, 2], include: [{SHARDS: 2}]}", "9:75: SHARDS"),
    "include that is the experiment's own value": ("{SHARDS: [1, 2], include: [{MONGOS: 1}]}", "9:75: MONGOS"),
    "two values that mean the same": ("{topology.storage.cache: [{}, {value: 1024}]}", "9:39: topology.storage.cache"),
    "rule across keys, at the value that breaks it": (
        "{SHARDS: [1, 2], topology.kind: [sharded, standalone]}",
        "9:66: topology.collections",
    ),
    "rule about versions": ("{topology.storage.engine: [wiredTiger, mmapv1]}", "9:48: topology.storage.engine: mmapv1"),
    "rule about a combination": (
        "{infrastructure.shard_hosts.volumes.data.type: [gp3, io1], "
        "infrastructure.shard_hosts.volumes.data.iops: [3000, 20000]}",
        "9:121: infrastructure.shard_hosts.volumes.data.iops",
    ),
    "on as an option of mongod": ("{topology.mongod.setParameter.x: [on]}", "9:43: topology.mongod.setParameter.x: on"),
    "option of mongod that the tool decides": ("{topology.mongod.net.port: [1]}", "9:37: topology.mongod.net.port"),
    "too many combinations": (many_axes(17), "9:1: matrix: 131,072 combinations;"),
    "too many points": (many_axes(14), "9:1: matrix: 16,384 points;"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_matrix_is_reported_at_the_value_that_is_wrong(lab: Lab, case: str) -> None:
    matrix, expected = (text.replace("SHARDS", SHARDS).replace("MONGOS", MONGOS) for text in REFUSED[case])
    (found,) = wrong(lab, matrix)
    assert found.startswith(f"x.yml:{expected}")


def test_text_that_yaml_1_1_reads_differently_is_refused_in_an_axis_below_a_list(lab: Lab) -> None:
    (found,) = wrong(lab, "{workload.1.measure.pipeline: [[{$match: {a: on}}], [{$match: {a: 1}}]]}")
    assert "on is text in YAML 1.2" in found


def test_a_wrong_value_is_reported_once_though_it_is_wrong_at_many_points(lab: Lab) -> None:
    found = wrong(lab, f"{{{SHARDS}: [0, 1, x], {MONGOS}: {list(range(1, 60))}, {DOCUMENTS}: [0, 1]}}")
    assert [f.split(": ")[1] for f in found] == [SHARDS, SHARDS, DOCUMENTS]


def test_of_two_values_that_are_wrong_together_the_faster_axis_is_named(lab: Lab) -> None:
    text = (
        "microshard: 1\nname: x\n"
        "topology: {shards: {members: 2}, replica_set: {members: 2}}\n"
        "workload: [{load: {engine: insert, documents: 1, write_concern: {w: 2}}}, "
        "{measure: {engine: aggregate, pipeline: p}}]\n"
        "matrix:\n  topology.kind: [sharded, replica_set]\n  topology.replica_set.members: [2, 1]\n"
        "  exclude: [{topology.kind: sharded, topology.replica_set.members: 1}]\n"
    )
    (found,) = lab.wrong(text)
    assert found.startswith("x.yml:7:37: workload.0.load.write_concern.w: waits for 2")
    assert found.endswith("(at the point topology.kind=replica_set, topology.replica_set.members=1)")


def test_a_matrix_that_is_wrong_everywhere_is_reported_in_a_few_lines(lab: Lab) -> None:
    assert len(wrong(lab, f"{{{SHARDS}: {list(range(-5000, 0))}}}")) == 20


def test_several_wrong_keys_are_reported_at_once(lab: Lab) -> None:
    found = wrong(lab, f"{{{SHARDS}x: [1], {MONGOS}x: [1], exclude: [{{a.b: 1}}], include: [{{c.d: 1}}]}}")
    assert [f.split(": ")[1] for f in found] == [
        "matrix.axes.topology.shards.countx",
        "matrix.axes.topology.mongos.countx",
        "matrix.exclude.0.a.b",
        "matrix.include.0.c.d",
    ]


def test_sections_no_axis_touches_are_shared_not_copied(lab: Lab) -> None:
    points = lab.points(f"{BASE}matrix: {{{SHARDS}: [1, 2, 3]}}\n")
    assert points[0].experiment.workload[0] is points[2].experiment.workload[0]
    assert points[0].experiment.topology.collections[0] is points[2].experiment.topology.collections[0]


def test_as_many_points_as_a_run_may_have(lab: Lab) -> None:
    points = lab.points(f"{BASE}matrix: {{{SHARDS}: {list(range(1, 101))}, {DOCUMENTS}: {list(range(1, 101))}}}\n")
    assert len(points) == MAX_POINTS
    assert points[-1].experiment.topology.shards.count == 100


def test_every_point_of_a_sample_is_itself_an_experiment_of_one_point(sample: Path) -> None:
    loaded = load(sample)
    for point in expand(loaded):
        again = type(point.experiment).model_validate(point.experiment.model_dump(exclude_unset=True))
        assert again == point.experiment


@settings(max_examples=60)
@given(
    shards=st.lists(st.integers(1, 50), min_size=1, max_size=5, unique=True),
    mongos=st.lists(st.integers(1, 50), min_size=1, max_size=4, unique=True),
    data=st.data(),
)
def test_the_grid_is_the_product_less_what_is_excluded_and_more_what_is_included(
    shards: list[int], mongos: list[int], data: st.DataObject
) -> None:
    product = list(itertools.product(shards, mongos))
    out = data.draw(st.lists(st.sampled_from(product), unique=True, max_size=len(product) - 1))
    more = data.draw(st.lists(st.tuples(st.integers(51, 60), st.integers(51, 60)), unique=True, max_size=3))

    def points(pairs: list[tuple[int, int]]) -> str:
        return "[" + ", ".join(f"{{{SHARDS}: {s}, {MONGOS}: {m}}}" for s, m in pairs) + "]"

    matrix = f"{{{SHARDS}: {shards}, {MONGOS}: {mongos}, exclude: {points(out)}, include: {points(more)}}}"
    found = expand(build(*yaml_reader.parse("x.yml", f"{BASE}matrix: {matrix}\n")))
    wanted = [p for p in product if p not in out] + more
    assert [(p.axes[SHARDS], p.axes[MONGOS]) for p in found] == wanted
    assert [(p.experiment.topology.shards.count, p.experiment.topology.mongos.count) for p in found] == wanted


@pytest.mark.parametrize(
    "key",
    ["topology.storage.cache", "topology.mongod", "topology.collections.0.unique", "infrastructure.shard_hosts.kernel"],
)
def test_a_point_is_what_setting_its_values_makes_of_the_experiment(lab: Lab, key: str) -> None:
    values_of: dict[str, list[Any]] = {
        "topology.storage.cache": [{"policy": "per_process_mb", "value": 300}, {"policy": "host_total_mb"}],
        "topology.mongod": [{"systemLog": {"verbosity": 1}}, {"systemLog": {"verbosity": 2}}],
        "topology.collections.0.unique": [True, False],
        "infrastructure.shard_hosts.kernel": [{"readahead_sectors": 32}, {"swappiness": 1}],
    }
    values = values_of[key]
    points = lab.points(f"{BASE}matrix: {{{SHARDS}: [1, 2], {key}: {values!r}}}\n".replace("True", "true"))
    for point, (shards, value) in zip(points, itertools.product([1, 2], values), strict=True):
        alone = lab.load(BASE, overrides={SHARDS: shards, key: value}).experiment
        for section in ("infrastructure", "topology", "workload"):
            assert getattr(point.experiment, section) == getattr(alone, section)
