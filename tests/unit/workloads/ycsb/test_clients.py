"""What starts a YCSB client: the JVM and the jar, or what to do without them."""

from pathlib import Path

import pytest

from microshard.workloads.base import PhaseError
from microshard.workloads.ycsb.clients import find_tools, java_version


def fake_java(folder: Path, output: str) -> str:
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("output", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_402"', 8), ('openjdk version "21" 2023', 21)],
)
def test_old_and_new_versions_are_read(tmp_path: Path, output: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, output)) == version


def test_a_jvm_with_a_release_file_is_not_started(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    path = fake_java(tmp_path / "bin", "no version at all")
    (tmp_path / "release").write_text('IMPLEMENTOR="N/A"\nJAVA_VERSION="1.8.0_402"\n')
    (tmp_path / "link").symlink_to(path)
    assert java_version(path) == java_version(str(tmp_path / "link")) == 8


def test_what_is_missing_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_java(tmp_path, 'openjdk version "11.0.2"')
    with pytest.raises(PhaseError, match=rf"{path} is Java 11, .*install a JRE") as caught:
        find_tools({"java": path, "ycsb_jar": __file__})
    assert caught.value.kind == "JavaTooOld"
    path = fake_java(tmp_path, 'openjdk version "17.0.1"')
    with pytest.raises(PhaseError, match="make clients"):
        find_tools({"java": path, "ycsb_jar": str(tmp_path / "none.jar")})
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PhaseError, match="openjdk-17-jre-headless"):
        find_tools({})


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    path = fake_java(tmp_path / "bin", 'openjdk version "19.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_tools({"ycsb_jar": __file__}).java == path
