"""Which points may be restored from a data image, and what decides the content of one."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator

from microshard import __version__
from microshard.model.data_images import IMAGE_FORMAT, DataImageRecipe, RecipeProcess
from microshard.model.experiment import Experiment
from microshard.model.plan import DataImagePolicy, PlannedReplicaSet, Point
from microshard.records import codec


def data_image_policy(experiment: Experiment, backend: str) -> DataImagePolicy:
    """Whether the data of a point of this experiment are kept and restored; the first reason where they are not."""
    if experiment.load.image == "never":
        return DataImagePolicy()
    changes = any(
        step.kind != "load" and (step.phase.writes() or step.phase.moves_chunks) for step in experiment.workload
    )
    place = next(_obstacles(experiment, backend, changes=changes), "")
    refused = place or next(_obstacles_of_data(experiment), "")
    secured = "its servers have logins or TLS" if any(experiment.topology.security.at(backend).values()) else ""
    return DataImagePolicy(experiment.load.image, refused, changes and not refused, place or secured)


def _obstacles(experiment: Experiment, backend: str, *, changes: bool) -> Iterator[str]:
    """Why no data folder of this experiment may be kept. `changes`: its measurements change the data."""
    if backend == "ec2" and not (changes and experiment.load.image == "use"):
        yield "hosts on EC2 are new in each run, so data are restored only between the repetitions of what writes"
    if experiment.topology.storage.engine != "wiredTiger":
        yield "the storage engine is not WiredTiger"
    volumes = experiment.infrastructure.shard_hosts.volumes
    # Between runs nothing mounts the volumes of an inventory's hosts; those of EC2 end with the hosts, images and all.
    refused = {"local": bool(volumes.named()), "hosts": volumes.data is not None}
    if refused.get(backend, volumes.data is not None and volumes.data.policy == "per_shard"):
        yield "the data are on volumes of their own"


def _obstacles_of_data(experiment: Experiment) -> Iterator[str]:
    """Why the data after the load phases are not decided by the recipe, or not to be had."""
    kinds = [step.kind for step in experiment.workload]
    if "load" not in kinds:
        yield "the workload has no load phase: what its measurements load is never restored"
    if kinds != sorted(kinds, key=lambda kind: kind != "load"):
        yield "a load phase comes after another phase"
    if experiment.topology.kind == "sharded" and experiment.topology.balancer.enabled:
        yield "the balancer may move chunks after the load"
    if any(getattr(step.phase, "file", None) for step in experiment.workload):
        yield "the load reads a file, whose content may change"


def recipe(point: Point, *, mongod: str, mongod_sha256: str, empty: bool = False) -> DataImageRecipe:
    """Everything that decides the data of a point after its load phases, or before (`empty`). `mongod`: its version."""
    processes = tuple(
        RecipeProcess(p.name, p.role, p.host, p.replica_set, p.cache_mib, p.options)
        for p in point.processes
        if p.db_path
    )
    return DataImageRecipe(
        format=IMAGE_FORMAT,
        microshard=__version__,
        mongod=mongod,
        mongod_sha256=mongod_sha256,
        topology=point.topology,
        processes=processes,
        replica_sets=tuple(_without_endpoints(each) for each in point.replica_sets),
        collections=point.collections,
        zones=point.zones,
        balancer=point.balancer,
        load=() if empty else tuple(phase for phase in point.phases if phase.kind == "load"),
    )


def _without_endpoints(of: PlannedReplicaSet) -> PlannedReplicaSet:
    return dataclasses.replace(of, members=tuple(dataclasses.replace(m, endpoint="") for m in of.members))


def image_name(of: DataImageRecipe) -> str:
    """The name of the image with this recipe: the first 32 digits of its SHA-256."""
    text = json.dumps(codec.encode(of), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
