"""Talking to one server, within a deadline."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from .. import proc, scram, wire
from ..access import OPEN, Access
from ..refused import Refused

POLL = 0.02  # s; an election of a single member takes about 70 ms
LOOK_EVERY = 1.0  # s between looks at the processes


class TopologyProblem(Refused):
    """What keeps the topology from being as planned, with the server's own words."""


class Deadline:
    """The moment after which waiting has failed, the access to whom is waited for, and who must not be gone meanwhile.

    Of `processes`, planned ones, those that run on this machine now are looked at: for a dead one nobody waits.
    """

    def __init__(self, seconds: float, access: Access = OPEN, processes: Sequence[dict[str, Any]] = ()) -> None:
        self.seconds = seconds
        self.access = access
        self._end = time.monotonic() + seconds
        self._alive = [process for process in processes if _runs(process)]
        self._look = time.monotonic() + LOOK_EVERY

    def left_ms(self) -> int:
        """What is left for a server-side limit, at least one second."""
        return max(1000, int((self._end - time.monotonic()) * 1000))

    def pause(self, missing: str) -> None:
        """Wait a moment; TopologyProblem with what is missing when time is up or a process is gone."""
        if time.monotonic() >= self._look:
            self._look = time.monotonic() + LOOK_EVERY
            gone = [process["name"] for process in self._alive if not _runs(process)]
            if gone:
                raise TopologyProblem(f"{missing}, and {', '.join(gone)} does not run any more")
        if time.monotonic() >= self._end:
            raise TopologyProblem(f"{missing}, still after {self.seconds:.0f} s")
        time.sleep(POLL)


def _runs(process: dict[str, Any]) -> bool:
    """Whether a planned process runs on this machine."""
    return proc.recorded(process.get("pid_path") or "", process.get("config_path") or "") is not None


def connect(endpoint: str, deadline: Deadline) -> MongoClient[dict[str, Any]]:
    """A client of exactly this server."""
    access = deadline.access
    secured: dict[str, Any] = {"tls": True, "tlsCAFile": access.ca_file} if access.ca_file else {}
    if access.key:
        secured.update(username=scram.SYSTEM_USER, password=access.key, authSource=scram.SYSTEM_DATABASE)
        secured.update(authMechanism=scram.MECHANISM)
    return MongoClient(
        f"mongodb://{endpoint}/",
        **secured,
        directConnection=True,
        appname="microshard topology",
        serverSelectionTimeoutMS=10_000,
        # A command that hangs must not outlive the deadline by much.
        socketTimeoutMS=deadline.left_ms() + 1000,
    )


def hello(endpoint: str, deadline: Deadline) -> dict[str, Any] | None:
    """The answer to `hello`, None from a server that does not answer.

    Not through a client: after a refused connection that would look again only after half a second.
    """
    address, _, port = endpoint.rpartition(":")
    try:
        return wire.hello(address.strip("[]"), int(port), access=deadline.access)
    except (OSError, ValueError):
        return None


def told(error: OperationFailure) -> str:
    """The server's own words and code."""
    details = error.details or {}
    name = f", {details['codeName']}" if "codeName" in details else ""
    return f"{details.get('errmsg') or error} (code {error.code}{name})"
