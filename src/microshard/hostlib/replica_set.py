"""A replica set: initiated, with a primary, and every member a primary, secondary or arbiter."""

from __future__ import annotations

from typing import Any

from pymongo.errors import OperationFailure

from .errors import HostError
from .mongo_server import Deadline, connect, hello, server_message, wait_for_hello

_ALREADY_INITIALIZED = 23
_NODE_NOT_FOUND = 74  # a member that the first one cannot reach
_FIRST_WITH_SECONDARY_DELAY = 13  # maxWireVersion of 5.0, which renamed slaveDelay
_STEP_UP_EVERY = 5  # polls, so about 100 ms


def initiate(planned: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """Initiate the set if it is not, wait until all its members are ready, and return what was done."""
    name = planned["name"]
    endpoints = [member["endpoint"] for member in planned["members"] if member.get("initial", True)]
    change = f"replica set {name} initiated"
    if check:
        answers = [hello(endpoint, deadline) for endpoint in endpoints]
        return [] if any(answer and answer.get("setName") == name for answer in answers) else [change]
    done = []
    if wait_for_hello(endpoints[0], deadline).get("setName") is None:
        _replset_initiate(planned, endpoints[0], deadline)
        done = [change]
    else:
        _require_same_members(planned, endpoints[0], deadline)
        done = _add(planned, endpoints, deadline)
        endpoints += [member["endpoint"] for member in planned["members"] if member.get("added")]
    _await_members(name, endpoints, deadline, step_up=len(endpoints) > 1)
    for member in planned["members"]:
        wait_for_hello(member["endpoint"], deadline)  # those that are added later too
    return done


def _replset_initiate(planned: dict[str, Any], endpoint: str, deadline: Deadline) -> None:
    wire_version = wait_for_hello(endpoint, deadline).get("maxWireVersion") or 0
    document: dict[str, Any] = {"_id": planned["name"], "members": _members(planned, wire_version)}
    if planned["name"] == "config":
        document["configsvr"] = True
    try:
        with connect(endpoint, deadline) as client:
            client.admin.command("replSetInitiate", document)
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            step = "; these hosts must reach one another (routes, firewall)" if error.code == _NODE_NOT_FOUND else ""
            raise HostError(
                f"replSetInitiate of {planned['name']} on {endpoint}: {server_message(error)}{step}"
            ) from None


def _members(planned: dict[str, Any], wire_version: int) -> list[dict[str, Any]]:
    return [
        member_document(number, member, wire_version)
        for number, member in enumerate(planned["members"])
        if member.get("initial", True)
    ]


def member_document(number: int, member: dict[str, Any], wire_version: int) -> dict[str, Any]:
    """A member as the server's configuration of the set has it; `wire_version` is the server's maxWireVersion."""
    delay = "secondaryDelaySecs" if wire_version >= _FIRST_WITH_SECONDARY_DELAY else "slaveDelay"
    return {
        "_id": number,
        "host": member["endpoint"],
        "arbiterOnly": member.get("arbiter", False),
        "priority": member.get("priority", 1),
        "votes": member.get("votes", 1),
        "hidden": member.get("hidden", False),
        delay: member.get("delay_seconds", 0),
    }


def _require_same_members(planned: dict[str, Any], endpoint: str, deadline: Deadline) -> None:
    """Changing members is another experiment, not another deploy of the same point.

    A member that is not initial may be there: a phase has added it.
    """
    wire_version = wait_for_hello(endpoint, deadline).get("maxWireVersion") or 0
    with connect(endpoint, deadline) as client:
        config = client.admin.command("replSetGetConfig")["config"]
    later = {member["endpoint"] for member in planned["members"] if not member.get("initial", True)}
    members = _members(planned, wire_version)
    keys = [key for key in members[0] if key != "_id"]
    there = [[member.get(key) for key in keys] for member in config["members"] if member["host"] not in later]
    wanted = [[member[key] for key in keys] for member in members]
    if config["_id"] != planned["name"] or there != wanted:
        raise HostError(
            f"replica set {config['_id']} on {endpoint} has the members {there}, "
            f"planned is {planned['name']} with {wanted} ({', '.join(keys)}). "
            "Tear the point down before it is deployed differently"
        )


def _add(planned: dict[str, Any], endpoints: list[str], deadline: Deadline) -> list[str]:
    """Make members of the processes that were added by hand and are none yet; one at a time, as the server wants it."""
    done = []
    for member in planned["members"]:
        if not member.get("added"):
            continue
        with connect(_primary(planned["name"], endpoints, deadline), deadline) as client:
            config = client.admin.command("replSetGetConfig")["config"]
            if any(known["host"] == member["endpoint"] for known in config["members"]):
                continue
            wire_version = client.admin.command("isMaster")["maxWireVersion"]
            number = max(known["_id"] for known in config["members"]) + 1
            config["members"].append(member_document(number, member, wire_version))
            config["version"] += 1
            try:
                client.admin.command("replSetReconfig", config)
            except OperationFailure as error:
                raise HostError(
                    f"replSetReconfig of {planned['name']} with {member['process']}: {server_message(error)}"
                ) from None
        done.append(f"{member['process']} added to {planned['name']}")
    return done


def _primary(name: str, endpoints: list[str], deadline: Deadline) -> str:
    while True:
        for endpoint in endpoints:
            if _state(hello(endpoint, deadline)) == "primary":
                return endpoint
        deadline.pause(f"replica set {name} has no primary")


def _await_members(name: str, endpoints: list[str], deadline: Deadline, *, step_up: bool) -> None:
    """Wait for one primary, and secondaries and arbiters that say so and that the primary reaches.

    A set of several members that is new or restored would wait for its election timeout, 10 s, before it votes at
    all. So the first member is requested to step up at once (`replSetStepUp`), again and again until the others know
    of the set.
    """
    polls = 0
    while True:
        states = {endpoint: _state(hello(endpoint, deadline)) for endpoint in endpoints}
        primaries = [endpoint for endpoint, state in states.items() if state == "primary"]
        if len(primaries) == 1 and set(states.values()) <= {"primary", "secondary", "arbiter"}:
            unseen = _out_of_reach(primaries[0], endpoints, deadline) if len(endpoints) > 1 else ""
            if not unseen:
                return
            deadline.pause(f"replica set {name}: {unseen}")
        if step_up and not primaries and polls % _STEP_UP_EVERY == 0:
            _step_up(endpoints[0], deadline)
        polls += 1
        shown = ", ".join(f"{endpoint} {state}" for endpoint, state in states.items())
        deadline.pause(f"replica set {name} is not complete: {shown}")


def _state(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "unreachable"
    if answer.get("isWritablePrimary"):
        return "primary"
    return "arbiter" if answer.get("arbiterOnly") else "secondary" if answer.get("secondary") else "not ready"


def _out_of_reach(primary: str, endpoints: list[str], deadline: Deadline) -> str:
    """Which member the primary does not see in its place, with the server's message; "" when it sees all of them.

    All may answer this host and yet not reach each other: between them is another network.
    """
    with connect(primary, deadline) as client:
        try:
            seen = {member["name"]: member for member in client.admin.command("replSetGetStatus")["members"]}
        except OperationFailure as error:
            return f"replSetGetStatus on {primary}: {server_message(error)}"
    for endpoint in endpoints:
        member = seen.get(endpoint, {})
        if member.get("health") != 1 or member.get("stateStr") not in {"PRIMARY", "SECONDARY", "ARBITER"}:
            message = member.get("lastHeartbeatMessage") or ""
            seen_as = f"{primary} sees {endpoint} as {member.get('stateStr', 'no member')}"
            return f"{seen_as}: {message}" if message else seen_as
    return ""


def _step_up(endpoint: str, deadline: Deadline) -> None:
    with connect(endpoint, deadline) as client:
        try:
            client.admin.command("replSetStepUp")
        except OperationFailure:
            return  # not yet electable, or a server without the command: then the election timeout decides
