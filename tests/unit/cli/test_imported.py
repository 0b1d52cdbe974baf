"""Programs of somebody else's experiment are not executed unasked."""

import json
from pathlib import Path

import click
import pytest

from microshard.cli.imported import UnconfirmedError, confirm_programs

EXPERIMENT = """
microshard: 1
name: theirs
topology: {kind: standalone}
workload:
  - load: {engine: insert, documents: 10}
  - measure: {engine: %s}
"""
COMMAND = "command, command: [touch, gone wrong]"


def imported(folder: Path, measure: str, marker: dict[str, object]) -> Path:
    (folder / "run.json").write_text(json.dumps({"microshard": "1", "run_id": "x", **marker}), encoding="utf-8")
    file = folder / "experiment.lock.yml"
    file.write_text(EXPERIMENT % measure, encoding="utf-8")
    return file


def test_commands_of_an_imported_run_are_shown_and_refused_without_somebody_to_ask(tmp_path: Path) -> None:
    file = imported(tmp_path, COMMAND, {"imported": {"file": "x"}})
    with pytest.raises(UnconfirmedError, match="touch 'gone wrong'"):
        confirm_programs(file, None, {}, yes=False)
    confirm_programs(file, None, {}, yes=True)


def test_a_no_ends_it_and_a_yes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = imported(tmp_path, COMMAND, {"imported": {"file": "x"}})
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: (_ for _ in ()).throw(click.Abort()))
    with pytest.raises(click.Abort):
        confirm_programs(file, None, {}, yes=False)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: True)
    confirm_programs(file, None, {}, yes=False)


def test_binaries_by_path_are_programs_too_also_when_they_come_by_an_axis(tmp_path: Path) -> None:
    file = imported(tmp_path, "aggregate, pipeline: mot_greenness", {"imported": {}})
    confirm_programs(file, None, {}, yes=False)
    with pytest.raises(UnconfirmedError, match="mongod and mongos from /theirs"):
        confirm_programs(file, None, {"matrix.topology.mongodb": [{"source": "path", "path": "/theirs"}]}, yes=False)


def test_ones_own_experiments_are_not_requested_about(tmp_path: Path) -> None:
    confirm_programs(imported(tmp_path, COMMAND, {}), None, {}, yes=False)
