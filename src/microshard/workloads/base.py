"""What all engines share: the job they are given, the interface they fill and the result they hand back."""

from __future__ import annotations

import resource
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError
from pymongo import MongoClient

from microshard.model.job import Job, JobError, Phase
from microshard.model.phase import PhaseKeys
from microshard.workloads.progress import Progress

Client = MongoClient[dict[str, Any]]
Keys = TypeVar("Keys", bound=PhaseKeys)

# A server that is gone must become an error, not a wait: the default of 30 s is meant for elections over networks.
SERVER_SELECTION_MS = 15_000
CONNECT_MS = 10_000


class PhaseError(Exception):
    """The phase failed. `kind` is a short name for programs (WriteError, WrongCount …). Exit code 3."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(slots=True)
class Metric:
    """The one figure of a phase."""

    name: str
    unit: str
    value: float
    better: Literal["higher", "lower"]


@dataclass(slots=True)
class PhaseResult:
    """What a phase measured; the fields are those of docs/contracts.md."""

    name: str
    kind: str
    engine: str
    started: float = 0.0  # epoch seconds; the interval the metric is about
    ended: float = 0.0
    seconds: float = 0.0  # of the whole phase: with preparation and warm-up before the interval, checks after it
    metric: Metric | None = None
    samples: list[float] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    answer: list[Any] | None = None
    answer_sha256: str | None = None
    client_cpu_seconds: float = 0.0
    storage: dict[str, Any] | None = None
    notes: dict[str, str] = field(default_factory=dict)
    # What only some engines have; left out of the file when empty. docs/contracts.md says what is in each.
    figures: list[Metric] = field(default_factory=list)
    windows: dict[str, Any] | None = None
    latency: dict[str, Any] | None = None
    series: list[dict[str, Any]] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    rungs: list[dict[str, Any]] = field(default_factory=list)
    table: dict[str, Any] | None = None
    details: dict[str, Any] | None = None
    error: dict[str, str] | None = None

    def as_json(self) -> dict[str, Any]:
        """The result as it is written, without the optional parts that are empty."""
        optional = ("figures", "windows", "latency", "series", "stages", "rungs", "table", "details", "error")
        return {key: value for key, value in asdict(self).items() if value or key not in optional}


@dataclass(frozen=True, slots=True)
class Context:
    """What an engine works with besides its phase."""

    job: Job
    progress: Progress
    folder: Path | None = None  # for what an engine keeps besides its result; made by whoever writes there first

    def connect(self, **options: Any) -> Client:
        """A client of the point. Nothing is retried by the driver: a retry would hide an error or time two tries."""
        return connect(self.job.connection_string, **options)


def connect(uri: str, **options: Any) -> Client:
    """A client that fails soon and retries nothing; options override."""
    settings: dict[str, Any] = {
        "retryWrites": False,
        "retryReads": False,
        "serverSelectionTimeoutMS": SERVER_SELECTION_MS,
        "connectTimeoutMS": CONNECT_MS,
        "appname": "microshard",
    }
    return MongoClient(uri, **(settings | options))


def read_keys(phase: Phase, model: type[Keys]) -> Keys:
    """The parameters of a phase as the engine's own keys. Raises JobError naming the key that is wrong."""
    try:
        return model.model_validate({"engine": phase.engine, **phase.parameters})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise JobError(f"phase {phase.name}: {key}: {first['msg']}") from None


class Engine(ABC):
    """One kind of work. __init__ reads the parameters (JobError); prepare and run raise PhaseError.

    `prepare` does what must not be in the measured time, `run` measures, `result` is called after either, also
    when one of them failed, and says what is known by then. `close` ends whatever is still running.
    """

    def __init__(self, phase: Phase, context: Context) -> None:
        self.phase = phase
        self.context = context
        self.outcome = PhaseResult(phase.name, phase.kind, phase.engine)

    @classmethod
    def lacks(cls, parameters: Mapping[str, Any]) -> str | None:  # noqa: ARG003 - for those who need much
        """What this machine has not got and the engine needs, and what to do about it; None when all is there."""
        return None

    @classmethod
    def merge(cls, parts: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """One phase, as JSON, of the parts several client hosts did of it: host → its part, times on one clock.

        For engines whose keys say `spreads`. Raises PhaseError when the parts do not belong together.
        """
        raise NotImplementedError(f"{cls.__name__} works from one client host ({', '.join(parts)})")

    @abstractmethod
    def prepare(self) -> None:
        """Check and set up; not timed."""

    @abstractmethod
    def run(self) -> None:
        """Do the work and fill `outcome`."""

    def result(self) -> PhaseResult:
        """What was measured."""
        return self.outcome

    @abstractmethod
    def close(self) -> None:
        """End children and connections; called whatever happened, possibly twice."""


def cpu_seconds() -> float:
    """User and system time of this process and of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
