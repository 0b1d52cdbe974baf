"""The same commit gives the same archive, whenever it is built."""

import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from setup.archives import collection, commit_time, wheel


def test_a_collection_built_twice_has_the_same_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    first, second = map(collection, folders)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    assert {member.mtime for member in members} == {commit_time()}
    assert [member.name for member in members] == sorted(member.name for member in members)
    assert "roles/host_kernel/tasks/main.yml" in {member.name for member in members}


@pytest.mark.long
def test_a_wheel_has_the_same_bytes_whatever_the_umask_and_every_extra(tmp_path: Path) -> None:
    built = []
    for mask in (0o022, 0o077):
        before = os.umask(mask)
        try:
            folder = tmp_path / str(mask)
            folder.mkdir()
            built.append(wheel(folder))
        finally:
            os.umask(before)
    assert built[0].read_bytes() == built[1].read_bytes()
    with zipfile.ZipFile(built[0]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = archive.read(name).decode("utf-8")
    assert {"Provides-Extra: compression", "Provides-Extra: mongod"} <= set(metadata.splitlines())
