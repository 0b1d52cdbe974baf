"""Whole runs on a disk that becomes full or read-only while they work; needs root to mount the disk."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from microshard.backends import local_processes
from microshard.errors import EXIT_FAILED, EXIT_LEFT, EXIT_PLACE
from tests.faults.kills import LONGEST, damaged_images, definition
from tests.faults.table import Row, traceback_in
from tests.faults.watched import Watched, answers, left, whole_results

SIZE_MIB = 2048  # of the disk before it is full; only what is written takes memory
STAGES = {
    "full": ("prepare", "deploy", "load", "measure", "between", "teardown", "report"),
    "read-only": ("prepare", "deploy", "measure", "between", "report"),
}
OF_IMAGES = ("keep_data", "deploy")  # of a run that keeps a data image and restores it: full while it does
WORDS = {"full": "No space left on device", "read-only": "Read-only file system"}


@dataclass(frozen=True, slots=True)
class Disk:
    """A filesystem in memory that can be made full and read-only at any moment, whoever has files open on it."""

    folder: Path

    @classmethod
    @contextlib.contextmanager
    def made(cls, folder: Path) -> Iterator[Disk]:
        """The disk, mounted at `folder` while the context is open."""
        folder.mkdir(parents=True)
        _mount("-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(folder))
        try:
            yield cls(folder)
        finally:
            for mounted in (cls(folder)._read_only, folder):
                while mounted.is_mount():
                    subprocess.run(["umount", "--recursive", "--lazy", str(mounted)], check=True)

    @property
    def _read_only(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-read-only")

    def strike(self, fault: str) -> None:
        """From now on nothing can be written, or only into files that are open already (read-only)."""
        if fault == "full":
            self._shrink()
        else:
            # What has files open cannot be made read-only. One mount of the disk that nobody uses can, and another of
            # that one, over the disk, is read-only from its beginning.
            self._read_only.mkdir(exist_ok=True)
            _mount("--bind", str(self.folder), str(self._read_only))
            _mount("-o", "remount,bind,ro", str(self._read_only))
            _mount("--bind", str(self._read_only), str(self.folder))

    def _shrink(self) -> None:
        for _ in range(200):  # whoever is writing may be quicker
            usage = os.statvfs(self.folder)
            used = (usage.f_blocks - usage.f_bfree) * usage.f_frsize
            with contextlib.suppress(subprocess.CalledProcessError):
                _mount("-o", f"remount,size={used}", str(self.folder))
                return
        raise AssertionError(f"{self.folder} cannot be filled")

    def mend(self, fault: str) -> None:
        """As before."""
        if fault == "full":
            _mount("-o", f"remount,size={SIZE_MIB}m", str(self.folder))
        else:
            for mounted in (self.folder, self._read_only):
                subprocess.run(["umount", str(mounted)], check=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def experiment(folder: Path, repetitions: int, *, images: bool = False) -> Path:
    """One deployment that is measured again and again: the least that has something to lose."""
    path = folder / "full.yml"
    small = definition("standalone", repetitions)
    # By rates, 2 s each on any machine: a phase that is over in milliseconds is over before the disk is full.
    (load, measure) = small["workload"]
    load["load"] |= {"rate": 1500, "batch_size": 50}
    measure["measure"] |= {"rate": 20, "iterations": 40}
    once = {"matrix": {}, "name": "disk", "order": {"redeploy": "per_repetition"}}
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(small | once | ({"load": {"image": "use"}} if images else {}), file)
    return path


def whole_run(
    folder: Path, fault: str, stage: str, tell: Callable[[str], None] = lambda _: None, *, images: bool = False
) -> Row:
    """The disk gives way when the second measurement comes to a stage; then it is mended and the run taken up."""
    row = Row(f"disk {fault} under a whole run" + (" with data images" if images else ""), stage, times=1)
    folder.mkdir(parents=True)
    token = f"disk-{os.getpid()}-{folder.name}"
    with Disk.made(folder / "runs") as disk:
        watched = Watched(("run", str(experiment(folder, 2, images=images))), folder, token)
        try:
            struck = _strike(disk, watched, fault, stage)
            code = watched.process.wait(timeout=LONGEST)
        finally:
            if not watched.is_over:
                watched.process.kill()
                if (begun := watched.found_run()) is not None:
                    local_processes.clean(begun)
        said = watched.said()
        watched.close()
        run = watched.found_run()
        tell(f"{fault} at {stage}: exit code {code}: {' '.join(said.split())[-300:]}")
        row.lost += _said(code, said, fault, stage)
        if run is None or not struck:
            row.lost.append(f"the fault did not happen, the run was not seen at {stage}: {said[-500:]}")
            return row
        kept = whole_results(run) if stage != "prepare" else {}
        # Nobody can remove a folder of a read-only disk; that is reported, by the exit code too.
        row.left += [item for item in left(run, token) if fault == "full" or not item.startswith("folder")]
        disk.mend(fault)
        row.lost += _taken_up(folder, watched, token, kept)
        row.left += left(run, token)
        row.lost += damaged_images(folder / "runs")
        local_processes.clean(run)
    return row


def _strike(disk: Disk, watched: Watched, fault: str, stage: str) -> bool:
    """Wait for the moment: with a measurement to lose, but for the first stage; whether it came."""
    deadline = time.monotonic() + LONGEST
    while not watched.is_over and time.monotonic() < deadline:
        done = watched.events().count("step done")
        if watched.found_run() and watched.stage() == stage and (done == 1 or stage in {"prepare", "report"}):
            with _stopped_engine(watched) if stage in {"load", "measure"} else contextlib.nullcontext():
                if stage == watched.stage():
                    disk.strike(fault)
                    return True
        time.sleep(0.005)
    return False


@contextlib.contextmanager
def _stopped_engine(watched: Watched) -> Iterator[None]:
    """The engine stands still while the disk gives way: on a quick machine its phase would be over before that."""
    pid = watched.engine()
    if pid is None:
        yield
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _said(code: int, said: str, fault: str, stage: str) -> Iterator[str]:
    allowed = {EXIT_PLACE, EXIT_FAILED} | ({EXIT_LEFT} if fault == "read-only" else set())
    if code not in allowed:
        yield f"exit code {code}, not one of {sorted(allowed)}: {said[-800:]}"
    if WORDS[fault] not in " ".join(said.split()):
        yield f"it is not said that the disk is {fault}: {said[-800:]}"
    yield from traceback_in(said)


def _taken_up(folder: Path, watched: Watched, token: str, kept: dict[str, bytes]) -> Iterator[str]:
    """`microshard resume` ends with all the points, and what was whole has stayed."""
    run = watched.run
    assert run is not None
    planned = (run / "plan.json").exists()  # without, it is to be started again
    again = Watched(("resume", run.run_id) if planned else ("gc", "--on", "local"), folder, token, run)
    code = again.process.wait(timeout=LONGEST)
    said = again.said()
    again.close()
    if code != 0:
        yield f"{again.arguments[0]} ends with {code}: {said[-800:]}"
    if code != 0 or not planned:
        return
    now: dict[str, Any] = whole_results(run)
    for name, data in kept.items():
        if now.get(name) != data:
            yield f"{name} is {'another' if name in now else 'gone'}"
    found = answers(run)
    if sorted(found) != ["p01/r1", "p01/r2"] or len({tuple(answer) for answer in found.values()}) != 1:
        yield f"the measurements are {found}"
    if not (run / "report" / "report.html").is_file():
        yield "there is no report"


def campaign(folder: Path, tell: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
    """Full and read-only at every stage where something is written. Nothing of it without root."""
    if os.geteuid() != 0:
        tell("no whole runs on full disks: mounting them needs root")
        return
    for fault, stages in STAGES.items():
        for stage in stages:
            yield whole_run(folder / f"{fault}-{stage}", fault, stage, tell)
    for stage in OF_IMAGES:
        yield whole_run(folder / f"images-{stage}", "full", stage, tell, images=True)
