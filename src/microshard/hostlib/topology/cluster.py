"""A sharded cluster: its shards, its balancer, its chunk size. Public commands only, as a mongos takes them."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from ..topology.server import Deadline, TopologyProblem, hello, told

Client = MongoClient[dict[str, Any]]


def await_mongos(endpoint: str, deadline: Deadline) -> None:
    """Wait until the mongos answers as one."""
    while True:
        answer = hello(endpoint, deadline)
        if answer and answer.get("msg") == "isdbgrid":
            return
        deadline.pause(f"mongos {endpoint} {'does not answer' if answer is None else 'is not a mongos'}")


def add_shards(client: Client, planned: list[dict[str, Any]], deadline: Deadline, *, check: bool) -> list[str]:
    """Every planned replica set is a shard of that name, and no other is; those that are not initial may be."""
    there = {shard["_id"]: shard["host"] for shard in admin(client, deadline, "listShards")["shards"]}
    known = {rs["name"]: {member["endpoint"] for member in rs["members"]} for rs in planned}
    wanted = {rs["name"]: _connection(rs) for rs in planned if rs.get("initial", True)}
    strangers = {name: host for name, host in there.items() if not _endpoints(host) <= known.get(name, set())}
    if strangers:
        raise TopologyProblem(f"the cluster has shards that are not planned: {strangers}; planned are {wanted}")
    missing = [(name, host) for name, host in wanted.items() if name not in there]
    if not missing:
        return []
    done = _concern_beside_arbiters(client, planned, deadline, check=check)
    if not check:
        for name, host in missing:  # the config server adds one at a time: asking for several gains nothing
            admin(client, deadline, "addShard", host, name=name)
        found = {shard["_id"] for shard in admin(client, deadline, "listShards")["shards"]}
        if found != set(wanted) | set(there):
            raise TopologyProblem(f"listShards shows {sorted(found)} after all of {sorted(wanted)} were added")
    return [*done, *(f"shard {name} added" for name, _ in missing)]


def _connection(planned: dict[str, Any]) -> str:
    """The set as addShard takes it. The server refuses hidden members and arbiters there, and finds them itself."""
    shown = [
        m["endpoint"]
        for m in planned["members"]
        if m.get("initial", True) and not m.get("hidden") and not m.get("arbiter")
    ]
    return f"{planned['name']}/{','.join(shown)}"


def _concern_beside_arbiters(
    client: Client, planned: list[dict[str, Any]], deadline: Deadline, *, check: bool
) -> list[str]:
    """A default write concern for a cluster with arbiters.

    With an arbiter a majority of the votes may not bear data, so from 5.0 on such a set falls back to w: 1 and addShard
    refuses it until the cluster says itself what its default is: this says the same.
    """
    if not any(member.get("arbiter") for rs in planned for member in rs["members"]):
        return []
    stored = admin(client, deadline, "getDefaultRWConcern")
    if stored.get("defaultWriteConcernSource") == "global":
        return []
    if not check:
        admin(client, deadline, "setDefaultRWConcern", defaultWriteConcern={"w": 1})
    return ["default write concern w: 1, as sets with an arbiter have it"]


def _endpoints(connection: str) -> set[str]:
    """The members a shard's entry names: those the server has found, in an order of its own."""
    return set(connection.partition("/")[2].split(","))


def set_balancer(client: Client, planned: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """The balancer runs or not, when and how it is planned to, and moves chunks of the planned size."""
    changes = []
    settings = client["config"]["settings"]
    size = planned.get("chunk_size_mb")
    stored = settings.find_one({"_id": "chunksize"}) or {}
    if size is not None and stored.get("value") != size:
        changes.append(f"chunk size {size} MiB")
        if not check:
            settings.update_one({"_id": "chunksize"}, {"$set": {"value": size}}, upsert=True)
    stored = settings.find_one({"_id": "balancer"}) or {}
    wanted = _balancer_settings(planned)
    # What is not stored is false or absent to the server.
    differing = {key: value for key, value in wanted.items() if (stored.get(key) or None) != (value or None)}
    if differing:
        changes.append(f"balancer settings {differing}")
        if not check:
            put = {key: value for key, value in differing.items() if value is not None}
            gone = dict.fromkeys(differing.keys() - put.keys(), "")
            update = {**({"$set": put} if put else {}), **({"$unset": gone} if gone else {})}
            settings.update_one({"_id": "balancer"}, update, upsert=True)
    enabled = bool(planned.get("enabled", False))
    if (admin(client, deadline, "balancerStatus")["mode"] != "off") != enabled:
        changes.append(f"balancer {'started' if enabled else 'stopped'}")
        if not check:
            admin(client, deadline, "balancerStart" if enabled else "balancerStop")
    return changes


def _balancer_settings(planned: dict[str, Any]) -> dict[str, Any]:
    """The document of config.settings, by the manual's "Manage Sharded Cluster Balancer"; None is absent."""
    throttle: Any = bool(planned.get("secondary_throttle", False))
    return {
        # A write concern instead of true is the server's form for "throttled, with this one".
        "_secondaryThrottle": planned.get("write_concern") or throttle,
        "_waitForDelete": bool(planned.get("wait_for_delete", False)),
        "activeWindow": dict(planned["window"]) if planned.get("window") else None,
    }


def admin(client: Client, deadline: Deadline, command: str, value: Any = 1, **parameters: Any) -> dict[str, Any]:
    """Run a command on `admin`; TopologyProblem with the server's exact error."""
    try:
        return dict(client.admin.command(command, value, maxTimeMS=deadline.left_ms(), **parameters))
    except OperationFailure as error:
        raise TopologyProblem(f"{command} {value}: {told(error)}") from None
    except PyMongoError as error:
        raise TopologyProblem(f"{command} {value}: {error}") from None
