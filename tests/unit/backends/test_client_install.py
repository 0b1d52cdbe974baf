"""The wheels client hosts install, as far as the controller is concerned."""

import os
import time
from pathlib import Path

import pytest

from microshard.backends import client_install as install


def test_wheels_another_run_may_use_stay_and_those_of_yesterday_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))
    old, young = tmp_path / "cache" / "wheels-old", tmp_path / "cache" / "wheels-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
    archives = [tmp_path / "cache" / "wheels-old.tar", install.wheels_archive()]
    for archive in archives:
        archive.touch()
    for path in (old, *archives):
        os.utime(path, (time.time() - 2 * 86400,) * 2)
    client = {"client_python": {"path": "/usr/bin/python3", "version": [3, 11, 2]}, "machine": "x86_64"}
    assert install.client_wheels({"host1": client}) == install.wheels_archive()
    assert not old.exists()
    assert not archives[0].exists()
    assert young.exists()
    assert install.wheels_archive().exists(), "it is in use"
