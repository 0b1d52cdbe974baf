from pathlib import Path
from typing import Any

import pytest

from microshard.experiment.load import load
from microshard.experiment.matrix import expand
from microshard.experiment.question import labels
from tests.unit.experiment.lab import BASE, Lab
from tests.unit.plan.test_published import without_data

FILES = sorted((Path(__file__).resolve().parents[3] / "experiments").glob("*.yml"))
MATRIX = "matrix: {topology.shards.count: [1, 2], topology.storage.block_compressor: [none, zlib]}\n"
QUESTION = "question: {vary: [topology.storage.block_compressor], by: [topology.shards.count], figure: query time%s}\n"


@pytest.mark.parametrize(
    ("question", "refused"),
    [
        ("{vary: [topology.shards.cout], figure: query time}",
         "question.vary.0: topology.shards.cout is no axis of the matrix; there is: topology.shards.count, "
         "topology.storage.block_compressor; did you mean `topology.shards.count`?"),
        ("{vary: [topology.shards.count], by: [topology.mongos.count], figure: query time}",
         "question.by.0: topology.mongos.count is no axis of the matrix; there is: "),
        ("{vary: [topology.shards.count], figure: querytime}",
         "question.figure: measure (aggregate) reports no querytime; there is: query time; did you mean `query time`?"),
        ("{vary: [topology.shards.count], figure: query time, cost: load rate}", "question.cost: measure (aggregate)"),
        ("{vary: [topology.shards.count], figure: query time, phase: load}",
         "question.phase: no measured phase is named load; there is: measure"),
        ("{vary: [topology.shards.count], figure: query time, baseline: '3'}",
         "question.baseline: no point has 3; there is: 1, 2"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_is_refused_with_what_there_is(
    lab: Lab, question: str, refused: str
) -> None:
    (found,) = lab.wrong(f"{BASE}{MATRIX}question: {question}\n")
    assert refused in found


def test_points_are_called_what_the_question_calls_them(lab: Lab) -> None:
    loaded = lab.load(BASE + MATRIX + QUESTION % ", names: {none: uncompressed, 1 shard: alone}")
    found = labels(loaded.experiment, [point.axes for point in expand(loaded)])
    assert found == ["uncompressed, alone", "zlib, alone", "uncompressed, 2 shards", "zlib, 2 shards"]


def test_points_of_an_axis_that_the_question_does_not_name_are_kept_apart(lab: Lab) -> None:
    question = "question: {vary: [topology.storage.block_compressor], figure: query time}\n"
    loaded = lab.load(BASE + MATRIX + question)
    found = labels(loaded.experiment, [point.axes for point in expand(loaded)])
    assert found == ["none, 1 shard", "zlib, 1 shard", "none, 2 shards", "zlib, 2 shards"]


def scales(file: Path) -> list[str | None]:
    """The scales of a file, and none."""
    return [None, *load(file).experiment.scales]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_shipped_experiment_asks_a_question_whose_points_have_names_of_their_own(file: Path) -> None:
    for scale in scales(file):
        loaded = load(file, scale=scale)
        question: Any = loaded.experiment.question
        assert question is not None, (file.stem, scale)
        if without_data(file):
            continue  # its points cannot be expanded
        found = labels(loaded.experiment, [point.axes for point in expand(loaded)])
        assert len(set(found)) == len(found), (scale, found)
        assert all(0 < len(label) <= 60 for label in found), (scale, found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_shipped_experiment_sets_gates_and_gives_their_reasons(file: Path) -> None:
    page = (file.parents[1] / "docs" / "experiments" / f"{file.stem}.md").read_text(encoding="utf-8")
    section = page.partition("\n## Gates\n")[2].partition("\n## ")[0]
    given: set[str] = set()
    for scale in scales(file):
        chosen = load(file, scale=scale).experiment.gates.model_fields_set
        assert chosen, scale
        given |= chosen
    assert all(f"`{gate}`" in section for gate in given), (given, section)


def test_a_matrix_of_the_command_line_leaves_a_question_about_other_axes_out(lab: Lab) -> None:
    text = BASE + MATRIX + QUESTION % ""
    (warning,) = lab.load(text, overrides={"matrix": {"topology.shards.count": [1, 2]}}).warnings
    assert "question is not about these axes" in warning.message
    both = {"topology.shards.count": [1, 2], "topology.storage.block_compressor": ["none", "zstd"]}
    assert lab.load(text, overrides={"matrix": both}).experiment.question is not None
