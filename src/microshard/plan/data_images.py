"""Which points may be restored from a data image, and what decides the content of one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator

from microshard import __version__
from microshard.model.data_images import IMAGE_FORMAT, DataImageRecipe, RecipeProcess
from microshard.model.experiment import Experiment
from microshard.model.plan import DataImagePolicy, Point
from microshard.records import codec


def data_image_policy(experiment: Experiment, backend: str) -> DataImagePolicy:
    """Whether the data of a point of this experiment are kept and restored; the first reason where they are not."""
    if experiment.load.image == "never":
        return DataImagePolicy()
    return DataImagePolicy(experiment.load.image, next(_obstacles(experiment, backend), ""))


def _obstacles(experiment: Experiment, backend: str) -> Iterator[str]:
    """Why the data folders at the end of a point are not those after its load, or may not be kept."""
    topology, infrastructure = experiment.topology, experiment.infrastructure
    kinds = [step.kind for step in experiment.workload]
    others = [step.phase for step in experiment.workload if step.kind != "load"]
    if backend != "local":
        yield "data images are kept on this machine only"
    if "load" not in kinds:
        yield "the workload has no load phase: what its measurements load is never restored"
    if kinds != sorted(kinds, key=lambda kind: kind != "load"):
        yield "a load phase comes after another phase"
    if any(phase.writes() or phase.moves_chunks for phase in others):
        yield "a measurement changes the data"
    if topology.kind == "sharded" and topology.balancer.enabled:
        yield "the balancer may move chunks after the load"
    if topology.security.at(backend).get("authorization"):
        yield "the data have users with the passwords of one run"
    if any(volume for _, volume in infrastructure.shard_hosts.volumes.named()):
        yield "the data are on volumes of their own"
    if any(getattr(step.phase, "file", None) for step in experiment.workload):
        yield "the load reads a file, whose content may change"


def recipe(point: Point, *, mongod: str, mongod_sha256: str) -> DataImageRecipe:
    """Everything that decides the data of a point after its load phases. `mongod`: its version."""
    processes = tuple(
        RecipeProcess(p.name, p.role, p.host, p.endpoint, p.replica_set, p.cache_mib, p.options)
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
        replica_sets=point.replica_sets,
        collections=point.collections,
        zones=point.zones,
        balancer=point.balancer,
        load=tuple(phase for phase in point.phases if phase.kind == "load"),
    )


def without_ports(of: DataImageRecipe) -> DataImageRecipe:
    """The recipe with no port in it: what is equal then differs in ports alone."""

    def address(endpoint: str) -> str:
        return endpoint.rpartition(":")[0]

    return dataclasses.replace(
        of,
        processes=tuple(dataclasses.replace(p, endpoint=address(p.endpoint)) for p in of.processes),
        replica_sets=tuple(
            dataclasses.replace(
                each,
                members=tuple(dataclasses.replace(m, endpoint=address(m.endpoint)) for m in each.members),
            )
            for each in of.replica_sets
        ),
    )


def image_name(of: DataImageRecipe) -> str:
    """The name of the image with this recipe: the first 32 digits of its SHA-256."""
    text = json.dumps(codec.encode(of), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
