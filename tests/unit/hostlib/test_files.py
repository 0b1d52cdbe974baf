"""What belongs to a run."""

from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import files
from microshard.hostlib.errors import HostError
from tests.cluster.ansible.points import write


def test_a_runs_own_is_below_its_folder_or_in_the_folder_of_its_name_on_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "VOLUMES", str(tmp_path / "srv"))
    run = tmp_path / "runs" / "tiny-1"
    own = tmp_path / "srv" / "log" / "tiny-1" / "p01" / "shard01"
    for folder in (run, own):
        folder.mkdir(parents=True)
    (run / "link").symlink_to(own)
    assert files.require_own(str(run), str(run / "link")) == str(own)
    for foreign in (
        own.parent.parent,
        tmp_path / "srv" / "log" / "tiny-2" / "p01" / "shard01",
        tmp_path / "tiny-1" / "x",
    ):
        with pytest.raises(HostError):
            files.require_own(str(run), str(foreign))


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"microshard": "0.1.0"}', '{"run_id": "x"}'])
def test_a_folder_without_a_whole_marker_is_nobodys_run(content: Any, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(HostError, match="is not a folder of a run"):
        files.require_run_folder(str(tmp_path))


def test_a_path_that_leaves_the_run_by_a_link_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run / "run.json", {"microshard": "0.1.0", "run_id": "x"})
    (tmp_path / "elsewhere").mkdir()
    (run / "link").symlink_to(tmp_path / "elsewhere")
    root = files.require_run_folder(str(run))
    assert files.require_below(root, str(run / "a" / "b")) == str(run / "a" / "b")
    for path in (run, run / "..", run / "link" / "x", tmp_path / "runner"):
        with pytest.raises(HostError, match="is not below the run's folder"):
            files.require_below(root, str(path))
