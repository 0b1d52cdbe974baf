"""The plan of a whole experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.definition.experiment import Experiment
from microshard.definition.matrix import PointDefinition
from microshard.definition.phase import Surroundings
from microshard.definition.topology import data_members
from microshard.plan import estimate
from microshard.plan.backend import unsupported
from microshard.plan.model import Collection, Host, Phase, Plan, Point, Redeploy
from microshard.plan.order import steps
from microshard.plan.topology import deploy, process_count

FIRST_PORT = 27100  # the first port tried for base_port: auto, clear of a MongoDB of the user's own at 27017
_GROUPS = ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")
_RESERVED_MEMORY = 0.85  # share of RAM all processes of a run may have; the rest is the page cache's and the user's


class PlanError(Exception):
    """The experiment cannot be run here. `problems` are (dotted key, sentence)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(f"{key}: {reason}" for key, reason in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the plan needs to know about the place it is made for."""

    cores: int
    ram_mib: float | None = None
    free_disk_bytes: int | None = None
    base_port: int = FIRST_PORT  # used where the experiment says auto
    pipelines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # by name
    backend: str = "local"
    folder: Path | None = None  # of the experiment file, for the files it names


def build(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> Plan:
    """Plan an experiment whose matrix has been expanded into `points`.

    Raises PlanError with every reason why it cannot be run here.
    """
    _refuse(points, inputs)
    redeploy, why = _redeploy(experiment, points)
    host = Host(name="local", address="127.0.0.1", groups=_GROUPS)
    keeps = experiment.teardown != "always"
    planned = _points(points, host, inputs, one_range=redeploy == "per_repetition" and not keeps)
    together = sum if redeploy == "per_point" or keeps else max
    memory = together(p.memory_mib for p in planned)
    warnings = [why] if why else []
    warnings += dict.fromkeys(w for point in points for w in point.warnings)
    if redeploy == "per_point" and not keeps and experiment.order.redeploy == "auto" and _too_much(memory, inputs):
        redeploy = "per_repetition"
        planned = _points(points, host, inputs, one_range=True)
        together = max
        memory = max(p.memory_mib for p in planned)
        warnings.append(
            "order.redeploy: all points together do not fit into RAM, "
            "so each is deployed and loaded anew for every repetition"
        )
    order = steps(
        [p.id for p in planned],
        experiment.repetitions,
        policy=experiment.order.policy,
        seed=experiment.order.seed,
        repeat_first=experiment.order.repeat_first,
        redeploy=redeploy,
    )
    by_id = {p.id: p for p in planned}
    seconds = sum(
        by_id[s.point].measure_seconds
        + (by_id[s.point].deploy_seconds + by_id[s.point].load_seconds if s.deploy else 0.0)
        for s in order
    )
    plan = Plan(
        name=experiment.name,
        title=experiment.title or experiment.name,
        backend=inputs.backend,
        redeploy=redeploy,
        repetitions=experiment.repetitions,
        hosts=(host,),
        points=planned,
        steps=order,
        teardown=experiment.teardown,
        estimate_seconds=seconds,
        disk_bytes=together(p.disk_bytes for p in planned),
        memory_mib=memory,
        facts={"cores": inputs.cores, "ram_mib": inputs.ram_mib, "free_disk_bytes": inputs.free_disk_bytes},
    )
    _refuse_what_does_not_fit(plan, inputs)
    return dataclasses.replace(plan, warnings=tuple(warnings + _warnings(plan, experiment)))


def _refuse(points: Sequence[PointDefinition], inputs: Inputs) -> None:
    problems: dict[tuple[str, str], None] = {}
    for point in points:
        problems |= dict.fromkeys(unsupported(point.experiment, inputs.backend))
        around = _surroundings(point.experiment, (), inputs)
        for number, step in enumerate(point.experiment.workload):
            here = f"workload.{number}.{step.kind}"
            problems |= dict.fromkeys((f"{here}.{key}", reason) for key, reason in step.phase.problems(around))
    if problems:
        raise PlanError(list(problems))


def _redeploy(experiment: Experiment, points: Sequence[PointDefinition]) -> tuple[Redeploy, str | None]:
    writes = any(
        step.kind != "load" and step.phase.changes_data for point in points for step in point.experiment.workload
    )
    wish = experiment.order.redeploy
    if wish == "auto":
        return ("per_repetition" if writes else "per_point"), None
    if wish == "per_point" and writes:
        raise PlanError(
            [("order.redeploy", "per_point needs a measurement that only reads; this one changes the data")]
        )
    return wish, None


def _points(points: Sequence[PointDefinition], host: Host, inputs: Inputs, *, one_range: bool) -> tuple[Point, ...]:
    width = max(2, len(str(len(points))))
    result = []
    offset = 0
    for number, definition in enumerate(points, start=1):
        topology = definition.experiment.topology
        base = topology.network.base_port
        first = (inputs.base_port if base == "auto" else base) + (0 if one_range else offset)
        offset += process_count(topology)
        result.append(_point(f"p{number:0{width}d}", definition, host, first, inputs))
    if max(p.port for point in result for p in point.processes) > 65535:
        raise PlanError([("topology.network.base_port", "the ports of all processes do not fit below 65536")])
    return tuple(result)


def _point(name: str, definition: PointDefinition, host: Host, first_port: int, inputs: Inputs) -> Point:
    experiment = definition.experiment
    topology = experiment.topology
    deployment = deploy(
        topology, point=name, host=host, first_port=first_port, cores=inputs.cores, ram_mib=inputs.ram_mib
    )
    phases = tuple(_phases(experiment, deployment.collections, inputs))
    needs = estimate.needs(
        deployment.processes,
        experiment.workload,
        compressor=topology.storage.block_compressor,
        oplog_mb=topology.storage.oplog_size_mb,
        copies=data_members(topology),
        cores=inputs.cores,
    )
    return Point(
        id=name,
        axes=definition.axes,
        label=_label(definition.axes, experiment),
        topology=topology.kind,
        shards=topology.shards.count if topology.kind == "sharded" else 0,
        hosts=(host,),
        processes=deployment.processes,
        replica_sets=deployment.replica_sets,
        collections=deployment.collections,
        balancer=topology.balancer.model_dump(),
        phases=phases,
        mongodb=topology.mongodb.model_dump(),
        network_compressors=tuple(topology.network.compressors),
        cache=deployment.cache,
        disk_bytes=needs.disk_bytes,
        memory_mib=needs.memory_mib,
        deploy_seconds=needs.deploy_seconds,
        load_seconds=needs.load_seconds,
        measure_seconds=needs.measure_seconds,
        zones=deployment.zones,
    )


def _phases(experiment: Experiment, collections: Sequence[Collection], inputs: Inputs) -> Iterator[Phase]:
    around = _surroundings(experiment, collections, inputs)
    for step in experiment.workload:
        yield Phase(
            name=step.name or step.kind,
            kind=step.kind,
            engine=step.phase.engine,
            parameters=step.phase.parameters(around),
            question=step.phase.question(),
            data=step.phase.data(),
        )


def _surroundings(experiment: Experiment, collections: Sequence[Collection], inputs: Inputs) -> Surroundings:
    return Surroundings(
        topology=experiment.topology,
        cores=inputs.cores,
        key_ranges={c.namespace: len(c.chunks) for c in collections},
        pipelines=inputs.pipelines,
        folder=inputs.folder,
    )


def _label(axes: Mapping[str, Any], experiment: Experiment) -> str:
    if not axes:
        kind = experiment.topology.kind
        return f"{experiment.topology.shards.count} shards" if kind == "sharded" else kind.replace("_", " ")
    parts = []
    for key, value in axes.items():
        if key == "topology.shards.count":
            parts.append(f"{value} shard{'' if value == 1 else 's'}")
        else:
            parts.append(f"{key.rsplit('.', 1)[-1]} {value}")
    return ", ".join(parts)


def _too_much(memory_mib: int, inputs: Inputs) -> bool:
    return inputs.ram_mib is not None and memory_mib > inputs.ram_mib * _RESERVED_MEMORY


def _refuse_what_does_not_fit(plan: Plan, inputs: Inputs) -> None:
    problems = []
    if inputs.ram_mib is not None:
        problems += [
            (
                "topology.storage.cache",
                f"{point.label}: {point.cache.processes} × {point.cache.per_process_mib:,.0f} MiB of cache are "
                f"{point.cache.total_mib:,.0f} MiB, the machine has {inputs.ram_mib:,.0f} MiB of RAM",
            )
            for point in plan.points
            if point.cache.total_mib > inputs.ram_mib
        ]
        if not problems and _too_much(plan.memory_mib, inputs):
            problems.append(
                (
                    "topology",
                    f"about {plan.memory_mib:,} MiB of RAM are needed at one time, {inputs.ram_mib:,.0f} MiB are there "
                    f"({_RESERVED_MEMORY:.0%} may be used); fewer shards, or order.redeploy: per_repetition",
                )
            )
    if inputs.free_disk_bytes is not None and plan.disk_bytes > inputs.free_disk_bytes * 0.95:
        problems.append(
            (
                "workload",
                f"about {plan.disk_bytes / 1e9:,.1f} GB of disk are needed at one time, "
                f"{inputs.free_disk_bytes / 1e9:,.1f} GB are free; fewer documents, or --runs-dir on another volume",
            )
        )
    if problems:
        raise PlanError(problems)


def _warnings(plan: Plan, experiment: Experiment) -> list[str]:
    cores = plan.facts["cores"]
    most = max(p.shards for p in plan.points)
    warnings = []
    if most > cores:
        warnings.append(f"up to {most} shards on {cores} cores: no speed-up is to be expected beyond {cores} shards")
    if experiment.repetitions < 3:
        warnings.append(
            f"{experiment.repetitions} repetition(s): three or more are needed for an interval worth the name"
        )
    per_process = [p for p in plan.points if p.cache.policy == "per_process_mb"]
    if len({p.shards for p in per_process}) > 1:
        warnings.append(
            "the cache is the same per process, so more shards also means more cache: this measures RAM too"
        )
    return warnings
