"""Which process lives on which host. Pure: facts about the hosts come in, a host for every process goes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from microshard.memoize import memoize_by_identity
from microshard.model.infrastructure import Infrastructure
from microshard.model.plan import Host, Role
from microshard.model.topology import Topology, data_members

GROUPS = ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")


class Slot(Protocol):
    """A process before it has a host: what it is, and its place among its kind."""

    @property
    def role(self) -> Role:
        """What it is."""

    @property
    def number(self) -> int:
        """Number of its shard, of the mongos, or 1; from 1."""

    @property
    def place(self) -> int:
        """Number in its replica set, from 1."""


@dataclass(frozen=True, slots=True)
class HostsByRole:
    """The hosts of a point by what they are for; a host may be there for several things."""

    data: tuple[Host, ...]
    config: tuple[Host, ...]
    mongos: tuple[Host, ...]
    client: tuple[Host, ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Every host once, data-bearing ones first."""
        return tuple(dict.fromkeys((*self.data, *self.config, *self.mongos, *self.client)))

    @property
    def cores(self) -> int:
        """Cores of all hosts of data-bearing processes."""
        return sum(host.cores for host in self.data)


@memoize_by_identity
def places(infrastructure: Infrastructure, hosts: Sequence[Host]) -> HostsByRole:
    """The first `count` hosts of every group; config servers fall back to shard hosts, mongos to client hosts.

    The hosts must be enough: `shortages` says where they are not.
    """

    def chosen(group: str) -> tuple[Host, ...]:
        wanted = getattr(infrastructure, group)
        return tuple(host for host in hosts if group in host.groups)[: wanted.count if wanted else 0]

    data, client = chosen("shard_hosts"), chosen("client_hosts")
    return HostsByRole(
        data=data,
        config=chosen("config_hosts") if infrastructure.config_hosts else data,
        mongos=chosen("mongos_hosts") if infrastructure.mongos_hosts else client,
        client=client,
    )


@memoize_by_identity
def shortages(infrastructure: Infrastructure, hosts: Sequence[Host], where: str) -> tuple[tuple[str, str], ...]:
    """Groups that want more hosts than there are, as (dotted key, sentence)."""
    found = []
    for group in GROUPS:
        wanted = getattr(infrastructure, group)
        there = [host.name for host in hosts if group in host.groups]
        if wanted is not None and wanted.count > len(there):
            named = f": {', '.join(there)}" if there else ""
            sentence = f"{wanted.count} asked for, {where} has {len(there)} in the group {group}{named}"
            found.append((f"infrastructure.{group}.count", sentence))
    return tuple(found)


def host_of(slot: Slot, there: HostsByRole) -> Host:
    """The host of a process: shards go round the data hosts, members of one set to hosts one after the other.

    Shard 1 begins on the first host, shard 2 on the second …, so that the first members, which become primaries, are
    spread as evenly as the shards; as long as there are enough hosts no two members of a set share one.
    """
    hosts = {"mongos": there.mongos, "config": there.config}.get(slot.role, there.data)
    return hosts[(slot.number - 1 + slot.place - 1) % len(hosts)]


def remarks(topology: Topology, there: HostsByRole) -> Iterator[str]:
    """What a reader of the plan should know about the placement."""
    if data_members(topology) > len(there.data):
        yield (
            f"{data_members(topology)} members of each replica set on {len(there.data)} "
            f"host{'' if len(there.data) == 1 else 's'}: some share one, and its loss may take the majority along"
        )
    if topology.kind == "sharded" and topology.config_servers.members > len(there.config):
        yield f"{topology.config_servers.members} config servers on {len(there.config)} host(s): some share one"
    both = [host.name for host in there.client if host in there.data]
    if both:
        yield f"{', '.join(both)} holds data and runs the client too: both compete for its cores"


def uneven(hosts: Sequence[str]) -> str:
    """How many processes each host has, when not all have as many; empty when they do. `hosts`: one name a process."""
    share = Counter(hosts)
    return ", ".join(f"{name} {count}" for name, count in share.items()) if len(set(share.values())) > 1 else ""
