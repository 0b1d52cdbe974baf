"""What all engines share: the interface they implement, what they are given, and the result they fill."""

from __future__ import annotations  # the classes of PyMongo 3.13 take no parameters

import contextlib
import difflib
import importlib
import json
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError
from pymongo.collection import Collection

from microshard.model.job import Job, JobError
from microshard.model.phase import PhaseKeys
from microshard.model.phases import engine_names
from microshard.model.plan import PlannedPhase
from microshard.model.result import Better, Metric, PhaseResult, ProgressLine
from microshard.records.codec import encode
from microshard.workloads.connections import Client, connect

Keys = TypeVar("Keys", bound=PhaseKeys)
PROGRESS_SECONDS = 0.5  # between lines of a phase


class PhaseError(Exception):
    """The phase failed. `kind` is a short name for programs (WriteError, WrongCount …). Exit code 3."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ProgressFile:
    """Writes progress lines, one JSON object each, at most about two a second. Without a file it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        # Unbuffered: a reader sees whole lines, and nothing is left to flush when the process is ended.
        self._file = path.open("ab", buffering=0) if path else None
        self._last = 0.0

    def report(self, phase: str, done: int, of: int, unit: str, note: str = "") -> None:
        """Say that `done` of `of` units are finished; lines that come too soon are dropped, the last one never."""
        now = time.monotonic()
        if self._file is None or (now - self._last < PROGRESS_SECONDS and done < of):
            return
        self._last = now
        line = ProgressLine(phase, done, of, unit, time.time(), note)
        with contextlib.suppress(OSError):  # a full disk: reported when the result cannot be written
            self._file.write(json.dumps(encode(line)).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True, slots=True)
class Context:
    """What an engine works with besides its phase."""

    job: Job
    progress: ProgressFile
    folder: Path | None = None  # for files of an engine besides its result; created by the first to write there

    def connect(self, **options: Any) -> Client:
        """A client of the point. The driver retries nothing: a retry would hide an error or time two attempts."""
        return connect(self.job.connection_string, **options)

    def count(self, namespace: str) -> int:
        """How many documents a collection has."""
        with self.connect() as client:
            return collection_of(client, namespace).count_documents({})


def collection_of(client: Client, namespace: str) -> Collection[dict[str, Any]]:
    """The collection `database.collection` of a client."""
    database, _, name = namespace.partition(".")
    return client[database][name]


class Engine(ABC, Generic[Keys]):
    """One kind of work. __init__ reads the parameters (JobError); prepare and run raise PhaseError.

    `prepare` does what must not be in the measured time, `run` measures and fills `outcome`, `result` is called after
    either, also when one of them failed, and returns what is known by then.
    """

    keys_model: ClassVar[type[PhaseKeys]]
    """The model of the parameters, from model/phases."""

    starts_itself: ClassVar[bool] = False
    """Whether `run` waits for the start that several client hosts have agreed on."""

    keys: Keys

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        self.phase = phase
        self.context = context
        try:
            found = self.keys_model.model_validate({"engine": phase.engine, **phase.parameters})
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise JobError(f"phase {phase.name}: {key}: {first['msg']}") from None
        self.keys = found  # type: ignore[assignment]  # the class is that of Keys
        self.outcome = PhaseResult(phase.name, phase.kind, phase.engine)
        self._cleanups: list[Callable[[], object]] = []

    @classmethod
    def lacks(cls, parameters: Mapping[str, Any]) -> str | None:  # noqa: ARG003 - for those who need much
        """What the engine needs and this machine lacks, and what to do about it; None when nothing is missing."""
        return None

    @classmethod
    def merge(cls, parts: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
        """Merge the results of several client hosts (by host, times on one clock) into one phase.

        For engines whose keys say `spreads`. `together` is what `verify` found. Raises PhaseError when the parts do not
        belong together.
        """
        raise NotImplementedError(f"{cls.__name__} works from one client host ({', '.join(parts)})")

    @abstractmethod
    def prepare(self) -> None:
        """Check and set up; not timed."""

    @abstractmethod
    def run(self) -> None:
        """Do the work and fill `outcome`."""

    def verify(self) -> None:
        """After all client hosts have ended, on one of them: what can be known only now. Raises PhaseError."""

    def result(self) -> PhaseResult:
        """What was measured."""
        return self.outcome

    def opened(self, client: Client) -> Client:
        """A client that is closed with the engine."""
        self.on_close(client.close)
        return client

    def on_close(self, cleanup: Callable[[], object]) -> None:
        """Call `cleanup` when the engine is closed, the last one first."""
        self._cleanups.append(cleanup)

    def close(self) -> None:
        """End worker processes and connections; called whatever happened, again when a signal has interrupted it."""
        while self._cleanups:
            self._cleanups[-1]()
            self._cleanups.pop()

    @contextlib.contextmanager
    def measured(self, workers_cpu: Callable[[], float] = lambda: 0.0) -> Iterator[None]:
        """Record start, end and client CPU time of a block in the outcome, whatever happens in it.

        `workers_cpu` returns the CPU seconds of worker processes that still run.
        """
        cpu, self.outcome.started = cpu_seconds(), time.time()
        try:
            yield
        finally:
            self.outcome.ended = time.time()
            self.outcome.client_cpu_seconds = cpu_seconds() - cpu + workers_cpu()

    def set_metric(self, name: str, unit: str, value: float, better: Better) -> None:
        """Set the metric of the phase, measured once."""
        self.outcome.metric = Metric(name, unit, value, better)
        self.outcome.samples = [value]

    def add_figure(self, name: str, unit: str, value: float, better: Better) -> None:
        """Add a figure besides the metric."""
        self.outcome.figures.append(Metric(name, unit, value, better))

    def report_progress(self, done: float, of: float, unit: str, note: str = "") -> None:
        """Report progress of this phase."""
        self.context.progress.report(self.phase.name, int(done), int(of), unit, note)


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def find_engine(name: str) -> type[Engine[Any]]:
    """The class `ENGINE` of workloads/NAME.py. Raises JobError with the nearest name when there is no such engine."""
    known = engine_names()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise JobError(f"there is no engine {name!r}{hint} (there are: {', '.join(known)})")
    # By name, so that a user's engine is a file and nothing else.
    engine: type[Engine[Any]] = importlib.import_module(f"microshard.workloads.{name}").ENGINE
    return engine
