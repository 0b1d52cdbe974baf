"""Migrations by hand, so many at a time: what a balancer before 3.4 did one by one, on any server."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from microshard.workloads.balancing.watch import Share, Watch

RANGES_SINCE = (6, 0)  # moveRange; before, moveChunk moves a chunk whole
APART = 3  # chunk sizes by which two shards may differ: the threshold of the balancer from 6.0 on
IDLE_SECONDS = 0.5
MOVE_MS = 3_600_000
# Another migration or the range deleter is in the way, or the chunk has changed meanwhile: look again.
_TRANSIENT = {117, 46, 9, 20, 70, 96, 175, 178, 262, 13388, 150, 11000, 50}


@dataclass
class Mover:
    """Moves from the fullest to the emptiest shard; every shard takes part in one migration at a time at most."""

    watch: Watch
    chunk_bytes: int
    concurrent: int
    secondary_throttle: bool
    wait_for_delete: bool
    error: BaseException | None = None
    _busy: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin."""
        for n in range(self.concurrent):
            thread = threading.Thread(target=self._guard(random.Random(n)), daemon=True)  # noqa: S311 - which chunk is next, no secret
            self._threads.append(thread)
            thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """No migration is begun any more; those under way are waited for, all together for so long."""
        self._stop.set()
        for thread in self._threads:
            thread.join(seconds / max(len(self._threads), 1))

    def _guard(self, chance: random.Random) -> Callable[[], None]:
        def work() -> None:
            try:
                while not self._stop.is_set():
                    if not self._move_one(chance):
                        self._stop.wait(IDLE_SECONDS)
            except PyMongoError as error:
                self.error = error

        return work

    def _move_one(self, chance: random.Random) -> bool:
        """One migration, if one is called for."""
        with self._lock:
            pair = self._pair(self.watch.shares())
            if pair is None:
                return False
            self._busy |= set(pair)
        try:
            return self._move(*pair, chance)
        finally:
            with self._lock:
                self._busy -= set(pair)

    def _pair(self, shares: dict[str, Share]) -> tuple[str, str] | None:
        free = sorted((share.bytes, name) for name, share in shares.items() if name not in self._busy)
        if len(free) < 2 or free[-1][0] - free[0][0] < APART * self.chunk_bytes:
            return None
        return free[-1][1], free[0][1]

    def _move(self, source: str, target: str, chance: random.Random) -> bool:
        door = self.watch.door
        chunks = list(door["config"]["chunks"].find({"$and": [self.watch.of_collection(), {"shard": source}]}))
        if not chunks:
            return False
        chunk = chance.choice(chunks)
        options: dict[str, Any] = {"secondaryThrottle": self.secondary_throttle, "maxTimeMS": MOVE_MS}
        try:
            if self._moves_ranges():
                door.admin.command("moveRange", self.watch.namespace, min=chunk["min"], toShard=target,
                                   waitForDelete=self.wait_for_delete, **options)  # fmt: skip
            else:
                door.admin.command("moveChunk", self.watch.namespace, bounds=[chunk["min"], chunk["max"]], to=target,
                                   _waitForDelete=self.wait_for_delete, **options)  # fmt: skip
        except OperationFailure as error:
            if error.code not in _TRANSIENT:
                raise
            return False
        return True

    def _moves_ranges(self) -> bool:
        version: Any = self.watch.door.admin.command("buildInfo")["versionArray"]
        return tuple(version[:2]) >= RANGES_SINCE
