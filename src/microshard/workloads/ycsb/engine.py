"""The engine `ycsb`: the clients of this host, from their start to their merged result."""

import time
from collections.abc import Mapping
from typing import Any

from microshard.model.job import JobError
from microshard.model.phases.ycsb import GROWING, Ladder, YcsbParameters
from microshard.model.plan import PlannedPhase
from microshard.model.result import PhaseResult
from microshard.workloads import servers
from microshard.workloads.base import Context, Engine, PhaseError, collection_of
from microshard.workloads.several_hosts import OTHER_HOSTS_SECONDS, agreed_start
from microshard.workloads.ycsb.clients import ClientProcess, ClientProcesses, find_tools
from microshard.workloads.ycsb.cpu import CpuSampler
from microshard.workloads.ycsb.logs import OperationSummary, failures, logged_until, read_log, summarize
from microshard.workloads.ycsb.properties import divide, properties
from microshard.workloads.ycsb.results import encoded, fill_result, judge_ladder, merge_phases, rung_result

POLL_SECONDS = 0.25
LOGGED_SECONDS = 1.3  # from the end of an interval to its line in the log, at most
READY_POLL_SECONDS = 0.02
START_SECONDS = 0.3  # from the last "ready" to the common start: every thread has read it by then
LATE_SECONDS = 0.5  # a client that begins later than that is not measured


class YcsbEngine(Engine[YcsbParameters]):
    """Runs YCSB; a phase of kind load fills the collection.

    One invocation runs the clients of one client host: job.part says which of how many it is, job.start_at when the
    clients of all hosts begin. A ladder on one of several hosts measures every rung; results.py judges them together.
    """

    keys_model = YcsbParameters
    starts_itself = True  # its clients read the start time themselves

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        if context.folder is None:
            raise JobError(f"phase {phase.name}: ycsb needs a folder for its logs")
        self.load = phase.kind == "load"
        self.folder = context.folder / phase.name
        self.ladder: Ladder | None = self.keys.ladder if self.keys.threads == "ladder" else None
        self.rungs = self.ladder.rungs() if self.ladder else []
        self.clients = ClientProcesses(self.folder)
        self.cpu = CpuSampler()
        self.on_close(self.clients.close)
        self._failures: list[dict[str, Any]] = []

    @classmethod
    def lacks(cls, parameters: Mapping[str, Any]) -> str | None:  # noqa: ARG003 - needed whatever the parameters
        """Java, or the built client."""
        try:
            find_tools({})
        except PhaseError as error:
            return str(error)
        return None

    @classmethod
    def merge(cls, parts: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
        """The phases of all client hosts as one."""
        return merge_phases(parts, together)

    def prepare(self) -> None:
        """Find Java and the jar; check that the collection has the documents that the phase needs."""
        keys, namespace = self.keys, self.keys.namespace
        self.clients.tools = find_tools(self.context.job.tools)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.cpu.add_servers(self.context.job.point.processes)
        with self.context.connect() as client:
            found = collection_of(client, namespace).estimated_document_count()
        if self.load and found:
            raise PhaseError("NotEmpty", f"{namespace} holds documents already; a load needs an empty collection")
        if not self.load and found < keys.records:
            raise PhaseError("TooFewRecords", f"{namespace} holds {found:,} documents, records says {keys.records:,}")
        if not self.load and keys.distribution in GROWING and keys.proportions.get("insert") and found > keys.records:
            raise PhaseError(
                "TooManyRecords",
                f"{namespace} holds {found - keys.records:,} documents more than records: inserts with the "
                f"distribution {keys.distribution} begin after the last record and would meet them",
            )

    def run(self) -> None:
        """Start all clients, let them begin together, measure, stop them together."""
        seconds = self._planned_seconds()
        start_at = self.outcome.started = self._start(seconds)
        try:
            if self.ladder is not None:
                self._measure_ladder(self.ladder, start_at)
            else:
                self._measure(start_at, seconds)
        finally:
            self._count_failures()
        self._check_failures()
        if self.context.job.part.of == 1:  # else the others may still be loading
            self.verify()

    def _start(self, seconds: float) -> float:
        """Start all clients of this host; returns when they begin."""
        job, keys = self.context.job, self.keys
        mongos = [p.endpoint for p in job.point.processes if p.role == "mongos"]
        try:
            specs = divide(keys, job.connection_string, mongos, index=job.part.index, of=job.part.of)
        except ValueError as error:
            raise PhaseError("BadConnectionString", str(error)) from None
        if not specs:
            raise PhaseError("NoClients", f"{keys.clients} clients leave none for host {job.part.index + 1}")
        known = job.start_at if isinstance(job.start_at, float | int) else None
        if known is not None and known <= time.time():
            raise PhaseError("TooLate", f"the clients were to begin {time.time() - known:.1f} s ago")
        start_file, ready_file = self.folder / "start", self.folder / "ready"
        for old in (start_file, ready_file):
            old.unlink(missing_ok=True)
        start = f"@{start_file}" if known is None else str(round(known * 1000))
        for spec in specs:
            prefix = str(self.clients.prefix(spec))
            made = properties(
                keys, spec, load=self.load, start=start, seconds=seconds + keys.start_seconds, prefix=prefix
            )
            started = self.clients.start(spec, made, keys.java_options, load=self.load)
            self.cpu.add_client(started.name, started.process.pid)
        if known is not None:
            return float(known)
        self._await_ready()
        if job.start_at is not None:
            # The other hosts began at about the same time, and their clients may take as long.
            patience = 2 * keys.start_seconds + OTHER_HOSTS_SECONDS
            start_at, offset = agreed_start(self.context, self.phase.name, self.clients.check, patience)
            self.outcome.details["clock_offset"] = offset
            return start_at
        start_at = time.time() + START_SECONDS
        draft = start_file.with_name("start.part")
        draft.write_text(str(round(start_at * 1000)), encoding="ascii")
        draft.replace(start_file)
        return start_at

    def _await_ready(self) -> None:
        """Wait until every client is connected. Raises PhaseError when one dies or needs more than `start_seconds`."""
        deadline = time.monotonic() + self.keys.start_seconds
        while waiting := [client.name for client in self.clients.running if not client.is_ready()]:
            self.clients.check()
            if time.monotonic() > deadline:
                raise PhaseError(
                    "NotReady", f"{', '.join(waiting)} not connected after {self.keys.start_seconds} s (start_seconds)"
                )
            time.sleep(READY_POLL_SECONDS)

    def _planned_seconds(self) -> float:
        """From the common start to the end of what is measured; 0 when the work and not the time ends it."""
        if self.ladder is not None:
            return float(len(self.rungs) * self.ladder.step_seconds)
        if self.load or self.keys.operations is not None:
            return 0.0
        return float(self.keys.warm_up_seconds + self.keys.duration_seconds)

    def _wait(self, until: float | None, of: float) -> None:
        """Check the clients until a time, or until they end. Raises PhaseError at the first failure."""
        while until is None or time.time() < until:
            self._check()
            self.cpu.sample()
            if self.clients.finished():
                break
            passed = max(0.0, time.time() - self.outcome.started)
            self.report_progress(passed, max(of, passed + 1), "s")
            time.sleep(POLL_SECONDS if until is None else max(0.0, min(POLL_SECONDS, until - time.time())))
        self.clients.check()

    def _await_log(self, until: float) -> None:
        """Wait until the logs of the clients are complete up to a time."""
        working = [client for client in self.clients.running if client.spec.threads]
        while time.time() < until + LOGGED_SECONDS and not all(logged_until(c.prefix, until) for c in working):
            time.sleep(READY_POLL_SECONDS)
        self.cpu.sample()
        self.clients.check()

    def _check(self) -> None:
        """Raise PhaseError for a failed client; names a process of the point that has ended, if one has."""
        try:
            self.clients.check()
        except PhaseError as error:
            ended = self.cpu.ended_processes()
            if not ended:
                raise
            endpoints = {p.name: p.endpoint for p in self.context.job.point.processes}
            named = ", ".join(f"{name} ({endpoints[name]})" if name in endpoints else name for name in ended)
            raise PhaseError("ProcessDied", f"{named} ended during the measurement; {error}") from error

    # A run of given time, of given operations, or a load

    def _measure(self, start_at: float, seconds: float) -> None:
        timed = seconds > 0
        self._wait(start_at + seconds if timed else None, seconds)
        if timed and not self.clients.finished():
            self._await_log(start_at + seconds)
        if timed and self.clients.finished():
            raise PhaseError("EndedEarly", f"the clients ended before {seconds:.0f} s were over")
        self._stop()
        self.cpu.sample()
        end = start_at + seconds if timed else time.time()
        warm_up = 0 if self.load else self.keys.warm_up_seconds
        working = [client for client in self.clients.running if client.spec.threads]
        found = self._summarize(working, start_at + warm_up, end)
        fill_result(self.outcome, found, self.cpu.between(found.started, found.ended), self._facts())
        if self.load:
            self._fill_load(found.ended - found.started)

    def _stop(self) -> None:
        self.clients.stop()
        self.clients.check()
        self._check_start_times()

    def _summarize(
        self, clients: list[ClientProcess], started: float, ended: float, what: str = ""
    ) -> OperationSummary:
        """The operations of these clients. Raises PhaseError when one has none, or began too late."""
        try:
            return summarize([read_log(client.prefix) for client in clients], started, ended, buffered=self.load)
        except ValueError as error:
            self.clients.stop()
            self._check_start_times()
            why = f"{what}{error}; give it more time (duration_seconds or start_seconds)"
            raise PhaseError("NothingMeasured", why) from None

    def _check_start_times(self) -> None:
        """Raise PhaseError when a client began so late that it missed a part of the measurement.

        A load is measured from its first insert to its last, so a late client is only noted.
        """
        left_out = self.ladder.settle_seconds if self.ladder else self.keys.warm_up_seconds
        allowed = max(LATE_SECONDS, left_out / 2)
        for client in self.clients.running:
            late = client.report().get("late_ms", 0) / 1000
            if self.load and late > LATE_SECONDS:
                self.outcome.notes[f"{client.name} began late"] = f"{late:.1f} s after the planned start"
            elif late > allowed:
                raise PhaseError(
                    "StartedLate",
                    f"{client.name} began {late:.1f} s after the others; give start_seconds more than "
                    f"{self.keys.start_seconds}",
                )

    def _fill_load(self, seconds: float) -> None:
        """A load counts documents, not operations."""
        documents = sum(r["inserts"]["documents"] - r["inserts"]["failed"] for r in self._reports())
        counters = self.outcome.counters
        counters["commands"] = counters.pop("insert", 0)
        del counters["operations"]
        self.set_metric("load rate", "documents/s", documents / seconds, "higher")
        counters["documents"] = documents
        counters["bytes"] = documents * self.keys.fields * self.keys.field_bytes

    def _facts(self) -> dict[str, Any]:
        """Facts about the clients for the result."""
        threads = sum(client.spec.threads for client in self.clients.running)
        return {"clients": len(self.clients.running), "threads": threads, "target": self.keys.rate}

    # A ladder

    def _measure_ladder(self, ladder: Ladder, start_at: float) -> None:
        """Measure rung by rung until the rule ends it; the figure is that of the knee."""
        rule, seconds, result = ladder.model_dump(mode="json"), ladder.step_seconds, self.outcome
        rungs: list[OperationSummary] = []
        histograms: list[dict[str, str]] = []
        for number, threads in enumerate(self.rungs):
            begin = start_at + number * seconds
            self._wait(begin + seconds, len(self.rungs) * seconds)
            self._await_log(begin + seconds)
            if number == len(self.rungs) - 1:
                self.clients.terminate()
            working = [client for client in self.clients.running if client.spec.rungs[number]]
            span = begin + ladder.settle_seconds, begin + seconds
            # This host may have no thread on this rung.
            found = self._summarize(working, *span, f"{threads} threads: ") if working else OperationSummary(*span, 0.0)
            rungs.append(found)
            # Encoded now, during the next rung, and not when all wait for the end.
            histograms.append(encoded(found.histograms))
            result.rungs.append(rung_result(threads, found, self.cpu.between(found.started, found.ended)))
            verdict = judge_ladder(result.rungs, rule)
            # What several hosts did together is known only once they are merged.
            if verdict.stop and self.context.job.part.of == 1:
                break
        self._stop()
        rung = result.rungs[verdict.knee]
        fill_result(result, rungs[verdict.knee], rung.cpu, self._facts() | {"threads": rung.threads})
        self.add_figure("threads at the knee", "threads", rung.threads, "lower")
        result.notes["ladder"] = f"best of {len(rungs)} rungs: {rung.threads} threads; end: {verdict.why}"
        result.details |= {"rungs": histograms, "rule": rule}

    # Afterwards

    def _reports(self) -> list[dict[str, Any]]:
        return [report for client in self.clients.running if (report := client.report())]

    def _count_failures(self) -> None:
        """Stop the clients, whatever happened, and count errors by code."""
        self.clients.stop()
        logs = [read_log(client.prefix) for client in self.clients.running]
        self._failures = failures(logs, self._reports())
        total = sum(failure["count"] for failure in self._failures)
        self.outcome.counters["errors"] = total
        for failure in self._failures:
            name = f"errors {failure['operation']} {failure['code']} {failure['name']}"
            self.outcome.counters[name] = failure["count"]

    def _check_failures(self) -> None:
        """Raise PhaseError naming the errors by code: any of them makes the measurement invalid."""
        missing_allowed = self.keys.read_preference != "primary"  # a secondary may not have it yet
        counted = [f for f in self._failures if not (missing_allowed and f["name"] == "NOT_FOUND")]
        if counted:
            named = ", ".join(f"{f['count']:,} × {f['operation']} {f['code']} {f['name']}" for f in counted)
            raise PhaseError("Errors", f"operations failed: {named}; the first: {counted[0]['first']}")

    def result(self) -> PhaseResult:
        """The result, with the errors in `details`."""
        if self._failures:
            self.outcome.details["failures"] = self._failures
        return self.outcome

    def verify(self) -> None:
        """Count the documents of a load and measure their size. Raises PhaseError if records are missing."""
        if not self.load:
            return
        processes = self.context.job.point.processes
        with self.context.connect() as client:
            found = collection_of(client, self.keys.namespace).count_documents({})
            if found != self.keys.records:
                raise PhaseError("WrongCount", f"{self.keys.records:,} records were loaded, {found:,} exist")
            self.outcome.storage = servers.storage_size(client, self.keys.namespace, processes)
