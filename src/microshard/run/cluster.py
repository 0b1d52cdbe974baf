"""A point of an experiment for work by hand: up, status, down."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from microshard.backends.base import of_run
from microshard.errors import EXIT_DEFINITION, MicroshardError, RunFolderError
from microshard.hostlib import emulated_volumes as emulated
from microshard.interrupts import signals
from microshard.model.plan import Plan
from microshard.records.run_folder import RunFolder, find_runs

if TYPE_CHECKING:
    from microshard.run.prepare import Prepared
    from microshard.run.runner import Listener


class NoSuchPointError(MicroshardError):
    """The plan has no such point."""

    exit_code = EXIT_DEFINITION


def choose(plan: Plan, wish: str | None) -> Plan:
    """The plan with one point only: the one asked for by id or label, or the first. Raises NoSuchPointError."""
    if wish is None:
        point = plan.points[0]
    else:
        found = [p for p in plan.points if wish in {p.id, p.label}]
        if not found:
            names = ", ".join(f"{p.id} ({p.label})" for p in plan.points[:20])
            raise NoSuchPointError(f"--point {wish}: the experiment has {names}")
        point = found[0]
    return dataclasses.replace(
        plan, points=(point,), steps=(), memory_mib=point.memory_mib, disk_bytes=point.disk_bytes
    )


def up(ready: Prepared, runs: Path, listener: Listener) -> RunFolder:
    """Deploy the one point of a chosen plan and leave it running. Whatever goes wrong, nothing is left then."""
    # Not at the top: `down` and `status` run nothing, and must begin at once.
    from microshard.run.prepare import write_run  # noqa: PLC0415
    from microshard.run.runner import Runner  # noqa: PLC0415

    (point,) = ready.plan.points
    ready.backend.check_room(ready.plan)
    found = ready.backend.binaries(ready.plan)
    folder = RunFolder.create(runs, ready.plan.name)
    write_run(folder, ready, found)
    runner = Runner(folder, ready.plan, found, listener, backend=ready.backend)
    with signals():
        try:
            with runner.playbooks.kept():
                runner.prepare()
                runner.deploy(point)
        except BaseException:
            runner.playbooks.stop()
            ready.backend.clean(folder, runner.playbooks)
            raise
    folder.journal.append(event="up", point=point.id, connection_string=point.connection_string)
    return folder


@dataclass(frozen=True, slots=True)
class Status:
    """What of a run is there right now."""

    run: RunFolder
    processes: int
    state: str  # running, up, done …: the last thing the journal says
    points: list[tuple[str, str]]  # label, connection string; of the points with processes


def status(runs: Path) -> list[Status]:
    """All runs below a folder, the newest last."""
    return [_status(run) for run in find_runs(runs)]


def _status(run: RunFolder) -> Status:
    backend = of_run(run)
    processes = backend.running(run)
    last = "made"
    for record in run.journal.records():
        last = str(record.get("event", last))
    alive = []
    for variables in sorted(run.path.glob("points/*/vars.json")) if processes else []:
        point = json.loads(variables.read_text(encoding="utf-8"))["microshard_point"]
        if any(f"/deployments/{point['id']}/" in process for process in processes):
            alive.append((str(point["label"]), str(point["connection_string"])))
    return Status(run, len(processes), last, alive)


def down(folder: RunFolder, listener: Listener) -> list[str]:
    """Stop everything of a run, collect its logs and remove its data. Returns what could not be removed.

    Raises RunFolderError by name when another process executes the run.
    """
    with folder.lock():
        return _down(folder, listener)


def _down(folder: RunFolder, listener: Listener) -> list[str]:
    backend = of_run(folder)
    playbooks = backend.playbooks(folder, listener.event, backend.limit_of(folder))
    (folder / "tmp").mkdir(exist_ok=True)
    processes = backend.running(folder)
    standing = [
        variables
        for variables in sorted(folder.path.glob("points/*/vars.json"))
        if any(f"/deployments/{variables.parent.name}/" in process for process in processes)
    ]
    with playbooks.kept():
        for variables in standing:
            try:
                playbooks.run("teardown", variables)
            except MicroshardError as error:
                folder.journal.append(event="teardown failed", point=variables.parent.name, message=str(error))
    left = backend.clean(folder, playbooks)
    folder.journal.append(event="down", left=left)
    return left


def pick(runs: Path, names: tuple[str, ...], *, unclean: bool = False) -> list[RunFolder]:
    """The runs named (by name or path), or all that have processes or volumes. Raises RunFolderError.

    `unclean`: and those that could not remove everything. A host that was lost may be back, with nothing running on it.
    """
    if not names:
        return [run for run in find_runs(runs) if (unclean and _is_unclean(run)) or _is_there(run)]
    return [RunFolder.open(Path(name) if Path(name).is_dir() else runs / name) for name in names]


def _is_there(run: RunFolder) -> bool:
    return bool(of_run(run).running(run)) or bool(emulated.absent(run.path, check=True)[0])


def _is_unclean(run: RunFolder) -> bool:
    ends = [record["state"] for record in run.ledger.records() if record.get("kind") == "run"]
    return ends[-1:] == ["not clean"]


def latest(runs: Path) -> RunFolder:
    """The newest run. Raises RunFolderError when there is none."""
    found = find_runs(runs)
    if not found:
        raise RunFolderError(f"{runs}: no runs yet")
    return found[-1]
