"""What a place cannot do, and what does not fit on its hosts: refused by name before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microshard.experiment.matrix import PointDefinition
from microshard.memoize import memoize_by_identity
from microshard.model.infrastructure import Infrastructure
from microshard.model.phase import PhaseContext
from microshard.model.plan import CacheBudget, HostNeeds, Plan, Point
from microshard.model.workload import WorkloadStep
from microshard.plan.inputs import Inputs, PlanError
from microshard.plan.numa import refusals as unbindable
from microshard.plan.placement import places, shortages
from microshard.plan.support import unsupported
from microshard.plan.volumes import data_room, too_small, varied

_RESERVED_MEMORY = (
    0.85  # share of a host's RAM all processes of a run may have; the rest is the page cache's and the user's
)


def refuse_impossible(points: Sequence[PointDefinition], inputs: Inputs) -> None:
    """Raise PlanError with all that these points ask for and the place cannot do, whatever its size."""
    problems: dict[tuple[str, str], None] = {}
    for point in points:
        infrastructure = point.experiment.infrastructure
        problems |= dict.fromkeys(unsupported(point.experiment, inputs.backend))
        lacking = shortages(infrastructure, inputs.hosts, inputs.where) if inputs.hosts else ()
        problems |= dict.fromkeys(lacking or _unfit(infrastructure, inputs))
        if inputs.backend == "hosts":
            problems |= dict.fromkeys(varied(point.experiment, points[0].experiment))
        if lacking:
            continue
        problems |= dict.fromkeys(_of_phases(point.experiment.workload, inputs.phase_context(point.experiment)))
    if problems:
        raise PlanError(list(problems))


@memoize_by_identity
def _of_phases(workload: Sequence[WorkloadStep], context: PhaseContext) -> tuple[tuple[str, str], ...]:
    """What keeps phases from being planned, as (dotted key, sentence)."""
    return tuple(
        (f"workload.{number}.{step.kind}.{key}", reason)
        for number, step in enumerate(workload)
        for key, reason in step.phase.problems(context)
    )


@memoize_by_identity
def _unfit(infrastructure: Infrastructure, inputs: Inputs) -> tuple[tuple[str, str], ...]:
    """What hosts there are cannot do, as (dotted key, sentence)."""
    volumes = [
        (f"infrastructure.shard_hosts.volumes.{name}", inputs.no_volumes)
        for name, volume in infrastructure.shard_hosts.volumes.named()
        if volume.type == "emulated" and inputs.no_volumes is not None
    ]
    return (*volumes, *unbindable(infrastructure, places(infrastructure, inputs.all_hosts)))


def too_much(needs: Mapping[str, HostNeeds], inputs: Inputs) -> bool:
    """Whether a host has less RAM than is needed on it."""
    return any(
        host.ram_mib is not None
        and host.name in needs
        and needs[host.name].memory_mib > host.ram_mib * _RESERVED_MEMORY
        for host in inputs.all_hosts
    )


def refuse_what_does_not_fit(plan: Plan, inputs: Inputs) -> None:
    """Raise PlanError with every host whose RAM or disk is too small for the plan."""
    problems = []
    for host in plan.hosts:
        who = inputs.where if not inputs.hosts else host.name
        if host.ram_mib is not None:
            problems += [
                ("topology.storage.cache", _too_large(point, cache, who, host.ram_mib))
                for point in plan.points
                for cache in point.caches
                if cache.host == host.name and cache.total_mib > host.ram_mib
            ]
    for host in plan.hosts if not problems else ():
        who = inputs.where if not inputs.hosts else host.name
        needs = plan.needs.get(host.name)
        if needs is None:
            continue
        if host.ram_mib is not None and needs.memory_mib > host.ram_mib * _RESERVED_MEMORY:
            problems.append(
                (
                    "topology",
                    f"about {needs.memory_mib:,} MiB of RAM are needed at one time on {who}, {host.ram_mib:,.0f} MiB "
                    f"are there ({_RESERVED_MEMORY:.0%} may be used); fewer shards, or "
                    "order.redeploy: per_repetition",
                )
            )
        # A volume that is mounted only later was not there when the host was asked what is free.
        rooms = [room for point in plan.points if (room := data_room(point, host.name)) is not None]
        free = min(rooms) if rooms else host.free_disk_bytes
        if free is not None and needs.disk_bytes > free * 0.95:
            elsewhere = "microshard_folder on another volume" if inputs.hosts else "--runs-dir on another volume"
            elsewhere = "a larger size_gib" if rooms else elsewhere
            problems.append(
                (
                    "workload",
                    f"about {needs.disk_bytes / 1e9:,.1f} GB of disk are needed at one time on {who}, "
                    f"{free / 1e9:,.1f} GB are free; fewer documents, or {elsewhere}",
                )
            )
    key = "infrastructure.shard_hosts.volumes.data.size_gib"
    problems += [(key, why) for point in plan.points if (why := too_small(point))]
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))


def _too_large(point: Point, cache: CacheBudget, who: str, ram_mib: float) -> str:
    return (
        f"{point.label}: {cache.processes} × {cache.per_process_mib:,.0f} MiB of cache are "
        f"{cache.total_mib:,.0f} MiB, {who} has {ram_mib:,.0f} MiB of RAM"
    )
