"""What a backend does not support, and what does not fit on its hosts: refused before anything is created."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from microshard.experiment.matrix import PointDefinition
from microshard.experiment.mongod_options import parse_release
from microshard.experiment.server_versions import DEFAULT_PACKAGED, OLDEST_MEASURED, packaged_version
from microshard.model.experiment import Experiment
from microshard.model.infrastructure import HostGroup, Infrastructure, Kernel
from microshard.model.phase import PhaseContext
from microshard.model.plan import HostNeeds, Inputs, Plan
from microshard.model.topology import mongos_count
from microshard.plan.hosts import (
    HostsByRole,
    data_volume_bytes,
    emulated_volume_too_small,
    groups,
    hosts_by_role,
    machines,
    numa_problems,
    shortages,
)
from microshard.plan.topology import limit_problems, placement_problems

Issue = tuple[str, str]  # dotted key, sentence

_MAX_MEMORY_SHARE = 0.85  # of a host's RAM, for all processes of a run; the rest is for the page cache and the user
_MAX_DISK_SHARE = 0.95  # of what is free
_EC2_ONLY = ("instance_type", "alternative_types", "image", "market", "threads_per_core", "root_size_gib")
_NOT_YET = "not supported by this backend yet"


class PlanError(Exception):
    """The experiment cannot be run here. `problems` are (dotted key, sentence)."""

    def __init__(self, problems: Sequence[Issue]) -> None:
        super().__init__("\n".join(f"{key}: {reason}" for key, reason in problems))
        self.problems = tuple(problems)


def first_of_each(points: Iterable[PointDefinition], key: Callable[[PointDefinition], object]) -> list[PointDefinition]:
    """The first point of every value of the key."""
    found: dict[object, PointDefinition] = {}
    for point in points:
        found.setdefault(key(point), point)
    return list(found.values())


def refuse_impossible(points: Sequence[PointDefinition], inputs: Inputs) -> None:
    """Raise PlanError with everything that these points need and the backend cannot do, whatever its size."""
    problems: dict[Issue, None] = {}
    contexts: dict[object, PhaseContext | None] = {}  # None: there are no hosts
    first = machines(points[0].experiment.infrastructure)
    for point in first_of_each(points, lambda point: point.phases_key):
        experiment = point.experiment
        servers = (point.servers_key, *(step.phase.engine for step in experiment.workload))
        if servers not in contexts:
            found = [*_impossible_servers(experiment, first, inputs)]
            if lacking := [*shortages(experiment.infrastructure, inputs.hosts, inputs.where)] if inputs.hosts else []:
                contexts[servers] = None
            else:
                hosts = hosts_by_role(experiment.infrastructure, inputs.all_hosts)
                lacking = [
                    *numa_problems(experiment.infrastructure, hosts),
                    *placement_problems(experiment.topology, hosts),
                    *limit_problems(experiment.topology),
                ]
                contexts[servers] = phase_context(experiment, hosts, {}, inputs)
            problems |= dict.fromkeys([*found, *lacking])
        if context := contexts[servers]:
            for number, step in enumerate(experiment.workload):
                for key, reason in step.phase.problems(context):
                    problems[f"workload.{number}.{step.kind}.{key}", reason] = None
    if problems:
        raise PlanError(list(problems))


def _impossible_servers(experiment: Experiment, first: Mapping[str, Any], inputs: Inputs) -> Iterator[Issue]:
    yield from unsupported(experiment, inputs.backend)
    if inputs.backend != "local":
        yield from _varied(machines(experiment.infrastructure), first)
    for name, volume in experiment.infrastructure.shard_hosts.volumes.named():
        if volume.type == "emulated" and inputs.no_volumes is not None:
            yield f"infrastructure.shard_hosts.volumes.{name}", inputs.no_volumes


def phase_context(
    experiment: Experiment, hosts: HostsByRole, key_ranges: Mapping[str, int], inputs: Inputs
) -> PhaseContext:
    """What the phases of an experiment may know when they are planned."""
    return PhaseContext(
        cores=hosts.client[0].cores,
        client_hosts=len(hosts.client),
        mongos=mongos_count(experiment.topology),
        key_ranges=key_ranges,
        pipelines=inputs.pipelines,
        folder=inputs.folder,
    )


def _varied(wanted: Mapping[str, Mapping[str, Any]], first: Mapping[str, Mapping[str, Any]]) -> Iterator[Issue]:
    """Differences between two points that cannot be made on the same hosts."""
    for group in wanted.keys() & first.keys():
        here, there = wanted[group], first[group]
        if here["volumes"] != there["volumes"]:
            yield f"infrastructure.{group}.volumes", "hosts keep their volumes for a whole run: they cannot be an axis"
        for setting, value in here["kernel"].items():
            other = there["kernel"][setting]
            # What a point leaves as it is would stay as the point before has set it.
            unset = (None, False) if setting == "production_notes" else (None,)
            if value != other and (value in unset or other in unset):
                yield (
                    f"infrastructure.{group}.kernel.{setting}",
                    "as an axis it needs a value at every point: what one leaves as it is, another has changed",
                )


def unsupported(experiment: Experiment, backend: str) -> list[Issue]:
    """Keys of the experiment that the backend does not support, with the reason."""
    backends = {"local": _not_on_local, "hosts": _not_on_hosts, "ec2": _not_on_ec2}
    if backend not in backends:
        raise ValueError(f"no backend is named {backend}; there is {', '.join(backends)}")
    return list(backends[backend](experiment))


def _not_on_local(experiment: Experiment) -> Iterator[Issue]:
    infrastructure, source = experiment.infrastructure, experiment.topology.mongodb.source
    yield from ((key, f"{_NOT_YET}: local is this machine, not EC2 (--on ec2)") for key in _ec2_keys(infrastructure))
    for name, group in groups(infrastructure).items():
        yield from _group_not_on_local(name, group)
    if infrastructure.other_shard_hosts is not None:
        yield "infrastructure.other_shard_hosts", f"{_NOT_YET}: local is one machine"
    if source not in {"embedded", "path"}:
        yield "topology.mongodb.source", f"{_NOT_YET}: local takes embedded or path, not {source}"
    if experiment.budget.max_cost_usd is not None:
        yield "budget.max_cost_usd", f"{_NOT_YET}: local costs nothing"
    if infrastructure.process_manager == "systemd":
        message = f"{_NOT_YET}: on local processes are started directly, systemd runs them on hosts"
        yield "infrastructure.process_manager", message
    yield from _only_planned(experiment)


def _group_not_on_local(name: str, group: HostGroup) -> Iterator[Issue]:
    here = f"infrastructure.{name}"
    if group.count != 1:
        yield f"{here}.count", f"{_NOT_YET}: local is one machine, not {group.count}"
    for purpose, volume in group.volumes.named():
        key = f"{here}.volumes.{purpose}"
        if name != "shard_hosts":
            yield key, f"{_NOT_YET}: on local all processes are on the volumes of shard_hosts"
        elif volume.type != "emulated":
            yield f"{key}.type", f"{_NOT_YET}: local keeps everything in the run's folder or on emulated volumes"
        elif volume.policy != "single":
            yield f"{key}.policy", f"{_NOT_YET}: an emulated volume is one device, give it the iops of all together"
    for setting in Kernel.model_fields:
        value = getattr(group.kernel, setting)
        if value is None or (setting == "production_notes" and not value):
            continue
        if setting != "readahead_sectors":
            yield f"{here}.kernel.{setting}", f"{_NOT_YET}: local leaves the kernel as it is"
        elif group.volumes.data is None or group.volumes.data.type != "emulated":
            yield f"{here}.kernel.{setting}", "on local it is set on emulated volumes only, and data has none"


def _not_on_hosts(experiment: Experiment) -> Iterator[Issue]:
    infrastructure, topology = experiment.infrastructure, experiment.topology
    for key in _ec2_keys(infrastructure):
        yield key, f"{_NOT_YET}: the hosts exist already, they are not created on EC2 (--on ec2)"
    for name, group in groups(infrastructure).items():
        for purpose, volume in group.volumes.named():
            if volume.type not in {"existing", "instance_store"}:
                message = f"hosts you have have volumes of type existing or instance_store, not {volume.type}"
                yield f"infrastructure.{name}.volumes.{purpose}.type", message
    embedded = topology.kind == "sharded" and topology.mongodb.source == "embedded"
    if embedded and infrastructure.mongos_hosts is not None:
        message = "the embedded mongos listens on loopback only, so it runs on the client host"
        yield "infrastructure.mongos_hosts", f"{_NOT_YET}: {message}"
    if experiment.budget.max_cost_usd is not None:
        yield "budget.max_cost_usd", f"{_NOT_YET}: hosts you have cost nothing here"
    yield from not_on_hosts_yet(experiment)


def _not_on_ec2(experiment: Experiment) -> Iterator[Issue]:
    mongodb = experiment.topology.mongodb
    for name, group in groups(experiment.infrastructure).items():
        if group.instance_type is None:
            yield f"infrastructure.{name}.instance_type", "ec2 needs one, for example c5.4xlarge"
        for purpose, volume in group.volumes.named():
            if volume.type in {"emulated", "existing"}:
                key = f"infrastructure.{name}.volumes.{purpose}.type"
                yield key, f"ec2 creates EBS volumes, which are never {volume.type}"
    if experiment.budget.max_hours is None:
        message = "ec2 needs it: hosts terminate automatically after it, even if this machine is gone"
        yield "budget.max_hours", message
    if mongodb.source == "embedded":
        message = 'embedded is for this machine; on ec2 write {source: packages, version: "8.0"}, or tarball, or path'
        yield "topology.mongodb.source", message
    if mongodb.source == "path" and mongodb.version is None:
        yield "topology.mongodb.version", "ec2 needs it with a path: it cannot be looked up before the hosts exist"


def not_on_hosts_yet(experiment: Experiment) -> Iterator[Issue]:
    """What the roles do not support on hosts reached by SSH, EC2's included: it may be planned, not run."""
    mongodb = experiment.topology.mongodb
    count = experiment.infrastructure.client_hosts.count
    for number, step in enumerate(experiment.workload):
        if count > 1 and not step.phase.spreads:
            message = f"{step.phase.engine} works from one client host, not from {count}"
            yield f"workload.{number}.{step.kind}.engine", f"{message} (infrastructure.client_hosts.count)"
        for key, used in (("search", getattr(step.phase, "search", None)), ("cache", step.phase.restarts())):
            if count > 1 and step.phase.spreads and used:
                message = f"works from one client host, not from {count} (infrastructure.client_hosts.count)"
                yield f"workload.{number}.{step.kind}.{key}", message
    if count > 1 and experiment.topology.kind == "sharded" and mongodb.source == "embedded":
        yield (
            "infrastructure.client_hosts.count",
            f"the embedded mongos listens on loopback of one client host, so {count} need a real one "
            "(topology.mongodb.source: packages, tarball or path)",
        )
    if mongodb.source == "embedded" and mongodb.version and packaged_version(mongodb.version) != DEFAULT_PACKAGED:
        message = f"hosts get the embedded {DEFAULT_PACKAGED} only; use packages, tarball or path"
        yield "topology.mongodb.version", f"{_NOT_YET}: {message}"
    if mongodb.source == "path" and mongodb.version is None:
        yield "topology.mongodb.version", "hosts need it with a path: the processes are configured by it"
    fill_in = {"tarball": "the https:// address or the file of", "sha256": "the SHA-256 of"}
    for key, what in fill_in.items() if mongodb.source == "tarball" else ():
        if getattr(mongodb, key) is None:
            yield f"topology.mongodb.{key}", f"fill in {what} the archive of MongoDB {mongodb.version}"
    yield from _only_planned(experiment)


def _only_planned(experiment: Experiment) -> Iterator[Issue]:
    """What is planned and configured, but not run: no client of this project supports it."""
    engine, version = experiment.topology.storage.engine, experiment.topology.mongodb.version
    if engine not in {"wiredTiger", "inMemory"}:
        message = f"{engine} is planned, not run: it ended before MongoDB 4.4, the oldest that the clients support"
        yield "topology.storage.engine", f"{_NOT_YET}: {message}"
    driver = experiment.client.driver
    if version is not None and parse_release(version) < OLDEST_MEASURED[driver]:
        oldest = {name: f"{major}.{minor}" for name, (major, minor) in OLDEST_MEASURED.items()}
        message = f"{_NOT_YET}: {version} is planned, not run: the clients support MongoDB {oldest[driver]} and later"
        others = [f"client.driver: {name} those from {first} on" for name, first in oldest.items() if name]
        yield "topology.mongodb.version", "; ".join([message, *(others if driver is None else [])])


def _ec2_keys(infrastructure: Infrastructure) -> Iterator[str]:
    """Keys that were given and are for EC2 only."""
    for name, group in groups(infrastructure).items():
        yield from (f"infrastructure.{name}.{key}" for key in _EC2_ONLY if key in group.model_fields_set)
    yield from (f"infrastructure.ec2.{key}" for key in sorted(infrastructure.ec2.model_fields_set))


def exceeds_memory(needs: Mapping[str, HostNeeds], inputs: Inputs) -> bool:
    """Whether a host has less RAM than is needed on it."""
    return any(
        host.ram_mib is not None
        and host.name in needs
        and needs[host.name].memory_mib > host.ram_mib * _MAX_MEMORY_SHARE
        for host in inputs.all_hosts
    )


def refuse_what_does_not_fit(plan: Plan, inputs: Inputs) -> None:
    """Raise PlanError with every host whose RAM or disk is too small for the plan."""
    names = {host.name: host.name if inputs.hosts else inputs.where for host in plan.hosts}
    problems: Iterable[Issue] = [
        (
            "topology.storage.cache",
            f"{point.label}: {cache.processes} × {cache.per_process_mib:,.0f} MiB of cache are "
            f"{cache.total_mib:,.0f} MiB, {names[host.name]} has {host.ram_mib:,.0f} MiB of RAM",
        )
        for host in plan.hosts
        if host.ram_mib is not None
        for point in plan.points
        for cache in point.caches
        if cache.host == host.name and cache.total_mib > host.ram_mib
    ] or [*_too_small(plan, inputs, names)]
    key = "infrastructure.shard_hosts.volumes.data.size_gib"
    too_small = [(key, why) for point in plan.points if (why := emulated_volume_too_small(point))]
    if problems or too_small:
        raise PlanError(list(dict.fromkeys([*problems, *too_small])))


def _too_small(plan: Plan, inputs: Inputs, names: Mapping[str, str]) -> Iterator[Issue]:
    for host in plan.hosts:
        needs = plan.needs.get(host.name)
        if needs is None:
            continue
        if host.ram_mib is not None and needs.memory_mib > host.ram_mib * _MAX_MEMORY_SHARE:
            yield (
                "topology",
                f"about {needs.memory_mib:,} MiB of RAM are needed at one time on {names[host.name]}, which has "
                f"{host.ram_mib:,.0f} MiB ({_MAX_MEMORY_SHARE:.0%} may be used); fewer shards, or "
                "order.redeploy: per_repetition",
            )
        # The facts of a host do not include a volume that is only mounted later.
        volumes = [size for point in plan.points if (size := data_volume_bytes(point, host.name)) is not None]
        free = min(volumes) if volumes else host.free_disk_bytes
        if free is not None and needs.disk_bytes > free * _MAX_DISK_SHARE:
            elsewhere = "microshard_folder on another volume" if inputs.hosts else "--runs-dir on another volume"
            yield (
                "workload",
                f"about {needs.disk_bytes / 1e9:,.1f} GB of disk are needed at one time on {names[host.name]}, "
                f"{free / 1e9:,.1f} GB are free; fewer documents, or "
                f"{'a larger size_gib' if volumes else elsewhere}",
            )
