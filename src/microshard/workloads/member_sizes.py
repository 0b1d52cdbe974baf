"""The engine `member_sizes`: compares the sizes of members that store the same data differently."""

import re
import time
from dataclasses import dataclass
from typing import Any

from pymongo.errors import PyMongoError

from microshard.model.phases.member_sizes import MemberSizesPhase
from microshard.model.result import Column, Table
from microshard.workloads.base import Engine, PhaseError, collection_of
from microshard.workloads.connections import Client, connect
from microshard.workloads.servers import SECONDARY, add_members, checkpoint, direct, members_to_add, on_all

POLL_SECONDS = 0.2
COLUMNS = Column.several(
    "member; block compressor; index prefixes; documents, documents; data, bytes; indexes, bytes; "
    "data and indexes, bytes; share of the largest; time to SECONDARY, s"
)


@dataclass(frozen=True, slots=True)
class MemberSize:
    """The size of the collection in one member."""

    compressor: str
    prefixes: bool | None  # prefix compression of the indexes; None where they differ or do not say
    documents: int
    data: int
    indexes: int
    digest: str

    @property
    def total(self) -> int:
        """Data and indexes, bytes."""
        return self.data + self.indexes

    @property
    def label(self) -> str:
        """What distinguishes the member's storage."""
        return self.compressor if self.prefixes is not False else f"{self.compressor} without prefixes"


class MemberSizesEngine(Engine[MemberSizesPhase]):
    """Adds hidden members to the replica set and compares what the same data takes in each."""

    keys_model = MemberSizesPhase

    def prepare(self) -> None:
        """Find the members; check that they are up and empty and that there is something to compare."""
        point = self.context.job.point
        self.set, self.members = members_to_add(point)
        self.primary = next(p for p in point.processes if p.name == self.set.first.process)
        self.replica_set = self.opened(connect(self.set.uri))
        self.seconds: dict[str, float] = {}  # to SECONDARY, by member
        if collection_of(self.replica_set, self.keys.namespace).find_one({}, {"_id": 1}) is None:
            raise PhaseError("NoData", f"{self.keys.namespace} is empty: there is nothing to compare")

    def run(self) -> None:
        """Add all members at once, wait for each, write a checkpoint, compare sizes. Raises PhaseError."""
        result = self.outcome
        with self.measured():
            self._wait_for_secondaries(add_members(self.replica_set, self.set))
        every = [self.primary, *self.members]
        began = time.time()
        checkpoint(every)
        database, _, collection = self.keys.namespace.partition(".")
        sizes = on_all(
            every,
            lambda client: member_size(
                client[database].command("collStats", collection),
                client[database].command("dbHash", collections=[collection])["md5"],
            ),
        )
        first = sizes[self.primary.name]
        for name, other in sizes.items():
            if (other.documents, other.digest) != (first.documents, first.digest):
                message = f"{name} has {other.documents} documents (dbHash {other.digest}), "
                message += f"{self.primary.name} has {first.documents} ({first.digest})"
                raise PhaseError("NotTheSame", message)
        result.notes["verification"] = (
            f"{len(every)} members have the same documents and indexes (dbHash), {time.time() - began:.1f} s"
        )
        self._report(sizes)

    def _wait_for_secondaries(self, added: float) -> None:
        """Wait until every member is SECONDARY. Raises PhaseError with the names of those that are not in time."""
        states: dict[str, str] = {}
        limit = self.keys.time_limit_seconds
        clients = {member.name: self.opened(direct(member)) for member in self.members}
        while len(self.seconds) < len(clients):
            for name, client in clients.items():
                if name not in self.seconds:
                    states[name] = _state(client)
                    if states[name] == "SECONDARY":
                        self.seconds[name] = time.time() - added
            self.report_progress(len(self.seconds), len(clients), "members", "synced")
            if time.time() - added > limit:
                late = ", ".join(f"{name} is {state}" for name, state in states.items() if name not in self.seconds)
                raise PhaseError("CannotSync", f"{late}, {limit:g} s after the members were added")
            time.sleep(POLL_SECONDS)

    def _report(self, sizes: dict[str, MemberSize]) -> None:
        result, added = self.outcome, {member.name: sizes[member.name] for member in self.members}
        largest = max(size.total for size in added.values())
        labels = [size.label for size in added.values()]
        for name, size in added.items():
            label = size.label if labels.count(size.label) == 1 else f"{size.label} ({name})"
            for what, value in (("data and indexes", size.total), ("data", size.data), ("indexes", size.indexes)):
                self.add_figure(f"{what}, {label}", "bytes", value, "lower")
        self.add_figure("time to SECONDARY", "s", max(self.seconds.values()), "lower")
        yes_no = {True: "yes", False: "no", None: ""}
        rows = [
            [name, s.compressor, yes_no[s.prefixes], s.documents, s.data, s.indexes, s.total, s.total / largest,
             round(self.seconds[name], 4) if name in self.seconds else None]
            for name, s in sizes.items()
        ]  # fmt: skip
        result.table = Table(COLUMNS, rows)
        result.counters = {"documents": sizes[self.primary.name].documents, "members": len(added), "errors": 0}
        total = float(sum(size.total for size in added.values()))
        self.set_metric("data and indexes of all added members", "bytes", total, "lower")


def _state(client: Client) -> str:
    """The state of a member, in the server's words."""
    try:
        status = client.admin.command("replSetGetStatus")
    except PyMongoError as error:
        return f"not answering ({type(error).__name__})"
    if status["myState"] == SECONDARY:
        return "SECONDARY"
    this = next((m for m in status["members"] if m.get("self")), None)
    return str(this["stateStr"]) if this else f"in state {status['myState']}"


def member_size(stats: dict[str, Any], digest: str) -> MemberSize:
    """The size a member reports; the compressors are those its files were created with."""
    creation = str(stats.get("wiredTiger", {}).get("creationString", ""))
    compressor = re.search(r"block_compressor=([a-z]*)", creation)
    indexes = [str(index.get("creationString", "")) for index in stats.get("indexDetails", {}).values()]
    prefixes = {"prefix_compression=true" in text for text in indexes if "prefix_compression=" in text}
    return MemberSize(
        compressor=(compressor[1] or "none") if compressor else "unknown",
        prefixes=prefixes.pop() if len(prefixes) == 1 else None,
        documents=int(stats["count"]),
        data=int(stats["storageSize"]),
        indexes=int(stats["totalIndexSize"]),
        digest=digest,
    )


ENGINE = MemberSizesEngine
