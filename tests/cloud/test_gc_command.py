"""`microshard gc` over the account and the run folders of this machine."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from microshard.backends.ec2.fleet import provision
from microshard.model.run_records import JournalEvent
from microshard.records.run_folder import RunFolder, write_json

from .command import Said, microshard
from .fleets import Lab
from .strict import Fault

Gc = Callable[..., Said]


@pytest.fixture
def gc(lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Gc:
    runs = tmp_path / "runs"
    return lambda *words: microshard(capsys, "gc", "--owner", "tester", "--runs-dir", runs, *words)


def run_of(lab: Lab, tmp_path: Path, pid: int, **changes: Any) -> RunFolder:
    """A run whose hosts exist, created by the process `pid`."""
    folder = RunFolder.create(tmp_path / "runs", "small")
    write_json(folder / "run.json", dataclasses.replace(folder.marker(), pid=pid))
    lab.change(run=folder.run_id, expires_at=int(time.time()) + 3600, **changes)
    provision(lab.api(), lab.spec, folder.ledger, folder / "ssh")
    return folder


@pytest.fixture
def gone() -> int:
    """The pid of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_run_whose_controller_was_killed_is_shown_and_then_removed(
    gc: Gc, lab: Lab, tmp_path: Path, gone: int
) -> None:
    folder = run_of(lab, tmp_path, gone)
    before = lab.simulation.everything()
    shown = gc("--dry-run")
    assert shown.code == 0
    assert f"{folder.run_id} (ec2 us-east-1) is over: " in shown.out
    assert before["vpc"][0] in shown.out
    assert lab.simulation.everything() == before
    done = gc()
    assert done.code == 0, done.err
    assert f"{folder.run_id} (ec2 us-east-1): removed instance" in done.out
    assert lab.simulation.everything() == {}
    assert gc("--on", "ec2").out == "Nothing is left of any run.\n"


def test_a_run_that_goes_on_or_was_reported_to_stay_is_left_alone(gc: Gc, lab: Lab, tmp_path: Path, gone: int) -> None:
    sleeper = [sys.executable, "-c", "import sys; sys.stdin.read()", "microshard", "run"]
    with subprocess.Popen(sleeper, stdin=subprocess.PIPE) as running:
        run_of(lab, tmp_path, running.pid)
        kept = run_of(lab, tmp_path, gone)
        kept.journal.append(JournalEvent("kept", points=["p01"]))
        before = lab.simulation.everything()
        assert gc("--dry-run").out == "Nothing is left of any run.\n"
        assert gc().code == 0
        assert lab.simulation.everything() == before
    assert running.stdin is not None
    assert gc().code == 0
    assert len(lab.simulation.everything()["vpc"]) == 1, "the one that was kept"


def test_a_folder_that_leads_to_hosts_is_not_removed_before_them(
    gc: Gc, lab: Lab, tmp_path: Path, gone: int, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(lab, tmp_path, gone)
    words = ("rm", folder.run_id, "--yes", "--runs-dir", tmp_path / "runs")
    said = microshard(capsys, *words)
    assert said.code == 5
    assert "has created hosts on EC2 (us-east-1)" in said.err
    assert folder.path.exists()
    assert gc().code == 0
    assert microshard(capsys, *words).code == 0
    assert not folder.path.exists()


def test_an_expired_run_of_another_machine_goes_too_and_nothing_of_others(gc: Gc, lab: Lab) -> None:
    lab.change(run="elsewhere", expires_at=1000).provision()
    lab.change(run="his", owner="else", expires_at=1000).provision()
    lab.change(run="busy", owner="tester", expires_at=4_000_000_000).provision()
    assert "elsewhere (ec2 us-east-1) is expired" in gc("--dry-run").out
    assert gc("--on", "ec2").code == 0
    assert len(lab.simulation.everything()["vpc"]) == 2


def test_a_run_in_another_region_is_found_by_its_ledger(gc: Gc, lab: Lab, tmp_path: Path, gone: int) -> None:
    from microshard.backends.ec2.api import Api

    from .fleets import RETRY_POLICY

    folder = RunFolder.create(tmp_path / "runs", "small")
    write_json(folder / "run.json", dataclasses.replace(folder.marker(), pid=gone))
    lab.change(run=folder.run_id)
    provision(Api("eu-west-1", retry=RETRY_POLICY), lab.spec, folder.ledger, folder / "ssh")
    assert "(ec2 eu-west-1): removed" in gc().out
    assert lab.simulation.everything() == {}


def test_what_cannot_be_removed_is_an_exit_code_and_a_list(gc: Gc, lab: Lab, tmp_path: Path, gone: int) -> None:
    run_of(lab, tmp_path, gone)
    lab.simulation.inject(Fault("DeleteVpc", "UnauthorizedOperation", times=None))
    said = gc()
    assert said.code == 5
    assert "left behind: vpc vpc-" in said.err
    assert "DeleteVpc: UnauthorizedOperation" in said.err
    lab.simulation.faults.clear()
    assert gc().code == 0
    assert lab.simulation.everything() == {}


def test_without_credentials_it_is_an_error_where_ec2_was_named_and_silent_where_nobody_uses_it(
    gc: Gc, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_") and "KEY" in n]:
        monkeypatch.delenv(name)
    assert gc().out == "Nothing is left of any run.\n"
    said = gc("--on", "ec2")
    assert said.code == 4
    assert "NoCredentials" in said.err
