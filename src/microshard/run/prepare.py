"""From an experiment file to a run folder that is ready to be executed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from microshard import __version__
from microshard import this_machine as place
from microshard.errors import PlaceError
from microshard.experiment.check import Checker
from microshard.experiment.errors import DefinitionError
from microshard.experiment.load import LoadedExperiment, load
from microshard.experiment.matrix import PointDefinition, expand
from microshard.hostlib import emulated_volumes, throttle
from microshard.model.plan import Plan, Point, Step
from microshard.model.run_records import LockedBinary, RequestRecord, RunLock
from microshard.plan import Inputs, PlanError, build_plan
from microshard.plan.build import ports_at_once
from microshard.plan.placement import shortages
from microshard.plan.support import unsupported
from microshard.plan.volumes import HOST_VOLUMES, homes
from microshard.records.lock_file import changes, write_experiment_lock
from microshard.records.run_folder import RunFolder, write_atomic, write_json
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


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A definition and the plan made of it for the hosts of a backend."""

    loaded: LoadedExperiment
    plan: Plan
    path: Path
    backend: Backend
    scale: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def request(self) -> RunRequest:
        """As lock.json has it."""
        return RunRequest(self.path, self.loaded, self.backend.name, self.scale, self.overrides)


@contextlib.contextmanager
def prepared(
    path: Path,
    *,
    scale: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    runs: Path,
    backend: Backend,
    folder: Path | None = None,
) -> Iterator[PreparedRun]:
    """Load, expand and plan; the ports of the plan stay reserved while the context is open.

    `folder` is where files lie that the experiment names, when it is not the experiment's own. Raises DefinitionError,
    also for what this machine cannot do, and PlaceError.
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
    refuse_shortages(loaded, points, inputs)
    with backend.ports(_ports(loaded, points, inputs)) as base:
        plan = make_plan(loaded, points, dataclasses.replace(inputs, base_port=base))
        yield PreparedRun(loaded, plan, path, backend, scale, dict(overrides or {}))


def refuse_shortages(loaded: LoadedExperiment, points: Sequence[PointDefinition], inputs: Inputs) -> None:
    """Raise DefinitionError where a group has fewer hosts than a point asks for: nothing can be placed then."""
    if not inputs.hosts:
        return
    short = dict.fromkeys(
        pair
        for point in points
        for pair in (
            *shortages(point.experiment.infrastructure, inputs.hosts, inputs.where),
            *unsupported(point.experiment, inputs.backend),
        )
    )
    if any(shortages(point.experiment.infrastructure, inputs.hosts, inputs.where) for point in points):
        raise _definition_error(loaded, list(short))


def _ports(loaded: LoadedExperiment, points: Sequence[PointDefinition], inputs: Inputs) -> int:
    try:
        return ports_at_once(loaded.experiment, points, inputs)
    except PlanError as error:
        raise _definition_error(loaded, error.problems) from error


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
    """The plan; what keeps it from being made is told with the place in the file."""
    try:
        return build_plan(loaded.experiment, points, inputs)
    except PlanError as error:
        raise _definition_error(loaded, error.problems) from error


def _definition_error(loaded: LoadedExperiment, problems: Iterable[tuple[str, str]]) -> DefinitionError:
    """The problems with their places in the file."""
    at = Checker(loaded.source, loaded.data, loaded.source.spot)
    return DefinitionError([at.at_value(key_path(key), reason) for key, reason in problems])


def key_path(key: str) -> tuple[str | int, ...]:
    """`workload.0.load` as the way through mappings and lists."""
    return tuple(int(part) if part.isdigit() else part for part in key.split("."))


def pipelines(experiment: Path) -> dict[str, list[dict[str, Any]]]:
    """Named pipelines: JSON and YAML files in `pipelines/` beside the experiment, then the project's own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for folder in (place.project_root() / "experiments" / "pipelines", experiment.absolute().parent / "pipelines"):
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


def write_run(folder: RunFolder, ready: PreparedRun, found: Mapping[str, Binaries]) -> None:
    """Write experiment.yml, lock.json, plan.json and the variables of every point into the run's folder."""
    write_request(folder, ready.request)
    lock_binaries(folder, ready.request, found)
    write_json(folder / "plan.json", ready.plan)
    write_points(folder, ready.plan, found, ready.backend)


def write_request(folder: RunFolder, request: RunRequest) -> None:
    """Write what a run is begun with, as far as no host is needed for it: experiment.yml and lock.json."""
    shutil.copyfile(request.path, folder / "experiment.yml")
    lock = RunLock(
        microshard=__version__,
        definition=request.loaded.experiment.model_dump(mode="json"),
        definition_sha256=hashlib.sha256(request.path.read_bytes()).hexdigest(),
        asked=RequestRecord(str(request.path.absolute()), request.scale, dict(request.overrides)),
        backend=request.backend,
        host=place.describe(),
        packages=place.packages(),
    )
    write_json(folder / "lock.json", lock)
    write_experiment_lock(folder, request.loaded.experiment, lock, request.path)


def lock_binaries(folder: RunFolder, request: RunRequest, found: Mapping[str, Binaries]) -> None:
    """Add to the locks which binaries these points use."""
    lock = folder.run_lock()
    lock.binaries |= {p: LockedBinary(**item.variables(), mongod_sha256=item.sha256) for p, item in found.items()}
    experiment = request.loaded.experiment
    if experiment.lock is not None:
        lock.differs_from_lock = changes(experiment.lock, lock)
    write_json(folder / "lock.json", lock)
    write_experiment_lock(folder, experiment, lock, request.path)


def write_points(folder: RunFolder, plan: Plan, found: Mapping[str, Binaries], backend: Backend) -> None:
    """Write the variables of every point and what secrets they need, and record which hosts it is."""
    if any(any(point.security.values()) for point in plan.points):
        secrets.make(folder / "secrets", sorted({host.address for host in plan.hosts}))
    for point in plan.points:
        write_variables(folder, point, found[point.id], step=None, backend=backend)
    backend.limit(plan)  # which hosts it is that are recorded
    backend.record(folder)


def write_variables(
    folder: RunFolder,
    point: Point,
    found: Binaries,
    step: Step | None,
    *,
    park: bool = False,
    backend: Backend,
) -> Path:
    """Write the variables of a point, and of a step when there is one. Returns the file's path."""
    root = backend.host_folder(folder)
    variables: dict[str, Any] = {
        "microshard_run": {**backend.variables(folder), **_manager(point), "bin": found.variables()},
        "microshard_point": _absolute(point, root),
    }
    if step is not None:
        kinds = {"load", "warm_up", "measure"} if step.deploy else {"warm_up", "measure"}
        phases = [phase for phase in point.phases if phase.kind in kinds]
        variables["microshard_step"] = {
            "index": step.index,
            "repetition": step.repetition,
            "attempt": step.attempt,
            "purpose": step.purpose,
            "name": step.name,
            "deploy": step.deploy,
            "park": park,
            "phases": [phase.name for phase in phases],
            # On this machine the engine itself restarts processes; on remote hosts it asks the playbook, so often.
            "restarts": 0 if not backend.remote else sum(phase.restarts for phase in phases),
            "results": str(root / "results" / point.id / f"{step.name}.json"),
            "telemetry": str(root / "telemetry" / point.id / step.name),
            "progress": str(root / "tmp" / "progress.jsonl"),
        }
    path = folder / "points" / point.id / "vars.json"
    write_atomic(path, json.dumps(variables, indent=1, default=str) + "\n")
    return path


def _manager(point: Point) -> dict[str, str]:
    """What the experiment says of it goes before what the place would choose."""
    return {} if point.process_manager == "auto" else {"process_manager": point.process_manager}


def _absolute(point: Point, root: Path) -> dict[str, Any]:
    value = dataclasses.asdict(point)
    for process, planned in zip(value["processes"], point.processes, strict=True):
        process["endpoint"] = planned.endpoint
        for key in ("folder", "db_path", "log_path", "config_path", "pid_path"):
            if process[key] is not None:
                process[key] = str(root / process[key])
    for name, lying in homes(point).items():
        process = next(p for p in value["processes"] if p["name"] == name)
        process["volumes"] = {what: f"{HOST_VOLUMES}/{on}/{root.name}/{point.id}/{name}" for what, on in lying.items()}
    for volume in value["volumes"]:
        volume["image"], volume["mount"] = str(root / volume["image"]), str(root / volume["mount"])
    if point.volumes:
        # The limits hold for the processes of this group; the module that starts them puts them there.
        group = throttle.controller().group(emulated_volumes.group(root, point.id))
        for process in value["processes"]:
            process["cgroup"] = str(group)
    value["connection_string"] = point.connection_string
    return value
