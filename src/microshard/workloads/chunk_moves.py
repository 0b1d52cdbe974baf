"""What the engine `balance` needs of a sharded cluster: where the data is, what was moved, and migrations by hand."""

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from microshard.experiment.releases import first_release
from microshard.workloads.connections import Client

NAMESPACE_NOT_FOUND, COMMAND_NOT_FOUND = 26, 59
# Before 6.0 the balancer compared chunk counts: migration thresholds of the manual (sharding-balancer-administration).
_THRESHOLDS = ((20, 2), (80, 4))
_LARGEST_THRESHOLD = 8

RANGES_SINCE = first_release("moveRange")  # before, moveChunk moves a chunk whole
CHUNKS_APART = 3  # chunk sizes by which two shards may differ: the threshold of the balancer from 6.0 on
IDLE_SECONDS = 0.5
MOVE_MS = 3_600_000
# Another migration or the range deleter is in the way, or the chunk has changed meanwhile: retry.
_TRANSIENT = {117, 46, 9, 20, 70, 96, 175, 178, 262, 13388, 150, 11000, 50}


@dataclass(frozen=True, slots=True)
class ShardShare:
    """What one shard holds of the collection."""

    chunks: int
    documents: int  # without the orphans that migrations left behind, where the server counts those
    bytes: int  # of these documents, uncompressed


@dataclass(slots=True)
class Migration:
    """A migration that was committed."""

    source: str
    target: str
    documents: int
    bytes: int
    seen: float  # epoch seconds


@dataclass(slots=True)
class BalanceMonitor:
    """Reads the distribution and the migrations of one collection from the config database and the shards."""

    client: Client  # of the cluster
    namespace: str
    shards: Mapping[str, Client]  # by name
    migrations: list[Migration] = field(default_factory=list)
    failures: int = 0  # migrations that were aborted
    last_failure: str = ""
    counts_orphans: bool = True
    _seen: set[Any] = field(default_factory=set)
    _since: Any = None

    def chunks(self) -> dict[str, int]:
        """Chunks by shard, from the config database."""
        by_shard = self.client["config"]["chunks"].aggregate(
            [{"$match": self.chunk_filter()}, {"$group": {"_id": "$shard", "n": {"$sum": 1}}}]
        )
        return {entry["_id"]: int(entry["n"]) for entry in by_shard}

    def chunk_filter(self) -> dict[str, Any]:
        """The query for the collection's chunks."""
        stored = self.client["config"]["collections"].find_one({"_id": self.namespace}) or {}
        # Since 5.0 chunks belong to the collection's uuid, before to its name.
        return {"$or": [{"uuid": stored.get("uuid", "")}, {"ns": self.namespace}]}

    def shares(self) -> dict[str, ShardShare]:
        """What each shard holds now."""
        chunks = self.chunks()
        database, _, collection = self.namespace.partition(".")
        found = {}
        for name, client in self.shards.items():
            try:
                stats = client[database].command("collStats", collection)
            except OperationFailure as error:
                if error.code != NAMESPACE_NOT_FOUND:  # a new shard does not have the collection yet
                    raise
                stats = {}
            count, orphans = int(stats.get("count", 0)), stats.get("numOrphanDocs")
            if stats and orphans is None:
                self.counts_orphans = False
            owned = max(count - int(orphans or 0), 0)
            size = int(stats.get("size", 0)) * owned // count if count else 0
            found[name] = ShardShare(chunks.get(name, 0), owned, size)
        return found

    def read_changelog(self, *, ignore: bool = False) -> None:
        """Add the migrations since the last time; with `ignore` they are skipped."""
        query: dict[str, Any] = {"ns": self.namespace, "what": {"$in": ["moveChunk.commit", "moveChunk.error"]}}
        if self._since is not None:
            query["time"] = {"$gte": self._since}
        for entry in self.client["config"]["changelog"].find(query).sort("time", 1):
            self._since = entry["time"]
            if entry["_id"] in self._seen:
                continue
            self._seen.add(entry["_id"])
            if ignore:
                continue
            details = entry.get("details") or {}
            if entry["what"] == "moveChunk.error":
                self.failures += 1
                self.last_failure = str(details.get("errmsg") or details.get("note") or "")
                continue
            counts = details.get("counts") or {}
            documents, size = int(counts.get("cloned", 0)), int(counts.get("clonedBytes", 0))
            source, target = str(details.get("from")), str(details.get("to"))
            self.migrations.append(Migration(source, target, documents, size, time.time()))

    def balanced(self) -> tuple[bool, str]:
        """Whether the server considers the collection balanced, and if not, why.

        From 4.4 on `balancerCollectionStatus` says so; for older servers their rule on chunk counts is applied.
        """
        try:
            status = self.client.admin.command("balancerCollectionStatus", self.namespace)
        except OperationFailure as error:
            if error.code != COMMAND_NOT_FOUND:
                raise
            counts = self.chunks()
            spread = [counts.get(name, 0) for name in self.shards]
            limit = next((least for total, least in _THRESHOLDS if sum(spread) < total), _LARGEST_THRESHOLD)
            difference = max(spread) - min(spread)
            return difference < limit, f"chunk counts differ by {difference}, the balancer's threshold is {limit}"
        if status.get("balancerCompliant"):
            return True, ""
        return False, str(status.get("firstComplianceViolation", "not compliant"))


@dataclass
class ChunkMover:
    """Moves chunks from the fullest to the emptiest shard, several at a time; a shard takes part in one migration.

    What a balancer before 3.4 did one by one, on any server.
    """

    monitor: BalanceMonitor
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
        """Start the threads, each of which moves one chunk at a time."""
        for n in range(self.concurrent):
            thread = threading.Thread(target=self._work, args=(n,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """Begin no more migrations and wait for those in progress, `seconds` for all together."""
        self._stop.set()
        for thread in self._threads:
            thread.join(seconds / max(len(self._threads), 1))

    def _work(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - selects the next chunk, no secret
        try:
            while not self._stop.is_set():
                if not self._move_one(chance):
                    self._stop.wait(IDLE_SECONDS)
        except PyMongoError as error:
            self.error = error

    def _move_one(self, chance: random.Random) -> bool:
        """One migration, if the shards differ by enough."""
        with self._lock:
            pair = self._pair()
            if pair is None:
                return False
            self._busy |= set(pair)
        try:
            return self._move(*pair, chance)
        finally:
            with self._lock:
                self._busy -= set(pair)

    def _pair(self) -> tuple[str, str] | None:
        """The fullest and the emptiest shard without a migration."""
        shares = self.monitor.shares()
        free = sorted((share.bytes, name) for name, share in shares.items() if name not in self._busy)
        if len(free) < 2 or free[-1][0] - free[0][0] < CHUNKS_APART * self.chunk_bytes:
            return None
        return free[-1][1], free[0][1]

    def _move(self, source: str, target: str, chance: random.Random) -> bool:
        client, namespace = self.monitor.client, self.monitor.namespace
        chunks = list(client["config"]["chunks"].find({"$and": [self.monitor.chunk_filter(), {"shard": source}]}))
        if not chunks:
            return False
        chunk = chance.choice(chunks)
        options: dict[str, Any] = {"secondaryThrottle": self.secondary_throttle, "maxTimeMS": MOVE_MS}
        version: Any = client.admin.command("buildInfo")["versionArray"]
        try:
            if tuple(version[:2]) >= RANGES_SINCE:
                client.admin.command("moveRange", namespace, min=chunk["min"], toShard=target,
                                     waitForDelete=self.wait_for_delete, **options)  # fmt: skip
            else:
                client.admin.command("moveChunk", namespace, bounds=[chunk["min"], chunk["max"]], to=target,
                                     _waitForDelete=self.wait_for_delete, **options)  # fmt: skip
        except OperationFailure as error:
            if error.code not in _TRANSIENT:
                raise
            return False
        return True
