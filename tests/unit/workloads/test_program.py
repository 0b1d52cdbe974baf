"""The program that executes a job: its exit codes, and sentences instead of tracebacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from microshard.workloads.program import main
from tests.unit.workloads.jobs import job, phase


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "job.json"),
        ("{", "cannot read the job"),
        ([], "does not have the form"),
        ({"point": job()["point"], "phases": []}, "'connection_string'"),
        (job({"name": "x", "kind": "load", "engine": "insert"}), "phases: missing"),
        (job(phase("insert"), phase("aggregate", cache="tepid")), "cache: Input should be"),
    ],
)
def test_a_bad_job_is_exit_code_2_and_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: Any, message: str
) -> None:
    path, out = tmp_path / "job.json", tmp_path / "result.json"
    if data is not None:
        path.write_text(data if isinstance(data, str) else json.dumps(data))
    assert main(["--job", str(path), "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_result_that_cannot_be_written_is_reported_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job()), encoding="utf-8")
    assert main(["--job", str(path), "--out", str(path / "r1.json")]) == 3
    assert str(path / "r1.json") in capsys.readouterr().err
    assert main(["--job", str(path), "--out", str(tmp_path / "r1.json")]) == 0
