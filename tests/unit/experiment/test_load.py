from pathlib import Path

import pytest

from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import load, parse_overrides
from tests.unit.experiment.lab import BASE, Lab

SCALED = (
    BASE
    + """\
matrix: {topology.shards.count: [1, 2, 4]}
scales:
  laptop:
    workload.0.load.documents: 10
    matrix.topology.shards.count: [1, 2]
    repetitions: 1
    topology.storage: {engine: wiredTiger, block_compressor: zlib}
"""
)


def test_a_sample_loads_without_a_problem(sample: Path) -> None:
    assert load(sample).experiment.microshard == 1


def test_data_holds_what_was_given_and_the_experiment_every_default(lab: Lab) -> None:
    loaded = lab.load(BASE)
    assert "repetitions" not in loaded.document.data
    assert loaded.experiment.repetitions == 3
    assert loaded.document.data["topology"]["shards"] == {"count": 2}


def test_without_a_scale_its_changes_are_not_made(lab: Lab) -> None:
    experiment = lab.load(SCALED).experiment
    assert experiment.repetitions == 3
    assert experiment.matrix.axes == {"topology.shards.count": [1, 2, 4]}


def test_a_scale_replaces_values_lists_and_whole_mappings(lab: Lab) -> None:
    loaded = lab.load(SCALED, scale="laptop")
    experiment = loaded.experiment
    assert experiment.repetitions == 1
    assert experiment.workload[0].load == experiment.workload[0].phase
    assert loaded.document.data["workload"][0]["load"]["documents"] == 10
    assert experiment.matrix.axes == {"topology.shards.count": [1, 2]}
    assert experiment.topology.storage.block_compressor == "zlib"
    assert experiment.topology.shards.count == 2


def test_a_scale_may_make_what_was_not_there_and_whole_sections(lab: Lab) -> None:
    loaded = lab.load(
        BASE + "scales: {s: {gates.max_variation: 0.5, matrix: {topology.mongos.count: [1, 2]}}}\n", scale="s"
    )
    assert loaded.experiment.gates.max_variation == 0.5
    assert loaded.experiment.matrix.axes == {"topology.mongos.count": [1, 2]}


def test_an_unknown_scale_names_those_there_are(lab: Lab) -> None:
    (found,) = lab.wrong(SCALED, scale="labtop")
    assert found.startswith("x.yml:10:1: scales: no scale labtop")
    assert "did you mean `laptop`?" in found
    (found,) = lab.wrong(BASE, scale="laptop")
    assert found.startswith("x.yml:1:1: scales: no scale laptop: the file has no scales")


@pytest.mark.parametrize("scale", ["laptop", None])
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("topology.shards.count: 0", "16:28: topology.shards.count: found the number 0"),
        ("topology.shards.cuont: 1", "16:5: topology.shards.cuont: unknown key; did you mean `count`?"),
        ("workload.5.load.documents: 1", "16:5: workload.5.load.documents: workload has 2 items"),
        ("workload.load.documents: 1", "16:5: workload.load.documents: workload is a list"),
        ("workload.0.load: {engine: aggregate}", "16:5: workload.0.load.pipeline: missing"),
        ("name.first: 1", "16:5: name.first: name is a single value"),
        ("scales.other: {}", "16:5: scales.other: scales belongs to the file"),
        ("microshard: 2", "16:5: microshard: microshard belongs to the file"),
        ("a..b: 2", "16:5: a..b: is not a dotted key"),
    ],
)
def test_what_is_wrong_in_a_scale_is_reported_at_its_line_used_or_not(
    lab: Lab, scale: str | None, line: str, problem: str
) -> None:
    (found,) = lab.wrong(f"{SCALED}    {line}\n", scale=scale)
    assert found.startswith(f"x.yml:{problem}")


def test_a_scale_may_mend_the_type_but_not_hide_the_key_it_replaces(lab: Lab) -> None:
    loaded = lab.load(SCALED.replace("documents: 100", "documents: 1"), scale="laptop")
    assert loaded.document.data["workload"][0]["load"]["documents"] == 10


def test_overrides_come_last_and_win_over_the_scale(lab: Lab) -> None:
    loaded = lab.load(SCALED, scale="laptop", overrides={"repetitions": 7, "topology.shards.members": 3})
    assert loaded.experiment.repetitions == 7
    assert loaded.experiment.topology.shards.members == 3


def test_an_override_that_is_text_is_text(lab: Lab) -> None:
    """The shell took the quotes: `on` cannot be distinguished from `"on"` any more, and quoting it would not help."""
    loaded = lab.load(BASE, overrides={"topology.mongod.setParameter.x": "on"})
    assert loaded.experiment.topology.mongod == {"setParameter": {"x": "on"}}


def test_what_is_wrong_in_an_override_is_shown_as_set(lab: Lab) -> None:
    overrides = {"topology.shards.count": 0, "topolgy.x": 1, "budget.max_hours": "4", "workload.9.load": 1}
    expected = ["workload.9.load", "topology.shards.count", "budget.max_hours", "topolgy"]
    assert [h.split(": ")[:2] for h in lab.wrong(BASE, overrides=overrides)] == [["--set", key] for key in expected]


def test_an_override_of_an_axis_is_validated_at_every_point(lab: Lab) -> None:
    (found,) = lab.wrong(BASE, overrides={"matrix.topology.shards.count": [1, 0]})
    assert found.startswith("--set: topology.shards.count: found the number 0")


def test_overrides_are_read_from_key_value_as_yaml() -> None:
    given = ["a.b=1", "c=[x, 2.5]", "d='1'", "e=", "f={g: true}", "h=a=b"]
    expected = {"a.b": 1, "c": ["x", 2.5], "d": "1", "e": None, "f": {"g": True}, "h": "a=b"}
    assert parse_overrides(given) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a.b", "a.b: write it as KEY=VALUE"),
        ("a=010", "a: 010 may be octal"),
        ("a=[1", "a: the list in [ ] is not closed"),
        ("a=!x 1", "a: the tag !x"),
        ("a=1\nvalue: 2", "a: write the value on one line"),
    ],
)
def test_an_override_that_cannot_be_read_says_why(text: str, problem: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        parse_overrides(["ok=1", text])
    assert str(raised.value).startswith(f"--set: {problem}")


def test_the_short_form_of_the_matrix_is_the_long_one(lab: Lab) -> None:
    short = lab.load(BASE + "matrix: {topology.shards.count: [1, 2], zip: {topology.mongos.count: [1]}}\n")
    long = lab.load(BASE + "matrix: {axes: {topology.shards.count: [1, 2]}, zip: {topology.mongos.count: [1]}}\n")
    assert short.experiment == long.experiment
    assert short.document.data == long.document.data


def test_a_key_that_is_an_axis_cannot_be_overridden(lab: Lab) -> None:
    (headline,) = lab.wrong(SCALED, overrides={"topology.shards.count": 3})
    assert headline.startswith("--set: topology.shards.count:")
    assert "'matrix.topology.shards.count=[3]'" in headline
    assert lab.load(SCALED, overrides={"matrix.topology.shards.count": [3]})
