"""What starts a client: found, or what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from microshard.workloads.base import PhaseError
from microshard.workloads.ycsb.clients import find_tools, java_version


def fake(folder: Path, words: str) -> str:
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho '{words}' >&2\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("words", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_402"', 8), ('openjdk version "21" 2023', 21)],
)
def test_versions_old_and_new_are_read(tmp_path: Path, words: str, version: int) -> None:
    assert java_version(fake(tmp_path, words)) == version


def test_a_jvm_with_a_release_file_is_not_started_to_be_asked(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    path = fake(tmp_path / "bin", "no version at all")
    (tmp_path / "release").write_text('IMPLEMENTOR="N/A"\nJAVA_VERSION="1.8.0_402"\n')
    assert java_version(path) == 8
    (tmp_path / "link").symlink_to(path)
    assert java_version(str(tmp_path / "link")) == 8


def test_a_jvm_too_old_is_named_with_what_to_install(tmp_path: Path) -> None:
    path = fake(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(PhaseError, match=rf"{path} is Java 11, YCSB's client needs 17: install a JRE") as caught:
        find_tools({"java": path, "ycsb_jar": __file__})
    assert caught.value.kind == "JavaTooOld"


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PhaseError, match="openjdk-17-jre-headless"):
        find_tools({})


def test_without_the_jar_the_error_says_how_to_build_it(tmp_path: Path) -> None:
    path = fake(tmp_path, 'openjdk version "17.0.1"')
    with pytest.raises(PhaseError, match="make clients"):
        find_tools({"java": path, "ycsb_jar": str(tmp_path / "none.jar")})


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    path = fake(tmp_path / "bin", 'openjdk version "19.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_tools({"ycsb_jar": __file__}).java == path
