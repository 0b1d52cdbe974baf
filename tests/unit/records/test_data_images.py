"""Data images on disk: found, bound by their size, and not removed while they are restored."""

import fcntl
import os
from pathlib import Path

import pytest

from microshard.errors import RunFolderError
from microshard.model.data_images import DataImage, DataImageRecipe, ImageFile
from microshard.records.data_images import find_image, folder_of, keep_within, kept_images, remove_image
from microshard.records.run_folder import write_json

RECIPE = DataImageRecipe(1, "0.2.0", "6.0.5", "0f", "standalone", (), (), (), (), {}, ())


def _image(runs: Path, name: str, *, size: int, used: int, inventory: str = "") -> Path:
    files = (ImageFile("a/b", size, "00"),)
    image = DataImage(name, RECIPE, "run", "quick", "1 shard", 1.0, 2.0, {}, {}, files, inventory=inventory)
    path = folder_of(runs) / name
    path.mkdir(parents=True)
    write_json(path / "manifest.json", image)
    os.utime(path / "manifest.json", (used, used))
    return path


def test_those_not_used_for_longest_go_first(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "middle", "young")):
        _image(tmp_path, name, size=40, used=number)
    assert [kept.path.name for kept in kept_images(tmp_path)] == ["old", "middle", "young"]
    assert [kept.path.name for kept in keep_within(tmp_path, 80)] == ["old"]
    assert [path.name for path in sorted(folder_of(tmp_path).iterdir())] == ["middle", "young"]
    removed: list[Path] = []
    on_hosts = _image(tmp_path, "on hosts", size=40, used=0, inventory="/lab/hosts")
    assert [kept.path.name for kept in keep_within(tmp_path, 10)] == ["middle", "young"]
    assert len([*keep_within(tmp_path, 10, "/lab/hosts", removed.append)]) == 1
    assert removed == [on_hosts]


def test_an_image_is_found_by_its_name_if_its_manifest_is_its_own(tmp_path: Path) -> None:
    path = _image(tmp_path, "abc", size=1, used=1)
    assert find_image(tmp_path, "abc") is not None
    path.rename(path.with_name("def"))
    assert find_image(tmp_path, "def") is None
    (path.with_name("def") / "manifest.json").write_text("{")
    assert find_image(tmp_path, "def") is None
    assert [kept.path.name for kept in keep_within(tmp_path, 1e9)] == ["def"], "nobody can restore it"


def test_one_that_is_restored_stays(tmp_path: Path) -> None:
    path = _image(tmp_path, "abc", size=40, used=1)
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    with pytest.raises(RunFolderError, match="is being restored"):
        remove_image(path)
    assert list(keep_within(tmp_path, 1)) == []
    os.close(handle)
    remove_image(path)
    assert list(folder_of(tmp_path).iterdir()) == []


def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    path = _image(tmp_path, "abc", size=40, used=1)
    path.rename(path.with_name(".removed-abc"))
    assert kept_images(tmp_path) == []
    assert list(keep_within(tmp_path, 1)) == []
    assert list(folder_of(tmp_path).iterdir()) == []
