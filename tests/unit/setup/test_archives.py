"""The same commit gives the same archive, whenever it is built."""

import tarfile
from pathlib import Path

from setup.archives import collection, commit_time


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
