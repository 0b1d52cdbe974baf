"""From running processes to the planned topology."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import logs
from ..topology import cluster, placement, replica_set, zones
from ..topology.server import Deadline, TopologyProblem, connect, hello

# Initiations at a time. One after the other costs half a second more for 17 sets; more than a few gain nothing.
_CONCURRENT_SETS = 4


def build(point: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """Make the processes of the point its topology and say what was done; with `check`, what would be done."""
    with ThreadPoolExecutor(_CONCURRENT_SETS) as pool:
        initiated = pool.map(
            lambda planned: replica_set.initiate(planned, deadline, check=check), _config_first(point["replica_sets"])
        )
        done = [change for changes in initiated for change in changes]
    for process in point["processes"] if not check else []:
        if process["role"] == "standalone":
            _await_standalone(process, deadline)
    if point["topology"] == "sharded":
        done += _sharded(point, deadline, check=check)
    return done


def _config_first(replica_sets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mongos wait for the config servers, and shards can be added only through them."""
    return sorted(replica_sets, key=lambda planned: planned["role"] != "config")


def _await_standalone(process: dict[str, Any], deadline: Deadline) -> None:
    while hello(_endpoint(process), deadline) is None:
        deadline.pause(f"{process['name']} ({_endpoint(process)}) does not answer")


def _endpoint(process: dict[str, Any]) -> str:
    return f"{process['address']}:{process['port']}"


def _sharded(point: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    doors = [process for process in point["processes"] if process["role"] == "mongos"]
    if check and any(hello(_endpoint(door), deadline) is None for door in doors):
        return [
            *(f"shard {name} added" for name in _shards(point)),
            *(f"{collection['namespace']} sharded" for collection in point["collections"]),
        ]
    for door in doors:
        _await_door(door, deadline)
    shards = [planned for planned in point["replica_sets"] if planned["role"] == "shard"]
    balanced = bool(point["balancer"].get("enabled"))
    with connect(_endpoint(doors[0]), deadline) as client:
        done = cluster.add_shards(client, shards, deadline, check=check)
        done += cluster.set_balancer(client, point["balancer"], deadline, check=check)
        done += zones.define(client, point, deadline, check=check)
        for collection in point["collections"]:
            if check:
                absent = placement.find(client, collection["namespace"]) is None
                done += [f"{collection['namespace']} sharded"] if absent else []
            else:
                done += placement.place(client, collection, _shards(point), deadline, balanced=balanced)
        if not check:
            zones.verify(client, point, deadline, wait=balanced)
    return done


def _shards(point: dict[str, Any]) -> list[str]:
    """Names of the shards that are there from the start."""
    return [rs["name"] for rs in point["replica_sets"] if rs["role"] == "shard" and rs.get("initial", True)]


def _await_door(door: dict[str, Any], deadline: Deadline) -> None:
    try:
        cluster.await_mongos(_endpoint(door), deadline)
    except TopologyProblem as problem:
        # Only where the mongos runs on this machine is its log at hand.
        words = logs.last_words(door["log_path"])
        quoted = "\n  Last lines of its log:\n    " + "\n    ".join(words) if words else ""
        raise TopologyProblem(f"{door['name']}: {problem}{quoted}") from None
