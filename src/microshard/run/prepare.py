"""From an experiment file to a plan, and from a plan to the files of a run folder."""

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from microshard import __version__, this_machine
from microshard.errors import PlaceError
from microshard.experiment.load import LoadedExperiment, load
from microshard.experiment.matrix import PointDefinition, expand
from microshard.hostlib import emulated_volumes, process_limits, throttle
from microshard.hostlib.errors import HostError
from microshard.hostlib.files import VOLUMES
from microshard.model.advice import SearchRequest
from microshard.model.data_images import DataImageVariables
from microshard.model.plan import Inputs, Plan, Point, Process, Step
from microshard.model.run_records import LockedBinary, RequestRecord, RunLock
from microshard.model.variables import PointVariables, ProcessVariables, StepVariables, Variables
from microshard.plan.build import build_plan, ports_at_once
from microshard.plan.checks import PlanError, unsupported
from microshard.plan.hosts import shortages, volumes_of_processes
from microshard.plan.search_grid import refuse_hopeless
from microshard.records.data_images import base_ports
from microshard.records.lock_file import changes, write_experiment_lock
from microshard.records.run_folder import RunFolder, write_json
from microshard.run import secrets
from microshard.run.backend import MOST_PORTS, Backend, Binaries


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The experiment a run is started with, and the options it was started with."""

    path: Path
    loaded: LoadedExperiment
    backend: str
    scale: str | None
    overrides: Mapping[str, Any]
    search: SearchRequest | None = None  # of `microshard advise`; None: every step of the plan is executed
    parallel: int = 1  # fleets that may exist at a time, on EC2


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A request and the plan made of it for the hosts of a backend."""

    request: RunRequest
    plan: Plan
    backend: Backend

    @property
    def loaded(self) -> LoadedExperiment:
        """The experiment."""
        return self.request.loaded


@contextlib.contextmanager
def prepared(
    path: Path,
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    runs: Path,
    backend: Backend,
    folder: Path | None = None,
    search: SearchRequest | None = None,
) -> Iterator[PreparedRun]:
    """Load, expand and plan; the ports of the plan stay reserved while the context is open.

    `folder` has the files the experiment names, by default the experiment's folder. `search` chooses steps of the plan
    instead of executing all. Raises DefinitionError, also for what the hosts cannot do, and PlaceError.
    """
    loaded = load(path, scale=scale, overrides=overrides or {})
    points = expand(loaded)
    inputs = dataclasses.replace(
        backend.inputs(runs),
        pipelines=pipelines(path),
        backend=backend.name,
        where=backend.where,
        folder=folder or path.absolute().parent,
        most_ports=MOST_PORTS,
        no_volumes=backend.no_emulated_volumes(_emulated(points)),
    )
    _refuse_shortages(loaded, points, inputs)
    try:
        ports = ports_at_once(loaded.experiment, points, inputs)
    except PlanError as error:
        raise loaded.error(error.problems) from error
    kept = base_ports(runs) if loaded.experiment.load.image != "never" else []
    with backend.ports(ports, kept) as base:
        plan = make_plan(loaded, points, dataclasses.replace(inputs, base_port=base))
        if search:
            refuse_hopeless(search, plan)
        yield PreparedRun(RunRequest(path, loaded, backend.name, scale, dict(overrides or {}), search), plan, backend)


def _refuse_shortages(loaded: LoadedExperiment, points: Sequence[PointDefinition], inputs: Inputs) -> None:
    """Raise DefinitionError where a group has fewer hosts than a point needs, with all that is not supported."""
    if not inputs.hosts:
        return
    missing = [pair for p in points for pair in shortages(p.experiment.infrastructure, inputs.hosts, inputs.where)]
    if missing:
        other = [pair for point in points for pair in unsupported(point.experiment, inputs.backend)]
        raise loaded.error(list(dict.fromkeys([*missing, *other])))


def _emulated(points: Sequence[PointDefinition]) -> list[str]:
    """The file systems of the volumes these points emulate."""
    found = {
        volume.filesystem
        for point in points
        for _, volume in point.experiment.infrastructure.shard_hosts.volumes.named()
        if volume.type == "emulated"
    }
    return sorted(found)


def make_plan(loaded: LoadedExperiment, points: Sequence[PointDefinition], inputs: Inputs) -> Plan:
    """The plan of these points. Raises DefinitionError with the positions in the file."""
    try:
        return build_plan(loaded.experiment, points, inputs)
    except PlanError as error:
        raise loaded.error(error.problems) from error


def pipelines(experiment: Path) -> dict[str, list[dict[str, Any]]]:
    """Pipelines by name: the project's, and JSON and YAML files in `pipelines/` of the experiment's folder."""
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in (
        this_machine.project_root() / "experiments" / "pipelines",
        experiment.absolute().parent / "pipelines",
    ):
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir()):
            if file.suffix in {".json", ".yml", ".yaml"}:
                found[file.stem] = _stages(file)
    return found


def _stages(file: Path) -> list[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    try:
        stages = json.loads(text) if file.suffix == ".json" else YAML(typ="safe").load(text)
    except (ValueError, YAMLError) as error:
        raise PlaceError(f"{file}: not a pipeline: {error}") from error
    if not isinstance(stages, list) or not all(isinstance(s, dict) and len(s) == 1 for s in stages):
        raise PlaceError(f"{file}: a pipeline is a list of stages with one operator each")
    return stages


def write_run(folder: RunFolder, ready: PreparedRun, binaries: Mapping[str, Binaries]) -> None:
    """Write experiment.yml, lock.json, plan.json and the variables of every point into the run's folder."""
    write_request(folder, ready.request)
    lock_binaries(folder, ready.request, binaries)
    write_json(folder / "plan.json", ready.plan)
    write_points(folder, ready.plan, binaries, ready.backend)


def write_request(folder: RunFolder, request: RunRequest) -> None:
    """Write experiment.yml and lock.json, which need no host."""
    shutil.copyfile(request.path, folder / "experiment.yml")
    lock = RunLock(
        microshard=__version__,
        definition=request.loaded.experiment.model_dump(mode="json"),
        definition_sha256=hashlib.sha256(request.path.read_bytes()).hexdigest(),
        request=RequestRecord(
            str(request.path.absolute()), request.scale, dict(request.overrides), request.search, request.parallel
        ),
        backend=request.backend,
        host=this_machine.describe(),
        packages=this_machine.packages(),
    )
    write_json(folder / "lock.json", lock)
    write_experiment_lock(folder, request.loaded.experiment, lock, request.path)


def lock_binaries(folder: RunFolder, request: RunRequest, binaries: Mapping[str, Binaries]) -> None:
    """Add the binaries of these points to the locks."""
    lock = folder.run_lock()
    lock.binaries |= {
        p: LockedBinary(**dataclasses.asdict(item.variables()), mongod_sha256=item.sha256)
        for p, item in binaries.items()
    }
    experiment = request.loaded.experiment
    if experiment.lock is not None:
        lock.differs_from_lock = changes(experiment.lock, lock)
    write_json(folder / "lock.json", lock)
    write_experiment_lock(folder, experiment, lock, request.path)


def write_points(folder: RunFolder, plan: Plan, binaries: Mapping[str, Binaries], backend: Backend) -> None:
    """Write the variables and secrets of every point, and record the hosts."""
    if any(any(point.security.values()) for point in plan.points):
        secrets.make(folder / "secrets", sorted({host.address for host in plan.hosts}))
    for point in plan.points:
        write_variables(folder, point, binaries[point.id], step=None, backend=backend)
    backend.use(plan)
    backend.record(folder)


def write_variables(
    folder: RunFolder,
    point: Point,
    binaries: Binaries,
    step: Step | None,
    *,
    pause: bool = False,
    kinds: Collection[str] = ("load", "warm_up", "measure"),
    image: DataImageVariables | None = None,
    backend: Backend,
) -> Path:
    """Write points/POINT/vars.json: the variables of a point, and of a step when there is one. Returns its path.

    `kinds`: of the phases that are executed. `image`: the data image to restore or to keep.
    """
    root = backend.host_folder(folder)
    # The experiment's choice overrides the backend's.
    run = backend.variables(folder, point.driver)
    manager = run.process_manager if point.process_manager == "auto" else point.process_manager
    variables = Variables(
        dataclasses.replace(run, bin=binaries.variables(), process_manager=manager),
        _on_hosts(point, root, limited=not backend.remote),
        None if step is None else _step(point, step, root, pause=pause, kinds=kinds, remote=backend.remote),
        image,
    )
    path = folder / "points" / point.id / "vars.json"
    write_json(path, variables)
    return path


def _step(point: Point, step: Step, root: Path, *, pause: bool, kinds: Collection[str], remote: bool) -> StepVariables:
    phases = [phase for phase in point.phases if phase.kind in kinds]
    return StepVariables(
        index=step.index,
        repetition=step.repetition,
        attempt=step.attempt,
        purpose=step.purpose,
        name=step.name,
        deploy=step.deploy,
        pause=pause,
        phases=[phase.name for phase in phases],
        restarts=sum(phase.restarts for phase in phases) if remote else 0,
        results=str(root / "results" / point.id / f"{step.name}.json"),
        telemetry=str(root / "telemetry" / point.id / step.name),
        progress=str(root / "tmp" / "progress.jsonl"),
    )


def _on_hosts(point: Point, root: Path, *, limited: bool) -> PointVariables:
    """The point with paths on the hosts. `limited`: its processes get their limits on this machine."""
    cgroup, volumes = "", volumes_of_processes(point)
    for limits in [p.limits for p in point.processes if limited and p.limits]:
        if reason := process_limits.why_not(limits, str(root)):
            raise PlaceError(f"{point.id}: {reason}")
    if point.volumes:
        # The volumes' limits hold for the processes of this control group, in which a module starts them.
        try:
            cgroup = str(throttle.controller().group(emulated_volumes.group(root, point.id)))
        except HostError as error:
            raise PlaceError(str(error)) from error

    def process(planned: Process) -> ProcessVariables:
        keys = ("folder", "db_path", "log_path", "config_path", "pid_path")
        paths = {key: str(root / value) for key in keys if (value := getattr(planned, key)) is not None}
        own = f"{root.name}/{point.id}/{planned.name}"
        there = {what: f"{VOLUMES}/{name}/{own}" for what, name in volumes.get(planned.name, {}).items()}
        fields = {**_fields(planned), **paths}
        return ProcessVariables(**fields, endpoint=planned.endpoint, volumes=there, cgroup=cgroup)

    fields = _fields(point)
    fields["processes"] = tuple(process(planned) for planned in point.processes)
    fields["volumes"] = tuple(
        dataclasses.replace(volume, image=str(root / volume.image), mount=str(root / volume.mount))
        for volume in point.volumes
    )
    return PointVariables(**fields, connection_string=point.connection_string)


def _fields(record: Point | Process) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
