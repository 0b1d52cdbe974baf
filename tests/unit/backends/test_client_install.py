"""The wheels client hosts install, as far as the controller is concerned."""

import os
import time
from pathlib import Path

import pytest

from microshard.backends import client_install as install
from microshard.errors import PlaceError
from microshard.this_machine import project_root


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


def test_a_driver_whose_environment_cannot_be_made_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))
    locks, wheels = tmp_path / "requirements" / "drivers", tmp_path / "wheels"
    locks.mkdir(parents=True)
    wheels.mkdir()
    (wheels / "pymongo-3.13.0-py3-none-any.whl").write_bytes(b"another wheel")
    lock = (project_root() / "requirements" / "drivers" / "pymongo-3.13.lock").read_text(encoding="utf-8")
    (locks / "pymongo-3.13.lock").write_text(f"--no-index\n--find-links {wheels}\n{lock}", encoding="utf-8")
    monkeypatch.setattr("microshard.backends.client_install.project_root", lambda: tmp_path)
    with pytest.raises(PlaceError, match=r"client\.driver pymongo==3\.13: its environment cannot be made with Python"):
        install.make_local_environment("pymongo==3.13")
    assert not (install.local_environment("pymongo==3.13") / "complete").exists()


def test_hosts_get_another_environment_for_another_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path))
    assert install.wheels_archive() != install.wheels_archive("pymongo==3.13")
