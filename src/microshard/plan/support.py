"""What a backend can do, and what it refuses by name."""

from __future__ import annotations

from collections.abc import Iterator

from microshard.experiment.mongod_options import parse_release
from microshard.memoize import memoize_by_identity
from microshard.model.experiment import Experiment
from microshard.model.infrastructure import HostGroup, Infrastructure, Kernel

BACKENDS = ("local", "hosts", "ec2")


def unsupported(experiment: Experiment, backend: str) -> list[tuple[str, str]]:
    """Keys of the experiment the backend cannot honour, as (dotted key, reason); empty when there are none."""
    if backend not in BACKENDS:
        raise ValueError(f"no backend is named {backend}; there is {', '.join(BACKENDS)}")
    return list({"local": _local, "hosts": _hosts, "ec2": _ec2}[backend](experiment))


_NOT_YET = "not supported by this backend yet"
_GROUPS = ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")
_ON_EC2 = ("instance_type", "alternative_types", "image", "market", "threads_per_core", "root_size_gib")


def _ec2_keys(infrastructure: Infrastructure) -> Iterator[str]:
    """Keys that were given and speak of EC2 alone."""
    for name in _GROUPS:
        group: HostGroup | None = getattr(infrastructure, name)
        if group is not None:
            yield from (f"infrastructure.{name}.{key}" for key in _ON_EC2 if key in group.model_fields_set)
    yield from (f"infrastructure.ec2.{key}" for key in infrastructure.ec2.model_dump(exclude_unset=True))


def _groups(infrastructure: Infrastructure) -> Iterator[tuple[str, HostGroup]]:
    """Every group of hosts that is given, with its dotted key."""
    for name in _GROUPS:
        group: HostGroup | None = getattr(infrastructure, name)
        if group is not None:
            yield f"infrastructure.{name}", group


def _local(experiment: Experiment) -> Iterator[tuple[str, str]]:
    yield from _not_local(experiment.infrastructure)
    topology = experiment.topology
    given = {
        "topology.mongodb.source": (
            topology.mongodb.source not in {"embedded", "path"},
            f"local takes embedded or path, not {topology.mongodb.source}",
        ),
        "budget.max_cost_usd": (experiment.budget.max_cost_usd is not None, "local costs nothing"),
        "infrastructure.process_manager": (
            experiment.infrastructure.process_manager == "systemd",
            "on local processes are children of no one, systemd runs them on hosts",
        ),
    }
    yield from _named(given)
    yield from _not_measured(experiment)


@memoize_by_identity
def _not_local(infrastructure: Infrastructure) -> tuple[tuple[str, str], ...]:
    why = f"{_NOT_YET}: local is this machine, not EC2 (--on ec2)"
    hosts = [found for here, group in _groups(infrastructure) for found in _local_hosts(here, group)]
    return (*((key, why) for key in _ec2_keys(infrastructure)), *hosts)


def _named(given: dict[str, tuple[bool, str]]) -> Iterator[tuple[str, str]]:
    for key, (is_given, reason) in given.items():
        if is_given:
            yield key, f"{_NOT_YET}: {reason}"


# pymongo 4.20, MIN_SUPPORTED_SERVER_VERSION.
_OLDEST_MEASURED = (4, 4)


def _not_measured(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """What can be planned and configured, and is not run: this project's clients cannot speak to it."""
    engine, version = experiment.topology.storage.engine, experiment.topology.mongodb.version
    yield from _named(
        {
            "topology.storage.engine": (
                engine not in {"wiredTiger", "inMemory"},
                f"{engine} is planned, not run: it ended before MongoDB 4.4, the oldest that the clients speak to",
            ),
            "topology.mongodb.version": (
                version is not None and parse_release(version) < _OLDEST_MEASURED,
                f"{version} is planned, not run: the clients speak to MongoDB 4.4 and later",
            ),
        }
    )


def _hosts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Hosts of one's own, reached by SSH: everything on them is as their owner made it."""
    for key in _ec2_keys(experiment.infrastructure):
        yield key, f"{_NOT_YET}: the hosts are there, they are not made on EC2 (--on ec2)"
    for here, group in _groups(experiment.infrastructure):
        yield from _given_hosts(here, group)
    topology = experiment.topology
    embedded = topology.kind == "sharded" and topology.mongodb.source == "embedded"
    yield from _named(
        {
            "infrastructure.mongos_hosts": (
                embedded and experiment.infrastructure.mongos_hosts is not None,
                "the embedded mongos listens on loopback only, so it runs on the client host",
            ),
            "budget.max_cost_usd": (experiment.budget.max_cost_usd is not None, "hosts of your own cost nothing here"),
        }
    )
    yield from _several_clients(experiment)
    yield from _sources_on_hosts(experiment)
    yield from _not_measured(experiment)


def _several_clients(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Phases whose engine works from one client host only, and what keeps the other hosts from the servers."""
    count = experiment.infrastructure.client_hosts.count
    if count == 1:
        return
    for number, step in enumerate(experiment.workload):
        if not step.phase.spreads:
            yield (
                f"workload.{number}.{step.kind}.engine",
                f"{step.phase.engine} works from one client host, not from {count} (infrastructure.client_hosts.count)",
            )
    if experiment.topology.kind == "sharded" and experiment.topology.mongodb.source == "embedded":
        yield (
            "infrastructure.client_hosts.count",
            f"the embedded mongos listens on loopback of one client host, so {count} need a real one "
            "(topology.mongodb.source: packages, tarball or path)",
        )


def _sources_on_hosts(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """What hosts must be told of MongoDB before anything is sent to them."""
    mongodb = experiment.topology.mongodb
    if mongodb.source == "path" and mongodb.version is None:
        yield "topology.mongodb.version", "hosts need it beside a path: the processes are configured by it"
    for key in ("tarball", "sha256") if mongodb.source == "tarball" else ():
        if getattr(mongodb, key) is None:
            yield f"topology.mongodb.{key}", "hosts need it: the archive, and the SHA-256 it must have"


def _given_hosts(here: str, group: HostGroup) -> Iterator[tuple[str, str]]:
    for name, volume in group.volumes.named():
        key = f"{here}.volumes.{name}"
        if volume.type not in {"existing", "instance_store"}:
            yield f"{key}.type", f"hosts you have have volumes of type existing or instance_store, not {volume.type}"


def _local_hosts(here: str, group: HostGroup) -> Iterator[tuple[str, str]]:
    if group.count != 1:
        yield f"{here}.count", f"{_NOT_YET}: local is one machine, not {group.count}"
    yield from _local_volumes(here, group)
    for setting in Kernel.model_fields:
        value = getattr(group.kernel, setting)
        if value is None or (setting == "production_notes" and not value):
            continue
        if setting != "readahead_sectors":
            yield f"{here}.kernel.{setting}", f"{_NOT_YET}: local leaves the kernel as it is"
        elif group.volumes.data is None or group.volumes.data.type != "emulated":
            yield f"{here}.kernel.{setting}", "on local it is set on emulated volumes only, and there is none for data"


def _ec2(experiment: Experiment) -> Iterator[tuple[str, str]]:
    for name in _GROUPS:
        group: HostGroup | None = getattr(experiment.infrastructure, name)
        if group is None:
            continue
        here = f"infrastructure.{name}"
        if group.instance_type is None:
            yield f"{here}.instance_type", "ec2 needs one, for example c5.4xlarge"
        for purpose, volume in group.volumes.named():
            if volume.type in {"emulated", "existing"}:
                yield (
                    f"{here}.volumes.{purpose}.type",
                    f"ec2 makes EBS volumes, none is {volume.type}",
                )
    if experiment.budget.max_hours is None:
        yield "budget.max_hours", "ec2 needs it: hosts end themselves after it, even if this machine never comes back"
    if experiment.topology.mongodb.source == "embedded":
        yield (
            "topology.mongodb.source",
            "ec2 has no embedded mongos; take packages, tarball or path (a folder on the hosts)",
        )
    if experiment.topology.mongodb.source == "path" and experiment.topology.mongodb.version is None:
        yield "topology.mongodb.version", "ec2 needs it beside a path: the hosts cannot be asked before they are made"


def not_on_hosts_yet(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """What no role does yet on hosts reached by SSH, and so on none that is made on EC2: it may be planned, not run."""
    yield from _sources_on_hosts(experiment)
    yield from _not_measured(experiment)
    yield from _several_clients(experiment)


def _local_volumes(here: str, group: HostGroup) -> Iterator[tuple[str, str]]:
    """Every process of a point lives on the volumes of the shard hosts, which are emulated on one machine."""
    for name, volume in group.volumes.named():
        key = f"{here}.volumes.{name}"
        if not here.endswith(".shard_hosts"):
            yield key, f"{_NOT_YET}: on local all processes are on the volumes of shard_hosts"
        elif volume.type != "emulated":
            yield f"{key}.type", f"{_NOT_YET}: local keeps everything in the run's folder or on emulated volumes"
        elif volume.policy != "single":
            yield f"{key}.policy", f"{_NOT_YET}: an emulated volume is one device, give it the iops of all together"
