"""The users of a run: one that administers, one that works. Made by the servers' own user, `__system`."""

from __future__ import annotations

import json
import os
from typing import Any

from pymongo.errors import OperationFailure

from ..topology.server import Deadline, TopologyProblem, connect, hello, told

# What phases do: write and read everywhere, index, move chunks, add shards and members, read every server's status.
_ROLES = {"admin": ["root"], "workload": ["readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterAdmin"]}


def create(point: dict[str, Any], run_folder: str, deadline: Deadline, *, check: bool) -> list[str]:
    """Every set (and a standalone) has the users, with the passwords of this run; says what was done.

    In a cluster the mongos asks the config servers who a user is; shards have them too, for those who ask one directly.
    """
    if not deadline.access.key:
        return []
    with open(os.path.join(run_folder, "secrets", "users.json"), encoding="utf-8") as file:
        accounts = json.load(file)
    done = []
    for name, endpoint in _leaders(point, deadline).items():
        with connect(endpoint, deadline) as client:
            there = [] if check else [user["user"] for user in client.admin.command("usersInfo")["users"]]
            for kind, account in accounts.items():
                if account["user"] in there:
                    continue
                done.append(f"user {account['user']} of {name}")
                if not check:
                    _create_one(client, account, _ROLES[kind], endpoint)
    return done


def _create_one(client: Any, account: dict[str, str], roles: list[str], endpoint: str) -> None:
    try:
        client.admin.command(
            "createUser", account["user"], pwd=account["password"], roles=roles, mechanisms=["SCRAM-SHA-256"]
        )
    except OperationFailure as error:
        raise TopologyProblem(f"createUser {account['user']} on {endpoint}: {told(error)}") from None


def _leaders(point: dict[str, Any], deadline: Deadline) -> dict[str, str]:
    """Where users are written: the primary of each set by the set's name, a standalone by its own."""
    found = {}
    for planned in point["replica_sets"]:
        for member in planned["members"]:
            answer = hello(member["endpoint"], deadline) or {}
            if answer.get("isWritablePrimary"):
                found[planned["name"]] = member["endpoint"]
    for process in point["processes"]:
        if process["role"] == "standalone":
            found[process["name"]] = f"{process['address']}:{process['port']}"
    return found
