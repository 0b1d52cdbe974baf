"""What differs between MongoDB's releases besides the options of mongod: releases.json, each entry with its source.

Rules refuse by it what a release does not have, and a plan says what is new in a release this project has not measured.
"""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from microshard.experiment.mongod_options import Release, parse_release
from microshard.model.experiment import Experiment


@functools.cache
def _data() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return found


def first_release(command: str) -> Release:
    """The release a server command came with. KeyError for one that is not listed."""
    return parse_release(_data()["commands"][command]["since"])


def default_chunk_size_mb(release: Release) -> int:
    """What a cluster of this release has where nothing is set, in MiB."""
    sizes = {parse_release(text): size for text, size in _data()["default_chunk_size_mb"]["values"].items()}
    return int(sizes[max(first for first in sizes if first <= max(release, min(sizes)))])


def counts_initial_chunks(release: Release) -> bool:
    """Whether `shardCollection` uses numInitialChunks."""
    return release < parse_release(_data()["num_initial_chunks_until"]["release"])


def differences(experiment: Experiment) -> Iterator[str]:
    """What is different in the experiment's release from 6.0, as far as it concerns this experiment; with sources."""
    version = experiment.topology.mongodb.version
    if version is None:
        return
    release, concerns = parse_release(version), _concerns(experiment)
    for entry in _data()["differences"]:
        if entry["concerns"] in concerns and release >= parse_release(entry["since"]):
            yield f"MongoDB {version}, not measured here: {entry['what']} (since {entry['since']}; {entry['source']})"
    size, default = experiment.topology.balancer.chunk_size_mb, default_chunk_size_mb(release)
    if "migrations" in concerns and size != default:
        source = _data()["default_chunk_size_mb"]["source"]
        yield f"this experiment sets chunks of {size} MiB; MongoDB {version} has {default} by default ({source})"


def _concerns(experiment: Experiment) -> set[str]:
    """Which subjects of the list an experiment touches."""
    topology, workload = experiment.topology, experiment.workload
    found = {"storage"} if topology.storage.engine == "wiredTiger" else set()
    if topology.kind != "sharded":
        return found
    sharded = {collection.namespace for collection in topology.collections}
    targets = {step.phase.target() for step in workload} - {None}
    subjects = {
        "migrations": topology.balancer.enabled or any(step.phase.moves_chunks for step in workload),
        "dedicated_config_server": not topology.config_servers.embedded,
        "added_shards": (topology.shards.initial or topology.shards.count) < topology.shards.count,
        "unsharded_collection": bool(targets - sharded),
    }
    return found | {subject for subject, touched in subjects.items() if touched}
