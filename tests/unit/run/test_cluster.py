"""Which runs `down` means when none is named."""

from pathlib import Path

from microshard.cli.backends import of_run
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import RunFolder
from microshard.run.cluster import still_up


def test_a_run_that_could_not_remove_everything_is_meant_until_it_could(tmp_path: Path) -> None:
    clean, unclean = (RunFolder.create(tmp_path, name) for name in ("clean", "unclean"))
    clean.ledger.append(LedgerRecord("run", "clean", left=[]))
    unclean.ledger.append(LedgerRecord("run", "not clean", left=["host3: it cannot be reached"]))
    assert still_up(tmp_path, of_run) == [], "nothing of them runs"
    assert [run.run_id for run in still_up(tmp_path, of_run, unclean=True)] == [unclean.run_id]
    unclean.ledger.append(LedgerRecord("run", "clean", left=[]))
    assert still_up(tmp_path, of_run, unclean=True) == []
