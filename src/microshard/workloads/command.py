"""The engine `command`: runs a user's program that prints JSON lines (docs/extending.md has the protocol)."""

import json
import math
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from hdrh.histogram import HdrHistogram

from microshard.model.phases.command import CommandPhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import Metric, Stage, Table
from microshard.records import codec
from microshard.workloads import answers, recording
from microshard.workloads.base import Context, Engine, PhaseError, cpu_seconds

LAST_LINES = 5  # of standard error, in the message of a failure
SHOWN_CHARACTERS = 200  # of a line that is refused


class CommandEngine(Engine[CommandPhase]):
    """Runs the program and fills the result with what it prints."""

    keys_model = CommandPhase

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.rates = recording.OperationRates(1.0)
        self.latency: dict[str, HdrHistogram] = {}
        self._began = self._ended = 0.0  # monotonic, of the measured interval
        self._timed_out = False
        self._handlers: dict[str, Callable[[Any], object]] = {
            "start": self._start_interval,
            "end": self._end_interval,
            "progress": self._report_progress,
            "metric": lambda value: setattr(self.outcome, "metric", _metric(value)),
            "sample": lambda value: self.outcome.samples.append(float(value)),
            "counters": self._add_counters,
            "figure": lambda value: self.outcome.figures.append(_metric(value)),
            "operations": lambda value: self.rates.add(time.monotonic() - self._began, int(value)),
            "latency": self._record_latencies,
            "answer": self._set_answer,
            "note": lambda value: self.outcome.notes.update({str(k): str(v) for k, v in value.items()}),
            "stage": lambda value: self.outcome.stages.append(codec.decode(Stage, value)),
            "table": lambda value: setattr(self.outcome, "table", codec.decode(Table, value)),
            "error": self._fail,
        }

    def prepare(self) -> None:
        """Nothing: the program prepares what it needs before it prints `start`."""

    def run(self) -> None:
        """Start the program, read its lines, wait for its end. Raises PhaseError."""
        cpu = cpu_seconds()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            process = self._start_program(errors)
            self.on_close(lambda: _kill(process))
            timer = threading.Timer(self.keys.max_seconds, self._time_out, (process,))
            timer.daemon = True
            timer.start()
            try:
                self._began, self.outcome.started = time.monotonic(), time.time()
                for number, line in enumerate(process.stdout or (), start=1):
                    self._read_line(number, line)
                code = process.wait()
            finally:
                timer.cancel()
            self._ended = self._ended or time.monotonic()
            self.outcome.ended = self.outcome.ended or time.time()
            self._check(code, errors)
        self.outcome.client_cpu_seconds = cpu_seconds() - cpu
        self._complete_result()

    def _start_program(self, errors: IO[str]) -> subprocess.Popen[str]:
        job = self.context.job
        given = {
            "connection_string": job.connection_string,
            "point": {"id": job.point.id, "shards": job.point.shards, "topology": job.point.topology},
            "axes": dict(job.point.axes),
            "phase": self.phase.name,
            "namespace": self.keys.namespace,
            "input": self.keys.input,
        }
        try:
            process = subprocess.Popen(
                self.keys.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
                process_group=0,  # what it starts itself is ended with it
            )
        except OSError as error:
            raise PhaseError("CannotStart", f"{self.keys.command[0]} does not start: {error.strerror}") from None
        assert process.stdin is not None  # noqa: S101 - for the type checker
        try:
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it need not read its input
        return process

    def _read_line(self, number: int, line: str) -> None:
        """Handle one line: an object with one or more of the keywords. Raises PhaseError."""
        if not line.strip():
            return
        try:
            found = json.loads(line)
            if not isinstance(found, dict) or not found:
                raise TypeError("an object with at least one key is needed")
            for keyword, value in found.items():
                if keyword not in self._handlers:
                    raise TypeError(f"{keyword!r} is no keyword of the protocol ({', '.join(self._handlers)})")
                self._handlers[keyword](value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            shown = line.strip()[:SHOWN_CHARACTERS]
            raise PhaseError("BadLine", f"line {number} of {self.keys.command[0]}: {what}: {shown}") from None

    def _start_interval(self, _: object) -> None:
        self._began, self.outcome.started = time.monotonic(), time.time()
        self.rates = recording.OperationRates(1.0)
        self.latency.clear()

    def _end_interval(self, _: object) -> None:
        self._ended, self.outcome.ended = time.monotonic(), time.time()

    def _report_progress(self, value: dict[str, Any]) -> None:
        self.report_progress(
            int(value["done"]), int(value["of"]), str(value.get("unit", "")), str(value.get("note", ""))
        )

    def _add_counters(self, value: dict[str, Any]) -> None:
        for name, count in value.items():
            self.outcome.counters[name] = self.outcome.counters.get(name, 0) + int(count)

    def _record_latencies(self, value: dict[str, list[float]]) -> None:
        for operation, latencies in value.items():
            histogram = self.latency.setdefault(operation, recording.new_histogram())
            for microseconds in latencies:
                recording.record(histogram, microseconds)

    def _set_answer(self, value: list[Any]) -> None:
        if not isinstance(value, list):
            raise TypeError("an answer is a list of documents")
        self.outcome.answer = answers.canonical(value)
        self.outcome.answer_sha256 = answers.sha256(self.outcome.answer)

    def _fail(self, value: dict[str, Any]) -> None:
        raise PhaseError(str(value.get("type", "Error")), str(value["message"]))

    def _check(self, code: int, errors: IO[str]) -> None:
        """Raise PhaseError unless the program has ended well and in time."""
        program = self.keys.command[0]
        if self._timed_out:
            raise PhaseError("TooLate", f"{program} took longer than {self.keys.max_seconds:g} s")
        if code:
            errors.seek(0)
            last = " | ".join(line.strip() for line in errors.read().splitlines()[-LAST_LINES:])
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise PhaseError("CommandFailed", f"{program} ended {how}: {last or 'without a message'}")
        if self.outcome.metric is None:
            raise PhaseError("NoMetric", f"{program} ended without a line with `metric`")

    def _complete_result(self) -> None:
        result = self.outcome
        result.counters.setdefault("errors", 0)
        result.samples = result.samples or [result.metric.value if result.metric else math.nan]
        if self.rates.counts:
            result.windows = self.rates.windows(result.started, self._ended - self._began)
        result.latency = {name: recording.latency(found) for name, found in self.latency.items()}
        result.notes["command"] = " ".join(self.keys.command)

    def _time_out(self, process: subprocess.Popen[str]) -> None:
        self._timed_out = True
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End the program and what it has started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _metric(value: dict[str, Any]) -> Metric:
    """A metric of docs/contracts.md. Raises KeyError, ValueError for anything else."""
    if value["better"] not in {"higher", "lower"}:
        raise ValueError(f"better is higher or lower, not {value['better']!r}")
    if not math.isfinite(float(value["value"])):
        raise ValueError("the value must be finite")
    return Metric(str(value["name"]), str(value["unit"]), float(value["value"]), value["better"])


ENGINE = CommandEngine
