"""The MongoDB binaries hosts are to install, as far as the controller is concerned."""

import hashlib
import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from microshard.backends import binaries
from microshard.errors import PlaceError


def archive(path: Path, *names: str) -> str:
    """A tarball with these programs in bin/; returns its SHA-256."""
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            member = tarfile.TarInfo(f"mongodb-linux-x86_64-debian12-7.0.99/bin/{name}")
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def found(topology: str, **mongodb: Any) -> Any:
    point = SimpleNamespace(
        mongodb={"source": "tarball", "version": "7.0.99", "path": None, **mongodb}, topology=topology
    )
    return binaries.on_hosts(point, "/var/lib/microshard", "/unused")  # type: ignore[arg-type]  # two fields are read


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MICROSHARD_CACHE", str(tmp_path / "cache"))


def test_a_tarball_is_named_on_the_hosts_by_version_and_checksum(tmp_path: Path) -> None:
    sha256 = archive(tmp_path / "m.tgz", "mongod", "mongos", "mongosh")
    made = found("sharded", tarball=str(tmp_path / "m.tgz"), sha256=sha256)
    folder = f"/var/lib/microshard/software/mongodb-7.0.99-{sha256[:12]}"
    assert (str(made.mongod), str(made.mongos)) == (f"{folder}/bin/mongod", f"{folder}/bin/mongos")
    assert made.embedded is False
    assert made.install == {"kind": "tarball", "source": str(tmp_path / "m.tgz"), "sha256": sha256, "folder": folder}


def test_a_tarball_that_is_not_the_one_is_refused(tmp_path: Path) -> None:
    sha256 = archive(tmp_path / "m.tgz", "mongod")
    with pytest.raises(PlaceError, match=f"m.tgz has the SHA-256 {sha256}, not {'0' * 64}"):
        found("standalone", tarball=str(tmp_path / "m.tgz"), sha256="0" * 64)
    with pytest.raises(PlaceError, match="bin/mongos is missing"):
        found("sharded", tarball=str(tmp_path / "m.tgz"), sha256=sha256)
    with pytest.raises(PlaceError, match=r"none\.tgz does not exist"):
        found("standalone", tarball=str(tmp_path / "none.tgz"), sha256=sha256)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(PlaceError, match="text is not a tar archive"):
        found("standalone", tarball=str(tmp_path / "text"), sha256=hashlib.sha256(b"no archive").hexdigest())
    with pytest.raises(PlaceError, match="by https:// only"):
        found("standalone", tarball="http://example.org/m.tgz", sha256=sha256)
