"""Finding a mongod, and saying what is wrong when it does not run."""

import hashlib
import os
import platform
import sys
from pathlib import Path

import pytest

from microshard.embedded import binary


def _script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(mode)
    return path


def test_the_wheels_mongod_is_found_made_executable_and_runs() -> None:
    found = binary.find_mongod()
    assert os.access(found, os.X_OK)
    assert binary.version(found)[:3] == (6, 0, 5)
    assert binary.version(found).text == "6.0.5"


def test_the_environment_and_a_folder_come_before_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = _script(tmp_path / "mongod", "echo db version v8.0.1", 0o644)
    monkeypatch.setenv(binary.ENVIRONMENT, str(own))
    assert binary.find_mongod() == own
    assert os.access(own, os.X_OK)
    assert binary.version(own) == (8, 0, 1, "8.0.1")
    monkeypatch.setenv(binary.ENVIRONMENT, str(tmp_path / "gone"))
    assert binary.find_mongod(tmp_path) == own
    with pytest.raises(binary.BinaryNotFound, match="gone"):
        binary.find_mongod()


def test_a_folder_without_mongod_is_named(tmp_path: Path) -> None:
    with pytest.raises(binary.BinaryNotFound, match=str(tmp_path)):
        binary.find_mongod(tmp_path)


@pytest.mark.parametrize(
    ("machine", "error"), [("riscv64", binary.ArchitectureUnsupported), ("x86_64", binary.BinaryNotFound)]
)
def test_without_a_wheel_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, machine: str, error: type[binary.BinaryError]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(binary, "_wheel_mongod", lambda: None)
    monkeypatch.delenv(binary.ENVIRONMENT, raising=False)
    with pytest.raises(error, match="MICROSHARD_MONGOD"):
        binary.find_mongod()


_LOADER = "mongod: error while loading shared libraries: {}: cannot open shared object file"


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        (f"echo '{_LOADER.format('libcrypto.so.3')}' >&2; exit 127", binary.LibraryMissing, "OpenSSL 3.*libssl3"),
        (f"echo '{_LOADER.format('libssl.so.1.1')}' >&2; exit 127", binary.LibraryMissing, r"OpenSSL 1\.1"),
        (f"echo '{_LOADER.format('libcurl.so.4')}' >&2; exit 127", binary.LibraryMissing, "libcurl"),
        ("kill -ILL $$", binary.ProcessorUnsupported, "AVX"),
        ("echo something else; exit 3", binary.BinaryBroken, "something else"),
    ],
)
def test_a_mongod_that_does_not_run_says_why(
    tmp_path: Path, script: str, error: type[binary.BinaryError], says: str
) -> None:
    with pytest.raises(error, match=says) as caught:
        binary.version(_script(tmp_path / "mongod", script))
    assert "Point to a MongoDB of your own" in str(caught.value)


def test_a_file_that_is_no_program_is_broken(tmp_path: Path) -> None:
    broken = tmp_path / "mongod"
    broken.write_bytes(b"\x7fELF" + bytes(100))
    broken.chmod(0o755)
    with pytest.raises(binary.BinaryBroken):
        binary.version(broken)
    with pytest.raises(binary.BinaryNotFound):
        binary.version(tmp_path / "gone")


def test_the_hash_is_sha_256(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100_000)
    assert binary.sha256(file) == hashlib.sha256(b"x" * 100_000).hexdigest()


def test_a_real_mongos_on_path_is_preferred_to_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Path(sys.executable).with_name("mongos")
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}{tmp_path}")
    assert binary.find_mongos() == (own, True)
    real = _script(tmp_path / "mongos", "echo mongos version v6.0.5")
    assert binary.find_mongos() == (real, False)
    assert binary.find_mongos(tmp_path) == (real, False)
    assert binary.find_mongos(own.parent) == (own, True)
    with pytest.raises(binary.BinaryNotFound):
        binary.find_mongos(tmp_path / "nowhere")
