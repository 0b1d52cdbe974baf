"""Members of replica sets while something runs: how far each is behind its primary, and who answers reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo.errors import PyMongoError

from microshard.model.job import ProcessInfo
from microshard.workloads.base import Client
from microshard.workloads.storage import direct, on_all

INTERVAL_SECONDS = 1.0
PRIMARY, SECONDARY = 1, 2  # myState and members[].state of replSetGetStatus
STATUS_MS = 2_000


def lags(status: Mapping[str, Any]) -> dict[str, float]:
    """Seconds each secondary is behind, by endpoint, in a primary's replSetGetStatus; empty in any other's.

    By the wall clock of the last applied operation (MongoDB 4.4 on, milliseconds), else by its optime (seconds).
    """
    if status.get("myState") != PRIMARY:
        return {}
    members = status["members"]
    clock = "lastAppliedWallTime" if all("lastAppliedWallTime" in m for m in members) else "optimeDate"
    ahead: datetime = next(m[clock] for m in members if m["state"] == PRIMARY)
    return {m["name"]: max(0.0, (ahead - m[clock]).total_seconds()) for m in members if m["state"] == SECONDARY}


def reads(processes: Sequence[ProcessInfo]) -> dict[str, int]:
    """Queries each data-bearing process has answered since its start (opcounters.query). Raises PhaseError."""
    found: dict[str, int] = {}

    def ask(process: ProcessInfo) -> None:
        with direct(process) as client:
            found[process.name] = int(client.admin.command("serverStatus")["opcounters"]["query"])

    on_all([p for p in processes if p.bears_data], ask)
    return found


class LagWatch:
    """Asks every member once a second on a thread of its own; `series` is what it saw."""

    def __init__(self, processes: Sequence[ProcessInfo]) -> None:
        self._names = {p.endpoint: p.name for p in processes}
        self._members = [p for p in processes if p.role in {"member", "shard"}]
        self._rows: list[tuple[float, dict[str, float]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._members:
            self._thread.start()

    def stop(self) -> None:
        """End; safe to call again or without start."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2 * STATUS_MS / 1000)

    def _watch(self) -> None:
        options = {"serverSelectionTimeoutMS": STATUS_MS, "socketTimeoutMS": STATUS_MS}
        clients: list[Client] = [direct(process, **options) for process in self._members]
        try:
            while not self._stop.wait(INTERVAL_SECONDS):
                row: dict[str, float] = {}
                for client in clients:
                    try:
                        row |= lags(client.admin.command("replSetGetStatus"))
                    except PyMongoError:
                        continue  # a member that does not answer has no point in the curve
                self._rows.append((time.time(), row))
        finally:
            for client in clients:
                client.close()

    def between(self, started: float, ended: float) -> list[tuple[float, dict[str, float]]]:
        """(epoch seconds, lag by process) of an interval."""
        rows = [(t, row) for t, row in list(self._rows) if started <= t <= ended]
        return [(t, {self._names.get(name, name): lag for name, lag in row.items()}) for t, row in rows]
