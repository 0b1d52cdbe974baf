"""The plan of a whole experiment."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from microshard.experiment.matrix import PointDefinition
from microshard.gc_pause import gc_paused
from microshard.memoize import memoize_by_identity
from microshard.model.experiment import Experiment
from microshard.model.phase import PhaseContext
from microshard.model.plan import (
    HostNeeds,
    Plan,
    PlannedPhase,
    PlannedReplicaSet,
    Point,
    Redeploy,
)
from microshard.model.topology import data_members
from microshard.model.workload import WorkloadStep
from microshard.plan import estimate
from microshard.plan.fitting import refuse_impossible, refuse_what_does_not_fit, too_much
from microshard.plan.inputs import Inputs, PlanError
from microshard.plan.numa import by_host, crowded
from microshard.plan.order import steps
from microshard.plan.placement import HostsByRole, places, remarks, uneven
from microshard.plan.topology import deploy, ports_needed
from microshard.plan.volumes import emulated, machines
from microshard.plan.wording import in_words


@gc_paused
def build_plan(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> Plan:
    """Plan an experiment whose matrix has been expanded into `points`.

    Raises PlanError with every reason why it cannot be run here.
    """
    refuse_impossible(points, inputs)
    redeploy, why = _redeploy(experiment, points, inputs)
    keeps = experiment.teardown != "always"
    planned = _points(points, inputs, one_range=redeploy == "per_repetition" and not keeps)
    if problems := list(dict.fromkeys(crowded(planned))):
        raise PlanError(problems)
    together = sum if redeploy == "per_point" or keeps else max
    needs = _together(planned, together)
    warnings = [why] if why else []
    warnings += dict.fromkeys(w for point in points for w in point.warnings)
    if redeploy == "per_point" and not keeps and experiment.order.redeploy == "auto" and too_much(needs, inputs):
        redeploy = "per_repetition"
        planned = _points(points, inputs, one_range=True)
        together = max
        needs = _together(planned, together)
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
        hosts=tuple(dict.fromkeys(host for p in planned for host in p.hosts)),
        points=planned,
        steps=order,
        teardown=experiment.teardown,
        estimate_seconds=seconds,
        disk_bytes=together(p.disk_bytes for p in planned),
        memory_mib=together(p.memory_mib for p in planned),
        facts=_facts(planned),
        needs=needs,
    )
    refuse_what_does_not_fit(plan, inputs)
    return dataclasses.replace(plan, warnings=tuple(warnings + _warnings(plan, experiment, points, inputs)))


def ports_at_once(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> int:
    """Ports of a host that are taken at one time: by all points where they stand side by side, else by the largest."""
    each = _ports(points, inputs)
    in_turn = _redeploy(experiment, points, inputs)[0] == "per_repetition" and experiment.teardown == "always"
    return max(each) if in_turn else sum(each)


def _ports(points: Sequence[PointDefinition], inputs: Inputs) -> list[int]:
    return [
        ports_needed(point.experiment.topology, places(point.experiment.infrastructure, inputs.all_hosts))
        for point in points
    ]


def _redeploy(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> tuple[Redeploy, str | None]:
    """What is decided before memory is looked at, and why where it is not what `auto` prefers."""
    writes = any(step.kind != "load" and step.phase.writes() for point in points for step in point.experiment.workload)
    wish = experiment.order.redeploy
    if wish == "auto" and not writes and inputs.most_ports is not None and experiment.teardown == "always":
        ports = sum(_ports(points, inputs))
        if ports > inputs.most_ports:
            return "per_repetition", (
                f"order.redeploy: all points together need {ports:,} ports, {inputs.most_ports:,} may be taken, "
                "so each is deployed and loaded anew for every repetition"
            )
    if wish == "auto":
        return ("per_repetition" if writes else "per_point"), None
    if wish == "per_point" and writes:
        raise PlanError(
            [("order.redeploy", "per_point needs a measurement that only reads; this one changes the data")]
        )
    return wish, None


def point_names(count: int) -> tuple[str, ...]:
    """Ids of so many points: p01, p02 …"""
    width = max(2, len(str(count)))
    return tuple(f"p{number:0{width}d}" for number in range(1, count + 1))


def _points(points: Sequence[PointDefinition], inputs: Inputs, *, one_range: bool) -> tuple[Point, ...]:
    result = []
    offset = 0
    for name, definition in zip(inputs.names or point_names(len(points)), points, strict=True):
        topology = definition.experiment.topology
        first = inputs.base_port if topology.network.base_port == "auto" else topology.network.base_port
        there = places(definition.experiment.infrastructure, inputs.all_hosts)
        point = _point(name, definition, there, first + offset, inputs)
        if not one_range:
            offset += point.most_ports
        result.append(point)
    if max(p.port for point in result for p in point.processes) > 65535:
        raise PlanError([("topology.network.base_port", "the ports of all processes do not fit below 65536")])
    return tuple(result)


def _point(name: str, definition: PointDefinition, there: HostsByRole, first_port: int, inputs: Inputs) -> Point:
    experiment = definition.experiment
    topology = experiment.topology
    deployment = deploy(topology, point=name, there=there, first_port=first_port)
    phases = _phases(experiment.workload, inputs.phase_context(experiment, deployment.collections))
    shards = topology.shards.count if topology.kind == "sharded" else 0
    needs = estimate.needs(
        deployment.laid, experiment.workload, topology.storage, there, data_members(topology), shards
    )
    return Point(
        id=name,
        axes=definition.axes,
        label=_label(definition.axes, experiment),
        topology=topology.kind,
        shards=shards,
        hosts=there.hosts,
        client_hosts=tuple(host.name for host in there.client),
        processes=deployment.processes,
        replica_sets=deployment.replica_sets,
        collections=deployment.collections,
        balancer=_dumped(topology.balancer),
        phases=phases,
        mongodb=_dumped(topology.mongodb),
        network_compressors=tuple(topology.network.compressors),
        cache=deployment.caches[0],
        caches=deployment.caches,
        needs=needs.by_host,
        disk_bytes=needs.disk_bytes,
        memory_mib=needs.memory_mib,
        deploy_seconds=needs.deploy_seconds,
        load_seconds=needs.load_seconds,
        measure_seconds=needs.measure_seconds,
        zones=deployment.zones,
        machines=machines(experiment.infrastructure) if inputs.backend != "local" else {},
        volumes=emulated(experiment, name),
        gates=_gates(experiment, deployment.replica_sets),
        security=topology.security.at(inputs.backend),
        process_manager=experiment.infrastructure.process_manager,
        numa=by_host(experiment.infrastructure, there),
    )


@memoize_by_identity
def _dumped(section: BaseModel) -> dict[str, Any]:
    return section.model_dump()


def _gates(experiment: Experiment, replica_sets: Sequence[PlannedReplicaSet]) -> dict[str, Any]:
    """The limits of a point with every "auto" decided, those named in `decided`; None is not checked."""
    gates = dict(_dumped(experiment.gates))
    gates["decided"] = [name for name, limit in gates.items() if limit == "auto"]
    grows = any(not rs.initial or any(not member.initial for member in rs.members) for rs in replica_sets)
    if gates["max_migrations"] == "auto":
        moves = experiment.topology.balancer.enabled or any(step.phase.moves_chunks for step in experiment.workload)
        gates["max_migrations"] = "any" if grows or moves else 0
    if gates["max_migrations"] == "any":
        gates["max_migrations"] = None
    if gates["initial_sync"] == "auto":
        gates["initial_sync"] = "allow" if grows else "refuse"
    return gates


@memoize_by_identity
def _phases(workload: Sequence[WorkloadStep], context: PhaseContext) -> tuple[PlannedPhase, ...]:
    return tuple(
        PlannedPhase(
            name=step.name or step.kind,
            kind=step.kind,
            engine=step.phase.engine,
            parameters=step.phase.parameters(context),
            question=step.phase.question(),
            data=step.phase.data(),
            restarts=step.phase.restarts(),
        )
        for step in workload
    )


def _label(axes: Mapping[str, Any], experiment: Experiment) -> str:
    if not axes:
        kind = experiment.topology.kind
        return f"{experiment.topology.shards.count} shards" if kind == "sharded" else kind.replace("_", " ")
    parts = []
    alone = axes.get("topology.kind") not in {None, "sharded"}
    for key, value in axes.items():
        if key == "topology.kind":
            parts += [str(value).replace("_", " ")] if alone else []
        elif key.startswith(("topology.shards.", "topology.mongos.", "topology.collections")) and alone:
            continue
        elif isinstance(value, dict | list) and "topology.kind" in axes:
            continue  # what belongs to the kind: its collections
        elif key == "topology.shards.count":
            parts.append(f"{value} shard{'' if value == 1 else 's'}")
        else:
            parts.append(f"{key.rsplit('.', 1)[-1]} {in_words(value)}")
    return ", ".join(parts)


def _together(points: Sequence[Point], combine: Callable[[Iterable[int]], int]) -> dict[str, HostNeeds]:
    """What every host has to give at one time: the sum over points that stand side by side, or the largest."""
    return {
        host: HostNeeds(
            disk_bytes=combine([p.needs[host].disk_bytes for p in points if host in p.needs]),
            memory_mib=combine([p.needs[host].memory_mib for p in points if host in p.needs]),
        )
        for host in dict.fromkeys(name for p in points for name in p.needs)
    }


def _facts(points: Sequence[Point]) -> dict[str, Any]:
    """Of the hosts that bear data, all together; an unknown part makes the sum unknown."""
    bearing = {p.host for point in points for p in point.processes if p.role not in {"config", "mongos"}}
    hosts = {host.name: host for point in points for host in point.hosts if host.name in bearing}.values()

    def total(values: list[Any]) -> Any:
        return None if None in values else sum(values)

    return {
        "cores": sum(host.cores for host in hosts),
        "ram_mib": total([host.ram_mib for host in hosts]),
        "free_disk_bytes": total([host.free_disk_bytes for host in hosts]),
    }


def _warnings(plan: Plan, experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> list[str]:
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
    if plan.backend != "local":
        warnings += _placement_warnings(plan, points, inputs)
    return warnings


def _placement_warnings(plan: Plan, points: Sequence[PointDefinition], inputs: Inputs) -> list[str]:
    warnings: dict[str, None] = {}
    for definition in points:
        infrastructure = definition.experiment.infrastructure
        warnings |= dict.fromkeys(remarks(definition.experiment.topology, places(infrastructure, inputs.all_hosts)))
    for point in plan.points:
        share = uneven([p.host for p in point.processes if p.role not in {"config", "mongos"}])
        if share:
            warnings[f"{point.label}: data-bearing processes are not spread evenly ({share}), nor are their caches"] = (
                None
            )
    idle = [host.name for host in inputs.all_hosts if host not in plan.hosts]
    if idle:
        warnings[f"not used by this experiment: {', '.join(idle)} of {inputs.where}"] = None
    return list(warnings)
