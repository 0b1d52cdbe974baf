"""The engine `initial_sync`: adds an empty member to a replica set and follows it until it is SECONDARY."""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pymongo.errors import PyMongoError

from microshard.model.phases.initial_sync import InitialSyncPhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import Column, Series, Stage, Table
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Context, Engine, PhaseError
from microshard.workloads.connections import connect
from microshard.workloads.servers import SECONDARY, add_members, direct, members_to_add, process_of
from microshard.workloads.sync_progress import (
    SYSTEM_DATABASES,
    SyncAttempt,
    catch_up,
    compare_data,
    documents_in,
    epoch,
    final_statistics,
    kill_and_start,
)

POLL_SECONDS = 0.1
SERIES_SECONDS = 0.5
SILENT_SECONDS = 15.0  # without an answer of a member that nobody restarts, it counts as ended
COLUMNS = Column.several(
    "collection; documents, documents; size, bytes; indexes; copying, s; finishing indexes, s; rate, MB/s"
)


class InitialSyncEngine(Engine[InitialSyncPhase]):
    """Adds the member, interrupts it as often as the keys say, and compares it with its set at the end."""

    keys_model = InitialSyncPhase

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.load = BackgroundLoad(self.keys.load) if self.keys.load and self.keys.load_runs else None
        self.stages: list[Stage] = []
        self.sync = SyncAttempt()
        self.ending = False  # the member is being killed: a sync that begins again belongs to the next attempt
        self.clock_ahead = 0.0  # the member's clock minus ours, s
        self.samples: list[tuple[float, int, int, int]] = []  # epoch, documents, bytes copied, operations applied
        self.adding: Future[float] | None = None  # the reconfiguration, and when it was sent
        self.to_copy = 0  # documents of the set before the member joins it

    def prepare(self) -> None:
        """Find the member, check that it is up, empty and not a member; start the load's workers."""
        self.set, (self.info,) = members_to_add(self.context.job.point, self.keys.replica_set)
        self.replica_set = self.opened(connect(self.set.uri))
        self.member = self.opened(direct(self.info))
        if self.keys.interruptions:
            self.to_copy = documents_in(self.replica_set)
        if self.load is not None and self.keys.namespace is not None:
            self.load.prepare(self, [self.keys.namespace], self.context.count(self.keys.namespace))

    # --- the measurement

    def run(self) -> None:
        """Load, add, interrupt, wait for SECONDARY, then compare the member with its set. Raises PhaseError."""
        keys, result = self.keys, self.outcome
        try:
            with self.measured(lambda: self.load.cpu_seconds if self.load else 0.0):
                if self.load is not None:
                    self.load.begin("before" if keys.before_seconds else "during")
                    while time.time() < result.started + keys.before_seconds:
                        self.load.check()
                        time.sleep(POLL_SECONDS)
                    if keys.before_seconds:
                        self.load.mark("during")
                with ThreadPoolExecutor(1) as pool:
                    # The primary answers when most members have the new set, with the next heartbeat: 2 s later the new
                    # one may have nearly synced. It is watched from its first byte.
                    self.adding = pool.submit(add_members, self.replica_set, self.set)
                    joined = time.time()
                    for number in range(1, keys.interruptions + 1):
                        joined = self._interrupt(joined, number)
                    secondary = self._wait_for_secondary(joined)
                    added = self.adding.result()
                self._read_final_statistics()
                if not self.stages:
                    joined = added
                if self.stages and self.sync.began is None:
                    message = f"{self.info.name} did not sync again: it had finished when it was killed"
                    raise PhaseError("TooFast", message)
                self.stages += self.sync.stages(joined + self.clock_ahead, secondary + self.clock_ahead)
                if self.load is not None:
                    self.load.end()
        finally:
            self._report_sync()
            if self.load is not None:
                self._report_load(self.load)
        self.set_metric("time to SECONDARY", "s", secondary - added, "lower")
        self._add_figures(secondary - added)
        self._verify()

    def _sample(self) -> int | None:
        """Record the member's progress; its state, or None when it does not answer."""
        if self.load is not None:
            self.load.check()
        if self.adding is not None and self.adding.done():
            self.adding.result()  # raises when the member could not be added
        before = time.time()
        try:
            status = self.member.admin.command("replSetGetStatus", initialSync=1)
        except PyMongoError:
            return None
        if self.ending and self.sync.is_older_than(status):
            return None
        now, sync = time.time(), self.sync
        self.clock_ahead = epoch(status["date"]) - (before + now) / 2
        sync.update(status, epoch(status["date"]))
        if not self.samples or now - self.samples[-1][0] >= SERIES_SECONDS:
            self.samples.append((now, sync.documents, sync.bytes_copied, sync.applied))
        note = f"{sync.documents:,} documents, {sync.bytes_copied / 1e6:,.0f} MB, {sync.applied:,} applied"
        done = min(sync.bytes_copied, sync.bytes_to_copy - 1)
        self.report_progress(max(done, 0), max(sync.bytes_to_copy, 1), "bytes", note)
        return int(status["myState"])

    def _wait_for_secondary(self, added: float) -> float:
        """Wait; the moment the member was SECONDARY. Raises PhaseError with its progress when it never is."""
        limit, last_answer = self.keys.time_limit_seconds, time.time()
        while True:
            state, now = self._sample(), time.time()
            if state == SECONDARY:
                return now
            last_answer = now if state is not None else last_answer
            if now - last_answer > SILENT_SECONDS or (state is None and not self._is_alive()):
                raise PhaseError("CannotSync", f"{self.info.name} has ended while it synced: {self._progress()}")
            if now - added > limit:
                raise PhaseError(
                    "CannotSync", f"{self.info.name} is not SECONDARY after {limit:g} s: {self._progress()}"
                )
            time.sleep(POLL_SECONDS)

    def _read_final_statistics(self) -> None:
        """Read from the member's log what happened between its last answer and the end of the sync."""
        statistics = final_statistics(self.member.admin.command("getLog", "global")["log"])
        if statistics:
            self.sync.update({"initialSyncStatus": statistics}, time.time() + self.clock_ahead)
            self.samples.append((time.time(), self.sync.documents, self.sync.bytes_copied, self.sync.applied))
        else:
            self.outcome.notes["end"] = "the member's log has no statistics: the last 0.1 s of the sync are missing"

    def _is_alive(self) -> bool:
        """Whether the member's process runs, as far as this host can tell."""
        return not Path(self.info.pid_path).is_file() or process_of(self.info) is not None

    def _progress(self) -> str:
        sync = self.sync
        text = f"{sync.documents:,} documents and {sync.bytes_copied / 1e6:,.1f} MB copied"
        if sync.bytes_to_copy:
            text += f" of {sync.bytes_to_copy / 1e6:,.1f} MB"
        text += f", {sync.applied:,} operations applied, from {sync.source or 'no source yet'}"
        return f"{text}; failed attempts: {'; '.join(sync.failures)}" if sync.failures else text

    def _interrupt(self, joined: float, number: int) -> float:
        """Wait until enough is copied, end the member by SIGKILL, start it again; the moment it was started."""
        while self.sync.share(self.to_copy) < self.keys.interrupt_at:
            if self._sample_before_secondary() is None and not self._is_alive():
                raise PhaseError("CannotSync", f"{self.info.name} has ended while it synced: {self._progress()}")
            if time.time() - joined > self.keys.time_limit_seconds:
                message = f"{self.info.name} did not come to its interruption: {self._progress()}"
                raise PhaseError("CannotSync", message)
            time.sleep(POLL_SECONDS / 5)
        self.ending = True
        started = kill_and_start(self.context, self.info, self.member, self._sample_before_secondary)
        self.ending = False
        name = f"lost attempt {number}"
        self.stages.append(Stage(name, started - joined, self.sync.bytes_copied, self.sync.documents))
        self.sync = SyncAttempt()
        return started

    def _sample_before_secondary(self) -> int | None:
        """As _sample. Raises PhaseError when it is too late for an interruption."""
        state = self._sample()
        if state == SECONDARY:
            raise PhaseError(
                "TooFast",
                f"{self.info.name} was SECONDARY before it could be interrupted at {self.keys.interrupt_at:.0%} of the "
                "bytes; more data, or a smaller interrupt_at",
            )
        return state

    # --- the result

    def _report_sync(self) -> None:
        """What was recorded, also when the sync failed."""
        result = self.outcome
        result.stages = [replace(stage, seconds=round(stage.seconds or 0.0, 4)) for stage in self.stages]
        times = [round(at - result.started, 3) for at, *_ in self.samples]
        for number, (name, unit, line) in enumerate(
            (("documents", "documents", "copied"), ("bytes", "bytes", "copied"), ("oplog", "operations", "applied")),
            start=1,
        ):
            values: list[float | None] = [sample[number] for sample in self.samples]
            result.series.append(Series(f"{name} of the new member", unit, t=times, lines={line: values}))
        rows = [
            [c.namespace, c.documents, c.bytes, c.indexes, round(c.copying, 3), round(c.indexing, 3),
             round(c.bytes / c.copying / 1e6, 3) if c.copying else None]
            for c in sorted(self.sync.clones.values(), key=lambda clone: -clone.bytes)
            if c.namespace.partition(".")[0] not in SYSTEM_DATABASES
        ]  # fmt: skip
        result.table = Table(COLUMNS, rows)
        result.counters |= {
            "documents": self.sync.documents,
            "bytes": self.sync.bytes_copied,
            "oplog operations": self.sync.applied,
            "errors": 0,
        }
        result.notes["sync source"] = self.sync.source or "unknown"
        if self.sync.failures:
            result.notes["failed attempts"] = "; ".join(self.sync.failures)

    def _report_load(self, load: BackgroundLoad) -> None:
        result = self.outcome
        counters = result.counters | {"documents inserted meanwhile": load.inserted}
        load.fill(result)
        result.counters |= counters
        result.details = {"load": load.by_period()}
        load.report_rates(self)

    def _add_figures(self, total: float) -> None:
        seconds = {stage.name: stage.seconds or 0.0 for stage in self.stages}
        clone, oplog = seconds["clone"], seconds["apply oplog"]
        size = sum(clone.bytes for clone in self.sync.clones.values())
        self.add_figure("time to SECONDARY", "s", total, "lower")
        self.add_figure("data copied, over all", "MB/s", size / total / 1e6, "higher")
        if clone:
            self.add_figure("clone", "MB/s", size / clone / 1e6, "higher")
            self.add_figure("clone rate", "documents/s", self.sync.documents / clone, "higher")
        if self.sync.applied and oplog:
            self.add_figure("oplog", "operations/s", self.sync.applied / oplog, "higher")
        if self.keys.interruptions:
            lost = sum(value for name, value in seconds.items() if name.startswith("lost"))
            self.add_figure("lost by interruptions", "s", lost, "lower")

    def _verify(self) -> None:
        """Raise PhaseError unless the member has what its set has, once it has caught up."""
        began = time.time()
        catch_up(self.replica_set, self.member)
        hashes = self.keys.verify == "hash"
        documents = compare_data(self.replica_set, self.member, self.info.name, hashes=hashes)
        self.outcome.counters["documents on the new member"] = documents
        how = "counts and indexes" + (" and dbHash" if hashes else "")
        self.outcome.notes["verification"] = f"{how} are the primary's, {time.time() - began:.1f} s"


ENGINE = InitialSyncEngine
