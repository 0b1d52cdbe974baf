"""The data images beside the folders of runs: listed, removed, and bound by their size."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from microshard.errors import RunFolderError
from microshard.model.data_images import FOLDER, DataImage
from microshard.records import codec

MANIFEST = "manifest.json"
_REMOVED = ".removed-"  # an image that is being removed has this before its name, so that nobody restores the rest


@dataclass(frozen=True, slots=True)
class KeptImage:
    """A data image on disk."""

    path: Path
    image: DataImage | None  # None: its manifest cannot be read or is another image's, so it is never restored
    used: float  # epoch seconds of the last use

    @property
    def bytes(self) -> int:
        """Size of its files by the manifest."""
        return self.image.bytes if self.image else 0


def folder_of(runs: Path) -> Path:
    """The folder of the data images of a folder of runs."""
    return runs.absolute() / FOLDER


def kept_images(runs: Path) -> list[KeptImage]:
    """The images of a folder of runs, the one used last at the end."""
    folder = folder_of(runs)
    names = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    found = [_kept(path) for path in names if path.is_dir()]
    return sorted(found, key=lambda kept: kept.used)


def find_image(runs: Path, name: str) -> DataImage | None:
    """The image of this name, if there is one whose manifest can be read; its files are checked when restored."""
    path = folder_of(runs) / name
    return _kept(path).image if path.is_dir() else None


def base_ports(runs: Path) -> list[int]:
    """The base ports of the runs that made the images, of the image used last first: its addresses need no change."""
    return list(dict.fromkeys(kept.image.base_port for kept in reversed(kept_images(runs)) if kept.image))


def _kept(path: Path) -> KeptImage:
    image, used = None, 0.0
    with contextlib.suppress(OSError, RunFolderError):
        used = (path / MANIFEST).stat().st_mtime
        image = codec.read_file(DataImage, path / MANIFEST)
    if image and image.name != path.name:
        image = None  # somebody has put another one there
    return KeptImage(path, image, used)


def remove_image(path: Path) -> None:
    """Remove an image. Raises RunFolderError while a run restores it."""
    gone = path.with_name(_REMOVED + path.name)
    with contextlib.suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
        except BlockingIOError:
            raise RunFolderError(f"{path.name} is being restored by a run") from None
        finally:
            os.close(handle)
    shutil.rmtree(gone, ignore_errors=True)


def keep_within(
    runs: Path, most_bytes: float, inventory: str = "", remove: Callable[[Path], None] = remove_image
) -> Iterator[KeptImage]:
    """Remove images until all together have at most so many bytes; those that were not used for longest go first.

    Those of one place: this machine, or the hosts of an inventory. One that is being restored stays, one whose manifest
    cannot be read never does. Yields what was removed.
    """
    for left in folder_of(runs).glob(f"{_REMOVED}*"):  # a removal was interrupted
        shutil.rmtree(left, ignore_errors=True)
    images = [kept for kept in kept_images(runs) if kept.image is None or kept.image.inventory == inventory]
    size = sum(kept.bytes for kept in images)
    for kept in images:
        if size <= most_bytes and kept.image is not None:
            continue
        with contextlib.suppress(RunFolderError):
            remove(kept.path)
            size -= kept.bytes
            yield kept
