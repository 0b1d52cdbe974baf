"""How the processes of each host are bound to its cores and memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from microshard.memoize import memoize_by_identity
from microshard.model.infrastructure import HostGroup, Infrastructure
from microshard.model.plan import Host, Point
from microshard.plan.placement import HostsByRole


@memoize_by_identity
def by_host(infrastructure: Infrastructure, there: HostsByRole) -> dict[str, dict[str, Any]]:
    """Host → its NUMA settings, where it has any. What shares a host with data is bound as the data is."""
    bound = {}
    for group, hosts in _groups(infrastructure, there):
        for host in hosts:
            if group.numa.policy != "none" and host.name not in bound:
                bound[host.name] = group.numa.model_dump()
    free = set() if infrastructure.shard_hosts.numa.policy != "none" else {host.name for host in there.data}
    return {name: settings for name, settings in bound.items() if name not in free}


def refusals(infrastructure: Infrastructure, there: HostsByRole) -> Iterator[tuple[str, str]]:
    """Settings a host is known not to have room for, as (dotted key, sentence); hosts look again themselves."""
    names = ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")
    keys = {id(getattr(infrastructure, name)): name for name in names}
    bound = by_host(infrastructure, there)
    for group, hosts in _groups(infrastructure, there):
        here = f"infrastructure.{keys[id(group)]}.numa"
        for host in hosts:
            yield from ((f"{here}.{key}", f"{host.name} {why}") for key, why in _impossible(group, host))
            # A binding is the host's. Where groups share one, only that of the data holds, or the first one there is.
            if group.numa.policy != "none" and bound.get(host.name) != group.numa.model_dump():
                yield (
                    f"{here}.policy",
                    f"{host.name} is bound as another group on it is: this has no effect",
                )


def crowded(points: Sequence[Point]) -> Iterator[tuple[str, str]]:
    """Hosts with more data-bearing processes than cores for them, as (dotted key, sentence); hosts count again."""
    for point in points:
        for host in point.hosts:
            settings = point.numa.get(host.name, {})
            roles = [process.role for process in point.processes if process.host == host.name]
            others = sum(role in {"config", "mongos"} for role in roles)
            kept = settings.get("reserved_cores", 0) if others else 0
            if settings.get("policy") == "cores_per_shard" and len(roles) - others > host.cores - kept:
                yield (
                    "infrastructure.shard_hosts.numa.policy",
                    f"{host.name} has {host.cores} cores, {kept} of them reserved: cores_per_shard cannot give "
                    f"{len(roles) - others} data-bearing processes one each",
                )


def _impossible(group: HostGroup, host: Host) -> Iterator[tuple[str, str]]:
    numa, there = group.numa, host.numa_nodes
    if numa.policy == "none" or there is None:
        return
    if not host.numactl:
        yield "policy", f"has no numactl, which {numa.policy} needs: install the package numactl"
    missing = sorted(set(numa.nodes or ()) - set(there))
    if missing:
        yield "nodes", f"has the NUMA nodes {', '.join(map(str, there))} and no {', '.join(map(str, missing))}"
    elif numa.policy == "node_round_robin" and len(numa.nodes or there) < 2:
        yield "policy", "has one NUMA node: there is nothing to go round"


def _groups(infrastructure: Infrastructure, there: HostsByRole) -> Iterator[tuple[HostGroup, tuple[Host, ...]]]:
    yield infrastructure.shard_hosts, there.data
    if infrastructure.config_hosts is not None:
        yield infrastructure.config_hosts, there.config
    if infrastructure.mongos_hosts is not None:
        yield infrastructure.mongos_hosts, there.mongos
    yield infrastructure.client_hosts, there.client
