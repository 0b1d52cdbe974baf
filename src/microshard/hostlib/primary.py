"""Which member of a replica set leads after all of them were held."""

from __future__ import annotations

import time
from collections.abc import Sequence

from . import wire
from .mongo_process import MongoProcess, ProcessProblem

_POLL = 0.02
_STEADY = 0.2  # s; the election timers that ran out meanwhile fire within some 20 ms after SIGCONT
_ASK_EVERY = 0.1  # s
_ASK_FOR = 3.0  # s; a first member that cannot be elected (priority 0) is not waited for longer


def settle(members: Sequence[MongoProcess], deadline: float) -> None:
    """Wait until one member leads and goes on leading; the first one, as after the deployment.

    Who was held for longer than the election timeout wakes up believing that the primary is lost, and some member calls
    an election at once. Which one wins is chance; but the cache of one that did not lead before is another one.
    """
    if not any(_is_in_a_set(member) for member in members):
        return  # deployed and not initiated yet: there is nothing to elect
    first, began = members[0], time.monotonic()
    asked, since, leader = 0.0, began, ""
    while True:
        leaders = [member.name for member in members if _leads(member)]
        now = time.monotonic()
        if leaders != [leader]:
            leader, since = (leaders[0] if len(leaders) == 1 else ""), now
        wanted = leader == first.name or (leader and now - began > _ASK_FOR)
        if wanted and now - since > _STEADY:
            return
        if not wanted and now - began < _ASK_FOR and now - asked > _ASK_EVERY:
            _ask_to_stand(first)
            asked = now
        if now > deadline:
            raise ProcessProblem(f"replica set {first.replica_set} has no lasting primary after it was resumed")
        time.sleep(_POLL)


def _leads(member: MongoProcess) -> bool:
    try:
        return bool(wire.hello(member.address, member.port, access=member.manner.access).get("isWritablePrimary"))
    except (OSError, ValueError):
        return False


def _is_in_a_set(member: MongoProcess) -> bool:
    """Whether it knows of a set. One that does not answer may: only the word of the server itself says no."""
    try:
        return not wire.hello(member.address, member.port, access=member.manner.access).get("isreplicaset")
    except (OSError, ValueError):
        return True


def _ask_to_stand(member: MongoProcess) -> None:
    try:
        step_up = {"replSetStepUp": 1, "$db": "admin"}
        wire.command(member.address, member.port, step_up, timeout=5.0, access=member.manner.access)
    except (OSError, ValueError):
        return  # it will be asked again
