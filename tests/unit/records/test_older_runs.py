"""Runs of older versions are read, those of newer ones refused. The sample was exported by microshard 0.1.0."""

import json
from pathlib import Path

import pytest

from microshard.analysis.comparison import compare
from microshard.errors import MicroshardError
from microshard.records.bundle import SUFFIX, unpack
from microshard.records.run_folder import RunFolder
from microshard.report import build, write

SAMPLE = Path(__file__).with_name("samples") / f"run-of-0.1.0{SUFFIX}"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return unpack(SAMPLE, tmp_path)


def test_an_older_run_is_reported_with_its_figures(run: RunFolder) -> None:
    model = build(run.path)
    assert model.complete
    assert [(point.label, point.done, point.answers) for point in model.points] == [
        ("1 shard", 2, "equal"),
        ("2 shards", 2, "equal"),
    ]
    speed_up = model.figures(model.points[1])
    assert speed_up is not None
    assert speed_up.speed_up is not None
    assert speed_up.speed_up.value == pytest.approx(0.969, abs=0.001)
    assert write(run.path).is_file()


def test_an_older_run_is_compared(run: RunFolder) -> None:
    found = compare(run.path, run.path)
    assert [row.change.verdict for row in found.rows] == ["no difference"] * 2


@pytest.mark.parametrize(("file", "field"), [("plan.json", "warnings"), ("lock.json", "host"), ("run.json", "created")])
def test_a_field_that_an_older_version_did_not_write_has_its_default(run: RunFolder, file: str, field: str) -> None:
    content = json.loads((run / file).read_text())
    del content[field]
    (run / file).write_text(json.dumps(content))
    assert len(build(run.path).points) == 2


def test_a_run_of_a_newer_format_is_refused(run: RunFolder) -> None:
    marker = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**marker, "format": 1000}))
    with pytest.raises(MicroshardError, match="newer"):
        build(run.path)
