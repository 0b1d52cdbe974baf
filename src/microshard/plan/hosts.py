"""The hosts of a point: which process is on which, their volumes, kernel settings and NUMA binding."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from microshard.model.ec2_facts import ebs_types
from microshard.model.experiment import Experiment
from microshard.model.infrastructure import HostGroup, Infrastructure
from microshard.model.plan import HOST_GROUPS, EmulatedVolume, Host, Point
from microshard.model.topology import Topology, data_members
from microshard.plan.render import count

_USABLE = 0.93  # of a volume: ext4 keeps 5 % for root and needs 1.6 % for inodes; XFS less


@dataclass(frozen=True, slots=True)
class HostsByRole:
    """The hosts of a point by what they are for; a host may have several roles."""

    data: tuple[Host, ...]
    config: tuple[Host, ...]
    mongos: tuple[Host, ...]
    client: tuple[Host, ...]
    others: tuple[Host, ...] = ()  # of the data hosts those in other_shard_hosts
    named: Mapping[str, Host] = field(default_factory=dict)  # every host by its name, and as GROUP-NUMBER

    @property
    def all(self) -> tuple[Host, ...]:
        """Every host once, data-bearing ones first."""
        return tuple(dict.fromkeys((*self.data, *self.config, *self.mongos, *self.client)))


def groups(infrastructure: Infrastructure) -> dict[str, HostGroup]:
    """The groups of hosts that the experiment has, by name."""
    named = {name: getattr(infrastructure, name) for name in HOST_GROUPS}
    return {name: group for name, group in named.items() if group is not None}


def hosts_by_role(infrastructure: Infrastructure, hosts: Sequence[Host]) -> HostsByRole:
    """The first `count` hosts of every group; config servers fall back to shard hosts, mongos to client hosts.

    There must be enough hosts: see `shortages`.
    """
    chosen = {
        name: tuple(host for host in hosts if name in host.groups)[: group.count]
        for name, group in groups(infrastructure).items()
    }
    others, client = chosen.get("other_shard_hosts", ()), chosen["client_hosts"]
    data = (*chosen["shard_hosts"], *others)
    named = {f"{group}-{n}": host for group, members in chosen.items() for n, host in enumerate(members, 1)}
    named |= {host.name: host for members in chosen.values() for host in members}
    return HostsByRole(
        data, chosen.get("config_hosts", data), chosen.get("mongos_hosts", client), client, others, named
    )


def shortages(infrastructure: Infrastructure, hosts: Sequence[Host], where: str) -> Iterator[tuple[str, str]]:
    """Groups that need more hosts than there are, as (dotted key, sentence)."""
    for name, group in groups(infrastructure).items():
        found = [host.name for host in hosts if name in host.groups]
        if group.count > len(found):
            names = f": {', '.join(found)}" if found else ""
            message = f"{group.count} needed, {where} has {len(found)} in the group {name}{names}"
            yield f"infrastructure.{name}.count", message


def placement_warnings(topology: Topology, hosts: HostsByRole) -> Iterator[str]:
    """Where processes share hosts that are better kept apart."""
    if data_members(topology) > len(hosts.data):
        yield (
            f"{data_members(topology)} members of each replica set on {len(hosts.data)} "
            f"host{'' if len(hosts.data) == 1 else 's'}: some share one, and losing it may lose the majority"
        )
    if topology.kind == "sharded" and topology.config_servers.members > len(hosts.config):
        yield f"{topology.config_servers.members} config servers on {count(len(hosts.config), 'host')}: some share one"
    both = [host.name for host in hosts.client if host in hosts.data]
    if both:
        yield f"{', '.join(both)} holds data and runs the client too: both compete for its cores"


# NUMA


def numa_settings(infrastructure: Infrastructure, hosts: HostsByRole) -> dict[str, dict[str, Any]]:
    """Host → its NUMA settings, if any. What shares a host with data is bound as the data is."""
    bound: dict[str, dict[str, Any]] = {}
    for _, group, members in _members(infrastructure, hosts):
        for host in members:
            if group.numa.policy != "none" and host.name not in bound:
                bound[host.name] = group.numa.model_dump()
    free = {
        host.name
        for name, group, members in _members(infrastructure, hosts)
        if name in {"shard_hosts", "other_shard_hosts"} and group.numa.policy == "none"
        for host in members
    }
    return {name: settings for name, settings in bound.items() if name not in free}


def numa_problems(infrastructure: Infrastructure, hosts: HostsByRole) -> Iterator[tuple[str, str]]:
    """Settings that a host is known not to support, as (dotted key, sentence); the hosts check again."""
    bound = numa_settings(infrastructure, hosts)
    for name, group, members in _members(infrastructure, hosts):
        key = f"infrastructure.{name}.numa"
        for host in members:
            yield from ((f"{key}.{setting}", f"{host.name} {why}") for setting, why in _unsupported_numa(group, host))
            # A binding belongs to the host. Where groups share one, only that of the data counts, or the first.
            if group.numa.policy != "none" and bound.get(host.name) != group.numa.model_dump():
                yield f"{key}.policy", f"{host.name} is bound as another group on it is: this has no effect"


def _unsupported_numa(group: HostGroup, host: Host) -> Iterator[tuple[str, str]]:
    numa, nodes = group.numa, host.numa_nodes
    if numa.policy == "none" or nodes is None:
        return
    if not host.numactl:
        yield "policy", f"has no numactl, which {numa.policy} needs: install the package numactl"
    missing = sorted(set(numa.nodes or ()) - set(nodes))
    if missing:
        yield "nodes", f"has the NUMA nodes {', '.join(map(str, nodes))} and no {', '.join(map(str, missing))}"
    elif numa.policy == "node_round_robin" and len(numa.nodes or nodes) < 2:
        yield "policy", "has one NUMA node, round robin needs two or more"


def _members(infrastructure: Infrastructure, hosts: HostsByRole) -> Iterator[tuple[str, HostGroup, tuple[Host, ...]]]:
    first = tuple(host for host in hosts.data if host not in hosts.others)
    members = (first, hosts.others, hosts.config, hosts.mongos, hosts.client)
    by_group = dict(zip(HOST_GROUPS, members, strict=True))
    return ((name, group, by_group[name]) for name, group in groups(infrastructure).items())


def cores_missing(point: Point) -> Iterator[tuple[str, str]]:
    """Hosts with more data-bearing processes than cores for them, as (dotted key, sentence); the hosts check again."""
    for host in point.hosts if point.numa else ():
        settings = point.numa.get(host.name, {})
        roles = [process.role for process in point.processes if process.host == host.name]
        others = sum(role in {"config", "mongos"} for role in roles)
        reserved = settings.get("reserved_cores", 0) if others else 0
        if settings.get("policy") == "cores_per_shard" and len(roles) - others > host.cores - reserved:
            yield (
                "infrastructure.shard_hosts.numa.policy",
                f"{host.name} has {host.cores} cores, {reserved} of them reserved: cores_per_shard cannot give "
                f"{len(roles) - others} data-bearing processes one each",
            )


# Volumes and kernel


def machines(infrastructure: Infrastructure) -> dict[str, dict[str, Any]]:
    """Group → volumes and kernel settings of its hosts with every default explicit, for the roles that prepare them."""
    return {
        name: {"volumes": group.volumes.model_dump(), "kernel": group.kernel.model_dump()}
        for name, group in groups(infrastructure).items()
    }


def volumes_of_processes(point: Point) -> dict[str, dict[str, str]]:
    """Process → purpose → name of the volume that holds it, where that is not the volume of the run folder.

    A data volume that is one filesystem is where the run folder is; of several each data-bearing process of a host gets
    one, in turns, and its journal and log likewise.
    """
    found: dict[str, dict[str, str]] = {}
    turns: Counter[str] = Counter()
    for process in point.processes:
        turn = turns[process.host]
        turns[process.host] += process.role not in {"config", "mongos"}
        names = found.setdefault(process.name, {})
        for purpose, volume in host_volumes(point, process.host).items():
            if process.db_path is None and purpose != "log":
                continue
            if volume["policy"] == "per_shard":
                names[purpose] = f"{purpose}-{turn % volume['count'] + 1:02d}"
            elif purpose != "data":
                names[purpose] = purpose
    return found


def host_volumes(point: Point, host: str) -> dict[str, Any]:
    """Data, journal and log volumes of a host, from the first of its groups that the experiment has."""
    names = next((h.groups for h in point.hosts if h.name == host), ())
    group = next((name for name in HOST_GROUPS if name in names and name in point.machines), None)
    volumes = point.machines[group]["volumes"] if group else {}
    return {name: volume for name, volume in volumes.items() if volume}


def data_volume_bytes(point: Point, host: str) -> int | None:
    """Bytes for files on the data volumes of a host; None where it has none."""
    volume = host_volumes(point, host).get("data")
    return int(volume["size_gib"] * volume["count"] * 2**30 * _USABLE) if volume else None


def data_volume_mibps(infrastructure: Infrastructure) -> float | None:
    """What the data volumes of all shard hosts can write together, MiB/s; None where that is not known."""
    total = 0.0
    for group in filter(None, (infrastructure.shard_hosts, infrastructure.other_shard_hosts)):
        volume = group.volumes.data
        limits = ebs_types().get(volume.type) if volume else None
        each: float | None = volume.throughput_mibps if volume else None
        if volume and limits:
            each = limits.mibps_of(volume.size_gib, volume.iops, volume.throughput_mibps)
        if volume is None or each is None:
            return None
        total += each * volume.count * group.count
    return total


def emulated_volumes(experiment: Experiment, point: str) -> tuple[EmulatedVolume, ...]:
    """The emulated volumes of the shard hosts; every point has its own, so that they can be an axis.

    The data volume is mounted where the processes have their folders: journal and log are on it too unless they have
    volumes.
    """
    group = experiment.infrastructure.shard_hosts
    return tuple(
        EmulatedVolume(
            name=name,
            image=f"volumes/{point}/{name}.img",
            mount=f"deployments/{point}" if name == "data" else f"volumes/{point}/{name}",
            size_gib=volume.size_gib,
            filesystem=volume.filesystem,
            lazy_init=volume.lazy_init,
            iops=volume.iops,
            throughput_mibps=volume.throughput_mibps,
            readahead_sectors=group.kernel.readahead_sectors if name == "data" else None,
        )
        for name, volume in group.volumes.named()
        if volume.type == "emulated"
    )


def emulated_volume_too_small(point: Point) -> str | None:
    """Why a point does not fit on its emulated data volume; None when it does or has none."""
    data = next((v for v in point.volumes if v.name == "data"), None)
    if data is None or point.disk_bytes <= data.size_gib * 2**30 * _USABLE:
        return None
    return (
        f"{point.label}: about {point.disk_bytes / 2**30:,.1f} GiB are written to the data volume, which has "
        f"{data.size_gib} GiB ({_USABLE:.0%} of it for files)"
    )
