"""The engine `command`: runs a program of your own that prints JSON lines (docs/extending.md has the protocol)."""

from __future__ import annotations

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

from microshard.model.job import Phase
from microshard.model.phases.command import CommandPhase
from microshard.workloads import answer, histograms
from microshard.workloads.base import Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.windows import Windows

LAST_LINES = 5  # of standard error, told with a failure
SHOWN = 200  # characters of a line that is refused


class CommandEngine(Engine):
    """Runs the program; the parameters are CommandPhase's."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, CommandPhase)
        self.windows = Windows(1.0)
        self.latency: dict[str, Any] = {}
        self._began = 0.0  # monotonic, of the measured interval
        self._ended = 0.0
        self._process: subprocess.Popen[str] | None = None
        self._late = False

    def prepare(self) -> None:
        """Nothing: the program prepares what it needs before it says `start`."""

    def run(self) -> None:
        """Start it, hear it, await its end. Raises PhaseError for a bad line, a failure or no metric."""
        cpu = cpu_seconds()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as words:
            self._process = process = self._start(words)
            watch = threading.Timer(self.keys.max_seconds, self._too_late)
            watch.daemon = True
            watch.start()
            try:
                self._began, self.outcome.started = time.monotonic(), time.time()
                for number, line in enumerate(process.stdout or (), start=1):
                    self._hear(number, line)
                code = process.wait()
            finally:
                watch.cancel()
            self._ended = self._ended or time.monotonic()
            self.outcome.ended = self.outcome.ended or time.time()
            self._check(code, words)
        self.outcome.client_cpu_seconds = cpu_seconds() - cpu
        self._finish()

    def _start(self, words: IO[str]) -> subprocess.Popen[str]:
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
                stderr=words,
                text=True,
                errors="replace",
                process_group=0,  # what it starts itself is ended with it
            )
        except OSError as error:
            raise PhaseError("CannotStart", f"{self.keys.command[0]} does not start: {error.strerror}") from None
        assert process.stdin is not None  # noqa: S101 - for the type checker: it was asked for above
        try:
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.close()
        except BrokenPipeError:
            pass  # it need not read what it does not want to know
        return process

    def _hear(self, number: int, line: str) -> None:
        """One line: one or more of the known words."""
        if not line.strip():
            return
        try:
            said = json.loads(line)
            if not isinstance(said, dict) or not said:
                raise TypeError("an object with at least one key is needed")
            for word, value in said.items():
                if word not in _WORDS:
                    raise TypeError(f"{word!r} is no word of the protocol ({', '.join(_WORDS)})")
                _WORDS[word](self, value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            shown = line.strip()[:SHOWN]
            raise PhaseError("BadLine", f"line {number} of {self.keys.command[0]}: {what}: {shown}") from None

    def _begin(self, _: object) -> None:
        self._began, self.outcome.started = time.monotonic(), time.time()
        self.windows = Windows(1.0)
        self.latency.clear()

    def _end(self, _: object) -> None:
        self._ended, self.outcome.ended = time.monotonic(), time.time()

    def _progress(self, value: dict[str, Any]) -> None:
        self.context.progress.report(
            self.phase.name,
            int(value["done"]),
            int(value["of"]),
            str(value.get("unit", "")),
            str(value.get("note", "")),
        )

    def _metric(self, value: dict[str, Any]) -> None:
        self.outcome.metric = _figure(value)

    def _counters(self, value: dict[str, Any]) -> None:
        for name, count in value.items():
            self.outcome.counters[name] = self.outcome.counters.get(name, 0) + int(count)

    def _operations(self, value: int) -> None:
        self.windows.add(time.monotonic() - self._began, int(value))

    def _latencies(self, value: dict[str, list[float]]) -> None:
        for operation, microseconds in value.items():
            found = self.latency.setdefault(operation, histograms.histogram())
            for one in microseconds:
                found.record_value(max(1, min(int(one), histograms.LONGEST_US)))

    def _answer(self, value: list[Any]) -> None:
        if not isinstance(value, list):
            raise TypeError("an answer is a list of documents")
        self.outcome.answer = answer.canonical(value)
        self.outcome.answer_sha256 = answer.sha256(self.outcome.answer)

    def _error(self, value: dict[str, Any]) -> None:
        raise PhaseError(str(value.get("type", "Error")), str(value["message"]))

    def _check(self, code: int, words: IO[str]) -> None:
        if self._late:
            raise PhaseError("TooLate", f"{self.keys.command[0]} took longer than {self.keys.max_seconds:g} s")
        if code:
            words.seek(0)
            last = " | ".join(line.strip() for line in words.read().splitlines()[-LAST_LINES:])
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise PhaseError("CommandFailed", f"{self.keys.command[0]} ended {how}: {last or 'it said nothing'}")
        if self.outcome.metric is None:
            raise PhaseError("NoMetric", f"{self.keys.command[0]} ended without a line with `metric`")

    def _finish(self) -> None:
        result = self.outcome
        result.counters.setdefault("errors", 0)
        result.samples = result.samples or [result.metric.value if result.metric else math.nan]
        result.windows = (
            self.windows.as_json(result.started, self._ended - self._began) if self.windows.counts else None
        )
        result.latency = {name: histograms.as_json(found) for name, found in self.latency.items()} or None
        result.notes["command"] = " ".join(self.keys.command)

    def _too_late(self) -> None:
        self._late = True
        self.close()

    def close(self) -> None:
        """End it and what it has started."""
        process = self._process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _figure(value: dict[str, Any]) -> Metric:
    """A figure of docs/contracts.md. Raises KeyError and ValueError for one that is not."""
    if value["better"] not in {"higher", "lower"}:
        raise ValueError(f"better is higher or lower, not {value['better']!r}")
    if not math.isfinite(float(value["value"])):
        raise ValueError("the value must be finite")
    return Metric(str(value["name"]), str(value["unit"]), float(value["value"]), value["better"])


def _set_table(engine: CommandEngine, value: Any) -> None:
    engine.outcome.table = {"columns": list(value["columns"]), "rows": list(value["rows"])}


_WORDS: dict[str, Callable[[CommandEngine, Any], object]] = {
    "start": CommandEngine._begin,
    "end": CommandEngine._end,
    "progress": CommandEngine._progress,
    "metric": CommandEngine._metric,
    "sample": lambda engine, value: engine.outcome.samples.append(float(value)),
    "counters": CommandEngine._counters,
    "figure": lambda engine, value: engine.outcome.figures.append(_figure(value)),
    "operations": CommandEngine._operations,
    "latency": CommandEngine._latencies,
    "answer": CommandEngine._answer,
    "note": lambda engine, value: engine.outcome.notes.update({str(k): str(v) for k, v in value.items()}),
    "stage": lambda engine, value: engine.outcome.stages.append({"name": str(value["name"]), **value}),
    "table": _set_table,
    "error": CommandEngine._error,
}

ENGINE = CommandEngine
