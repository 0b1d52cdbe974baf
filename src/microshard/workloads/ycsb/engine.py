"""The engine `ycsb`: this host's clients, from their start to their merged result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from microshard.model.job import JobError, Phase
from microshard.model.phases.ycsb import YcsbPhase
from microshard.workloads import storage
from microshard.workloads.base import Context, Engine, Metric, PhaseError, PhaseResult, read_keys
from microshard.workloads.ycsb import java
from microshard.workloads.ycsb.clients import Clients
from microshard.workloads.ycsb.evidence import Observer
from microshard.workloads.ycsb.ladder import Climb, climb
from microshard.workloads.ycsb.logs import (
    Slice,
    cut_out,
    failures,
    packed,
    reaches,
    read_log,
    read_report,
)  # fmt: skip
from microshard.workloads.ycsb.merge import merge_phases
from microshard.workloads.ycsb.outcome import fill, rung_of
from microshard.workloads.ycsb.properties import Client, divide, properties

POLL_SECONDS = 0.25
LOGGED_SECONDS = 1.3  # after the end of an interval it stands in the log, at the latest
READY_POLL_SECONDS = 0.02
PATIENCE_SECONDS = 60.0  # for hosts that are slower than this one
START_SECONDS = 0.3  # from "all are ready" to the common start: every thread has read it by then
LATE_SECONDS = 0.5  # a client that begins later than that is not measured


class YcsbEngine(Engine):
    """Parameters: all keys of YcsbPhase, `clients` as a number. A phase of kind load fills the collection.

    One invocation runs the clients of one client host: job.part says which of how many it is, job.start_at when the
    clients of all hosts begin. A ladder on one of several hosts climbs every rung; merge.py judges them together.
    """

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        read_keys(phase, YcsbPhase)
        self.keys = dict(phase.parameters)
        missing = set(YcsbPhase.model_fields) - {"engine"} - set(self.keys)
        if missing:
            raise JobError(f"phase {phase.name}: ycsb needs the parameters {', '.join(sorted(missing))}")
        if isinstance(self.keys["clients"], str):
            raise JobError(f"phase {phase.name}: clients must be a number in a job, not {self.keys['clients']}")
        if context.folder is None:
            raise JobError(f"phase {phase.name}: ycsb needs a folder for its logs")
        self.load = phase.kind == "load"
        self.folder = context.folder / phase.name
        self.ladder: dict[str, Any] | None = self.keys["ladder"] if self.keys["threads"] == "ladder" else None
        self.rungs = YcsbPhase.model_validate({"engine": "ycsb", **self.keys}).ladder.rungs() if self.ladder else []
        self._clients: Clients | None = None
        self._observer: Observer | None = None
        self._failures: list[dict[str, Any]] = []

    @classmethod
    def lacks(cls, parameters: Mapping[str, Any]) -> str | None:  # noqa: ARG003 - whatever it is to do
        """Java or the built client."""
        try:
            java.find({})
        except PhaseError as error:
            return str(error)
        return None

    @classmethod
    def merge(cls, parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """What the clients of all hosts did, as one phase."""
        return merge_phases(parts)

    @property
    def clients(self) -> Clients:
        """The clients, once prepare has found what starts them."""
        assert self._clients is not None  # noqa: S101 - for the type checker
        return self._clients

    @property
    def observer(self) -> Observer:
        """Watches CPU from prepare on."""
        assert self._observer is not None  # noqa: S101 - for the type checker
        return self._observer

    def prepare(self) -> None:
        """Find Java and the jar; see that the collection holds what the phase needs."""
        if self.context.job.after:
            return
        tools = java.find(self.context.job.tools)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clients = Clients(tools, self.keys["java_options"], self.folder)
        self._observer = Observer(self.context.job.point.processes)
        database, _, collection = self.keys["namespace"].partition(".")
        with self.context.connect() as client:
            there = client[database][collection].estimated_document_count()
        namespace, records = self.keys["namespace"], self.keys["records"]
        if self.load and there:
            raise PhaseError("NotEmpty", f"{namespace} holds documents already; a load needs an empty collection")
        if not self.load and there < records:
            raise PhaseError("TooFewRecords", f"{namespace} holds {there:,} documents, records says {records:,}")
        growing = self.keys["distribution"] in {"zipfian", "latest", "exponential"}
        if not self.load and growing and self.keys["proportions"].get("insert") and there > records:
            raise PhaseError(
                "TooManyRecords",
                f"{namespace} holds {there - records:,} documents more than records: inserts with the distribution "
                f"{self.keys['distribution']} begin after the last record and would meet them",
            )

    def run(self) -> None:
        """Start all clients, let them begin together, measure, stop them together, merge."""
        if self.context.job.after:
            if self.load:
                self._verify()
            return
        mine = self._mine()
        seconds = self._planned_seconds()
        given = self.context.job.start_at
        known = given if isinstance(given, float | int) else None
        if known is not None and known <= time.time():
            raise PhaseError("TooLate", f"the clients were to begin {time.time() - known:.1f} s ago")
        start_file, ready_file = self.folder / "start", self.folder / "ready"
        for old in (start_file, ready_file):
            old.unlink(missing_ok=True)
        for client in mine:
            made = properties(
                self.keys,
                client,
                load=self.load,
                now=time.time(),
                start=f"@{start_file}" if known is None else str(round(known * 1000)),
                seconds=seconds + self.keys["start_seconds"],
                prefix=str(self.clients.prefix(client)),
            )
            started = self.clients.start(client, made, load=self.load)
            self.observer.watch_client(started.name, started.process.pid)
        if known is None:
            self._await_ready()
            known = self._told(start_file, ready_file) if given == "told" else self._tell(start_file)
        start_at = known
        self.outcome.started = start_at
        try:
            if self.ladder is not None:
                self._climb(start_at)
            else:
                self._measure(start_at, seconds)
        finally:
            self._count_failures()
        self._refuse_failures()
        if self.load:
            self._verify()

    def _mine(self) -> list[Client]:
        """The clients of this host."""
        job = self.context.job
        mongos = [p.endpoint for p in job.point.processes if p.role == "mongos"]
        try:
            mine = divide(self.keys, self.rungs, job.connection_string, mongos, index=job.part.index, of=job.part.of)
        except ValueError as error:
            raise PhaseError("BadConnectionString", str(error)) from None
        if not mine:
            raise PhaseError("NoClients", f"{self.keys['clients']} clients leave none for host {job.part.index + 1}")
        return mine

    def _await_ready(self) -> None:
        """Wait until every client is connected. Raises PhaseError when one dies or needs more than `start_seconds`."""
        deadline = time.monotonic() + self.keys["start_seconds"]
        while waiting := [client.name for client in self.clients.running if not client.is_ready()]:
            self.clients.check()
            if time.monotonic() > deadline:
                raise PhaseError(
                    "NotReady",
                    f"{', '.join(waiting)} not connected after {self.keys['start_seconds']} s (start_seconds)",
                )
            time.sleep(READY_POLL_SECONDS)

    def _told(self, start_file: Path, ready_file: Path) -> float:
        """Say that this host's clients are connected, and wait for the start that all hosts are given."""
        ready_file.touch()
        # The others began to start at about the same time, and may take as long as their clients.
        deadline = time.monotonic() + 2 * self.keys["start_seconds"] + PATIENCE_SECONDS
        while not start_file.exists():
            self.clients.check()
            if time.monotonic() > deadline:
                raise PhaseError("NotTold", "the clients were connected, but nobody said when they are to begin")
            time.sleep(READY_POLL_SECONDS)
        return int(start_file.read_text(encoding="ascii")) / 1000

    def _tell(self, start_file: Path) -> float:
        """Tell all clients the same start; returns it."""
        start_at = time.time() + START_SECONDS
        draft = start_file.with_name("start.part")
        draft.write_text(str(round(start_at * 1000)), encoding="ascii")
        draft.replace(start_file)
        return start_at

    def _planned_seconds(self) -> float:
        """From the common start to the end of what is measured; 0 when the work and not the time ends it."""
        if self.ladder is not None:
            return float(len(self.rungs) * self._rung_seconds())
        if self.load or self.keys["operations"] is not None:
            return 0.0
        return float(self.keys["warm_up_seconds"] + self.keys["duration_seconds"])

    def _rung_seconds(self) -> int:
        assert self.ladder is not None  # noqa: S101 - for the type checker
        return int(self.ladder["rung_seconds"] + self.ladder["settle_seconds"])

    def _wait(self, until: float | None, of: float) -> None:
        """Watch the clients until a time, or until they end by themselves. Raises PhaseError at the first failure."""
        while until is None or time.time() < until:
            try:
                self.clients.check()
            except PhaseError as error:
                self._explain(error)
            self.observer.sample()
            if self.clients.finished():
                break
            passed = max(0.0, time.time() - self.outcome.started)
            self.context.progress.report(self.phase.name, round(passed), max(round(of), round(passed) + 1), "s")
            time.sleep(POLL_SECONDS if until is None else max(0.0, min(POLL_SECONDS, until - time.time())))
        self.clients.check()

    def _await_log(self, until: float) -> None:
        """Wait until what the clients did up to a time stands in their logs."""
        working = [client for client in self.clients.running if client.client.threads]
        while time.time() < until + LOGGED_SECONDS and not all(reaches(c.prefix, until) for c in working):
            time.sleep(READY_POLL_SECONDS)
        self.observer.sample()
        self.clients.check()

    def _explain(self, error: PhaseError) -> None:
        """Raise the error; with the name of a process of the point that is gone, if that is why."""
        gone = self.observer.gone()
        if gone:
            endpoints = {p.name: p.endpoint for p in self.context.job.point.processes}
            named = ", ".join(f"{name} ({endpoints[name]})" if name in endpoints else name for name in gone)
            raise PhaseError("ProcessDied", f"{named} ended during the measurement; {error}") from error
        raise error

    # A run of given time, of given operations, or a load

    def _measure(self, start_at: float, seconds: float) -> None:
        timed = seconds > 0
        self._wait(start_at + seconds if timed else None, seconds)
        if timed and not self.clients.finished():
            self._await_log(start_at + seconds)
        if timed and self.clients.finished():
            raise PhaseError("EndedEarly", f"the clients ended by themselves before {seconds:.0f} s were over")
        self.clients.stop()
        self.clients.check()
        self.observer.sample()
        self._on_time()
        warm_up = 0 if self.load else self.keys["warm_up_seconds"]
        end = start_at + seconds if timed else time.time()
        self._finish(self._cut(start_at + warm_up, end))

    def _cut(self, started: float, ended: float) -> Slice:
        logs = [read_log(client.prefix) for client in self.clients.running if client.client.threads]
        try:
            return cut_out(logs, started, ended, buffered=self.load)
        except ValueError as error:
            raise self._nothing(str(error)) from None

    def _nothing(self, why: str) -> PhaseError:
        """The error for a client without a figure. Raises PhaseError itself when the client began too late."""
        self.clients.stop()
        self._on_time()
        return PhaseError("NothingMeasured", f"{why}; give it more time (duration_seconds or start_seconds)")

    def _on_time(self) -> None:
        """Raises PhaseError when a client began so late that it was not there for all of the measurement.

        A load is measured from its first insert to its last: there a late client is only noted.
        """
        left_out = self.ladder["settle_seconds"] if self.ladder else self.keys["warm_up_seconds"]
        allowed = max(LATE_SECONDS, left_out / 2)
        for client in self.clients.running:
            report = read_report(client.prefix.with_name(f"{client.prefix.name}-report.json")) or {}
            late = report.get("late_ms", 0) / 1000
            if self.load and late > LATE_SECONDS:
                self.outcome.notes[f"{client.name} began late"] = f"{late:.1f} s after the planned start"
            elif late > allowed:
                raise PhaseError(
                    "StartedLate",
                    f"{client.name} began {late:.1f} s after the others; give start_seconds more than "
                    f"{self.keys['start_seconds']}",
                )

    def _finish(self, found: Slice) -> None:
        cpu = self.observer.between(found.started, found.ended)
        fill(self.outcome, found, cpu, self._facts())
        if self.load:
            documents = sum(r["inserts"]["documents"] - r["inserts"]["failed"] for r in self._reports())
            seconds = found.ended - found.started
            self.outcome.counters["commands"] = self.outcome.counters.pop("insert", 0)
            del self.outcome.counters["operations"]
            self.outcome.metric = Metric("load rate", "documents/s", documents / seconds, "higher")
            self.outcome.samples = [documents / seconds]
            self.outcome.counters["documents"] = documents
            self.outcome.counters["bytes"] = documents * self.keys["fields"] * self.keys["field_bytes"]

    def _facts(self) -> dict[str, Any]:
        """What the result says about how it was made."""
        threads = sum(client.client.threads for client in self.clients.running)
        return {"clients": len(self.clients.running), "threads": threads, "target": self.keys["target_rate"]}

    # A ladder

    def _climb(self, start_at: float) -> None:
        assert self.ladder is not None  # noqa: S101 - for the type checker
        slices: list[Slice] = []
        histograms: list[dict[str, str]] = []
        verdict = Climb(0, stop=False, why="")
        for number, threads in enumerate(self.rungs):
            begin = start_at + number * self._rung_seconds()
            end = begin + self._rung_seconds()
            self._wait(end, len(self.rungs) * self._rung_seconds())
            self._await_log(end)
            if number == len(self.rungs) - 1:
                self.clients.ask_to_end()
            found = self._cut_rung(threads, begin + self.ladder["settle_seconds"], end)
            slices.append(found)
            # Now, while the next rung is under way, and not when all wait for the end.
            histograms.append(packed(found.histograms))
            self.outcome.rungs.append(rung_of(threads, found, self.observer.between(found.started, found.ended)))
            verdict = climb(self.outcome.rungs, self.ladder)
            # On one of several hosts nobody knows yet what all of them did together.
            if verdict.stop and self.context.job.part.of == 1:
                break
        self.clients.stop()
        self.clients.check()
        self._on_time()
        self._settle(slices, histograms, verdict)

    def _cut_rung(self, threads: int, started: float, ended: float) -> Slice:
        working = [client for client in self.clients.running if client.client.rungs[self.rungs.index(threads)]]
        if not working:  # this host has no thread on this rung
            return Slice(started, ended, 0.0)
        try:
            return cut_out([read_log(client.prefix) for client in working], started, ended)
        except ValueError as error:
            raise self._nothing(f"{threads} threads: {error}") from None

    def _settle(self, slices: list[Slice], histograms: list[dict[str, str]], verdict: Climb) -> None:
        """The figure of the ladder is that of its knee."""
        knee = slices[verdict.knee]
        rung = self.outcome.rungs[verdict.knee]
        fill(self.outcome, knee, rung["cpu"], self._facts() | {"threads": rung["threads"]})
        self.outcome.figures.append(Metric("threads at the knee", "threads", rung["threads"], "lower"))
        self.outcome.notes["ladder"] = f"best of {len(slices)} rungs: {rung['threads']} threads; end: {verdict.why}"
        assert self.outcome.details is not None  # noqa: S101 - fill has made it
        self.outcome.details["rungs"] = histograms
        self.outcome.details["rule"] = self.ladder

    # Afterwards

    def _reports(self) -> list[dict[str, Any]]:
        paths = [c.prefix.with_name(f"{c.prefix.name}-report.json") for c in self.clients.running]
        return [report for path in paths if (report := read_report(path)) is not None]

    def _count_failures(self) -> None:
        """Stop the clients, whatever happened, and count errors by code."""
        self.clients.stop()
        logs = [read_log(client.prefix) for client in self.clients.running]
        self._failures = failures(logs, self._reports())
        total = sum(failure["count"] for failure in self._failures)
        self.outcome.counters["errors"] = total
        for failure in self._failures:
            self.outcome.counters[f"errors {failure['operation']} {failure['code']} {failure['name']}"] = failure[
                "count"
            ]

    def _refuse_failures(self) -> None:
        """Any error makes the measurement invalid. Raises PhaseError naming them by code."""
        missing_is_fine = self.keys["read_preference"] != "primary"  # a secondary may not have it yet
        counted = [f for f in self._failures if not (missing_is_fine and f["name"] == "NOT_FOUND")]
        if counted:
            named = ", ".join(f"{f['count']:,} × {f['operation']} {f['code']} {f['name']}" for f in counted)
            raise PhaseError("Errors", f"operations failed: {named}; the first: {counted[0]['first']}")

    def result(self) -> PhaseResult:
        """What was measured, with the errors in `details`."""
        if self._failures:
            self.outcome.details = {**(self.outcome.details or {}), "failures": self._failures}
        return self.outcome

    def _verify(self) -> None:
        """Count what a load left behind and measure its size. Raises PhaseError if records are missing."""
        database, _, collection = self.keys["namespace"].partition(".")
        processes = self.context.job.point.processes
        if self.context.job.part.of > 1 and not self.context.job.after:
            return  # the others may still be loading
        with self.context.connect() as client:
            found = client[database][collection].count_documents({})
            if found != self.keys["records"]:
                raise PhaseError("WrongCount", f"{self.keys['records']:,} records were loaded, {found:,} are there")
            storage.checkpoint(processes)
            self.outcome.storage = storage.measure(client, database, collection, processes)

    def close(self) -> None:
        """End the clients."""
        if self._clients is not None:
            self._clients.close()
