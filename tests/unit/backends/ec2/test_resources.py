"""What a run's ledger says about its resources on EC2."""

from pathlib import Path

from microshard.backends.ec2.resources import (
    is_gone,
    record_created,
    record_creating,
    recorded_ids,
    regions_in_use,
    unanswered_since,
)
from microshard.model.run_records import LedgerRecord
from microshard.records.run_folder import RunFolder


def test_the_ledger_knows_which_creation_was_never_answered(tmp_path: Path) -> None:
    ledger = RunFolder(tmp_path).ledger
    assert unanswered_since(ledger) is None
    record_creating(ledger, "vpc", "a")
    since = unanswered_since(ledger)
    assert since is not None
    record_creating(ledger, "instance", "b")
    record_created(ledger, "instance", "b", ["i-1", "i-2"])
    assert unanswered_since(ledger) == since
    record_created(ledger, "vpc", "a", ["vpc-1"])
    assert unanswered_since(ledger) is None
    assert recorded_ids(ledger, "instance") == {"i-1", "i-2"}


def test_a_run_is_gone_when_that_was_seen_after_its_last_creation(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert (is_gone(folder), regions_in_use(folder)) == (True, set())
    record_creating(folder.ledger, "vpc", "a", region="eu-west-1")
    assert (is_gone(folder), regions_in_use(folder)) == (False, {"eu-west-1"})
    folder.ledger.append(LedgerRecord("ec2", "left", left=["vpc vpc-1"]))
    assert (is_gone(folder), regions_in_use(folder)) == (False, {"eu-west-1"})
    folder.ledger.append(LedgerRecord("ec2", "gone"))
    assert (is_gone(folder), regions_in_use(folder)) == (True, set())
