"""Small points and their variables, built from the plan's own types."""

import dataclasses
import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from microshard.experiment.matrix import PointDefinition
from microshard.model.experiment import Experiment
from microshard.model.plan import (
    CacheBudget,
    Host,
    Inputs,
    PlannedChunk,
    PlannedCollection,
    PlannedMember,
    PlannedPhase,
    PlannedReplicaSet,
    Point,
    Process,
    Role,
)
from microshard.model.variables import (
    PointVariables,
    ProcessVariables,
    RunVariables,
    ServerPrograms,
    StepVariables,
    Variables,
)
from microshard.plan.build import build_plan
from microshard.plan.hosts import hosts_by_role
from microshard.plan.topology import ports_needed
from microshard.records import codec

LOCAL = Host("local", "127.0.0.1", ("controller", "shard_hosts", "config_hosts", "mongos_hosts", "client_hosts"))
_RANGES = 1 << 32  # a loader's share of the keys, as the planner cuts them


def free_ports(count: int) -> int:
    """The first of `count` free neighbouring ports, apart from those the kernel gives to clients (32768 and up).

    Tests that run side by side look in ranges of their own: what is free now is taken only later.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    for first in range(21000 + 1500 * (worker % 6), 32000, count):
        probes = []
        try:
            for port in range(first, first + count):
                probe = socket.socket()
                probes.append(probe)
                probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for probe in probes:
                probe.close()
        return first
    raise RuntimeError(f"no {count} free ports in a row")


@dataclass
class Layout:
    """What a test wants to deploy."""

    topology: Literal["standalone", "replica_set", "sharded"] = "standalone"
    shards: int = 0
    members: int = 1
    first_port: int = 0
    cache_mib: float = 64
    options: dict[str, Any] = field(default_factory=dict)
    phases: tuple[PlannedPhase, ...] = ()
    definition: dict[str, Any] | None = None  # `topology` of an experiment: the planner then lays it out

    def slots(self) -> list[tuple[str, Role, str | None]]:
        """Name, role and replica set of each process."""
        if self.topology == "standalone":
            return [("mongod1", "standalone", None)]
        if self.topology == "replica_set":
            return [(f"rs0-{n + 1}", "member", "rs0") for n in range(self.members)]
        shards = [f"shard{n + 1:02d}" for n in range(self.shards)]
        return [("mongos1", "mongos", None), ("config1", "config", "config"), *((s, "shard", s) for s in shards)]


def point(layout: Layout, run_folder: Path) -> Point:
    """The point, with paths below the run's folder."""
    if layout.definition is not None:
        return _planned(layout.definition, layout.first_port, run_folder, layout.phases)
    first = layout.first_port or free_ports(len(layout.slots()))
    processes = tuple(
        _process(layout, run_folder / "deployments" / "p01" / name, role, replica_set, first + offset)
        for offset, (name, role, replica_set) in enumerate(layout.slots())
    )
    names = list(dict.fromkeys(p.replica_set for p in processes if p.replica_set))
    return Point(
        id="p01",
        axes={},
        label="a point",
        topology=layout.topology,
        shards=layout.shards,
        hosts=(LOCAL,),
        processes=processes,
        replica_sets=tuple(_replica_set(name, processes) for name in names),
        collections=_collections(layout.shards) if layout.topology == "sharded" else (),
        balancer={"enabled": False, "chunk_size_mb": 32, "secondary_throttle": False},
        phases=layout.phases,
        mongodb={"source": "embedded", "version": None, "path": None},
        network_compressors=("snappy",),
        cache=CacheBudget("per_process_mb", len(processes), layout.cache_mib, layout.cache_mib, None, True),
        disk_bytes=0,
        memory_mib=0,
        deploy_seconds=0,
        load_seconds=0,
        measure_seconds=0,
    )


def _planned(topology: dict[str, Any], first_port: int, run_folder: Path, phases: tuple[PlannedPhase, ...]) -> Point:
    """The point an experiment with this topology has."""
    storage = {"cache": {"policy": "per_process_mb", "value": 64}} | topology.get("storage", {})
    experiment = Experiment.model_validate({
        "microshard": 1,
        "name": "lab",
        "topology": {**topology, "storage": storage},
        "workload": [{"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}]}}],
    })  # fmt: skip
    there = hosts_by_role(experiment.infrastructure, [LOCAL])
    inputs = Inputs(cores=2, base_port=first_port or free_ports(ports_needed(experiment.topology, there)))
    (planned,) = build_plan(experiment, [PointDefinition({}, experiment)], inputs).points
    moved = tuple(_moved(process, Path(f"deployments/{planned.id}"), run_folder) for process in planned.processes)
    return dataclasses.replace(planned, id="p01", hosts=(LOCAL,), processes=moved, phases=phases)


def _moved(process: Process, here: Path, run_folder: Path) -> Process:
    """With absolute paths."""
    there = run_folder / "deployments" / "p01"
    paths: dict[str, Any] = {
        key: str(there / Path(value).relative_to(here))
        for key in ("folder", "db_path", "log_path", "config_path", "pid_path")
        if (value := getattr(process, key)) is not None
    }
    return dataclasses.replace(process, **paths)


def _process(layout: Layout, folder: Path, role: Role, replica_set: str | None, port: int) -> Process:
    program = "mongos" if role == "mongos" else "mongod"
    options: dict[str, Any] = {"net": {"compression": {"compressors": "snappy"}}}
    if program == "mongod" and role != "config":
        options |= {"storage": {"engine": "wiredTiger"}} | layout.options
    return Process(
        name=folder.name,
        role=role,
        host="local",
        address="127.0.0.1",
        port=port,
        folder=str(folder),
        db_path=None if role == "mongos" else str(folder / "data"),
        log_path=str(folder / f"{program}.log"),
        config_path=str(folder / f"{program}.conf"),
        pid_path=str(folder / "pid"),
        replica_set=replica_set,
        cache_mib=None if role == "mongos" else 256 if role == "config" else layout.cache_mib,
        cpu_share=1,
        options=options,
    )


def _replica_set(name: str, processes: tuple[Process, ...]) -> PlannedReplicaSet:
    mine = [p for p in processes if p.replica_set == name]
    return PlannedReplicaSet(name, mine[0].role, tuple(PlannedMember(p.name, p.endpoint) for p in mine))


def _collections(shards: int) -> tuple[PlannedCollection, ...]:
    last = shards - 1
    ranges = tuple(
        PlannedChunk(f"shard{n + 1:02d}", None if n == 0 else n * _RANGES, None if n == last else (n + 1) * _RANGES)
        for n in range(shards)
    )
    return (
        PlannedCollection("vosa.by_range", {"_id": 1}, False, ranges),
        PlannedCollection("vosa.by_hash", {"_id": "hashed"}, False, ()),
    )


def point_variables(made: Point) -> PointVariables:
    """The point as Ansible is given it."""
    fields = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    fields["processes"] = tuple(
        ProcessVariables(**dataclasses.asdict(process), endpoint=process.endpoint) for process in made.processes
    )
    return PointVariables(**fields, connection_string=made.connection_string)


def variables(made: Point, run_folder: Path, mongod: Path, mongos: Path, python: Path) -> dict[str, Any]:
    """The variables of the point as vars.json has them; a test may change some."""
    step = StepVariables(
        index=0,
        repetition=1,
        attempt=1,
        purpose="measure",
        name="r1",
        deploy=True,
        pause=True,
        phases=[phase.name for phase in made.phases],
        restarts=0,
        results=str(run_folder / "results" / "p01" / "r1.json"),
        telemetry=str(run_folder / "telemetry" / "p01" / "r1"),
        progress=str(run_folder / "tmp" / "progress.jsonl"),
    )
    programs = ServerPrograms(str(mongod), str(mongos), embedded=True, version="6.0.5")
    run = RunVariables(
        run_folder.name, str(run_folder), str(run_folder), str(python), "direct", backend="local", bin=programs
    )
    found: dict[str, Any] = codec.encode(Variables(run, point_variables(made), step))
    return found


def write(path: Path, content: Any) -> Path:
    """Write JSON, folders included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
