"""A point of an experiment for work by hand: up, status, add-member, down."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from microshard.errors import EXIT_DEFINITION, EXIT_LEFT, MicroshardError, PlaceError
from microshard.hostlib import emulated_volumes, proc
from microshard.hostlib.ports import is_free
from microshard.interrupts import signals
from microshard.model.plan import Plan, PlannedMember, PlannedReplicaSet
from microshard.model.run_records import JournalEvent, LedgerRecord
from microshard.model.variables import PointVariables, ProcessVariables, Variables
from microshard.records import codec
from microshard.records.run_folder import MARKER, RunFolder, find_runs, write_json
from microshard.run.catalog import NOT_RUNNING, state, stays_up

if TYPE_CHECKING:
    from microshard.run.backend import Backend, BackendOf, Binaries
    from microshard.run.prepare import PreparedRun
    from microshard.run.runner import Listener

_LAST_PORT = 65535
_SYNC_SECONDS = 7 * 24 * 3600.0  # an initial sync may take days, and Ctrl-C ends the waiting


class NoSuchPointError(MicroshardError):
    """The plan has no such point."""

    exit_code = EXIT_DEFINITION


class LeftBehindError(MicroshardError):
    """What had been created for a point could not be removed after an error."""

    exit_code = EXIT_LEFT

    def __init__(self, left: Sequence[str]) -> None:
        super().__init__("\n".join(f"left behind: {item}" for item in left))


class NoSuchSetError(MicroshardError):
    """There is no replica set a member can be added to."""

    exit_code = EXIT_DEFINITION


def choose(plan: Plan, name: str | None) -> Plan:
    """The plan with one point only: the one with this id or label, or the first. Raises NoSuchPointError."""
    found = [point for point in plan.points if name is None or name in {point.id, point.label}]
    if not found:
        names = ", ".join(f"{point.id} ({point.label})" for point in plan.points[:20])
        raise NoSuchPointError(f"--point {name}: the experiment has {names}")
    point = found[0]
    return dataclasses.replace(
        plan, points=(point,), steps=(), memory_mib=point.memory_mib, disk_bytes=point.disk_bytes
    )


def up(ready: PreparedRun, runs: Path, listener: Listener) -> RunFolder:
    """Deploy the one point of a chosen plan and leave it running. When anything fails, nothing is left."""
    from microshard.run.prepare import write_run  # noqa: PLC0415 - `down` and `status` need not wait 0.9 s for it

    ready.backend.check_room(ready.plan)
    binaries = ready.backend.binaries(ready.plan)
    folder = RunFolder.create(runs, ready.plan.name)
    write_run(folder, ready, binaries)
    bring_up(folder, ready.plan, binaries, ready.backend, listener)
    return folder


def bring_up(
    folder: RunFolder, plan: Plan, binaries: Mapping[str, Binaries], backend: Backend, listener: Listener
) -> None:
    """Prepare the hosts of a plan's only point and deploy it. When anything fails, nothing is left.

    Raises LeftBehindError where it could not be removed.
    """
    from microshard.run.runner import Runner  # noqa: PLC0415 - as above

    (point,) = plan.points
    runner = Runner(folder, plan, binaries, listener, backend=backend)
    with signals():
        try:
            with runner.playbooks.kept():
                runner.prepare()
                runner.deploy(point)
        except BaseException as error:
            runner.playbooks.stop()
            if left := backend.clean(folder):
                raise LeftBehindError(left) from error
            raise
    folder.journal.append(JournalEvent("up", point=point.id, connection_string=point.connection_string))


def deployed(run: RunFolder, processes: Sequence[str]) -> Iterator[Path]:
    """vars.json of each point of a run that has some of its processes."""
    for path in sorted(run.path.glob("points/*/vars.json")) if processes else []:
        if any(f"/deployments/{path.parent.name}/" in process for process in processes):
            yield path


def deployed_points(run: RunFolder, processes: Sequence[str]) -> Iterator[PointVariables]:
    """The points of a run that have some of its processes. Raises RunFolderError."""
    return (codec.read_file(Variables, path).microshard_point for path in deployed(run, processes))


@dataclass(frozen=True, slots=True)
class RunStatus:
    """What of a run exists right now."""

    run: RunFolder
    processes: int
    state: str  # as catalog.state gives it
    points: list[PointStatus]  # those with processes, or that should have some
    cost: str = ""  # of its hosts, while they exist


@dataclass(frozen=True, slots=True)
class PointStatus:
    """A point that has processes right now, or was to have them until `down`."""

    label: str
    connection_string: str
    processes: list[tuple[str, str, bool, str]]  # name, host:port, whether it runs, its PID where it is known


def status(runs: Path, backend_of: BackendOf) -> list[RunStatus]:
    """The status of all runs below a folder, the newest last."""
    found = []
    for run in find_runs(runs):
        backend = backend_of(run)
        processes = backend.running(run)
        now = state(run, processes=bool(processes))
        paths = _that_stayed(run) if now == NOT_RUNNING else deployed(run, processes)
        points = [_point_status(codec.read_file(Variables, path).microshard_point, processes) for path in paths]
        found.append(RunStatus(run, len(processes), now, points, backend.cost(run)))
    return found


def _that_stayed(run: RunFolder) -> list[Path]:
    """vars.json of each point whose servers were to stay up."""
    last = [e.points or [e.point or ""] for e in run.journal.records() if e.event in {"up", "kept"}][-1]
    return [path for point in last if (path := run / "points" / point / "vars.json").is_file()]


def _point_status(point: PointVariables, running: Sequence[str]) -> PointStatus:
    listed = []
    for process in point.processes:
        runs = any(process.config_path in command for command in running)
        pid = ""
        if runs and proc.from_pid_file(process.pid_path, process.config_path):
            pid = Path(process.pid_path).read_text(encoding="ascii").strip()
        listed.append((process.name, process.endpoint, runs, pid))
    return PointStatus(point.label, point.connection_string, listed)


def elsewhere(runs: Path) -> list[Path]:
    """Folders of runs outside of `runs` that have servers on this machine, but those of other users."""
    found: dict[Path, None] = {}
    for process in proc.all_processes():
        for argument in process.command:
            folder, mark, _ = argument.partition("/deployments/")
            path = Path(folder)
            outside = mark and path.parent != runs.absolute()
            if outside and os.access(path / MARKER, os.R_OK, effective_ids=True):
                found[path] = None
    return list(found)


def down(folder: RunFolder, backend_of: BackendOf, listener: Listener) -> list[str]:
    """Stop everything of a run, collect its logs and remove its data. Returns what could not be removed.

    Raises RunFolderError by name when another process executes the run.
    """
    with folder.lock():
        backend = backend_of(folder)
        playbooks = backend.playbooks(folder, listener.event)
        (folder / "tmp").mkdir(exist_ok=True)
        folder.journal.append(JournalEvent("going down"))  # from here on gc may go on with it
        with playbooks.kept():
            for variables in deployed(folder, backend.running(folder)):
                try:
                    playbooks.run("teardown", variables)
                except MicroshardError as error:
                    folder.journal.append(
                        JournalEvent("teardown failed", point=variables.parent.name, message=str(error))
                    )
        left = backend.clean(folder, listener.event)
        folder.journal.append(JournalEvent("down", left=left))
        return left


def still_up(runs: Path, backend_of: BackendOf, *, unclean: bool = False) -> list[RunFolder]:
    """The runs that have processes or volumes; with `unclean` also those whose servers were to stay, and ended or were
    ended by somebody else, and those that could not remove everything.

    Nothing may run on a host that was lost and is back, but the run's folder and volumes are on it; and hosts on EC2
    cost money whether anything runs on them or not.
    """
    return [
        run
        for run in find_runs(runs)
        for backend in [backend_of(run)]
        if (unclean and (_is_unclean(run) or stays_up(run.journal.records()) or backend.cost(run)))
        or _has_anything(run, backend)
    ]


def _has_anything(run: RunFolder, backend: Backend) -> bool:
    return bool(backend.running(run)) or bool(emulated_volumes.absent(run.path, check=True)[0])


def _is_unclean(run: RunFolder) -> bool:
    ends = [record.state for record in run.ledger.records() if record.kind == "run"]
    return ends[-1:] == ["not clean"]


@dataclass(frozen=True, slots=True)
class AddedMember:
    """A process that has become a member of a replica set."""

    name: str
    endpoint: str
    replica_set: str
    waited: bool  # it ran already and was no member (`initial: false`)


def add_member(run: RunFolder, backend: Backend, name: str | None, listener: Listener) -> AddedMember:
    """Add a member to a replica set of a run that is up, and wait until it is SECONDARY.

    A process that runs and is not a member yet (`initial: false`) becomes one; where there is none, another process
    like that of the last data-bearing member is started on a port that is free. `name` is the set, where there are
    several. Raises NoSuchSetError, PlaceError, PlaybookError; `down` removes the member with the others.
    """
    path = next(deployed(run, backend.running(run)), None)
    if path is None:
        raise NoSuchSetError(f"{run.run_id} has nothing running; first: microshard up FILE")
    variables = codec.read_file(Variables, path)
    point = variables.microshard_point
    replica_set = _replica_set(point, name)
    waiting = next((member for member in replica_set.members if not (member.initial or member.added)), None)
    if waiting is None:
        process = _new_process(point, replica_set)
        member = PlannedMember(process.name, process.endpoint, initial=False, added=True)
        point = dataclasses.replace(point, processes=(*point.processes, process))
        members = (*replica_set.members, member)
        places = {key: getattr(process, key) for key in ("name", "folder", "config_path", "pid_path", "port")}
        run.ledger.append(LedgerRecord("process", "about to start", point=point.id, **places))
    else:
        member = dataclasses.replace(waiting, added=True)
        members = tuple(member if one is waiting else one for one in replica_set.members)
    changed = dataclasses.replace(replica_set, members=members)
    sets = tuple(changed if one is replica_set else one for one in point.replica_sets)
    point = dataclasses.replace(point, replica_sets=sets)
    written = codec.encode(dataclasses.replace(variables, microshard_point=point))
    write_json(path, {**written, "mongo_topology_timeout": _SYNC_SECONDS})
    listener.stage(None, "add member")
    backend.playbooks(run, listener.event).run("deploy", path)
    run.journal.append(JournalEvent("member added", point=point.id, name=member.process, replica_set=replica_set.name))
    return AddedMember(member.process, member.endpoint, replica_set.name, waiting is not None)


def _replica_set(point: PointVariables, name: str | None) -> PlannedReplicaSet:
    sets = {replica_set.name: replica_set for replica_set in point.replica_sets if replica_set.role != "config"}
    if name is not None and name in sets:
        return sets[name]
    if name is None and len(sets) == 1:
        return next(iter(sets.values()))
    names = ", ".join(sets) or "none (a standalone has no members)"
    prefix = f"--replica-set {name}: " if name else "which one? --replica-set takes one of them: "
    raise NoSuchSetError(f"{prefix}{point.label} has {names}")


def _new_process(point: PointVariables, replica_set: PlannedReplicaSet) -> ProcessVariables:
    """A process like that of the last data-bearing member, with a name, a port and folders of its own."""
    processes = {process.name: process for process in point.processes}
    model = next(processes[member.process] for member in reversed(replica_set.members) if not member.arbiter)
    stem = model.name.rsplit("-", 1)[0] if "-" in model.name else model.name
    name = next(f"{stem}-{n}" for n in range(2, 1000) if f"{stem}-{n}" not in processes)
    port = _free_port(point, model.host, model.address)
    folder = Path(model.folder)
    keys = ("folder", "db_path", "log_path", "config_path", "pid_path")
    paths = {key: str(folder.with_name(name) / Path(getattr(model, key)).relative_to(folder)) for key in keys}
    volumes = {what: str(Path(there).with_name(name)) for what, there in model.volumes.items()}
    fields: dict[str, Any] = {
        **paths,
        "name": name,
        "port": port,
        "endpoint": f"{model.address}:{port}",
        "volumes": volumes,
    }
    return dataclasses.replace(model, **fields)


def _free_port(point: PointVariables, host: str, address: str) -> int:
    used = {process.port for process in point.processes if process.host == host}
    for port in range(max(used) + 1, _LAST_PORT):
        if address not in {"127.0.0.1", "localhost"} or is_free(address, port):
            return port
    raise PlaceError(f"{host}: no port is free above {max(used)}")
