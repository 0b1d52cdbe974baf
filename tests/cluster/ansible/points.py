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
from microshard.model.plan import Host, Inputs, PlannedPhase, Point, Process
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
    options: dict[str, Any] = field(default_factory=dict)  # of data-bearing mongods
    phases: tuple[PlannedPhase, ...] = ()
    definition: dict[str, Any] | None = None  # `topology` of an experiment, instead of kind, shards and members

    def defined(self) -> dict[str, Any]:
        """`topology` of the experiment; two empty collections in a sharded cluster."""
        if self.definition is not None:
            return self.definition
        if self.topology != "sharded":
            return {"kind": self.topology, "replica_set": {"members": self.members}}
        by_range = {"namespace": "vosa.by_range", "shard_key": {"_id": 1}, "presplit": {"policy": "key_ranges"}}
        by_hash = {"namespace": "vosa.by_hash", "shard_key": {"_id": "hashed"}}
        return {
            "kind": "sharded",
            "shards": {"count": self.shards},
            "balancer": {"chunk_size_mb": 32},
            "collections": [by_range, by_hash],
        }


def point(layout: Layout, run_folder: Path) -> Point:
    """The point that the planner makes of it, with paths below the run's folder."""
    topology = {"storage": {}, **layout.defined()}
    topology["storage"] = {"cache": {"policy": "per_process_mb", "value": 64}} | topology["storage"]
    experiment = Experiment.model_validate({
        "microshard": 1,
        "name": "lab",
        "topology": topology,
        "workload": [{"measure": {"engine": "aggregate", "pipeline": [{"$count": "n"}]}}],
    })  # fmt: skip
    there = hosts_by_role(experiment.infrastructure, [LOCAL])
    inputs = Inputs(cores=2, base_port=layout.first_port or free_ports(ports_needed(experiment.topology, there)))
    (planned,) = build_plan(experiment, [PointDefinition({}, experiment)], inputs).points
    processes = tuple(_laid_out(process, layout, run_folder) for process in planned.processes)
    return dataclasses.replace(planned, id="p01", hosts=(LOCAL,), processes=processes, phases=layout.phases)


def _laid_out(process: Process, layout: Layout, run_folder: Path) -> Process:
    """With absolute paths, and the cache and options of a layout that is no definition."""
    folder = run_folder / "deployments" / "p01" / process.name
    changes: dict[str, Any] = {
        key: str(folder / Path(value).relative_to(process.folder))
        for key in ("folder", "db_path", "log_path", "config_path", "pid_path")
        if (value := getattr(process, key)) is not None
    }
    if layout.definition is None and process.role not in {"mongos", "config"}:
        changes["cache_mib"] = layout.cache_mib
        compression = {"compression": {"compressors": "snappy"}}
        changes["options"] = {"net": compression, "storage": {"engine": "wiredTiger"}} | layout.options
    return dataclasses.replace(process, **changes)


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
