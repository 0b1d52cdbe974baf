"""A replica set: initiated, with a primary and every member in its place."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.microshard.topology.server import Deadline, TopologyProblem, connect, hello
from pymongo.errors import OperationFailure

_ALREADY_INITIALIZED = 23
_STEP_UP_EVERY = 5  # polls, so about 100 ms


def initiate(planned: dict[str, Any], deadline: Deadline, *, check: bool) -> list[str]:
    """Initiate the set if it is not, wait until all its members have their place, and say what was done."""
    name, endpoints = planned["name"], [member["endpoint"] for member in planned["members"]]
    change = f"replica set {name} initiated"
    if check:
        answers = [hello(endpoint) for endpoint in endpoints]
        return [] if any(answer and answer.get("setName") == name for answer in answers) else [change]
    done = []
    if _set_name(endpoints[0], deadline) is None:
        _replset_initiate(planned, endpoints[0], deadline)
        done = [change]
    else:
        _require_same_members(planned, endpoints[0], deadline)
    _await_members(name, endpoints, deadline, hurry=bool(done) and len(endpoints) > 1)
    return done


def _set_name(endpoint: str, deadline: Deadline) -> str | None:
    while True:
        answer = hello(endpoint)
        if answer is not None:
            return answer.get("setName")
        deadline.pause(f"{endpoint} does not answer")


def _replset_initiate(planned: dict[str, Any], endpoint: str, deadline: Deadline) -> None:
    document: dict[str, Any] = {"_id": planned["name"], "members": _members(planned)}
    if planned["role"] == "config":
        document["configsvr"] = True
    try:
        with connect(endpoint, deadline) as client:
            client.admin.command("replSetInitiate", document)
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            raise TopologyProblem(f"replSetInitiate of {planned['name']} on {endpoint}: {error}") from None


def _members(planned: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "_id": number,
            "host": member["endpoint"],
            "priority": member.get("priority", 1),
            "votes": member.get("votes", 1),
            "hidden": member.get("hidden", False),
        }
        for number, member in enumerate(planned["members"])
    ]


def _require_same_members(planned: dict[str, Any], endpoint: str, deadline: Deadline) -> None:
    """Changing members is another experiment, not another deploy of the same point."""
    with connect(endpoint, deadline) as client:
        config = client.admin.command("replSetGetConfig")["config"]
    keys = ("host", "priority", "votes", "hidden")
    there = [[member[key] for key in keys] for member in config["members"]]
    wanted = [[member[key] for key in keys] for member in _members(planned)]
    if config["_id"] != planned["name"] or there != wanted:
        raise TopologyProblem(
            f"replica set {config['_id']} on {endpoint} has the members {there}, "
            f"planned is {planned['name']} with {wanted}. "
            "Tear the point down before it is deployed differently"
        )


def _await_members(name: str, endpoints: list[str], deadline: Deadline, *, hurry: bool) -> None:
    """Wait for one primary and secondaries.

    A new set of several members would wait for its election timeout, 10 s, before it votes at all. So the first member
    is asked to stand at once (`replSetStepUp`); it fails until the others have heard of the set, and is asked again.
    """
    polls = 0
    while True:
        states = {endpoint: _state(hello(endpoint)) for endpoint in endpoints}
        if list(states.values()).count("primary") == 1 and set(states.values()) <= {"primary", "secondary"}:
            return
        if hurry and "primary" not in states.values() and polls % _STEP_UP_EVERY == 0:
            _ask_to_stand(endpoints[0], deadline)
        polls += 1
        told = ", ".join(f"{endpoint} {state}" for endpoint, state in states.items())
        deadline.pause(f"replica set {name} is not complete: {told}")


def _state(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return "unreachable"
    if answer.get("isWritablePrimary"):
        return "primary"
    return "secondary" if answer.get("secondary") or answer.get("arbiterOnly") else "not ready"


def _ask_to_stand(endpoint: str, deadline: Deadline) -> None:
    with connect(endpoint, deadline) as client:
        try:
            client.admin.command("replSetStepUp")
        except OperationFailure:
            return  # not yet electable, or a server without the command: then the election timeout decides
