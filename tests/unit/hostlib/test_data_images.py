"""Data folders become an image and are restored from it, whole or not at all."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from microshard.hostlib import data_images
from microshard.hostlib.errors import HostError

PROCESSES = [{"name": name, "role": "standalone", "port": 29990 + n} for n, name in enumerate(("mongod1", "mongod2"))]


class Bed:
    """Runs beside each other, with data folders as mongod leaves them after a clean shutdown."""

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"
        self.image = self.runs / "images" / "abc"

    def run(self, name: str, *, loaded: bool) -> Path:
        run = self.runs / name
        run.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"microshard": "1", "run_id": name}))
        for process in PROCESSES if loaded else ():
            data = run / "deployments" / "p01" / str(process["name"]) / "data"
            for part in ("journal", "diagnostic.data", "index"):
                (data / part).mkdir(parents=True)
            (data / "mongod.lock").touch()
            (data / "journal" / "WiredTigerLog.0000000001").write_bytes(b"\0" * 1000)
            (data / "collection-0.wt").write_bytes(os.urandom(3_000_000))
            (data / "index" / "index-1.wt").write_bytes(os.urandom(10))
        return run

    def main(self, run: Path, state: str, **changes: Any) -> dict[str, Any]:
        parameters = {
            "run_folder": str(run), "deployment": "p01", "processes": PROCESSES, "host": "", "name": "abc",
            "folder": str(self.runs / "images"), "manifest": {"name": "abc"}, "state": state,
        }  # fmt: skip
        return data_images.main({**parameters, **changes}, check=False)


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_restored_is_what_was_kept_without_journal_and_lock(bed: Bed) -> None:
    first, second = bed.run("first", loaded=True), bed.run("second", loaded=False)
    loaded = _files(first / "deployments" / "p01" / "mongod1" / "data")
    assert bed.main(first, "kept")["changed"]
    assert not (first / "deployments" / "p01" / "mongod1" / "data").exists()
    assert bed.main(second, "restored")["bytes"] == 6_000_020
    data = second / "deployments" / "p01" / "mongod1" / "data"
    assert _files(data) == {name: loaded[name] for name in ("collection-0.wt", "index/index-1.wt")}
    assert (data.stat().st_mode & 0o777, (data / "collection-0.wt").stat().st_mode & 0o777) == (0o700, 0o600)
    (data / "collection-0.wt").write_bytes(b"a server writes")
    third = bed.run("third", loaded=False)
    bed.main(third, "restored")  # the image is as it was


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mkfs.xfs"), reason="needs root and XFS")
def test_on_xfs_the_blocks_are_shared_until_they_are_written(tmp_path: Path) -> None:
    disk, at = tmp_path / "disk", tmp_path / "at"
    at.mkdir()
    with disk.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.xfs", "-q", disk], check=True)
    subprocess.run(["mount", "-o", "loop", disk, at], check=True)
    try:
        bed = Bed(at)
        bed.main(bed.run("first", loaded=True), "kept")
        before = shutil.disk_usage(at).used
        second = bed.run("second", loaded=False)
        assert "4 of them by reflink" in bed.main(second, "restored")["msg"]
        assert shutil.disk_usage(at).used - before < 1_000_000
        data = second / "deployments" / "p01" / "mongod1" / "data"
        (data / "collection-0.wt").write_bytes(b"a server writes")
        bed.main(bed.run("third", loaded=False), "restored")  # the image is as it was
    finally:
        subprocess.run(["umount", at], check=True)


def test_the_first_of_two_runs_that_keep_the_same_data_wins(bed: Bed) -> None:
    first, second = bed.run("first", loaded=True), bed.run("second", loaded=True)
    bed.main(first, "kept")
    before = _files(bed.image)
    assert not bed.main(second, "kept")["changed"]
    assert _files(bed.image) == before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("byte", "is damaged"),
        ("shorter", "is damaged"),
        ("missing", "cannot be restored"),
        ("manifest", "manifest .* cannot be read"),
        ("gone", "no such data image"),
        ("another run", "has data of the run first, not of second"),
        ("another process", "has the data of mongod1, mongod2, not of mongod1"),
        ("data", "has data already"),
        ("outside", "lies outside"),
    ],
)
def test_what_is_not_whole_is_not_restored(bed: Bed, damage: str, words: str) -> None:
    bed.main(bed.run("first", loaded=True), "kept", manifest={"run": "first"})
    second = bed.run("second", loaded=damage == "data")
    changes: dict[str, Any] = {}
    file, manifest = bed.image / "data" / "mongod2" / "collection-0.wt", bed.image / "manifest.json"
    if damage == "byte":
        content = bytearray(file.read_bytes())
        content[1_500_000] ^= 1
        file.write_bytes(content)
    elif damage == "shorter":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "missing":
        file.unlink()
    elif damage == "manifest":
        manifest.write_text(manifest.read_text()[:-20])
    elif damage == "gone":
        bed.image.rename(bed.image.with_name("other"))
    elif damage == "another process":
        changes = {"processes": PROCESSES[:1]}
    elif damage == "another run":
        changes = {"manifest": {"run": "second"}}
    elif damage == "outside":
        manifest.write_text(manifest.read_text().replace("mongod1/collection-0.wt", "mongod1/../../../x"))
    with pytest.raises(HostError, match=words):
        bed.main(second, "restored", **changes)


def test_data_of_a_server_that_was_killed_or_runs_do_not_become_an_image(bed: Bed) -> None:
    run = bed.run("first", loaded=True)
    lock = run / "deployments" / "p01" / "mongod2" / "data" / "mongod.lock"
    lock.write_text("4711\n")
    with pytest.raises(HostError, match="mongod2 was not shut down cleanly"):
        bed.main(run, "kept")
    assert not bed.image.exists()
    assert (run / "deployments" / "p01" / "mongod1" / "data" / "collection-0.wt").exists()


def test_a_draft_that_a_killed_run_left_is_no_image(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    run = bed.run("first", loaded=True)
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", _killed_at_the_last(os.rename))
        with pytest.raises(KeyboardInterrupt):
            bed.main(run, "kept")
    assert not bed.image.exists()
    assert list((run / "deployments" / "p01" / ".image").iterdir())
    with pytest.raises(HostError, match="no such data image"):
        bed.main(bed.run("second", loaded=False), "restored")


def _killed_at_the_last(rename: Any) -> Any:
    def renamed(source: str, target: str) -> None:
        if source.endswith("/.image"):
            raise KeyboardInterrupt
        rename(source, target)

    return renamed


def test_an_image_that_is_restored_is_locked(bed: Bed) -> None:
    bed.main(bed.run("first", loaded=True), "kept")
    with data_images._in_use(str(bed.image)):
        handle = os.open(bed.image, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)
