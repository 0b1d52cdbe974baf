"""The engine `ycsb`: the clients of this host, from their start to their merged result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from microshard.model.job import JobError, Phase
from microshard.model.phases.ycsb import YcsbPhase
from microshard.workloads import servers
from microshard.workloads.base import Context, Engine, Metric, PhaseError, PhaseResult
from microshard.workloads.ycsb.clients import ClientProcesses, find_tools
from microshard.workloads.ycsb.cpu import CpuSampler
from microshard.workloads.ycsb.logs import OperationSummary, failures, logged_until, read_log, read_report, summarize
from microshard.workloads.ycsb.properties import ClientSpec, divide, properties
from microshard.workloads.ycsb.results import (
    LadderVerdict,
    encoded,
    fill_result,
    judge_ladder,
    merge_phases,
    rung_result,
)

POLL_SECONDS = 0.25
LOGGED_SECONDS = 1.3  # from the end of an interval to its line in the log, at most
READY_POLL_SECONDS = 0.02
OTHER_HOSTS_SECONDS = 60.0  # for hosts that are slower than this one
START_SECONDS = 0.3  # from the last "ready" to the common start: every thread has read it by then
LATE_SECONDS = 0.5  # a client that begins later than that is not measured


class YcsbEngine(Engine[Any]):
    """Parameters: all keys of YcsbPhase, `clients` as a number. A phase of kind load fills the collection.

    One invocation runs the clients of one client host: job.part says which of how many it is, job.start_at when the
    clients of all hosts begin. A ladder on one of several hosts measures every rung; results.py judges them together.
    """

    keys_model = YcsbPhase

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
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
        self._clients: ClientProcesses | None = None
        self._cpu: CpuSampler | None = None
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
    def merge(cls, parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """The phases of all client hosts as one."""
        return merge_phases(parts)

    @property
    def clients(self) -> ClientProcesses:
        """The clients; from prepare on."""
        assert self._clients is not None  # noqa: S101 - for the type checker
        return self._clients

    @property
    def cpu(self) -> CpuSampler:
        """The CPU sampler; from prepare on."""
        assert self._cpu is not None  # noqa: S101 - for the type checker
        return self._cpu

    def prepare(self) -> None:
        """Find Java and the jar; check that the collection has the documents that the phase needs."""
        if self.context.job.after:
            return
        tools = find_tools(self.context.job.tools)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clients = ClientProcesses(tools, self.keys["java_options"], self.folder)
        self._cpu = CpuSampler(self.context.job.point.processes)
        database, _, collection = self.keys["namespace"].partition(".")
        with self.context.connect() as client:
            found = client[database][collection].estimated_document_count()
        namespace, records = self.keys["namespace"], self.keys["records"]
        if self.load and found:
            raise PhaseError("NotEmpty", f"{namespace} holds documents already; a load needs an empty collection")
        if not self.load and found < records:
            raise PhaseError("TooFewRecords", f"{namespace} holds {found:,} documents, records says {records:,}")
        growing = self.keys["distribution"] in {"zipfian", "latest", "exponential"}
        if not self.load and growing and self.keys["proportions"].get("insert") and found > records:
            raise PhaseError(
                "TooManyRecords",
                f"{namespace} holds {found - records:,} documents more than records: inserts with the distribution "
                f"{self.keys['distribution']} begin after the last record and would meet them",
            )

    def run(self) -> None:
        """Start all clients, let them begin together, measure, stop them together."""
        if self.context.job.after:
            if self.load:
                self._verify()
            return
        specs = self._specs()
        seconds = self._planned_seconds()
        given = self.context.job.start_at
        known = given if isinstance(given, float | int) else None
        if known is not None and known <= time.time():
            raise PhaseError("TooLate", f"the clients were to begin {time.time() - known:.1f} s ago")
        start_file, ready_file = self.folder / "start", self.folder / "ready"
        for old in (start_file, ready_file):
            old.unlink(missing_ok=True)
        for spec in specs:
            made = properties(
                self.keys,
                spec,
                load=self.load,
                now=time.time(),
                start=f"@{start_file}" if known is None else str(round(known * 1000)),
                seconds=seconds + self.keys["start_seconds"],
                prefix=str(self.clients.prefix(spec)),
            )
            started = self.clients.start(spec, made, load=self.load)
            self.cpu.add_client(started.name, started.process.pid)
        if known is None:
            self._await_ready()
            known = self._read_start(start_file, ready_file) if given == "told" else self._write_start(start_file)
        start_at = known
        self.outcome.started = start_at
        try:
            if self.ladder is not None:
                self._measure_ladder(start_at)
            else:
                self._measure(start_at, seconds)
        finally:
            self._count_failures()
        self._check_failures()
        if self.load:
            self._verify()

    def _specs(self) -> list[ClientSpec]:
        """The clients of this host."""
        job = self.context.job
        mongos = [p.endpoint for p in job.point.processes if p.role == "mongos"]
        try:
            specs = divide(self.keys, self.rungs, job.connection_string, mongos, index=job.part.index, of=job.part.of)
        except ValueError as error:
            raise PhaseError("BadConnectionString", str(error)) from None
        if not specs:
            raise PhaseError("NoClients", f"{self.keys['clients']} clients leave none for host {job.part.index + 1}")
        return specs

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

    def _read_start(self, start_file: Path, ready_file: Path) -> float:
        """Report that this host's clients are connected, and wait for the start time of all hosts."""
        ready_file.touch()
        # The other hosts began at about the same time, and their clients may take as long.
        deadline = time.monotonic() + 2 * self.keys["start_seconds"] + OTHER_HOSTS_SECONDS
        while not start_file.exists():
            self.clients.check()
            if time.monotonic() > deadline:
                raise PhaseError("NoStartTime", "the clients were connected, but no start time was given")
            time.sleep(READY_POLL_SECONDS)
        return int(start_file.read_text(encoding="ascii")) / 1000

    def _write_start(self, start_file: Path) -> float:
        """Give all clients the same start time; returns it."""
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
        """Check the clients until a time, or until they end. Raises PhaseError at the first failure."""
        while until is None or time.time() < until:
            try:
                self.clients.check()
            except PhaseError as error:
                self._explain(error)
            self.cpu.sample()
            if self.clients.finished():
                break
            passed = max(0.0, time.time() - self.outcome.started)
            self.context.progress.report(self.phase.name, round(passed), max(round(of), round(passed) + 1), "s")
            time.sleep(POLL_SECONDS if until is None else max(0.0, min(POLL_SECONDS, until - time.time())))
        self.clients.check()

    def _await_log(self, until: float) -> None:
        """Wait until the logs of the clients are complete up to a time."""
        working = [client for client in self.clients.running if client.spec.threads]
        while time.time() < until + LOGGED_SECONDS and not all(logged_until(c.prefix, until) for c in working):
            time.sleep(READY_POLL_SECONDS)
        self.cpu.sample()
        self.clients.check()

    def _explain(self, error: PhaseError) -> None:
        """Raise the error; with the name of a process of the point that has ended, if one has."""
        ended = self.cpu.ended_processes()
        if ended:
            endpoints = {p.name: p.endpoint for p in self.context.job.point.processes}
            named = ", ".join(f"{name} ({endpoints[name]})" if name in endpoints else name for name in ended)
            raise PhaseError("ProcessDied", f"{named} ended during the measurement; {error}") from error
        raise error

    # A run of given time, of given operations, or a load

    def _measure(self, start_at: float, seconds: float) -> None:
        timed = seconds > 0
        self._wait(start_at + seconds if timed else None, seconds)
        if timed and not self.clients.finished():
            self._await_log(start_at + seconds)
        if timed and self.clients.finished():
            raise PhaseError("EndedEarly", f"the clients ended before {seconds:.0f} s were over")
        self.clients.stop()
        self.clients.check()
        self.cpu.sample()
        self._check_start_times()
        warm_up = 0 if self.load else self.keys["warm_up_seconds"]
        end = start_at + seconds if timed else time.time()
        self._finish(self._summarize(start_at + warm_up, end))

    def _summarize(self, started: float, ended: float) -> OperationSummary:
        logs = [read_log(client.prefix) for client in self.clients.running if client.spec.threads]
        try:
            return summarize(logs, started, ended, buffered=self.load)
        except ValueError as error:
            raise self._nothing_measured(str(error)) from None

    def _nothing_measured(self, why: str) -> PhaseError:
        """The error for a client without operations. Raises PhaseError when the client began too late."""
        self.clients.stop()
        self._check_start_times()
        return PhaseError("NothingMeasured", f"{why}; give it more time (duration_seconds or start_seconds)")

    def _check_start_times(self) -> None:
        """Raise PhaseError when a client began so late that it missed a part of the measurement.

        A load is measured from its first insert to its last, so a late client is only noted.
        """
        left_out = self.ladder["settle_seconds"] if self.ladder else self.keys["warm_up_seconds"]
        allowed = max(LATE_SECONDS, left_out / 2)
        for client in self.clients.running:
            report = read_report(client.report_path) or {}
            late = report.get("late_ms", 0) / 1000
            if self.load and late > LATE_SECONDS:
                self.outcome.notes[f"{client.name} began late"] = f"{late:.1f} s after the planned start"
            elif late > allowed:
                raise PhaseError(
                    "StartedLate",
                    f"{client.name} began {late:.1f} s after the others; give start_seconds more than "
                    f"{self.keys['start_seconds']}",
                )

    def _finish(self, found: OperationSummary) -> None:
        cpu = self.cpu.between(found.started, found.ended)
        fill_result(self.outcome, found, cpu, self._facts())
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
        """Facts about the clients for the result."""
        threads = sum(client.spec.threads for client in self.clients.running)
        return {"clients": len(self.clients.running), "threads": threads, "target": self.keys["target_rate"]}

    # A ladder

    def _measure_ladder(self, start_at: float) -> None:
        assert self.ladder is not None  # noqa: S101 - for the type checker
        rungs: list[OperationSummary] = []
        histograms: list[dict[str, str]] = []
        verdict = LadderVerdict(0, stop=False, why="")
        for number, threads in enumerate(self.rungs):
            begin = start_at + number * self._rung_seconds()
            end = begin + self._rung_seconds()
            self._wait(end, len(self.rungs) * self._rung_seconds())
            self._await_log(end)
            if number == len(self.rungs) - 1:
                self.clients.terminate()
            found = self._summarize_rung(threads, begin + self.ladder["settle_seconds"], end)
            rungs.append(found)
            # Encoded now, during the next rung, and not when all wait for the end.
            histograms.append(encoded(found.histograms))
            self.outcome.rungs.append(rung_result(threads, found, self.cpu.between(found.started, found.ended)))
            verdict = judge_ladder(self.outcome.rungs, self.ladder)
            # What several hosts did together is known only once they are merged.
            if verdict.stop and self.context.job.part.of == 1:
                break
        self.clients.stop()
        self.clients.check()
        self._check_start_times()
        self._finish_ladder(rungs, histograms, verdict)

    def _summarize_rung(self, threads: int, started: float, ended: float) -> OperationSummary:
        working = [client for client in self.clients.running if client.spec.rungs[self.rungs.index(threads)]]
        if not working:  # this host has no thread on this rung
            return OperationSummary(started, ended, 0.0)
        try:
            return summarize([read_log(client.prefix) for client in working], started, ended)
        except ValueError as error:
            raise self._nothing_measured(f"{threads} threads: {error}") from None

    def _finish_ladder(
        self, rungs: list[OperationSummary], histograms: list[dict[str, str]], verdict: LadderVerdict
    ) -> None:
        """The figure of the ladder is that of its knee."""
        knee = rungs[verdict.knee]
        rung = self.outcome.rungs[verdict.knee]
        fill_result(self.outcome, knee, rung["cpu"], self._facts() | {"threads": rung["threads"]})
        self.outcome.figures.append(Metric("threads at the knee", "threads", rung["threads"], "lower"))
        self.outcome.notes["ladder"] = f"best of {len(rungs)} rungs: {rung['threads']} threads; end: {verdict.why}"
        assert self.outcome.details is not None  # noqa: S101 - fill_result has set it
        self.outcome.details["rungs"] = histograms
        self.outcome.details["rule"] = self.ladder

    # Afterwards

    def _reports(self) -> list[dict[str, Any]]:
        return [report for c in self.clients.running if (report := read_report(c.report_path)) is not None]

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
        missing_allowed = self.keys["read_preference"] != "primary"  # a secondary may not have it yet
        counted = [f for f in self._failures if not (missing_allowed and f["name"] == "NOT_FOUND")]
        if counted:
            named = ", ".join(f"{f['count']:,} × {f['operation']} {f['code']} {f['name']}" for f in counted)
            raise PhaseError("Errors", f"operations failed: {named}; the first: {counted[0]['first']}")

    def result(self) -> PhaseResult:
        """The result, with the errors in `details`."""
        if self._failures:
            self.outcome.details = {**(self.outcome.details or {}), "failures": self._failures}
        return self.outcome

    def _verify(self) -> None:
        """Count the documents of a load and measure their size. Raises PhaseError if records are missing."""
        database, _, collection = self.keys["namespace"].partition(".")
        processes = self.context.job.point.processes
        if self.context.job.part.of > 1 and not self.context.job.after:
            return  # the others may still be loading
        with self.context.connect() as client:
            found = client[database][collection].count_documents({})
            if found != self.keys["records"]:
                raise PhaseError("WrongCount", f"{self.keys['records']:,} records were loaded, {found:,} are there")
            self.outcome.storage = servers.storage_size(client, self.keys["namespace"], processes)

    def close(self) -> None:
        """End the clients."""
        if self._clients is not None:
            self._clients.close()
