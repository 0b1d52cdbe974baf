"""The plan of a whole experiment."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from microshard.experiment.matrix import PointDefinition
from microshard.experiment.question import labels
from microshard.experiment.releases import differences
from microshard.model.experiment import Experiment
from microshard.model.plan import HostNeeds, Inputs, Plan, PlannedPhase, PlannedReplicaSet, Point, Redeploy
from microshard.model.topology import data_members
from microshard.plan import checks, estimate
from microshard.plan.checks import PlanError, first_of_each
from microshard.plan.data_images import data_image_policy
from microshard.plan.hosts import (
    HostsByRole,
    cores_missing,
    data_volume_mibps,
    emulated_volumes,
    hosts_by_role,
    machines,
    numa_settings,
    placement_warnings,
)
from microshard.plan.order import host_settings, steps
from microshard.plan.render import count
from microshard.plan.topology import (
    PlacedProcess,
    place_processes,
    planned_collection,
    planned_zones,
    ports_needed,
    processes_of,
    replica_sets_of,
)


def build_plan(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> Plan:
    """Plan an experiment whose matrix has been expanded into `points`.

    Raises PlanError with every reason why it cannot be run here.
    """
    checks.refuse_impossible(points, inputs)
    redeploy, reason = _redeploy(experiment, points, inputs)
    keeps = experiment.teardown != "always"
    planned = _points(points, inputs, same_ports=redeploy == "per_repetition" and not keeps)
    if problems := list(dict.fromkeys(problem for point in planned for problem in cores_missing(point))):
        raise PlanError(problems)
    if refused := {p.data_image.refused for p in planned if p.data_image.mode == "only"} - {""}:
        raise PlanError([("load.image", f"only cannot be: {reason}") for reason in sorted(refused)])
    combine: Callable[[Iterable[int]], int] = sum if redeploy == "per_point" or keeps else max
    needs = _needs(planned, combine)
    warnings = [reason] if reason else []
    warnings += dict.fromkeys(w for point in points for w in point.warnings)
    may_change = redeploy == "per_point" and not keeps and experiment.order.redeploy == "auto"
    if may_change and checks.exceeds_memory(needs, inputs):
        redeploy, combine = "per_repetition", max
        planned = _points(points, inputs, same_ports=True)
        needs = _needs(planned, combine)
        warnings.append(
            "order.redeploy: all points together do not fit into RAM, "
            "so each is deployed and loaded for every repetition"
        )
    order = steps(
        [p.id for p in planned],
        experiment.repetitions,
        policy=experiment.order.policy,
        seed=experiment.order.seed,
        repeat_first=experiment.order.repeat_first,
        redeploy=redeploy,
        settings={p.id: host_settings(p) for p in planned},
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
        images_gb=experiment.load.images_gb if experiment.load.image != "never" else 0.0,
        estimate_seconds=seconds,
        disk_bytes=combine(p.disk_bytes for p in planned),
        memory_mib=combine(p.memory_mib for p in planned),
        facts=_facts(planned),
        needs=needs,
        assumptions=tuple(dict.fromkeys(a for p in points for a in estimate.assumptions(p.experiment.workload))),
    )
    checks.refuse_what_does_not_fit(plan, inputs)
    return dataclasses.replace(plan, warnings=(*warnings, *_warnings(plan, experiment, points, inputs)))


def ports_at_once(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> int:
    """Ports of a host that are used at one time: by all points if they exist at the same time, else by the largest."""
    each = _ports(points, inputs)
    in_turn = _redeploy(experiment, points, inputs)[0] == "per_repetition" and experiment.teardown == "always"
    return max(each) if in_turn else sum(each)


def point_names(count: int) -> tuple[str, ...]:
    """Ids of so many points: p01, p02 …"""
    width = max(2, len(str(count)))
    return tuple(f"p{number:0{width}d}" for number in range(1, count + 1))


def _ports(points: Sequence[PointDefinition], inputs: Inputs) -> list[int]:
    known: dict[Any, int] = {}
    for point in points:
        if point.servers_key not in known:
            hosts = hosts_by_role(point.experiment.infrastructure, inputs.all_hosts)
            known[point.servers_key] = ports_needed(point.experiment.topology, hosts)
    return [known[point.servers_key] for point in points]


def _redeploy(experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> tuple[Redeploy, str | None]:
    """What can be decided before the memory is known, and the reason where it is not what `auto` prefers."""
    writes = any(step.kind != "load" and step.phase.writes() for point in points for step in point.experiment.workload)
    redeploy = experiment.order.redeploy
    if redeploy == "per_point" and writes:
        message = "per_point needs a measurement that only reads; this one changes the data"
        raise PlanError([("order.redeploy", message)])
    if redeploy != "auto":
        return redeploy, None
    if writes:
        return "per_repetition", None
    if inputs.most_ports is not None and experiment.teardown == "always":
        ports = sum(_ports(points, inputs))
        if ports > inputs.most_ports:
            return "per_repetition", (
                f"order.redeploy: all points together need {ports:,} ports, {inputs.most_ports:,} are available, "
                "so each is deployed and loaded for every repetition"
            )
    return "per_point", None


@dataclass(frozen=True, slots=True)
class _Servers:
    """What points have in common that differ only in workload, balancer, gates and order."""

    hosts: HostsByRole
    placed: tuple[PlacedProcess, ...]
    key_ranges: dict[str, int]  # namespace → chunks planned before the load
    fields: dict[str, Any]  # of Point


def _servers(experiment: Experiment, inputs: Inputs) -> _Servers:
    topology, infrastructure = experiment.topology, experiment.infrastructure
    hosts = hosts_by_role(infrastructure, inputs.all_hosts)
    placed, caches = place_processes(topology, hosts)
    collections = tuple(planned_collection(c, topology) for c in topology.collections)
    key_ranges = {
        planned.namespace: len(planned.chunks)
        for collection, planned in zip(topology.collections, collections, strict=True)
        if collection.presplit.policy == "key_ranges"
    }
    fields: dict[str, Any] = {
        "topology": topology.kind,
        "shards": topology.shards.count if topology.kind == "sharded" else 0,
        "hosts": hosts.all,
        "client_hosts": tuple(host.name for host in hosts.client),
        "collections": collections,
        "zones": planned_zones(topology),
        "cache": caches[0],
        "caches": caches,
        "machines": machines(infrastructure) if inputs.backend != "local" else {},
        "numa": numa_settings(infrastructure, hosts),
        "mongodb": topology.mongodb.model_dump(),
        "network_compressors": tuple(topology.network.compressors),
        "security": topology.security.at(inputs.backend),
        "process_manager": infrastructure.process_manager,
        "driver": experiment.client.driver,
    }
    return _Servers(hosts, placed, key_ranges, fields)


def _work(experiment: Experiment, servers: _Servers, inputs: Inputs) -> dict[str, Any]:
    """Fields of Point that points have in common that differ only in the balancer: phases, and what those need."""
    topology = experiment.topology
    context = checks.phase_context(experiment, servers.hosts, servers.key_ranges, inputs)
    phases = tuple(
        PlannedPhase(
            name=step.name or step.kind,
            kind=step.kind,
            engine=step.phase.engine,
            parameters=step.phase.parameters(context),
            question=step.phase.question(),
            data=step.phase.data(),
            restarts=step.phase.restarts(),
        )
        for step in experiment.workload
    )
    shards, copies = servers.fields["shards"], data_members(topology)
    rate = data_volume_mibps(experiment.infrastructure)
    needs = estimate.needs(servers.placed, experiment.workload, topology.storage, servers.hosts, copies, shards, rate)
    return {"phases": phases, **needs}


def point_labels(points: Sequence[PointDefinition]) -> dict[str, str]:
    """Labels of all points of an experiment, which tell them apart, by their names."""
    found = labels(points[0].experiment, [each.axes for each in points]) if points else []
    return dict(zip(point_names(len(points)), found, strict=True))


def _points(points: Sequence[PointDefinition], inputs: Inputs, *, same_ports: bool) -> tuple[Point, ...]:
    result = []
    offset = 0
    # Many points share their servers, and many of those their phases too; planning both takes most of the time (row 8
    # of docs/benchmarks.md).
    deployments: dict[Any, _Servers] = {}
    work: dict[Any, dict[str, Any]] = {}
    for (name, label), definition in zip((inputs.names or point_labels(points)).items(), points, strict=True):
        experiment, topology = definition.experiment, definition.experiment.topology
        if definition.servers_key not in deployments:
            deployments[definition.servers_key] = _servers(experiment, inputs)
        servers = deployments[definition.servers_key]
        if definition.phases_key not in work:
            work[definition.phases_key] = _work(experiment, servers, inputs)
        base_port = topology.network.base_port
        first_port = (inputs.base_port if base_port == "auto" else base_port) + offset
        processes = processes_of(servers.placed, name, first_port)
        replica_sets = replica_sets_of(servers.placed, processes)
        point = Point(
            id=name,
            axes=definition.axes,
            label=label,
            processes=processes,
            replica_sets=replica_sets,
            balancer=topology.balancer.model_dump(),
            volumes=emulated_volumes(experiment, name),
            gates=_gates(experiment, replica_sets),
            data_image=data_image_policy(experiment, inputs.backend),
            **servers.fields,
            **work[definition.phases_key],
        )
        if not same_ports:
            offset += point.most_ports
        result.append(point)
    if max(p.port for point in result for p in point.processes) > 65535:
        raise PlanError([("topology.network.base_port", "the ports of all processes do not fit below 65536")])
    return tuple(result)


def _gates(experiment: Experiment, replica_sets: Sequence[PlannedReplicaSet]) -> dict[str, Any]:
    """The limits of a point with every "auto" decided (named in `decided`); None is not checked."""
    gates = experiment.gates.model_dump()
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


def _needs(points: Sequence[Point], combine: Callable[[Iterable[int]], int]) -> dict[str, HostNeeds]:
    """What every host must provide at one time: the sum over points that exist at the same time, or the largest."""
    return {
        host: HostNeeds(
            disk_bytes=combine([p.needs[host].disk_bytes for p in points if host in p.needs]),
            memory_mib=combine([p.needs[host].memory_mib for p in points if host in p.needs]),
        )
        for host in dict.fromkeys(name for p in points for name in p.needs)
    }


def _facts(points: Sequence[Point]) -> dict[str, Any]:
    """Sums over the hosts that bear data; None if one of them is unknown."""
    bearing = {p.host for point in points for p in point.processes if p.role not in {"config", "mongos"}}
    hosts = {host.name: host for point in points for host in point.hosts if host.name in bearing}.values()

    def total(values: list[Any]) -> Any:
        return None if None in values else sum(values)

    return {
        "cores": sum(host.cores for host in hosts),
        "ram_mib": total([host.ram_mib for host in hosts]),
        "free_disk_bytes": total([host.free_disk_bytes for host in hosts]),
    }


def _release_key(point: PointDefinition) -> object:
    """What decides which differences between releases concern a point."""
    return point.experiment.topology.mongodb.version, point.servers_key, point.phases_key


def _memory_warnings(plan: Plan) -> Iterator[str]:
    for point in plan.points:
        for process in point.processes:
            if process.limits.get("memory_mb", math.inf) < (process.cache_mib or 0):
                yield (
                    f"{point.id}: {process.name} may use {process.limits['memory_mb']:,g} MiB, less than its "
                    f"WiredTiger cache of {process.cache_mib:,.6g} MiB: the kernel kills it when that fills; "
                    "lower topology.storage.cache"
                )


def _warnings(plan: Plan, experiment: Experiment, points: Sequence[PointDefinition], inputs: Inputs) -> Iterator[str]:
    cores = plan.facts["cores"]
    most = max(p.shards for p in plan.points)
    if most > cores:
        yield f"up to {most} shards on {cores} cores: no speed-up is to be expected beyond {cores} shards"
    if experiment.repetitions < 3:
        yield f"{count(experiment.repetitions, 'repetition')}: a meaningful confidence interval needs three or more"
    if len({p.shards for p in plan.points if p.cache.policy == "per_process_mb"}) > 1:
        yield "the cache is the same per process, so more shards also means more cache: this measures RAM too"
    yield from dict.fromkeys(text for p in first_of_each(points, _release_key) for text in differences(p.experiment))
    yield from _memory_warnings(plan)
    if plan.backend == "local":
        return

    found: dict[str, None] = {}
    for point in first_of_each(points, lambda point: point.servers_key):
        hosts = hosts_by_role(point.experiment.infrastructure, inputs.all_hosts)
        found |= dict.fromkeys(placement_warnings(point.experiment.topology, hosts))
    yield from found
    for planned in plan.points:
        counts = Counter(p.host for p in planned.processes if p.role not in {"config", "mongos"})
        if len(set(counts.values())) > 1:
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            yield f"{planned.label}: data-bearing processes are not spread evenly ({shown}), nor are their caches"
    idle = [host.name for host in inputs.all_hosts if host not in plan.hosts]
    if idle:
        yield f"not used by this experiment: {', '.join(idle)} of {inputs.where}"
