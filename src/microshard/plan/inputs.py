"""What a plan is made from besides the definition, and what keeps it from being made."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from microshard.memoize import memoize_by_identity
from microshard.model.experiment import Experiment
from microshard.model.infrastructure import Infrastructure
from microshard.model.phase import PhaseContext
from microshard.model.plan import FIRST_PORT, Host, PlannedCollection
from microshard.model.topology import Collection as CollectionDefinition
from microshard.model.topology import mongos_count
from microshard.plan.placement import GROUPS, places


@functools.cache
def _one(*facts: Any) -> tuple[Host, ...]:
    return (Host("local", "127.0.0.1", GROUPS, *facts),)


class PlanError(Exception):
    """The experiment cannot be run here. `problems` are (dotted key, sentence)."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(f"{key}: {reason}" for key, reason in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the plan needs to know about the place it is made for.

    Either the hosts, with their facts; or, where all is one machine, that machine's cores, RAM and disk.
    """

    cores: int = 1
    ram_mib: float | None = None
    free_disk_bytes: int | None = None
    numa_nodes: tuple[int, ...] | None = None
    numactl: bool = True
    base_port: int = FIRST_PORT  # used where the experiment says auto
    pipelines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)  # by name
    backend: str = "local"
    where: str = "this machine"  # how messages call the place: an inventory, for example
    hosts: tuple[Host, ...] = ()
    folder: Path | None = None  # of the experiment file, for the files it names
    names: tuple[str, ...] = ()  # of the points, where they are some of an experiment's; else p01, p02 …
    most_ports: int | None = None  # that may be taken at one time on a host; None: as many as there are
    no_volumes: str | None = None  # why no volume can be emulated here; None when it can

    @property
    def all_hosts(self) -> tuple[Host, ...]:
        """The hosts, or the one that this machine is."""
        return self.hosts or _one(self.cores, self.ram_mib, self.free_disk_bytes, self.numa_nodes, self.numactl)

    def phase_context(self, experiment: Experiment, collections: Sequence[PlannedCollection] = ()) -> PhaseContext:
        """What the phases of an experiment are told of its cluster and its clients."""
        topology = experiment.topology
        return _phase_context(
            self, experiment.infrastructure, mongos_count(topology), topology.collections, list(collections)
        )


@memoize_by_identity
def _phase_context(
    inputs: Inputs,
    infrastructure: Infrastructure,
    mongos: int,
    definitions: Sequence[CollectionDefinition],
    collections: Sequence[PlannedCollection],
) -> PhaseContext:
    in_ranges = {c.namespace for c in definitions if c.presplit.policy == "key_ranges"}
    clients = places(infrastructure, inputs.all_hosts).client
    return PhaseContext(
        cores=clients[0].cores,
        client_hosts=len(clients),
        mongos=mongos,
        key_ranges={c.namespace: len(c.chunks) for c in collections if c.namespace in in_ranges},
        pipelines=inputs.pipelines,
        folder=inputs.folder,
    )
