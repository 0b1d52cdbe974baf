"""Finding mongod and mongos, and the messages about binaries that do not run."""

import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest

from microshard.embedded import binary
from microshard.embedded.binary import BinaryError, BinaryNotFoundError

_LOADER = "mongod: error while loading shared libraries: {}: cannot open shared object file"


def _script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(mode)
    return path


def test_the_mongod_of_the_wheel_is_found_and_runs() -> None:
    found = binary.find_mongod()
    assert os.access(found, os.X_OK)
    assert binary.version(found) == (6, 0, 5, "6.0.5")


def test_the_environment_and_a_folder_come_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mongod = _script(tmp_path / "mongod", "echo db version v8.0.1", 0o644)
    monkeypatch.setenv(binary.ENVIRONMENT, str(mongod))
    assert binary.find_mongod() == mongod
    assert os.access(mongod, os.X_OK)
    assert binary.version(mongod) == (8, 0, 1, "8.0.1")
    monkeypatch.setenv(binary.ENVIRONMENT, str(tmp_path / "gone"))
    assert binary.find_mongod(tmp_path) == mongod
    with pytest.raises(BinaryNotFoundError, match="gone"):
        binary.find_mongod()
    with pytest.raises(BinaryNotFoundError, match="nowhere"):
        binary.find_mongod(tmp_path / "nowhere")


@pytest.mark.parametrize(("machine", "says"), [("riscv64", "riscv64"), ("x86_64", "Install fiftyone")])
def test_without_a_wheel_the_alternative_is_named(monkeypatch: pytest.MonkeyPatch, machine: str, says: str) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.delenv(binary.ENVIRONMENT, raising=False)
    with pytest.raises(BinaryError, match=f"{says}.*MICROSHARD_MONGOD"):
        binary.find_mongod()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (f"echo '{_LOADER.format('libcrypto.so.3')}' >&2; exit 127", "OpenSSL 3.*libssl3"),
        (f"echo '{_LOADER.format('libssl.so.1.1')}' >&2; exit 127", r"OpenSSL 1\.1"),
        (f"echo '{_LOADER.format('libcurl.so.4')}' >&2; exit 127", "libcurl"),
        ("kill -ILL $$", "AVX"),
        ("echo something else; exit 3", "something else"),
    ],
)
def test_a_mongod_that_does_not_run_says_why(tmp_path: Path, script: str, says: str) -> None:
    with pytest.raises(BinaryError, match=f"{says}.*MICROSHARD_MONGOD"):
        binary.version(_script(tmp_path / "mongod", script))


def test_a_file_that_is_no_program_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "mongod"
    broken.write_bytes(b"\x7fELF" + bytes(100))
    broken.chmod(0o755)
    with pytest.raises(BinaryError, match="no program"):
        binary.version(broken)
    with pytest.raises(BinaryNotFoundError):
        binary.version(tmp_path / "gone")


def test_a_real_mongos_on_path_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedded = Path(sys.executable).with_name("mongos")
    monkeypatch.setenv("PATH", f"{embedded.parent}{os.pathsep}{tmp_path}")
    assert binary.find_mongos() == (embedded, True)
    real = _script(tmp_path / "mongos", "echo mongos version v6.0.5")
    assert binary.find_mongos() == binary.find_mongos(tmp_path) == (real, False)
    assert binary.find_mongos(embedded.parent) == (embedded, True)
    with pytest.raises(BinaryNotFoundError):
        binary.find_mongos(tmp_path / "nowhere")
