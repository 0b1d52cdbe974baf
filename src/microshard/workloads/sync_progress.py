"""The syncing member of the engine `initial_sync`: its stages, its interruption, its comparison with the set.

The member reports begin and end of every collection and how many documents it has copied (`replSetGetStatus` with
`initialSync: 1`). Collections are cloned one after the other; an index is built while its collection is copied and
finished after the last document. A member that has become SECONDARY no longer reports any of it; what happened after
the last report is in the line of its log with which an initial sync ends.
"""

import json
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson import Timestamp, json_util
from pymongo.errors import PyMongoError

from microshard.model.job import ProcessInfo
from microshard.model.result import Stage
from microshard.workloads import restarts
from microshard.workloads.base import Context, PhaseError
from microshard.workloads.connections import Client

SYSTEM_DATABASES = frozenset({"admin", "config", "local"})  # cloned or skipped, but no data of the experiment
CATCH_UP_SECONDS = 120.0
_POLL_SECONDS = 0.1
_STATISTICS_ID = 21192  # of the log line "Initial sync status and statistics", from 4.4 on


def final_statistics(lines: Iterable[str]) -> dict[str, Any]:
    """The statistics of the last initial sync in a server's log, in the form of initialSyncStatus; empty if none.

    Of many collections the server logs only as many as fit its line.
    """
    for line in reversed(list(lines)):
        if f'"id":{_STATISTICS_ID}' in line:
            try:
                found = json.loads(line, object_hook=json_util.object_hook)["attr"]["statistics"]
            except (ValueError, KeyError, TypeError):
                return {}
            return found if isinstance(found, dict) else {}
    return {}


def documents_in(client: Client) -> int:
    """Documents of all the experiment's databases, by the servers' counters."""
    names = [name for name in client.list_database_names() if name not in SYSTEM_DATABASES]
    return sum(
        client[name][collection["name"]].estimated_document_count()
        for name in names
        for collection in client[name].list_collections(filter={"type": "collection"})
    )


def epoch(moment: datetime) -> float:
    """Epoch seconds of a date as the driver reads it: UTC without a time zone."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@dataclass(slots=True)
class CollectionClone:
    """The progress of one collection; times are epoch seconds of the member's clock."""

    namespace: str
    began: float
    ended: float | None = None
    documents: int = 0
    bytes: int = 0
    indexes: int = 0
    copied_at: float = 0.0  # when the last document was first reported

    @property
    def copying(self) -> float:
        """Seconds until its last document was copied."""
        last = self.ended if self.ended is not None else self.copied_at
        return max(min(self.copied_at or last, last) - self.began, 0.0)

    @property
    def indexing(self) -> float:
        """Seconds after that, in which its indexes were finished."""
        return max(self.ended - self.began - self.copying, 0.0) if self.ended is not None else 0.0


@dataclass(slots=True)
class SyncAttempt:
    """One attempt of an initial sync, as far as the member has reported it."""

    began: float | None = None  # initialSyncStart
    ended: float | None = None  # initialSyncEnd
    clones: dict[str, CollectionClone] = field(default_factory=dict)
    applied: int = 0  # operations of the oplog
    bytes_to_copy: int = 0
    bytes_copied: int = 0
    failures: list[str] = field(default_factory=list)
    source: str = ""

    def update(self, status: Mapping[str, Any], now: float) -> None:
        """Add an answer of replSetGetStatus; `now` is the member's clock when it answered."""
        report = status.get("initialSyncStatus")
        self.source = status.get("syncSourceHost") or self.source
        if not report:
            return
        if "initialSyncStart" in report:
            self.began = epoch(report["initialSyncStart"])
        if "initialSyncEnd" in report:
            self.ended = epoch(report["initialSyncEnd"])
        self.applied = int(report.get("appliedOps", self.applied))
        self.bytes_to_copy = int(report.get("approxTotalDataSize", self.bytes_to_copy))
        self.bytes_copied = int(report.get("approxTotalBytesCopied", self.bytes_copied))
        attempts = report.get("initialSyncAttempts") or []
        self.failures = [str(a.get("status")) for a in attempts if a.get("status") not in (None, "OK")]
        for attempt in attempts:
            self.source = attempt.get("syncSource") or self.source
        for database in (report.get("databases") or {}).values():
            for namespace, entry in database.items() if isinstance(database, Mapping) else ():
                if isinstance(entry, Mapping) and "documentsCopied" in entry and "start" in entry:
                    self._update_collection(namespace, entry, now)

    def is_older_than(self, status: Mapping[str, Any]) -> bool:
        """Whether an answer of replSetGetStatus is of a sync that began after this one."""
        start = (status.get("initialSyncStatus") or {}).get("initialSyncStart")
        return self.began is not None and start is not None and epoch(start) != self.began

    def _update_collection(self, namespace: str, entry: Mapping[str, Any], now: float) -> None:
        clone = self.clones.setdefault(namespace, CollectionClone(namespace, epoch(entry["start"])))
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

    def share(self, documents: int) -> float:
        """How much is copied, 0 to 1: of the bytes, or of so many documents where bytes are not reported (4.4)."""
        if self.bytes_to_copy:
            return self.bytes_copied / self.bytes_to_copy
        return self.documents / documents if documents else 0.0

    def stages(self, joined: float, secondary: float) -> list[Stage]:
        """How the time from `joined` (reconfiguration, or restart) to SECONDARY was spent; the stages sum up to it."""
        clones = list(self.clones.values())
        began = min(max(self.began if self.began is not None else joined, joined), secondary)
        ends = [clone.ended if clone.ended is not None else clone.copied_at for clone in clones]
        cloned = min(max([began, *ends]), secondary)
        first = min([cloned, *(max(clone.began, began) for clone in clones)])
        copying = sum(clone.copying for clone in clones)
        indexing = sum(clone.indexing for clone in clones)
        between = max(cloned - first - copying - indexing, 0.0)
        # Clocks count milliseconds and progress is seen late: the parts must not exceed the whole.
        scale = (cloned - first) / (copying + indexing) if copying + indexing > cloned - first else 1.0
        size = sum(clone.bytes for clone in clones)
        applied = max(min(self.ended if self.ended is not None else secondary, secondary), cloned)
        return [
            Stage("join the set", began - joined),
            Stage("list collections", first - began + between),
            Stage("clone", copying * scale, size, self.documents),
            Stage("finish indexes", indexing * scale, indexes=sum(c.indexes for c in clones)),
            Stage("apply oplog", applied - cloned, operations=self.applied),
            Stage("become SECONDARY", secondary - applied),
        ]


def kill_and_start(context: Context, info: ProcessInfo, member: Client, poll: Callable[[], int | None]) -> float:
    """End a member by SIGKILL and start it again, here or on its host; returns the moment it started, by our clock.

    On its host it is killed a second or two after the request. Until then `poll` follows its progress; None from it
    means that the member no longer answers. Raises PhaseError with what kept it from starting.
    """
    if not context.job.step.restarts:
        running = restarts.find(info)
        restarts.stop([running], signal.SIGKILL)
        restarts.launch(running)
        return time.time()
    answers = True

    def meanwhile() -> None:
        nonlocal answers
        answers = answers and poll() is not None

    restarts.request_restart(context, [info], kill=True, meanwhile=meanwhile)
    # The answer to the request arrives later than the start: the member knows how long it has been up.
    deadline = time.time() + restarts.START_SECONDS
    while True:
        sent = time.time()
        try:
            uptime = member.admin.command("serverStatus")["uptimeMillis"]
        except PyMongoError as error:  # connections of before are found to be closed, one after the other
            if sent > deadline:
                raise PhaseError("DoesNotStart", f"{info.name} does not answer after its restart: {error}") from error
            time.sleep(_POLL_SECONDS)
        else:
            return (sent + time.time()) / 2 - float(uptime) / 1000


def catch_up(replica_set: Client, member: Client) -> None:
    """Wait until the member has applied what the primary has written by now. Raises PhaseError."""
    goal = _last_applied(replica_set)
    deadline = time.monotonic() + CATCH_UP_SECONDS
    while _last_applied(member) < goal:
        if time.monotonic() > deadline:
            raise PhaseError("LagsBehind", f"the new member has not caught up in {CATCH_UP_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _last_applied(client: Client) -> Timestamp:
    found: Timestamp = client.admin.command("replSetGetStatus")["optimes"]["appliedOpTime"]["ts"]
    return found


def compare_data(replica_set: Client, member: Client, name: str, *, hashes: bool) -> int:
    """Compare counts and indexes of all collections, and `hashes` of all databases; returns the member's documents.

    Raises PhaseError with what differs; `name` is the member's.
    """
    expected, found = _inventory(replica_set), _inventory(member)
    if expected != found:
        wrong = sorted(ns for ns in expected.keys() | found.keys() if expected.get(ns) != found.get(ns))
        text = "; ".join(f"{ns}: {expected.get(ns)} on the primary, {found.get(ns)} here" for ns in wrong[:3])
        raise PhaseError("NotTheSame", f"{name} differs from its set: {text}")
    for database in {ns.partition(".")[0] for ns in found} if hashes else ():
        ours, theirs = (client[database].command("dbHash")["md5"] for client in (member, replica_set))
        if ours != theirs:
            raise PhaseError("NotTheSame", f"{name}: dbHash of {database} differs from the primary's")
    return sum(documents for documents, _ in found.values())


def _inventory(client: Client) -> dict[str, tuple[int, list[str]]]:
    """Documents and index names of every collection of the experiment."""
    found = {}
    for database in set(client.list_database_names()) - SYSTEM_DATABASES:
        db = client[database]
        for name in db.list_collection_names(filter={"type": "collection"}):
            indexes = sorted(str(index["name"]) for index in db[name].list_indexes())
            found[f"{database}.{name}"] = (db[name].count_documents({}), indexes)
    return found
