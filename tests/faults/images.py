"""Bad luck with data images: the run measures the same whatever happened to them, and one that has a name is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ruamel.yaml import YAML

from microshard.records.data_images import folder_of, kept_images
from microshard.records.run_folder import RunFolder, find_runs
from tests.faults.kills import IMAGES, LONGEST, damaged_images, definition
from tests.faults.table import Row, traceback_in
from tests.faults.watched import MICROSHARD, Watched, answers, left

Change = Callable[[Path], None]  # of an image's folder


def _largest(image: Path) -> Path:
    return max((image / "data").rglob("*.wt"), key=lambda file: file.stat().st_size)


def _change_a_byte(image: Path) -> None:
    with _largest(image).open("r+b") as file:
        file.seek(file.seek(0, os.SEEK_END) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def _cut_the_manifest(image: Path) -> None:
    os.truncate(image / "manifest.json", (image / "manifest.json").stat().st_size // 2)


def _put_another_there(image: Path) -> None:
    manifest = image / "manifest.json"
    manifest.write_text(manifest.read_text(encoding="utf-8").replace(image.name, "0" * 32), encoding="utf-8")


DAMAGE: dict[str, Change] = {
    "a byte changed": _change_a_byte,
    "a file is missing": lambda image: _largest(image).unlink(),
    "a file is cut off": lambda image: os.truncate(_largest(image), _largest(image).stat().st_size // 2),
    "the manifest is cut off": _cut_the_manifest,
    "another image has its name": _put_another_there,
}
REFUSED = ("a byte changed", "a file is missing", "a file is cut off")  # what shows only when the files are restored


class Campaign:
    """Runs of one experiment in a folder, with the images of an undisturbed one."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self.folder, self.tell = folder, tell
        self.token = f"images-{os.getpid()}-{time.monotonic_ns()}"
        self.runs, self.pristine = folder / "runs", folder / "pristine"
        folder.mkdir(parents=True)
        self.path = folder / "images.yml"
        wanted = definition(IMAGES, 1) | {"matrix": {}, "name": "images", "order": {"seed": 1}}
        with self.path.open("w", encoding="utf-8") as file:
            YAML(typ="safe").dump(wanted, file)
        first = self._start()
        assert first.process.wait(LONGEST) == 0, first.said()
        self.expected = answers(find_runs(self.runs)[-1])
        shutil.copytree(folder_of(self.runs), self.pristine)
        self.port = next(kept.image.base_port for kept in kept_images(self.runs) if kept.image)

    def _start(self, name: str = "") -> Watched:
        """A run; `name`: from a folder of its own, with the same runs."""
        where = self.folder / name
        if name and not where.exists():
            where.mkdir()
            (where / "runs").symlink_to(self.runs)
        return Watched(("run", str(self.path)), where, self.token)

    def _ends(self, row: Row, *watched: Watched, removed: bool = False) -> list[RunFolder]:
        """Wait for runs; each has to measure what an undisturbed one does, and to leave nothing but the images."""
        for each in watched:
            code, said = each.process.wait(LONGEST), each.said()
            each.close()
            row.lost += traceback_in(said)
            if code != 0:
                row.lost.append(f"exit code {code}: {said[-800:]}")
        runs = find_runs(self.runs)[-len(watched) :]
        for run in runs:
            if answers(run) != self.expected:
                row.lost.append(f"{run.run_id}: the measurements are {answers(run)}, not {self.expected}")
            row.left += left(run, self.token)
        row.lost += damaged_images(self.runs)
        there = {kept.path.name for kept in kept_images(self.runs)}
        if not removed and (missing := {path.name for path in self.pristine.iterdir()} - there):
            row.lost.append(f"the images {sorted(missing)} are not there afterwards")
        row.left += [f"{path}" for path in folder_of(self.runs).glob(".*")]
        self.tell(f"{row.fault}: {self._events(runs[-1])}")
        return runs

    @staticmethod
    def _events(run: RunFolder) -> list[str]:
        return [event.event for event in run.journal.records() if "data" in event.event or "empty" in event.event]

    def _whole(self) -> Path:
        """The images are those of the undisturbed run; that of the loaded data."""
        shutil.rmtree(folder_of(self.runs))
        shutil.copytree(self.pristine, folder_of(self.runs))
        return next(kept.path for kept in kept_images(self.runs) if kept.image and kept.image.documents)

    def damaged(self, what: str) -> Row:
        """It is loaded again, and the image is replaced."""
        row = Row(f"data image: {what}", "restoring", times=1)
        DAMAGE[what](self._whole())
        (run,) = self._ends(row, self._start())
        events = self._events(run)
        if ("data image refused" in events) != (what in REFUSED) or "data restored" in events:
            row.lost.append(f"what the journal says is {events}")
        return row

    def removed(self) -> Row:
        """`microshard images rm` while a run restores one: it stays, or the run loads."""
        row = Row("data image: removed", "while it is restored", times=1)
        self._whole()
        watched = self._start()
        while not watched.is_over and watched.stage() != "deploy":
            time.sleep(0.005)
        command = [MICROSHARD, "images", "rm", "--all", "--runs-dir", str(self.runs)]
        removed = subprocess.run(command, capture_output=True, text=True, check=False)
        if removed.returncode != 0 and "is being restored by a run" not in removed.stderr:
            row.lost.append(f"images rm ends with {removed.returncode}: {removed.stderr}")
        row.lost += traceback_in(removed.stderr)
        self._ends(row, watched, removed=True)
        return row

    def at_once(self, what: str) -> Row:
        """Two runs that make, or restore, the same image at the same time."""
        row = Row(f"data image: two runs {what} it", "at once", times=1)
        self._whole()
        if what == "make":
            shutil.rmtree(folder_of(self.runs))
        runs = self._ends(row, self._start("one"), self._start("two"))
        wanted = "data kept" if what == "make" else "data restored"
        row.lost += [f"{run.run_id}: {self._events(run)}" for run in runs if wanted not in self._events(run)]
        return row

    def ports_taken(self) -> Row:
        """Somebody listens where the servers of the image did: it is restored to other ports."""
        row = Row("data image: its ports are taken", "restoring", times=1)
        self._whole()
        with contextlib.ExitStack() as stack:
            for port in (self.port, self.port + 1):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            (run,) = self._ends(row, self._start())
        if "data restored" not in self._events(run):
            row.lost.append(f"it was not restored: {self._events(run)}")
        return row


def campaign(folder: Path, tell: Callable[[str], None], damage: Sequence[str] = tuple(DAMAGE)) -> Iterator[Row]:
    """All of it; full disks are in full.py, kills in kills.py."""
    one = Campaign(folder, tell)
    for what in damage:
        yield one.damaged(what)
    yield one.removed()
    yield one.at_once("make")
    yield one.at_once("restore")
    yield one.ports_taken()
