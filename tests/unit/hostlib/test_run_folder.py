"""What counts as a run's own."""

from pathlib import Path

import pytest

from microshard.hostlib import run_folder


def test_a_runs_own_is_below_its_folder_or_in_the_folder_of_its_name_on_a_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "VOLUMES", str(tmp_path / "srv"))
    run = tmp_path / "runs" / "tiny-1"
    own = tmp_path / "srv" / "log" / "tiny-1" / "p01" / "shard01"
    for folder in (run, own):
        folder.mkdir(parents=True)
    (run / "link").symlink_to(own)
    assert run_folder.require_own(str(run), str(run / "link")) == str(own)
    for foreign in (
        own.parent.parent,
        tmp_path / "srv" / "log" / "tiny-2" / "p01" / "shard01",
        tmp_path / "tiny-1" / "x",
    ):
        with pytest.raises(run_folder.NotOurs):
            run_folder.require_own(str(run), str(foreign))
