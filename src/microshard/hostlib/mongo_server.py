"""A server within a deadline: whether it answers, and a client of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from . import proc, wire
from .errors import HostError
from .wire import OPEN, Access

POLL = 0.02  # s; an election of a single member takes about 70 ms
CHECK_EVERY = 1.0  # s between checks of the processes


class Deadline:
    """When waiting has failed, the access to the servers, and the processes that must not end meanwhile.

    Of the planned `processes` those that run on this machine now are checked while waiting.
    """

    def __init__(self, seconds: float, access: Access = OPEN, processes: Sequence[dict[str, Any]] = ()) -> None:
        self.seconds = seconds
        self.access = access
        self._end = time.monotonic() + seconds
        self._alive = [process for process in processes if _runs(process)]
        self._check_at = time.monotonic() + CHECK_EVERY

    def left_ms(self) -> int:
        """The time left in ms, at least one second, for a server-side limit."""
        return max(1000, int((self._end - time.monotonic()) * 1000))

    def pause(self, missing: str) -> None:
        """Wait a moment; HostError with what is missing when time is up or a process is gone."""
        if time.monotonic() >= self._check_at:
            self._check_at = time.monotonic() + CHECK_EVERY
            gone = [process["name"] for process in self._alive if not _runs(process)]
            if gone:
                raise HostError(f"{missing}, and {', '.join(gone)} does not run any more")
        if time.monotonic() >= self._end:
            raise HostError(f"{missing}, still after {self.seconds:.0f} s")
        time.sleep(POLL)


def _runs(process: dict[str, Any]) -> bool:
    """Whether a planned process runs on this machine."""
    return proc.from_pid_file(process.get("pid_path") or "", process.get("config_path") or "") is not None


def connect(endpoint: str, deadline: Deadline) -> MongoClient[dict[str, Any]]:
    """A client of exactly this server."""
    access = deadline.access
    secured: dict[str, Any] = {"tls": True, "tlsCAFile": access.ca_file} if access.ca_file else {}
    if access.key:
        secured.update(username=wire.SYSTEM_USER, password=access.key, authSource=wire.SYSTEM_DATABASE)
        secured.update(authMechanism=wire.MECHANISM)
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

    Not by a MongoClient: after a refused connection that retries only after half a second.
    """
    address, _, port = endpoint.rpartition(":")
    try:
        return wire.hello(address.strip("[]"), int(port), access=deadline.access)
    except (OSError, ValueError):
        return None


def wait_for_hello(endpoint: str, deadline: Deadline, name: str = "") -> dict[str, Any]:
    """The answer to `hello`, as soon as the server answers; `name` is its process in the message."""
    while True:
        answer = hello(endpoint, deadline)
        if answer is not None:
            return answer
        deadline.pause(f"{name} ({endpoint}) does not answer" if name else f"{endpoint} does not answer")


def server_message(error: OperationFailure) -> str:
    """The server's message and code."""
    details = error.details or {}
    name = f", {details['codeName']}" if "codeName" in details else ""
    return f"{details.get('errmsg') or error} (code {error.code}{name})"
