"""A result that cannot be written: a sentence, no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from microshard.workloads.base import Progress
from microshard.workloads.program import main

JOB = {"connection_string": "mongodb://127.0.0.1:1/", "point": {"id": "p01", "shards": 0, "topology": "standalone",
       "cores": 1, "processes": [], "collections": []}, "phases": []}  # fmt: skip


def test_a_result_that_cannot_be_written_is_reported_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.json"
    job.write_text(json.dumps(JOB), encoding="utf-8")
    assert main(["--job", str(job), "--out", str(job / "r1.json")]) == 3
    assert str(job / "r1.json") in capsys.readouterr().err
    assert main(["--job", str(job), "--out", str(tmp_path / "r1.json")]) == 0


def test_a_line_of_progress_that_has_no_room_fails_nothing() -> None:
    progress = Progress(Path("/dev/full"))
    progress.report("load", 1, 2, "documents")
    progress.close()
