"""Disks that are full, read-only or failing, and files that end anywhere: said by name, nothing whole is lost."""

import contextlib
import dataclasses
import errno
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from microshard.model.plan import Plan, Step
from microshard.model.run_records import JournalEvent, LedgerRecord
from microshard.records.run_folder import DiskError, Journal, RunFolder, write_json
from microshard.run.completed_steps import damaged, finished, remaining
from tests.faults.table import Row

STEPS = tuple(
    Step(index, point, repetition, "measure", deploy=repetition == 1, undeploy=repetition == 2)
    for index, (repetition, point) in enumerate((r, p) for r in (1, 2) for p in ("p01", "p02"))
)
# What planning decides is not looked at here, only which steps are left.
_FIELDS: dict[str, Any] = {field.name: None for field in dataclasses.fields(Plan)}
PLAN = Plan(**_FIELDS | {"steps": STEPS, "points": (), "redeploy": "per_point"})
NAMES = [f"{step.point}/{step.name}" for step in STEPS]


def _result(name: str) -> dict[str, Any]:
    return {"phases": [{"name": "measure", "kind": "measure"}], "valid": True, "gates": [], "step": name, "order": 1}


def a_run(folder: Path, done: int) -> RunFolder:
    """A run that broke off after so many steps."""
    run = RunFolder.create(folder, "broken")
    run.journal.append(JournalEvent("run started", steps=len(STEPS)))
    for step in STEPS[:done]:
        run.journal.append(JournalEvent("step started", step=step.index, point=step.point, name=step.name))
        write_json(run / "results" / step.point / f"{step.name}.json", _result(step.name))
        run.journal.append(JournalEvent("step done", step=step.index, point=step.point, name=step.name, valid=True))
    return run


def _left(run: RunFolder) -> list[str]:
    return [f"{step.point}/{step.name}" for step in remaining(PLAN, list(finished(run, PLAN)))]


def every_byte(folder: Path) -> Iterator[Row]:
    """Journal, ledger and results cut after each of their bytes: what is left to do, and what is said."""
    yield _cut_journals(folder)
    yield _cut_results(folder)
    yield _cut_ledgers(folder)


def _cut_journals(folder: Path) -> Row:
    run = a_run(folder / "journal", 3)
    data = run.journal.path.read_bytes()
    row = Row("cut after every byte", "journal")
    for length in range(len(data) + 1):
        row.times += 1
        run.journal.path.write_bytes(data[:length])
        # The results are whole: a line that is lost with the runner does not make anything be measured again.
        half = length and data[length - 1 : length] != b"\n" and data[length : length + 1] != b"\n"
        if bool(half) != any("journal" in word for word in damaged(run, PLAN)):
            row.lost.append(f"{length} bytes: half a line is {'not ' if half else ''}reported")
        left = _left(run)
        if left != NAMES[3:]:
            row.lost.append(f"{length} bytes: {left} is left to measure")
        done = [f"{r.point}/{r.name}" for r in run.journal.records() if r.event == "step done"]
        if sorted(done) != sorted(NAMES[:3]):
            row.lost.append(f"{length} bytes: the journal knows {done} afterwards")
    return row


def _cut_results(folder: Path) -> Row:
    run = a_run(folder / "results", 2)
    path = run / "results" / "p02" / "r1.json"
    data = path.read_bytes()
    row = Row("cut after every byte", "result")
    for length in range(len(data)):
        row.times += 1
        path.write_bytes(data[:length])
        whole = length == len(data) - 1  # only the end of the line is missing
        if _left(run) != (NAMES[2:] if whole else NAMES[1:]):
            row.lost.append(f"{length} bytes: {_left(run)} is left to measure")
        if whole == any("p02/r1" in word for word in damaged(run, PLAN)):
            row.lost.append(f"{length} bytes: said {list(damaged(run, PLAN))}")
    return row


def _cut_ledgers(folder: Path) -> Row:
    run = RunFolder.create(folder / "ledger", "broken")
    for number in range(3):
        run.ledger.append(LedgerRecord("process", "about to start", name=f"shard{number}"))
    data = run.ledger.path.read_bytes()
    row = Row("cut after every byte", "ledger")
    for length in range(len(data) + 1):
        row.times += 1
        run.ledger.path.write_bytes(data[:length])
        before = list(run.ledger.records())
        run.ledger.append(LedgerRecord("run", "clean"))
        after = list(run.ledger.records())
        if after[:-1] != before or after[-1].state != "clean" or len(before) != data[: length + 1].count(b"\n"):
            row.lost.append(f"{length} bytes: {after}")
    return row


@contextlib.contextmanager
def failing(call: int, error: int = errno.EIO) -> Iterator[None]:
    """os.fsync fails at its n-th call, and at that one only."""
    real, count = os.fsync, 0

    def fsync(file: Any) -> None:
        nonlocal count
        count += 1
        if count == call:
            raise OSError(error, os.strerror(error))
        real(file)

    with mock.patch("os.fsync", fsync):
        yield


def failing_fsync(folder: Path) -> Iterator[Row]:
    """Each fsync of a run's bookkeeping fails in turn: the record is not there, the others are, and it is said."""
    row = Row("fsync fails", "journal and results")
    for call in range(1, 30):
        at = folder / f"fsync-{call}"
        with failing(call):
            try:
                a_run(at, 4)
            except DiskError as error:
                if "cannot be written: Input/output error" not in str(error):
                    row.lost.append(f"call {call}: {error}")
            else:
                break  # there are no more calls than that
        row.times += 1
        (path,) = at.iterdir()
        if not (path / "run.json").exists():
            continue  # broke off before it was a run
        run = RunFolder.open(path)
        done = {f"{p.parent.name}/{p.stem}" for p in run.path.glob("results/*/*.json")}
        if run.journal.unread() or _left(run) != [name for name in NAMES if name not in done]:
            row.lost.append(f"call {call}: {run.journal.unread()}, {_left(run)} is left, {done} is done")
        if strays := [p.name for p in run.path.rglob(".*")]:
            row.left.append(f"call {call}: {strays}")
    yield row


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """A filesystem of its own in memory; needs root."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def full_disk(folder: Path) -> Iterator[Row]:
    """Records and results until nothing fits: all that were said to be written are whole, before and after."""
    row = Row("disk full", "journal and results")
    with small_disk(folder / "full", 1) as disk:
        lines = Journal(disk / "journal.jsonl")
        written = 0
        try:
            for number in range(10_000):
                lines.append(JournalEvent("step done", step=number, message="x" * 501))
                written += 1
        except DiskError as error:
            if "No space left on device" not in str(error):
                row.lost.append(str(error))
        row.times = 1
        if lines.unread() or [r.step for r in lines.records()] != list(range(written)):
            row.lost.append(f"{written} records were written, {sum(1 for _ in lines.records())} are there")
        (disk / "filler").write_bytes(b"")
        with contextlib.suppress(DiskError):
            for number in range(1000):
                row.times += 1
                write_json(disk / f"result-{number}.json", {"x": "y" * 3000})
        for path in disk.glob("result-*.json"):
            json.loads(path.read_text(encoding="utf-8"))
        row.left += [f"half a file {p.name}" for p in disk.glob(".*")]
    yield row


def campaign(folder: Path, tell: Callable[[str], None] = lambda _: None) -> list[Row]:
    """All of it; a full disk only as root."""
    rows: list[Row] = []
    parts = [every_byte, failing_fsync, *([full_disk] if os.geteuid() == 0 else [])]
    for part in parts:
        began = time.monotonic()
        rows += part(folder)
        tell(f"{part.__name__}: {time.monotonic() - began:.1f} s")
    return rows
