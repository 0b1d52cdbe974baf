"""Jobs: what is wrong with one is said before anything is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from microshard.model.job import JobError
from microshard.model.phase import PhaseKeys
from microshard.model.phases import all_keys
from microshard.model.plan import PlannedPhase
from microshard.workloads.base import Context, Engine, Progress, find_engine
from microshard.workloads.connections import on_loopback, read_job
from microshard.workloads.program import main

INSERT: dict[str, Any] = {
    "dataset": "mot",
    "padding": 256,
    "file": None,
    "secondary_indexes": 0,
    "window_seconds": 10.0,
    "namespace": "vosa.mot_results",
    "documents": 10,
    "seed": 1,
    "batch_size": 10,
    "processes": 1,
    "write_concern": {"w": 1},
    "ordered": False,
}
AGGREGATE: dict[str, Any] = {
    "namespace": "vosa.mot_results",
    "pipeline": [{"$match": {}}],
    "pipeline_name": None,
    "allow_disk_use": False,
    "iterations": 1,
    "warm_up_iterations": 0,
    "cache": "warm",
    "connections": 1,
}
DEFAULTS = {"insert": INSERT, "aggregate": AGGREGATE}


def job(*phases: dict[str, Any]) -> dict[str, Any]:
    point = {"id": "p01", "shards": 0, "topology": "standalone", "cores": 2, "processes": [], "collections": []}
    return {"connection_string": "mongodb://127.0.0.1:1/", "point": point, "phases": list(phases)}


def phase(engine: str, **changes: Any) -> dict[str, Any]:
    return {"name": "it", "kind": "load", "engine": engine, "parameters": DEFAULTS[engine] | changes}


def make(engine: str, parameters: dict[str, Any]) -> None:
    find_engine(engine)(PlannedPhase("it", "load", engine, parameters), Context(read_job(job()), Progress(None)))


@pytest.mark.parametrize("keys", all_keys())
def test_every_engine_of_the_experiment_file_can_be_executed(keys: type[PhaseKeys]) -> None:
    (name,) = get_args(keys.model_fields["engine"].annotation)
    assert issubclass(find_engine(name), Engine)


def test_a_name_that_is_nearly_right_is_corrected() -> None:
    with pytest.raises(JobError, match=r"no engine 'agregate'; did you mean aggregate\?"):
        find_engine("agregate")


@pytest.mark.parametrize("name", ["base", "os", "../insert", "mot.columns", ""])
def test_a_module_that_is_no_engine_is_none(name: str) -> None:
    with pytest.raises(JobError, match="there is no engine"):
        find_engine(name)


@pytest.mark.parametrize("engine", ["insert", "aggregate"])
def test_parameters_that_are_complete_are_taken(engine: str) -> None:
    make(engine, DEFAULTS[engine])


@pytest.mark.parametrize(("engine", "name"), [("insert", "processes"), ("aggregate", "pipeline_name")])
def test_what_only_a_plan_can_say_is_needed(engine: str, name: str) -> None:
    left = {key: value for key, value in DEFAULTS[engine].items() if key != name}
    with pytest.raises(JobError, match=f"phase it: {name}: Field required"):
        make(engine, left)


@pytest.mark.parametrize(
    ("engine", "name", "value", "message"),
    [
        ("insert", "documents", 0, "documents: Input should be greater than or equal to 1"),
        ("insert", "documents", True, "documents: Input should be a valid integer"),
        ("insert", "processes", "auto", "processes: Input should be a valid integer"),
        ("insert", "batch_size", 100_001, "batch_size: Input should be less than or equal to 100000"),
        ("insert", "dataset", "fights", "dataset: Input should be .*'mot'"),
        ("insert", "namespace", "vosa", "namespace: "),
        ("insert", "colour", "red", "colour: Extra inputs are not permitted"),
        ("aggregate", "cache", "lukewarm", "cache: Input should be 'warm' or 'cold'"),
        ("aggregate", "pipeline", "mot_greenness", "pipeline: Input should be a valid list"),
        (
            "aggregate",
            "pipeline",
            [{"$match": {}}, {"$match": {}, "$sort": {}}],
            "exactly one key, and stage 1 has not",
        ),
        ("aggregate", "iterations", "3", "iterations: Input should be a valid integer"),
    ],
)
def test_a_wrong_value_is_named(engine: str, name: str, value: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        make(engine, DEFAULTS[engine] | {name: value})


def run(tmp_path: Path, data: Any) -> tuple[int, Path]:
    path, out = tmp_path / "job.json", tmp_path / "result.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return main(["--job", str(path), "--out", str(out)]), out


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "cannot read the job"),
        ([], "not have the form"),
        ({"point": job()["point"], "phases": []}, "'connection_string'"),
        (
            job({"name": "x", "kind": "load", "engine": "insert"}),
            "phases: missing 1 required",
        ),
        (job(phase("insert"), phase("aggregate", cache="tepid")), "cache: Input should be"),
    ],
)
def test_a_bad_job_is_exit_code_2_and_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: Any, message: str
) -> None:
    code, out = run(tmp_path, data)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_job_without_its_file_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--job", str(tmp_path / "none.json"), "--out", str(tmp_path / "out.json")]) == 2
    assert "none.json" in capsys.readouterr().err


def test_progress_drops_lines_that_come_too_soon_but_never_the_last(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    progress = Progress(path)
    for done in range(1, 101):
        progress.report("load", done, 100, "documents", "fast")
    progress.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["done"] for line in lines] == [1, 100]
    assert lines[-1] | {"time": 0} == {
        "phase": "load", "done": 100, "of": 100, "unit": "documents", "time": 0, "note": "fast"
    }  # fmt: skip


def test_a_port_of_loopback_has_the_login_and_the_authority_of_the_server_behind_it() -> None:
    secured = "mongodb://u:p%40@db1:27100,db2:27100/?replicaSet=rs1&authSource=admin&tls=true&tlsCAFile=%2Fca.pem"
    assert on_loopback(secured, 4000) == (
        "mongodb://u:p%40@127.0.0.1:4000/?authSource=admin&tls=true&tlsCAFile=%2Fca.pem&tlsAllowInvalidHostnames=true"
    )
    assert on_loopback("mongodb://db1:27100/", 4000) == "mongodb://127.0.0.1:4000/"
