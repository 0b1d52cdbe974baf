"""Module mongo_topology: make the running processes of a point the planned topology, with its users or without."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import logs, mongo_config
from .errors import HostError
from .wire import access_of_run

try:
    from pymongo.errors import OperationFailure, PyMongoError

    from . import replica_set
    from . import sharded_cluster as cluster
    from .mongo_server import Deadline, connect, hello, server_message, wait_for_hello
except ImportError as error:
    _MISSING = str(error)
else:
    _MISSING = ""

ARGUMENTS = {
    "processes": {"type": "list", "elements": "dict", "required": True},
    "replica_sets": {"type": "list", "elements": "dict", "default": []},
    "collections": {"type": "list", "elements": "dict", "default": []},
    "zones": {"type": "list", "elements": "dict", "default": []},
    "balancer": {"type": "dict", "default": {}},
    "documents": {"type": "dict", "default": {}},
    "users": {"type": "bool", "default": True},
    "security": {"type": "dict", "default": {}},
    "run_folder": {"type": "path", "default": ""},
    "timeout": {"type": "float", "default": 90},
}

# Initiations at a time. One after the other costs half a second more for 17 sets; more than a few gain nothing.
_CONCURRENT_SETS = 4
# What phases need: write and read everywhere, index, move chunks, add shards and members, read every server's status.
_ROLES = {"admin": ["root"], "workload": ["readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterAdmin"]}


def main(parameters: dict[str, Any], *, check: bool) -> dict[str, Any]:
    """Build the topology, then create the users of the run."""
    if _MISSING:
        raise HostError(f"this Python lacks pymongo: {_MISSING}")
    run_folder = parameters["run_folder"]
    processes = [mongo_config.complete(process, run_folder, "") for process in parameters["processes"]]
    replica_sets = parameters["replica_sets"] or mongo_config.replica_sets(processes)
    collections = [{"chunks": [], "unique": False, **collection} for collection in parameters["collections"]]
    point = {**parameters, "processes": processes, "replica_sets": replica_sets, "collections": collections}
    try:
        access = access_of_run(run_folder, parameters["security"])
        changes = build(point, Deadline(parameters["timeout"], access, processes), check=check)
        if parameters["documents"] and not check:
            _verify_documents(point, parameters["documents"], Deadline(parameters["timeout"], access, processes))
        if access.key:
            deadline = Deadline(parameters["timeout"], access, processes)
            change_users = _create_users if parameters["users"] else _drop_users
            changes += change_users(point, run_folder, deadline, check=check)
    except (PyMongoError, HostError) as problem:
        raise HostError(name_processes(str(problem), processes)) from None
    return {
        "changed": bool(changes),
        "msg": f"{len(changes)} changes" if changes else "as planned",
        "changes": changes,
        "diff": {"before": "", "after": "".join(f"{change}\n" for change in changes)} if changes else {},
    }


def name_processes(text: str, processes: Sequence[dict[str, Any]]) -> str:
    """A server's message with the name of the process, and of its host, behind each address in it."""
    for process in processes:
        name = process["name"] if process["host"] in {"", "local"} else f"{process['name']} on {process['host']}"
        text = re.sub(rf"(?<![\d.]){re.escape(_endpoint(process))}(?!\d)", rf"\g<0> ({name})", text, count=1)
    return text


def build(point: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """Make the processes of the point its topology; what was done, or with `check` would be done."""
    # Config servers first: each mongos waits for them, and shards can be added only through a mongos.
    replica_sets = sorted(point["replica_sets"], key=lambda planned: planned["name"] != "config")
    with ThreadPoolExecutor(_CONCURRENT_SETS) as pool:
        initiated = pool.map(lambda planned: replica_set.initiate(planned, deadline, check=check), replica_sets)
        changes = [change for of_set in initiated for change in of_set]
    for process in point["processes"] if not check else []:
        if process["role"] == "standalone":
            wait_for_hello(_endpoint(process), deadline, process["name"])
    if any(process["role"] == "mongos" for process in point["processes"]):
        changes += _build_cluster(point, deadline, check=check)
    return changes


def _endpoint(process: dict[str, Any]) -> str:
    return f"{process['address']}:{process['port']}"


def _build_cluster(point: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    routers = [process for process in point["processes"] if process["role"] == "mongos"]
    shards = [planned for planned in point["replica_sets"] if planned["role"] == "shard"]
    names = [planned["name"] for planned in shards if planned.get("initial", True)]
    if check and any(hello(_endpoint(router), deadline) is None for router in routers):
        sharded = [f"{collection['namespace']} sharded" for collection in point["collections"]]
        return [*(f"shard {name} added" for name in names), *sharded]
    for router in routers:
        _await_router(router, deadline)
    balanced = bool(point["balancer"].get("enabled"))
    with connect(_endpoint(routers[0]), deadline) as client:
        changes = cluster.add_shards(client, shards, deadline, check=check)
        changes += cluster.set_balancer(client, point["balancer"], deadline, check=check)
        changes += cluster.define_zones(client, point, deadline, check=check)
        for collection in point["collections"]:
            if not check:
                changes += cluster.place_collection(client, collection, names, deadline, balanced=balanced)
            elif cluster.find_collection(client, collection["namespace"]) is None:
                changes.append(f"{collection['namespace']} sharded")
        if not check:
            cluster.verify_zones(client, point, deadline, wait=balanced)
    return changes


def _await_router(router: dict[str, Any], deadline: Deadline) -> None:
    try:
        cluster.await_mongos(_endpoint(router), deadline)
    except HostError as problem:
        # The log can be read only where the mongos runs on this machine.
        lines = logs.last_lines(router["log_path"])
        quoted = "\n  Last lines of its log:\n    " + "\n    ".join(lines) if lines else ""
        raise HostError(f"{router['name']}: {problem}{quoted}") from None


def _verify_documents(point: dict[str, Any], documents: dict[str, int], deadline: Deadline) -> None:
    """HostError unless each collection has its number of documents, as clients see it."""
    routers = [_endpoint(process) for process in point["processes"] if process["role"] == "mongos"]
    with connect((routers or list(_writable_servers(point, deadline).values()))[0], deadline) as client:
        for namespace, expected in documents.items():
            database, _, collection = namespace.partition(".")
            found = client[database][collection].estimated_document_count()
            if found != expected:
                raise HostError(f"{namespace} has {found:,} documents, not {expected:,}")


def _create_users(point: dict[str, Any], run_folder: str, deadline: Deadline, *, check: bool) -> list[str]:
    """Create the users on every set, or on a standalone, with the passwords of this run; what was done.

    A mongos asks the config servers who a user is; shards have the users too, for clients that connect to one directly.
    """
    with open(os.path.join(run_folder, "secrets", "users.json"), encoding="utf-8") as file:
        accounts = json.load(file)
    changes = []
    for name, endpoint in _writable_servers(point, deadline).items():
        with connect(endpoint, deadline) as client:
            known = [] if check else [user["user"] for user in client.admin.command("usersInfo")["users"]]
            for kind, account in accounts.items():
                user = account["user"]
                if user in known:
                    continue
                changes.append(f"user {user} of {name}")
                if check:
                    continue
                options = {"pwd": account["password"], "roles": _ROLES[kind], "mechanisms": ["SCRAM-SHA-256"]}
                try:
                    client.admin.command("createUser", user, **options)
                except OperationFailure as error:
                    raise HostError(f"createUser {user} on {endpoint}: {server_message(error)}") from None
    return changes


def _drop_users(point: dict[str, Any], _run_folder: str, deadline: Deadline, *, check: bool) -> list[str]:
    """Drop all users on every set, or on a standalone, so that the data can be kept without them; what was done."""
    changes = []
    for name, endpoint in _writable_servers(point, deadline).items():
        with connect(endpoint, deadline) as client:
            if client.admin.command("usersInfo")["users"]:
                changes.append(f"users of {name} dropped")
                if not check:
                    client.admin.command("dropAllUsersFromDatabase")
    return changes


def _writable_servers(point: dict[str, Any], deadline: Deadline) -> dict[str, str]:
    """Where users are created: the primary of each set by the set's name, a standalone by its name."""
    found = {}
    for planned in point["replica_sets"]:
        for member in planned["members"]:
            if (hello(member["endpoint"], deadline) or {}).get("isWritablePrimary"):
                found[planned["name"]] = member["endpoint"]
    found.update({p["name"]: _endpoint(p) for p in point["processes"] if p["role"] == "standalone"})
    return found
