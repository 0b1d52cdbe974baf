"""A sharded cluster: its shards, its balancer, its chunk size. Public commands only, as a mongos takes them."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.microshard.topology.server import Deadline, TopologyProblem, hello
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

Client = MongoClient[dict[str, Any]]


def await_mongos(endpoint: str, deadline: Deadline) -> None:
    """Wait until the mongos answers as one."""
    while True:
        answer = hello(endpoint)
        if answer and answer.get("msg") == "isdbgrid":
            return
        deadline.pause(f"mongos {endpoint} {'does not answer' if answer is None else 'is not a mongos'}")


def add_shards(client: Client, planned: list[dict[str, Any]], deadline: Deadline, *, check: bool) -> list[str]:
    """Every planned replica set is a shard of that name, and no other is."""
    there = {shard["_id"]: shard["host"] for shard in admin(client, deadline, "listShards")["shards"]}
    wanted = {rs["name"]: f"{rs['name']}/{','.join(m['endpoint'] for m in rs['members'])}" for rs in planned}
    strangers = {name: host for name, host in there.items() if not _same_hosts(wanted.get(name), host)}
    if strangers:
        raise TopologyProblem(f"the cluster has shards that are not planned: {strangers}; planned are {wanted}")
    missing = [(name, host) for name, host in wanted.items() if name not in there]
    if not check:
        for name, host in missing:  # the config server adds one at a time: asking for several gains nothing
            admin(client, deadline, "addShard", host, name=name)
        found = {shard["_id"] for shard in admin(client, deadline, "listShards")["shards"]}
        if found != set(wanted):
            raise TopologyProblem(f"listShards shows {sorted(found)} after all of {sorted(wanted)} were added")
    return [f"shard {name} added" for name, _ in missing]


def _same_hosts(wanted: str | None, there: str) -> bool:
    """`name/a,b` names the same set as `name/b,a`."""
    return wanted is not None and sorted(wanted.partition("/")[2].split(",")) == sorted(
        there.partition("/")[2].split(",")
    )


def set_balancer(client: Client, planned: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """The balancer runs or not, throttles or not, and moves chunks of the planned size."""
    changes = []
    settings = client["config"]["settings"]
    size = planned.get("chunk_size_mb")
    stored = settings.find_one({"_id": "chunksize"}) or {}
    if size is not None and stored.get("value") != size:
        changes.append(f"chunk size {size} MiB")
        if not check:
            settings.update_one({"_id": "chunksize"}, {"$set": {"value": size}}, upsert=True)
    stored = settings.find_one({"_id": "balancer"}) or {}
    throttle = bool(planned.get("secondary_throttle", False))
    if bool(stored.get("_secondaryThrottle", False)) != throttle:
        changes.append(f"secondary throttle {'on' if throttle else 'off'}")
        if not check:
            settings.update_one({"_id": "balancer"}, {"$set": {"_secondaryThrottle": throttle}}, upsert=True)
    enabled = bool(planned.get("enabled", False))
    if (admin(client, deadline, "balancerStatus")["mode"] != "off") != enabled:
        changes.append(f"balancer {'started' if enabled else 'stopped'}")
        if not check:
            admin(client, deadline, "balancerStart" if enabled else "balancerStop")
    return changes


def admin(client: Client, deadline: Deadline, command: str, value: Any = 1, **parameters: Any) -> dict[str, Any]:
    """Run a command on `admin`; TopologyProblem with the server's exact error."""
    try:
        return dict(client.admin.command(command, value, maxTimeMS=deadline.left_ms(), **parameters))
    except OperationFailure as error:
        raise TopologyProblem(
            f"{command} {value}: {error.details.get('errmsg') if error.details else error} (code {error.code})"
        ) from None
    except PyMongoError as error:
        raise TopologyProblem(f"{command} {value}: {error}") from None
