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
    for name in ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts"):
        group: HostGroup | None = getattr(experiment.infrastructure, name)
        if group is not None:
            yield from _local_hosts(f"infrastructure.{name}", group)
    topology = experiment.topology
    given = {
        "infrastructure.region": (experiment.infrastructure.region is not None, "local is this machine"),
        "topology.mongodb.source": (
            topology.mongodb.source not in {"embedded", "path"},
            f"local takes embedded or path, not {topology.mongodb.source}",
        ),
        "topology.storage.engine": (
            topology.storage.engine != "wiredTiger",
            f"local runs wiredTiger, not {topology.storage.engine}",
        ),
        "gates.max_shard_skew": (experiment.gates.max_shard_skew is not None, "no gate is checked"),
        "gates.max_client_cpu": (experiment.gates.max_client_cpu is not None, "no gate is checked"),
        "gates.max_variation": (experiment.gates.max_variation is not None, "no gate is checked"),
        "budget.max_cost_usd": (experiment.budget.max_cost_usd is not None, "local costs nothing"),
    }
    for key, (is_given, reason) in given.items():
        if is_given:
            yield key, f"{_NOT_YET}: {reason}"


def _local_hosts(here: str, group: HostGroup) -> Iterator[tuple[str, str]]:
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
