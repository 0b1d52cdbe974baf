"""The stages of an initial sync, from what the member says of itself (`replSetGetStatus` with `initialSync: 1`).

The member tells begin and end of every collection and how many documents it has copied. Collections are cloned one
after the other; an index is built while its collection is copied and finished after the last document. A member that
has become SECONDARY answers nothing of it any more, so it is asked while it is at work; what came after the last answer
is in the line of its log with which an initial sync ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson import json_util

# Databases of the server's own: cloned or skipped, but no data of the experiment.
_LAST_WORDS = 21192  # id of the log line "Initial sync status and statistics", from 4.4 on
OWN_DATABASES = frozenset({"admin", "config", "local"})


def last_words(lines: Iterable[str]) -> dict[str, Any]:
    """The statistics of the last initial sync in a server's log, in the form of initialSyncStatus; empty if not there.

    Of many collections the server logs only as many as fit its line.
    """
    for line in reversed(list(lines)):
        if f'"id":{_LAST_WORDS}' in line:
            try:
                found = json.loads(line, object_hook=json_util.object_hook)["attr"]["statistics"]
            except (ValueError, KeyError, TypeError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}


def epoch(moment: datetime) -> float:
    """Epoch seconds of a date as the driver reads it: UTC without saying so."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(slots=True)
class Clone:
    """A collection as far as it is cloned; times are epoch seconds of the member's clock."""

    namespace: str
    began: float
    ended: float | None = None
    documents: int = 0
    bytes: int = 0
    indexes: int = 0
    copied_at: float = 0.0  # when the last document was seen to be there

    @property
    def copying(self) -> float:
        """Seconds until its last document was there."""
        last = self.ended if self.ended is not None else self.copied_at
        return max(min(self.copied_at or last, last) - self.began, 0.0)

    @property
    def indexing(self) -> float:
        """Seconds after that, in which its indexes were finished."""
        return max((self.ended or self.began) - self.began - self.copying, 0.0) if self.ended is not None else 0.0


@dataclass(slots=True)
class Sync:
    """One attempt, as the member has told of it so far."""

    began: float | None = None  # initialSyncStart
    ended: float | None = None  # initialSyncEnd
    clones: dict[str, Clone] = field(default_factory=dict)
    applied: int = 0  # operations of the oplog
    bytes_to_copy: int = 0
    bytes_copied: int = 0
    failures: list[str] = field(default_factory=list)
    source: str = ""

    def learn(self, status: Mapping[str, Any], now: float) -> None:
        """Take in an answer of replSetGetStatus; `now` is the member's clock when it answered."""
        told = status.get("initialSyncStatus")
        self.source = status.get("syncSourceHost") or self.source
        if not told:
            return
        if "initialSyncStart" in told:
            self.began = epoch(told["initialSyncStart"])
        if "initialSyncEnd" in told:
            self.ended = epoch(told["initialSyncEnd"])
        self.applied = int(told.get("appliedOps", self.applied))
        self.bytes_to_copy = int(told.get("approxTotalDataSize", self.bytes_to_copy))
        self.bytes_copied = int(told.get("approxTotalBytesCopied", self.bytes_copied))
        attempts = told.get("initialSyncAttempts") or []
        self.failures = [str(a.get("status")) for a in attempts if a.get("status") not in (None, "OK")]
        for attempt in attempts:
            self.source = attempt.get("syncSource") or self.source
        for namespace, entry in _collections(told.get("databases") or {}):
            self._collection(namespace, entry, now)

    def is_anew(self, status: Mapping[str, Any]) -> bool:
        """Whether an answer of replSetGetStatus is of a sync that was begun after this one."""
        start = (status.get("initialSyncStatus") or {}).get("initialSyncStart")
        return self.began is not None and start is not None and epoch(start) != self.began

    def _collection(self, namespace: str, entry: Mapping[str, Any], now: float) -> None:
        if "start" not in entry:
            return
        clone = self.clones.setdefault(namespace, Clone(namespace, epoch(entry["start"])))
        clone.began = epoch(entry["start"])
        copied = int(entry.get("documentsCopied", 0))
        if copied != clone.documents or not clone.copied_at:
            clone.documents, clone.copied_at = copied, max(now, clone.began)
        clone.bytes = int(entry.get("approxBytesCopied", entry.get("bytesToCopy", 0)))
        clone.indexes = int(entry.get("indexes", 0))
        if "end" in entry:
            clone.ended = epoch(entry["end"])

    @property
    def documents(self) -> int:
        """Documents copied so far, all databases."""
        return sum(clone.documents for clone in self.clones.values())

    @property
    def share(self) -> float:
        """How much of the bytes is copied, 0 to 1."""
        return self.bytes_copied / self.bytes_to_copy if self.bytes_to_copy else 0.0

    def stages(self, joined: float, secondary: float) -> list[dict[str, Any]]:
        """What the time from `joined` (reconfiguration, or restart) to SECONDARY was spent on; they sum up to it."""
        clones = list(self.clones.values())
        began = min(max(self.began if self.began is not None else joined, joined), secondary)
        ends = [clone.ended if clone.ended is not None else clone.copied_at for clone in clones]
        cloned = min(max([began, *ends]), secondary)
        first = min([cloned, *(max(clone.began, began) for clone in clones)])
        copying = sum(clone.copying for clone in clones)
        indexing = sum(clone.indexing for clone in clones)
        between = max(cloned - first - copying - indexing, 0.0)
        # Clocks tell milliseconds, and what is seen is seen late: never more than there is.
        scale = (cloned - first) / (copying + indexing) if copying + indexing > cloned - first else 1.0
        size = sum(clone.bytes for clone in clones)
        applied = max(min(self.ended if self.ended is not None else secondary, secondary), cloned)
        return [
            {"name": "join the set", "seconds": began - joined},
            {"name": "list collections", "seconds": first - began + between},
            {"name": "clone", "seconds": copying * scale, "bytes": size, "documents": self.documents},
            {"name": "finish indexes", "seconds": indexing * scale, "indexes": sum(c.indexes for c in clones)},
            {"name": "apply oplog", "seconds": applied - cloned, "operations": self.applied},
            {"name": "become SECONDARY", "seconds": secondary - applied},
        ]


def _collections(databases: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Namespaces with what is told of each."""
    for database in databases.values():
        if isinstance(database, Mapping):
            for name, entry in database.items():
                if isinstance(entry, Mapping) and "documentsCopied" in entry:
                    yield name, entry
