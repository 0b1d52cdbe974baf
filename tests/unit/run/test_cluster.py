"""Which runs `down` means when none is named."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from microshard.cli.backends import of_run
from microshard.hostlib import proc
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import RunFolder
from microshard.run.cluster import elsewhere, still_up


def test_a_run_that_could_not_remove_everything_is_meant_until_it_could(tmp_path: Path) -> None:
    clean, unclean = (RunFolder.create(tmp_path, name) for name in ("clean", "unclean"))
    clean.ledger.append(LedgerRecord("run", "clean", left=[]))
    unclean.ledger.append(LedgerRecord("run", "not clean", left=["host3: it cannot be reached"]))
    assert still_up(tmp_path, of_run) == [], "nothing of them runs"
    assert [run.run_id for run in still_up(tmp_path, of_run, unclean=True)] == [unclean.run_id]
    unclean.ledger.append(LedgerRecord("run", "clean", left=[]))
    assert still_up(tmp_path, of_run, unclean=True) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_runs_of_other_users_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = RunFolder.create(tmp_path / "their runs", "x")
    process = SimpleNamespace(command=[f"{theirs.path}/deployments/p01/shard01/mongod.conf"])
    monkeypatch.setattr(proc, "all_processes", lambda: [process])
    assert elsewhere(tmp_path / "runs") == [theirs.path]
    assert theirs.named == f"'{theirs.path}'", "to be copied into a shell"
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        assert elsewhere(tmp_path / "runs") == []
    finally:
        os.seteuid(0)
