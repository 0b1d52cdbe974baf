"""Where chunks, documents and bytes are, and what the balancer has done: from the config database and the shards."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import OperationFailure

from microshard.model.job import ReplicaSetInfo
from microshard.workloads.base import Client, connect

COMMAND_NOT_FOUND = 59
# Before 6.0 the balancer compared chunk counts: migration thresholds of the manual (sharding-balancer-administration).
_THRESHOLDS = ((20, 2), (80, 4))
_LARGEST_THRESHOLD = 8


@dataclass(frozen=True, slots=True)
class Share:
    """What a shard has of the collection."""

    chunks: int
    documents: int  # its own: without the copies that migrations left behind, where the server counts those
    bytes: int  # of its own documents, uncompressed
    orphans: int


@dataclass(slots=True)
class Migration:
    """A migration that was committed."""

    source: str
    target: str
    documents: int
    bytes: int
    seen: float  # epoch seconds


@dataclass(slots=True)
class Watch:
    """Looks at one collection."""

    door: Client
    namespace: str
    shards: dict[str, Client] = field(default_factory=dict)
    migrations: list[Migration] = field(default_factory=list)
    failures: int = 0  # migrations that were given up
    last_failure: str = ""
    counts_orphans: bool = True
    _seen: set[Any] = field(default_factory=set)
    _since: Any = None

    def add(self, replica_sets: Sequence[ReplicaSetInfo]) -> None:
        """Look at these shards too."""
        for rs in replica_sets:
            if rs.name not in self.shards:
                self.shards[rs.name] = connect(rs.uri)

    def close(self) -> None:
        """Close the connections to the shards."""
        for client in self.shards.values():
            client.close()

    def chunks(self) -> dict[str, int]:
        """Chunks by shard, as the config database has them."""
        by_shard = self.door["config"]["chunks"].aggregate(
            [{"$match": self.of_collection()}, {"$group": {"_id": "$shard", "n": {"$sum": 1}}}]
        )
        return {entry["_id"]: int(entry["n"]) for entry in by_shard}

    def of_collection(self) -> dict[str, Any]:
        """What finds the collection's chunks."""
        stored = self.door["config"]["collections"].find_one({"_id": self.namespace}) or {}
        # Since 5.0 chunks belong to the collection's uuid, before to its name.
        return {"$or": [{"uuid": stored.get("uuid", "")}, {"ns": self.namespace}]}

    def shares(self) -> dict[str, Share]:
        """What each shard has now."""
        chunks = self.chunks()
        database, _, collection = self.namespace.partition(".")
        found = {}
        for name, client in self.shards.items():
            try:
                stats = client[database].command("collStats", collection)
            except OperationFailure as error:
                if error.code != 26:  # NamespaceNotFound: a new shard has never heard of it
                    raise
                stats = {}
            count, orphans = int(stats.get("count", 0)), stats.get("numOrphanDocs")
            if stats and orphans is None:
                self.counts_orphans = False
            own = max(count - int(orphans or 0), 0)
            size = int(stats.get("size", 0))
            found[name] = Share(chunks.get(name, 0), own, size * own // count if count else 0, int(orphans or 0))
        return found

    def learn(self, *, fresh: bool = False) -> int:
        """Read what the changelog says of migrations since the last time; how many were committed.

        With `fresh` what is there already is passed over.
        """
        wanted: dict[str, Any] = {"ns": self.namespace, "what": {"$in": ["moveChunk.commit", "moveChunk.error"]}}
        if self._since is not None:
            wanted["time"] = {"$gte": self._since}
        before = len(self.migrations)
        for entry in self.door["config"]["changelog"].find(wanted).sort("time", 1):
            self._since = entry["time"]
            if entry["_id"] in self._seen:
                continue
            self._seen.add(entry["_id"])
            if fresh:
                continue
            details = entry.get("details") or {}
            if entry["what"] == "moveChunk.error":
                self.failures += 1
                self.last_failure = str(details.get("errmsg") or details.get("note") or "")
                continue
            counts = details.get("counts") or {}
            self.migrations.append(
                Migration(
                    str(details.get("from")),
                    str(details.get("to")),
                    int(counts.get("cloned", 0)),
                    int(counts.get("clonedBytes", 0)),
                    time.time(),
                )
            )
        return len(self.migrations) - before

    def balanced(self) -> tuple[bool, str]:
        """Whether the server calls the collection balanced, and if not, why.

        From 4.4 on it is asked (`balancerCollectionStatus`); before, its rule on chunk counts is applied.
        """
        try:
            status = self.door.admin.command("balancerCollectionStatus", self.namespace)
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
