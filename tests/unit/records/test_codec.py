"""Records become JSON and come back; what does not fit its type is named by its field."""

import json
from pathlib import Path

import pytest

from microshard.model.plan import Plan
from microshard.model.result import Metric, PhaseResult, StepResult, Windows
from microshard.model.run_records import RunMarker
from microshard.records.codec import DamagedFileError, NewerFormatError, decode, encode, read_file


def test_a_record_comes_back_as_it_was() -> None:
    phase = PhaseResult("load", "load", metric=Metric("rate", "1/s", 2.0), windows=Windows(1.0, 1.0, [3, 4.5]))
    result = StepResult(point="p01", axes={"a.b": 1}, phases=[phase])
    assert decode(StepResult, json.loads(json.dumps(encode(result)))) == result


def test_optional_fields_are_left_out_and_unknown_ones_ignored() -> None:
    assert "windows" not in encode(PhaseResult())
    assert encode(PhaseResult())["answer"] is None
    assert decode(Metric, {"name": "x", "unit": "s", "value": 1, "added later": True}) == Metric("x", "s", 1.0)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (StepResult, {"phases": [{"metric": {"name": "x", "unit": "s", "value": "fast"}}]}, "phases: metric: value"),
        (StepResult, {"phases": 7}, "not a list"),
        (Metric, {"name": "x", "unit": "s", "value": 1, "better": "best"}, "one of higher, lower"),
        (Plan, {"name": "x"}, "missing"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_field(kind: type, value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode(kind, value)


def test_damaged_and_newer_files_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"microshard": "1", "run_id"')
    with pytest.raises(DamagedFileError, match=r"run\.json"):
        read_file(RunMarker, path)
    path.write_text('{"format": 2, "added": []}')
    with pytest.raises(NewerFormatError, match="newer"):
        read_file(RunMarker, path)
    with pytest.raises(FileNotFoundError):
        read_file(RunMarker, tmp_path / "none")
