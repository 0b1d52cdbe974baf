"""Two run folders beside each other."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from microshard.analysis.comparison import Comparison, NothingInCommonError, compare
from microshard.cli.runs import compare as command
from microshard.records.differences import differences
from microshard.report.comparison import render
from tests.report.make_run import Shape, make_run

SHAPE = Shape(spread=0.01, drift=False, repetitions=5)


def _slower(run: Path, factor: float, shards: int) -> None:
    for path in (run / "results").glob("*/*.json"):
        result = json.loads(path.read_text())
        if result["axes"] == {"topology.shards.count": shards}:
            for phase in result["phases"]:
                if phase["kind"] == "measure":
                    phase["metric"]["value"] *= factor
            path.write_text(json.dumps(result))


def _change(path: Path, edit: Any) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return make_run(tmp_path / "a", SHAPE), make_run(tmp_path / "b", replace(SHAPE, noise_seed=8))


def test_two_runs_of_the_same_thing_are_the_same(pair: tuple[Path, Path]) -> None:
    found = compare(*pair)
    assert [row.change.verdict for row in found.rows] == ["no difference"] * 5
    assert not found.worse
    assert not found.definition
    assert not found.environment


def test_a_point_that_became_slower_is_found_alone(pair: tuple[Path, Path]) -> None:
    _slower(pair[1], 1.10, shards=4)
    found = compare(*pair)
    assert [row.label for row in found.worse] == ["4 shards"]
    assert compare(*pair, tolerance=0.2).worse == []
    assert [r.label for r in compare(pair[1], pair[0]).rows if r.change.verdict == "better"] == ["4 shards"]


def test_another_answer_is_worse_whatever_the_time(pair: tuple[Path, Path]) -> None:
    def wrong(result: dict[str, Any]) -> None:
        for phase in result["phases"]:
            if phase.get("answer_sha256"):
                phase["answer_sha256"] = "0" * 64

    _change(pair[1] / "results" / "p02" / "r1.json", wrong)
    assert [row.label for row in compare(*pair).worse] == ["2 shards"]


def test_what_differs_around_the_runs_is_reported(pair: tuple[Path, Path]) -> None:
    def other(lock: dict[str, Any]) -> None:
        lock["host"]["kernel"] = "9.9"
        lock["definition"]["topology"]["storage"]["block_compressor"] = "zstd"
        lock["definition"]["title"] = "something else"

    _change(pair[1] / "lock.json", other)
    found = compare(*pair)
    assert [d.key for d in found.environment] == ["host.kernel"]
    assert [(d.key, d.base, d.other) for d in found.definition] == [
        ("topology.storage.block_compressor", "zlib", "zstd")
    ]


def test_failed_points_and_points_of_one_run_leave_the_others(tmp_path: Path) -> None:
    base = make_run(tmp_path / "a", replace(SHAPE, failed_point=8))
    other = make_run(tmp_path / "b", replace(SHAPE, shards=(1, 2, 8)))
    found = compare(base, other)
    verdicts = {row.label: row.change for row in found.rows}
    assert verdicts["8 shards"].verdict == "inconclusive"
    assert "first run" in verdicts["8 shards"].why
    assert verdicts["2 shards"].verdict == "no difference"
    assert found.only_base == ("4 shards", "16 shards")
    assert "only in" in _shown(found)


def test_runs_without_a_common_point_are_refused_by_name(tmp_path: Path) -> None:
    base = make_run(tmp_path / "a", replace(SHAPE, shards=(1, 2)))
    other = make_run(tmp_path / "b", replace(SHAPE, shards=(4, 8)))
    with pytest.raises(NothingInCommonError, match=r"1 shard, 2 shards.*4 shards, 8 shards"):
        compare(base, other)


def test_the_command_ends_with_6_when_something_is_worse(pair: tuple[Path, Path]) -> None:
    names = [str(path) for path in pair]
    runner = CliRunner()
    assert runner.invoke(command, names, standalone_mode=False).return_value == 0
    _slower(pair[1], 1.10, shards=2)
    result = runner.invoke(command, names, standalone_mode=False)
    assert result.return_value == 6
    assert "1 worse" in result.output
    assert runner.invoke(command, [*names, "--tolerance", "30%"], standalone_mode=False).return_value == 0
    machine = runner.invoke(command, [*names, "--json"], standalone_mode=False)
    assert json.loads(machine.output)[0]["worse"] == ["2 shards"]


def test_runs_over_other_data_are_not_compared(pair: tuple[Path, Path]) -> None:
    def other_data(plan: dict[str, Any]) -> None:
        for point in plan["points"]:
            for phase in point["phases"]:
                phase["question"] = {"pipeline": "same"}
                phase["data"] = {"documents": 10} if phase["kind"] == "load" else None

    def more(plan: dict[str, Any]) -> None:
        other_data(plan)
        for point in plan["points"]:
            point["phases"][0]["data"] = {"documents": 20}

    _change(pair[0] / "plan.json", other_data)
    _change(pair[1] / "plan.json", other_data)
    assert not compare(*pair).incomparable
    _change(pair[1] / "plan.json", more)
    assert {row.change.verdict for row in compare(*pair).rows} == {"not comparable"}
    result = CliRunner().invoke(command, [str(path) for path in pair], standalone_mode=False)
    assert result.return_value == 7
    assert "other data" in result.output


def test_how_small_a_difference_could_have_been_seen(pair: tuple[Path, Path]) -> None:
    found = compare(*pair)
    shares = [share for share, _ in found.unseen]
    assert len(shares) == 5
    assert shares == sorted(shares)
    row = next(row for row in found.rows if row.label == found.unseen[-1][1])
    assert row.change.low
    assert row.change.high
    assert (1 + shares[-1]) ** 2 == pytest.approx(row.change.high / row.change.low)
    assert f"{shares[-1]:.1%} at {row.label}" in _shown(found)


def test_an_empty_mapping_beside_its_key_is_no_difference_of_its_own() -> None:
    found = list(differences({"mongod": {}, "x": []}, {"mongod": {"setParameter": {"a": 1}}, "x": []}))
    assert [(d.key, d.base, d.other) for d in found] == [("mongod.setParameter.a", None, 1)]


@pytest.mark.parametrize("tolerance", ["five", "-1%", "100%", "nan"])
def test_a_tolerance_must_be_a_share(pair: tuple[Path, Path], tolerance: str) -> None:
    result = CliRunner().invoke(command, [str(pair[0]), str(pair[1]), "--tolerance", tolerance])
    assert result.exit_code == 2
    assert "a share such as 5%" in result.output


def _shown(found: Comparison) -> str:
    console = Console(width=120, record=True)
    with console.capture() as captured:
        render(found, console)
    return captured.get()
