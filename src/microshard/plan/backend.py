"""What a backend can do, and what it refuses by name."""

from __future__ import annotations

from collections.abc import Iterator

from microshard.definition.experiment import Experiment
from microshard.definition.infrastructure import HostGroup

BACKENDS = ("local",)


def unsupported(experiment: Experiment, backend: str) -> list[tuple[str, str]]:
    """Keys of the experiment the backend cannot honour, as (dotted key, reason); empty when there are none."""
    if backend not in BACKENDS:
        raise ValueError(f"no backend is named {backend}; there is {', '.join(BACKENDS)}")
    return list(_local(experiment))


_NOT_YET = "not supported by this backend yet"


def _local(experiment: Experiment) -> Iterator[tuple[str, str]]:
    infrastructure = experiment.infrastructure
    for name in ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts"):
        group: HostGroup | None = getattr(infrastructure, name)
        if group is None:
            continue
        here = f"infrastructure.{name}"
        if group.count != 1:
            yield f"{here}.count", f"{_NOT_YET}: local is one machine, not {group.count}"
        if group.instance_type is not None:
            yield f"{here}.instance_type", f"{_NOT_YET}: local runs on this machine, not on {group.instance_type}"
        for volume in ("data", "journal", "log"):
            if getattr(group.volumes, volume) is not None:
                yield f"{here}.volumes.{volume}", f"{_NOT_YET}: local keeps everything in the run's folder"
        for setting in ("readahead_sectors", "transparent_huge_pages", "swappiness"):
            if getattr(group.kernel, setting) is not None:
                yield f"{here}.kernel.{setting}", f"{_NOT_YET}: local leaves the kernel as it is"
        if group.numa.policy != "none":
            yield f"{here}.numa.policy", f"{_NOT_YET}: local starts processes without numactl"
    if infrastructure.region is not None:
        yield "infrastructure.region", f"{_NOT_YET}: local is this machine"
    topology = experiment.topology
    if topology.mongodb.source not in {"embedded", "path"}:
        yield "topology.mongodb.source", f"{_NOT_YET}: local takes embedded or path, not {topology.mongodb.source}"
    if topology.storage.engine != "wiredTiger":
        yield "topology.storage.engine", f"{_NOT_YET}: local runs wiredTiger, not {topology.storage.engine}"
    for gate in ("max_shard_skew", "max_client_cpu", "max_variation"):
        if getattr(experiment.gates, gate) is not None:
            yield f"gates.{gate}", _NOT_YET
    if experiment.budget.max_cost_usd is not None:
        yield "budget.max_cost_usd", f"{_NOT_YET}: local costs nothing"
