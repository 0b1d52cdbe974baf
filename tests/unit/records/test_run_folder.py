import json
import stat

import pytest

from microshard.errors import RunFolderError
from microshard.model.run_records import JournalEvent, LedgerRecord
from microshard.records.run_folder import Journal, Ledger, RunFolder, find_runs, write_atomic


def test_a_new_run_has_a_marker_and_is_found_again(tmp_path):
    folder = RunFolder.create(tmp_path / "runs", "quickstart")
    assert folder.marker().run_id == folder.run_id
    assert RunFolder.open(folder.path).path == folder.path
    assert [r.path for r in find_runs(tmp_path / "runs")] == [folder.path]


def test_two_runs_of_one_second_have_two_folders(tmp_path):
    assert len({RunFolder.create(tmp_path, "x").path for _ in range(20)}) == 20


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"microshard": "1"}', "{torn"])
def test_a_folder_that_is_not_ours_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(RunFolderError, match="nothing was touched"):
        RunFolder.open(tmp_path)


def test_a_runs_folder_that_cannot_be_made_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="--runs-dir"):
        RunFolder.create(tmp_path / "file", "x")


def test_an_atomic_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_torn_last_line_is_passed_over_at_every_byte(tmp_path):
    whole = Journal(tmp_path / "j.jsonl")
    for number in range(3):
        whole.append(JournalEvent("stage", step=number))
    data = whole.path.read_bytes()
    ends = [i for i, byte in enumerate(data) if byte == 10]  # without the end of its line a record is whole
    for length in range(len(data) + 1):
        cut = Journal(tmp_path / "cut.jsonl")
        cut.path.write_bytes(data[:length])
        assert [r.step for r in cut.records()] == list(range(sum(1 for e in ends if e <= length)))
        before = list(cut.records())
        assert len(cut.unread()) == (length > 0 and data[:length].splitlines()[len(before) :] != [])
        cut.append(JournalEvent("stage", step=9))
        assert [r.step for r in cut.records()] == [*(r.step for r in before), 9]


def test_records_carry_the_time_and_only_what_is_given(tmp_path):
    lines = Ledger(tmp_path / "l.jsonl")
    lines.append(LedgerRecord("run", "clean", left=[]))
    (record,) = lines.records()
    assert record.t > 1_700_000_000
    assert json.loads(lines.path.read_text()).keys() == {"t", "kind", "state", "left"}
    assert stat.S_ISREG(lines.path.stat().st_mode)


@pytest.mark.parametrize(
    "line", ['{"kind": "ec2", "sta', '{"kind": "ec2"}', '{"kind": "ec2", "state": "made", "ids": "i-1"}', "7"]
)
def test_a_line_that_is_no_record_is_named(tmp_path, line):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.path.write_text(f'{{"kind": "run", "state": "clean"}}\n{line}\n')
    (sentence,) = ledger.unread()
    assert "ledger.jsonl:2" in sentence
    assert [record.state for record in ledger.records()] == ["clean"]
