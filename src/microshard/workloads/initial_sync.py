"""The engine `initial_sync`: an empty member is added to a replica set, and watched until it is SECONDARY."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pymongo.errors import OperationFailure, PyMongoError

from microshard.model.job import Phase, ProcessInfo
from microshard.model.phases.initial_sync import InitialSyncPhase
from microshard.workloads import cold
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, connect, cpu_seconds, read_keys
from microshard.workloads.storage import direct
from microshard.workloads.sync_progress import (
    SYSTEM_DATABASES,
    SyncAttempt,
    catch_up,
    compare_data,
    epoch,
    final_statistics,
    kill_and_start,
)

LOOK_SECONDS = 0.1
SERIES_SECONDS = 0.5
SECONDARY = 2
DEAD_SECONDS = 15.0  # without an answer of a member whose process nobody restarts
DELAY_SINCE = 13  # maxWireVersion of 5.0, which renamed slaveDelay to secondaryDelaySecs


class InitialSyncEngine(Engine):
    """See InitialSyncPhase."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, InitialSyncPhase)
        self.load = BackgroundLoad(self.keys.load) if self.keys.load and self.keys.load_runs else None
        self.set: Client | None = None  # the whole replica set, for its primary
        self.member: Client | None = None  # the new member alone
        self.info: ProcessInfo | None = None
        self.document: dict[str, Any] = {}
        self.stages: list[dict[str, Any]] = []
        self.sync = SyncAttempt()
        self.ending = False  # the member is being killed: what is begun anew belongs to the next attempt
        self.ahead = 0.0  # the member's clock minus ours, s
        self.looks: list[tuple[float, int, int, int]] = []  # epoch, documents, bytes copied, operations applied
        self.lags: list[float | None] = []

    # --- before

    def prepare(self) -> None:
        """Find the member, see that it is up, empty and no member; start the load's workers."""
        point, wish = self.context.job.point, self.keys.replica_set
        sets = [rs for rs in point.replica_sets if rs.later and wish in {None, rs.name}]
        if len(sets) != 1:
            found = ", ".join(rs.name for rs in sets) or "none"
            raise PhaseError("NoMember", f"one replica set with a member to add is needed, found {found}")
        (rs,) = sets
        self.document = dict(rs.later[0])
        endpoint = self.document["endpoint"]
        self.info = next(p for p in point.processes if p.endpoint == endpoint)
        self.set = connect(rs.uri)
        self.member = direct(self.info)
        hello = self.member.admin.command("hello")
        if hello.get("setName"):
            raise PhaseError("NotEmpty", f"{self.info.name} ({endpoint}) belongs to {hello['setName']} already")
        if self.load is not None and self.keys.namespace is not None:
            database, _, collection = self.keys.namespace.partition(".")
            with self.context.connect() as client:
                known = client[database][collection].count_documents({})
            self.load.prepare(
                self.context.job.connection_string,
                [(database, collection)],
                known=known,
                key_ranges=point.key_ranges(self.keys.namespace),
            )

    # --- the measurement

    def run(self) -> None:
        """Load, add, interrupt as asked, wait for SECONDARY, then compare the member with its set."""
        keys, result = self.keys, self.outcome
        cpu = cpu_seconds()
        result.started = time.time()
        try:
            if self.load is not None:
                self.load.begin("before" if keys.before_seconds else "during")
                while time.time() < result.started + keys.before_seconds:
                    self.load.check()
                    time.sleep(LOOK_SECONDS)
                if keys.before_seconds:
                    self.load.mark("during")
            joined = added = self._add()
            for number in range(1, keys.interruptions + 1):
                joined = self._interrupt(joined, number)
            secondary = self._until_secondary(added)
            self._read_final_statistics()
            self._must_have_begun_anew()
            self.stages += self.sync.stages(joined + self.ahead, secondary + self.ahead)
            if self.load is not None:
                self.load.end()
        finally:
            result.ended = time.time()
            result.client_cpu_seconds = cpu_seconds() - cpu + (self.load.cpu_seconds if self.load else 0.0)
            self._tell()
        total = secondary - added
        result.metric = Metric("time to SECONDARY", "s", total, "lower")
        result.samples = [total]
        self._figures(total)
        self._verify()

    def _add(self) -> float:
        """Reconfigure; the moment it was asked for."""
        assert self.set is not None and self.info is not None  # noqa: S101, PT018 - for the type checker
        hello = self.set.admin.command("hello")
        config = self.set.admin.command("replSetGetConfig")["config"]
        delay = "secondaryDelaySecs" if hello["maxWireVersion"] >= DELAY_SINCE else "slaveDelay"
        config["members"].append(
            {
                "_id": max(m["_id"] for m in config["members"]) + 1,
                "host": self.document["endpoint"],
                "priority": self.document.get("priority", 1),
                "votes": self.document.get("votes", 1),
                "hidden": self.document.get("hidden", False),
                delay: self.document.get("delay_seconds", 0),
            }
        )
        config["version"] += 1
        now = time.time()
        try:
            self.set.admin.command("replSetReconfig", config)
        except OperationFailure as error:
            raise PhaseError("CannotAdd", f"{self.info.name} cannot be added: code {error.code}: {error}") from error
        return now

    def _look(self) -> int | None:
        """Ask the member; its state, or None when it does not answer."""
        assert self.member is not None  # noqa: S101 - for the type checker
        if self.load is not None:
            self.load.check()
        asked = time.time()
        try:
            status = self.member.admin.command("replSetGetStatus", initialSync=1)
        except PyMongoError:
            return None
        if self.ending and self.sync.is_older_than(status):
            return None
        answered = time.time()
        self.ahead = epoch(status["date"]) - (asked + answered) / 2
        self.sync.update(status, epoch(status["date"]))
        if not self.looks or answered - self.looks[-1][0] >= SERIES_SECONDS:
            self.looks.append((answered, self.sync.documents, self.sync.bytes_copied, self.sync.applied))
        note = (
            f"{self.sync.documents:,} documents, {self.sync.bytes_copied / 1e6:,.0f} MB, {self.sync.applied:,} applied"
        )
        done = min(self.sync.bytes_copied, self.sync.bytes_to_copy - 1)
        self.context.progress.report(self.phase.name, max(done, 0), max(self.sync.bytes_to_copy, 1), "bytes", note)
        return int(status["myState"])

    def _until_secondary(self, added: float) -> float:
        """Wait; the moment it was SECONDARY. Raises PhaseError with how far it came when it never is."""
        assert self.info is not None  # noqa: S101 - for the type checker
        heard = time.time()
        while True:
            state, now = self._look(), time.time()
            if state == SECONDARY:
                return now
            heard = now if state is not None else heard
            if now - heard > DEAD_SECONDS or (state is None and not self._alive()):
                raise PhaseError("CannotSync", f"{self.info.name} has ended while it synced: {self._how_far()}")
            if now - added > self.keys.time_limit_seconds:
                raise PhaseError(
                    "CannotSync",
                    f"{self.info.name} is not SECONDARY after {self.keys.time_limit_seconds:g} s: {self._how_far()}",
                )
            time.sleep(LOOK_SECONDS)

    def _read_final_statistics(self) -> None:
        """What happened between the last answer and the end."""
        assert self.member is not None  # noqa: S101 - for the type checker
        statistics = final_statistics(self.member.admin.command("getLog", "global")["log"])
        if statistics:
            self.sync.update({"initialSyncStatus": statistics}, time.time() + self.ahead)
            self.looks.append((time.time(), self.sync.documents, self.sync.bytes_copied, self.sync.applied))
        else:
            self.outcome.notes["end"] = "the member's log has no statistics: the last 0.1 s of the sync were not seen"

    def _alive(self) -> bool:
        """Whether its process is there, as far as can be seen from here."""
        assert self.info is not None  # noqa: S101 - for the type checker
        if not Path(self.info.pid_path).is_file():
            return True
        try:
            cold.find(self.info)
        except PhaseError:
            return False
        return True

    def _how_far(self) -> str:
        text = f"{self.sync.documents:,} documents and {self.sync.bytes_copied / 1e6:,.1f} MB copied"
        if self.sync.bytes_to_copy:
            text += f" of {self.sync.bytes_to_copy / 1e6:,.1f} MB"
        text += f", {self.sync.applied:,} operations applied, from {self.sync.source or 'no source yet'}"
        return f"{text}; failed attempts: {'; '.join(self.sync.failures)}" if self.sync.failures else text

    def _interrupt(self, joined: float, number: int) -> float:
        """Wait until so much is copied, end the member by SIGKILL and start it again; the moment it was started."""
        assert self.info is not None and self.member is not None  # noqa: S101, PT018 - for the type checker
        self._until_share_is_copied(joined)
        self.ending = True
        started = kill_and_start(self.context, self.info, self.member, self._look_before_secondary)
        self.ending = False
        self.stages.append(
            {
                "name": f"lost attempt {number}",
                "seconds": started - joined,
                "bytes": self.sync.bytes_copied,
                "documents": self.sync.documents,
            }
        )
        self.sync = SyncAttempt()
        return started

    def _must_have_begun_anew(self) -> None:
        assert self.info is not None  # noqa: S101 - for the type checker
        if self.stages and self.sync.began is None:
            raise PhaseError("TooFast", f"{self.info.name} did not sync anew: it was through when it was killed")

    def _look_before_secondary(self) -> int | None:
        """As _look. Raises PhaseError when it is too late for an interruption."""
        assert self.info is not None  # noqa: S101 - for the type checker
        state = self._look()
        if state == SECONDARY:
            raise PhaseError(
                "TooFast",
                f"{self.info.name} was SECONDARY before it could be interrupted at {self.keys.interrupt_at:.0%} of the "
                "bytes; more data, or a smaller interrupt_at",
            )
        return state

    def _until_share_is_copied(self, joined: float) -> None:
        """Wait for the moment to interrupt. Raises PhaseError when it cannot come."""
        assert self.info is not None  # noqa: S101 - for the type checker
        while self.sync.share < self.keys.interrupt_at:
            if self._look_before_secondary() is None and not self._alive():
                raise PhaseError("CannotSync", f"{self.info.name} has ended while it synced: {self._how_far()}")
            if time.time() - joined > self.keys.time_limit_seconds:
                raise PhaseError("CannotSync", f"{self.info.name} did not come to its interruption: {self._how_far()}")
            time.sleep(LOOK_SECONDS / 5)

    # --- the result

    def _tell(self) -> None:
        """What was seen, also when it failed."""
        result = self.outcome
        result.stages = [
            {key: round(value, 4) if key == "seconds" else value for key, value in stage.items()}
            for stage in self.stages
        ]
        t = [round(at - result.started, 3) for at, *_ in self.looks]
        for number, (name, unit) in enumerate(
            (("documents", "documents"), ("bytes", "bytes"), ("oplog", "operations"))
        ):
            line = {"copied" if name != "oplog" else "applied": [look[number + 1] for look in self.looks]}
            result.series.append(
                {"name": f"{name} of the new member", "unit": unit, "stacked": False, "t": t, "lines": line}
            )
        clones = sorted(self.sync.clones.values(), key=lambda clone: -clone.bytes)
        result.table = {
            "columns": [
                {"name": "collection", "unit": ""},
                {"name": "documents", "unit": "documents"},
                {"name": "size", "unit": "bytes"},
                {"name": "indexes", "unit": ""},
                {"name": "copying", "unit": "s"},
                {"name": "finishing indexes", "unit": "s"},
                {"name": "rate", "unit": "MB/s"},
            ],
            "rows": [
                [c.namespace, c.documents, c.bytes, c.indexes, round(c.copying, 3), round(c.indexing, 3),
                 round(c.bytes / c.copying / 1e6, 3) if c.copying else None]
                for c in clones if c.namespace.partition(".")[0] not in SYSTEM_DATABASES
            ],
        }  # fmt: skip
        result.counters |= {
            "documents": self.sync.documents,
            "bytes": self.sync.bytes_copied,
            "oplog operations": self.sync.applied,
            "errors": 0,
        }
        result.notes["sync source"] = self.sync.source or "not told"
        if self.sync.failures:
            result.notes["failed attempts"] = "; ".join(self.sync.failures)
        if self.load is not None:
            self._tell_load(self.load)

    def _tell_load(self, load: BackgroundLoad) -> None:
        result = self.outcome
        result.counters["documents inserted meanwhile"] = load.inserted
        result.latency, result.windows = load.latency(), load.windows()
        result.details = {"load": load.by_period()}
        _, seconds = load.whole_seconds()
        line = {"inserted": [load.by_second.get(s, 0) for s in seconds]}
        t = [round(s - result.started, 3) for s in seconds]
        result.series.append({"name": "load", "unit": "documents/s", "stacked": False, "t": t, "lines": line})
        rates = {p.name: p.documents / p.seconds(result.ended) for p in load.periods if p.seconds(result.ended) > 0}
        if rates.get("before"):
            change = rates.get("during", 0.0) / rates["before"]
            result.figures.append(Metric("load rate, during over before", "", change, "higher"))

    def _figures(self, total: float) -> None:
        stages = {stage["name"]: stage for stage in self.stages}
        clone, oplog = stages["clone"], stages["apply oplog"]
        figures = self.outcome.figures
        figures.append(Metric("time to SECONDARY", "s", total, "lower"))
        figures.append(Metric("data copied, over all", "MB/s", clone["bytes"] / total / 1e6, "higher"))
        if clone["seconds"]:
            figures.append(Metric("clone", "MB/s", clone["bytes"] / clone["seconds"] / 1e6, "higher"))
            figures.append(Metric("clone rate", "documents/s", clone["documents"] / clone["seconds"], "higher"))
        if self.sync.applied and oplog["seconds"]:
            figures.append(Metric("oplog", "operations/s", self.sync.applied / oplog["seconds"], "higher"))
        lost = sum(stage["seconds"] for stage in self.stages if stage["name"].startswith("lost"))
        if self.keys.interruptions:
            figures.append(Metric("lost by interruptions", "s", lost, "lower"))

    def _verify(self) -> None:
        """Raises PhaseError unless the member has what its set has, once it has caught up."""
        assert self.set is not None and self.member is not None and self.info is not None  # noqa: S101, PT018
        began = time.time()
        catch_up(self.set, self.member)
        documents = compare_data(self.set, self.member, self.info.name, hashes=self.keys.verify == "hash")
        self.outcome.counters["documents on the new member"] = documents
        how = "counts and indexes" + (" and dbHash" if self.keys.verify == "hash" else "")
        self.outcome.notes["verification"] = f"{how} are the primary's, {time.time() - began:.1f} s"

    def close(self) -> None:
        """End the load and the connections."""
        if self.load is not None:
            self.load.close()
        for client in (self.set, self.member):
            if client is not None:
                client.close()


ENGINE = InitialSyncEngine
