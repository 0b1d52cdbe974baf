"""What a killed run left is collected; runs that are executed, kept or up are left alone by every command."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from microshard.cli import backends
from microshard.cli.clusters import StageLine
from microshard.cli.group import microshard
from microshard.errors import RunFolderError
from microshard.model.run_records import JournalEvent, RunMarker
from microshard.records.run_folder import RunFolder, write_json
from microshard.run import catalog, cluster, gc, resume


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path, "sample")
    write_json(folder / "run.json", RunMarker("1", folder.run_id, pid=2**22 + 1))  # of no process
    return folder


@pytest.mark.parametrize("command", ["rm", "down", "resume"])
def test_an_executed_run_is_refused_by_name(run: RunFolder, command: str) -> None:
    commands = {
        "rm": lambda: catalog.remove(run, backends.in_use),
        "down": lambda: cluster.down(run, backends.of_run, StageLine(Console())),
        "resume": lambda: resume.resume(run, backends.of_run(run), Console()),
    }
    with run.lock(), pytest.raises(RunFolderError, match=f"{run.run_id} is being executed by process {os.getpid()}"):
        commands[command]()
    assert (run / "tmp").is_dir(), "nothing was touched"


def test_gc_takes_what_a_killed_run_left_and_not_what_is_executed_kept_or_up(tmp_path: Path, run: RunFolder) -> None:
    def here() -> gc.Collector:
        return backends.collector("local", gc.GcRequest(tmp_path, "me"))

    with run.lock():
        assert here().look() == []
        assert here().collect() == []
    run.journal.append(JournalEvent("up"))
    assert here().look() == []
    run.journal.append(JournalEvent("down"))
    (found,) = here().look()
    assert found.things == ("folder deployments", "folder tmp")
    (done,) = here().collect()
    assert (done.removed, done.left) == (found.things, ())
    assert here().look() == []
    assert (run / "run.json").exists()


def test_a_run_whose_marker_is_damaged_is_named_and_the_others_are_collected(tmp_path: Path, run: RunFolder) -> None:
    damaged = RunFolder.create(tmp_path, "damaged")
    (damaged / "run.json").write_text("{", encoding="utf-8")
    collected = CliRunner().invoke(microshard, ["gc", "--on", "local", "--runs-dir", str(tmp_path)])
    assert collected.exit_code == 0, collected.output
    assert f"{damaged.run_id} is passed over" in collected.output
    assert f"{run.run_id} (this machine): removed" in collected.output
    assert (damaged / "tmp").is_dir()


def test_a_line_of_the_ledger_that_cannot_be_read_is_named_and_keeps_the_folder(tmp_path: Path, run: RunFolder) -> None:
    write_json(run / "backend.json", {"backend": "local"})
    run.ledger.path.write_text('{"kind": "ec2", "state": "creating", "what": 7}\n', encoding="utf-8")
    collected = CliRunner().invoke(microshard, ["gc", "--on", "local", "--runs-dir", str(tmp_path)])
    assert f"{run.run_id}: ledger.jsonl:1" in collected.output
    assert backends.in_use(run) is None
    write_json(run / "backend.json", {"backend": "ec2", "region": "eu-west-1"})
    assert "ledger.jsonl:1" in str(backends.in_use(run))
