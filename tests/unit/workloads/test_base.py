"""Engines and their parameters: what is wrong with one is reported before anything is done. Progress."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from microshard.model.job import JobError
from microshard.model.phase import PhaseKeys
from microshard.model.phases import all_keys
from microshard.model.plan import PlannedPhase
from microshard.workloads.base import Context, Engine, ProgressFile, find_engine
from microshard.workloads.connections import read_job
from tests.unit.workloads.jobs import DEFAULTS, PIPELINE, job


def make(engine: str, parameters: dict[str, Any]) -> None:
    find_engine(engine)(PlannedPhase("it", "load", engine, parameters), Context(read_job(job()), ProgressFile(None)))


@pytest.mark.parametrize("keys", all_keys())
def test_every_engine_of_the_experiment_file_can_be_executed(keys: type[PhaseKeys]) -> None:
    (name,) = get_args(keys.model_fields["engine"].annotation)
    assert issubclass(find_engine(name), Engine)


@pytest.mark.parametrize("name", ["agregate", "base", "os", "../insert", "mot.columns", ""])
def test_what_is_no_engine_is_refused_with_the_nearest_name(name: str) -> None:
    with pytest.raises(JobError, match="there is no engine" + (".*did you mean aggregate" if name[:1] == "a" else "")):
        find_engine(name)


@pytest.mark.parametrize(
    ("engine", "name", "value", "message"),
    [
        ("insert", "documents", 10, None),
        ("insert", "documents", 0, "documents: Input should be greater"),
        ("insert", "documents", True, "documents: Input should be a valid integer"),
        ("insert", "processes", "auto", "processes: Input should be a valid integer"),
        ("insert", "processes", ..., "phase it: processes: Field required"),
        ("insert", "batch_size", 100_001, "batch_size: Input should be less"),
        ("insert", "dataset", "fights", "dataset: Input should be .*'mot'"),
        ("insert", "namespace", "vosa", "namespace: "),
        ("insert", "colour", "red", "colour: Extra inputs"),
        ("aggregate", "cache", "warm", None),
        ("aggregate", "cache", "lukewarm", "cache: Input should be 'warm'"),
        ("aggregate", "pipeline", "mot_greenness", "pipeline: Input should be a valid list"),
        ("aggregate", "pipeline", [*PIPELINE, {"$match": {}, "$sort": {}}], "stage 1 has not"),
        ("aggregate", "pipeline_name", ..., "phase it: pipeline_name: Field required"),
        ("aggregate", "iterations", "3", "iterations: Input should be a valid integer"),
    ],
)
def test_parameters_are_complete_and_a_wrong_one_is_named(
    engine: str, name: str, value: Any, message: str | None
) -> None:
    given = {key: one for key, one in (DEFAULTS[engine] | {name: value}).items() if one is not ...}
    if message is None:
        make(engine, given)
        return
    with pytest.raises(JobError, match=message):
        make(engine, given)


def test_progress_drops_lines_that_come_too_soon_but_never_the_last(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    progress = ProgressFile(path)
    for done in range(1, 101):
        progress.report("load", done, 100, "documents", "fast")
    progress.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["done"] for line in lines] == [1, 100]
    expected = {"phase": "load", "done": 100, "of": 100, "unit": "documents", "time": 0, "note": "fast"}
    assert lines[-1] | {"time": 0} == expected


def test_a_line_of_progress_that_has_no_room_fails_nothing() -> None:
    progress = ProgressFile(Path("/dev/full"))
    progress.report("load", 1, 2, "documents")
    progress.close()
