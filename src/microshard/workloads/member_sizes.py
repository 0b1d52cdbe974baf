"""The engine `member_sizes`: members that store the same data differently are filled by initial sync and weighed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from microshard.model.job import Phase, ProcessInfo
from microshard.model.phases.member_sizes import MemberSizesPhase
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, connect, cpu_seconds, read_keys
from microshard.workloads.storage import checkpoint, direct, on_all

LOOK_SECONDS = 0.2
SECONDARY = 2  # myState of replSetGetStatus
COLUMNS = (
    ("member", ""),
    ("block compressor", ""),
    ("index prefixes", ""),
    ("documents", "documents"),
    ("data", "bytes"),
    ("indexes", "bytes"),
    ("data and indexes", "bytes"),
    ("share of the largest", ""),
    ("time to SECONDARY", "s"),
)


@dataclass(frozen=True, slots=True)
class Weight:
    """What the collection takes in one member."""

    name: str
    compressor: str
    prefixes: bool | None
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
        """What distinguishes it."""
        return self.compressor if self.prefixes is not False else f"{self.compressor} without prefixes"


class MemberSizesEngine(Engine):
    """See MemberSizesPhase."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, MemberSizesPhase)
        self.database, _, self.collection = self.keys.namespace.partition(".")
        self.set: Client | None = None
        self.primary: ProcessInfo | None = None
        self.wishes: list[dict[str, Any]] = []
        self.members: list[ProcessInfo] = []
        self.seconds: dict[str, float] = {}  # to SECONDARY, by member

    def prepare(self) -> None:
        """Find the members, see that they are up and empty and that there is something to compare."""
        point = self.context.job.point
        sets = [rs for rs in point.replica_sets if rs.later]
        if len(sets) != 1:
            raise PhaseError("NoMember", f"one replica set with members to add is needed, found {len(sets)}")
        (rs,) = sets
        by_endpoint = {p.endpoint: p for p in point.processes}
        self.primary = by_endpoint[rs.endpoints[0]]
        self.wishes = [dict(member) for member in rs.later]
        self.members = [by_endpoint[wish["endpoint"]] for wish in self.wishes]
        self.set = connect(rs.uri)
        if self.set[self.database][self.collection].find_one({}, {"_id": 1}) is None:
            raise PhaseError("NoData", f"{self.keys.namespace} is empty: there is nothing to compare")

        def is_empty(process: ProcessInfo) -> None:
            with direct(process) as client:
                name = client.admin.command("hello").get("setName")
            if name:
                raise PhaseError("NotEmpty", f"{process.name} ({process.endpoint}) belongs to {name} already")

        on_all(self.members, is_empty)

    def run(self) -> None:
        """Add all members at once, wait for every one, write a checkpoint, weigh."""
        assert self.primary is not None  # noqa: S101 - for the type checker: prepare has found it
        result = self.outcome
        cpu = cpu_seconds()
        result.started = time.time()
        try:
            self._add()
            self._until_secondary(result.started)
        finally:
            result.ended = time.time()
            result.client_cpu_seconds = cpu_seconds() - cpu
        every = [self.primary, *self.members]
        began = time.time()
        checkpoint(every)
        weights = self._weigh(every)
        result.notes["verification"] = (
            f"{len(every)} members have the same documents and indexes (dbHash), {time.time() - began:.1f} s"
        )
        self._tell(weights)

    def _add(self) -> None:
        assert self.set is not None  # noqa: S101 - for the type checker
        config = self.set.admin.command("replSetGetConfig")["config"]
        first = max(member["_id"] for member in config["members"]) + 1
        config["members"] += [
            {"_id": first + n, "host": wish["endpoint"], "priority": 0, "votes": 0, "hidden": True}
            for n, wish in enumerate(self.wishes)
        ]
        config["version"] += 1
        try:
            self.set.admin.command("replSetReconfig", config)
        except OperationFailure as error:
            names = ", ".join(member.name for member in self.members)
            raise PhaseError("CannotAdd", f"{names} cannot be added: code {error.code}: {error}") from error

    def _until_secondary(self, added: float) -> None:
        """Until every member has the state SECONDARY. Raises PhaseError with the names of those that have not."""
        states: dict[str, str] = {}
        clients = {member.name: direct(member) for member in self.members}
        try:
            while len(self.seconds) < len(self.members):
                for member in self.members:
                    if member.name not in self.seconds:
                        states[member.name] = self._state(clients[member.name])
                        if states[member.name] == "SECONDARY":
                            self.seconds[member.name] = time.time() - added
                self.context.progress.report(self.phase.name, len(self.seconds), len(self.members), "members", "synced")
                if time.time() - added > self.keys.time_limit_seconds:
                    late = ", ".join(f"{name} is {state}" for name, state in states.items() if name not in self.seconds)
                    limit = self.keys.time_limit_seconds
                    raise PhaseError("CannotSync", f"{late}, {limit:g} s after the members were added")
                time.sleep(LOOK_SECONDS)
        finally:
            for client in clients.values():
                client.close()

    @staticmethod
    def _state(client: Client) -> str:
        try:
            status = client.admin.command("replSetGetStatus")
        except PyMongoError as error:
            return f"not answering ({type(error).__name__})"
        own = next((m for m in status["members"] if m.get("self")), None)
        if status["myState"] == SECONDARY:
            return "SECONDARY"
        return str(own["stateStr"]) if own else f"in state {status['myState']}"

    def _weigh(self, every: list[ProcessInfo]) -> list[Weight]:
        """All members' weights, the primary's first. Raises PhaseError when their contents differ."""
        found: dict[str, Weight] = {}

        def weigh(process: ProcessInfo) -> None:
            with direct(process) as client:
                database = client[self.database]
                stats = database.command("collStats", self.collection)
                digest = database.command("dbHash", collections=[self.collection])["md5"]
            found[process.name] = weight(process.name, stats, digest)

        on_all(every, weigh)
        weights = [found[process.name] for process in every]
        for other in weights[1:]:
            if (other.documents, other.digest) != (weights[0].documents, weights[0].digest):
                message = f"{other.name} has {other.documents} documents (dbHash {other.digest}), "
                message += f"{weights[0].name} has {weights[0].documents} ({weights[0].digest})"
                raise PhaseError("NotTheSame", message)
        return weights

    def _tell(self, weights: list[Weight]) -> None:
        result, added = self.outcome, weights[1:]
        largest = max(weight.total for weight in added)
        labels = [weight.label for weight in added]
        for each in added:
            name = each.label if labels.count(each.label) == 1 else f"{each.label} ({each.name})"
            for what, size in (("data and indexes", each.total), ("data", each.data), ("indexes", each.indexes)):
                result.figures.append(Metric(f"{what}, {name}", "bytes", size, "lower"))
        result.figures.append(Metric("time to SECONDARY", "s", max(self.seconds.values()), "lower"))
        shown = {True: "yes", False: "no", None: ""}
        rows = [
            [w.name, w.compressor, shown[w.prefixes], w.documents, w.data, w.indexes, w.total, w.total / largest]
            for w in weights
        ]
        for row in rows:
            seconds = self.seconds.get(str(row[0]))
            row.append(None if seconds is None else round(seconds, 4))
        result.table = {"columns": [{"name": name, "unit": unit} for name, unit in COLUMNS], "rows": rows}
        result.counters = {"documents": weights[0].documents, "members": len(added), "errors": 0}
        total = sum(weight.total for weight in added)
        result.metric = Metric("data and indexes of all added members", "bytes", float(total), "lower")
        result.samples = [float(total)]

    def close(self) -> None:
        """End the connection."""
        if self.set is not None:
            self.set.close()


def weight(name: str, stats: dict[str, Any], digest: str) -> Weight:
    """A member's own account of the collection: compressors as the files were made with, not as somebody asked for."""
    made = str(stats.get("wiredTiger", {}).get("creationString", ""))
    compressor = re.search(r"block_compressor=([a-z]*)", made)
    indexes = [str(index.get("creationString", "")) for index in stats.get("indexDetails", {}).values()]
    prefixes = {"prefix_compression=true" in text for text in indexes if "prefix_compression=" in text}
    return Weight(
        name=name,
        compressor=(compressor[1] or "none") if compressor else "not told",
        prefixes=prefixes.pop() if len(prefixes) == 1 else None,
        documents=int(stats["count"]),
        data=int(stats["storageSize"]),
        indexes=int(stats["totalIndexSize"]),
        digest=digest,
    )


ENGINE = MemberSizesEngine
