"""The report as a value: everything the table, the pictures, the page and the data files are made from.

Times are in the unit of their metric, shares are 0 to 1, CPU use of processes is in cores, sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from microshard.analysis.phase_details import PhaseDetails
from microshard.analysis.statistics import Better, CurveDistance, Estimate, Refused, UslFit

Level = Literal["error", "warning", "note"]
PointState = Literal["done", "partial", "failed", "waiting"]
Answers = Literal["equal", "differs", "none"]

SHARDS_AXIS = "topology.shards.count"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader must know before the figures."""

    level: Level
    text: str
    point: str | None = None  # PointReport.id


@dataclass(frozen=True, slots=True)
class CpuSplit:
    """How the cores of the host spent their time; shares of all cores, 0 to 1."""

    user: float
    sys: float
    iowait: float
    idle: float
    steal: float = 0.0

    @property
    def busy(self) -> float:
        """Share of the time in which a core did something: user + sys."""
        return self.user + self.sys


@dataclass(frozen=True, slots=True)
class Storage:
    """What a point holds on disk, in bytes."""

    data: float  # storageSize: compressed documents
    index: float  # totalIndexSize
    db_path: float | None  # the whole dbPaths, with journal, oplog and config server
    documents: Mapping[str, float] = field(default_factory=dict)  # by shard

    @property
    def total(self) -> float:
        """Documents and indexes as MongoDB reports them."""
        return self.data + self.index

    @property
    def skew(self) -> float | None:
        """Most documents of a shard over the mean of all shards; 1 is even. None without at least two shards."""
        if len(self.documents) < 2 or sum(self.documents.values()) <= 0:
            return None
        return max(self.documents.values()) * len(self.documents) / sum(self.documents.values())


@dataclass(frozen=True, slots=True)
class Verdict:
    """The bottleneck of a measurement, or of a point: that of most of its measurements, with one of them as witness."""

    name: str
    sentence: str  # with the figures it rests on
    figures: Mapping[str, float]
    runner_up: str = ""
    runner_up_sentence: str = ""
    runner_up_holds: bool = False  # it was at its limit too
    votes: int = 1  # measurements that say so
    of: int = 1  # measurements that were judged


@dataclass(frozen=True, slots=True)
class Measurement:
    """One phase in one step: what an engine reported."""

    point: str
    step: str  # r1, r2 …, drift
    purpose: str  # measure or drift
    order: int  # place in the order of execution, from 0
    phase: str
    kind: str  # load, warm_up or measure
    metric: str
    unit: str
    better: Better
    value: float | None
    valid: bool
    problems: tuple[str, ...]
    started: float | None  # epoch seconds
    ended: float | None
    samples: tuple[float, ...]
    client_cpu_seconds: float | None
    errors: float
    question: str  # points with the same question must give the same answer
    answer: str | None  # hash of the canonical answer
    cpu: CpuSplit | None
    roles: Mapping[str, float]  # client, router, shards, config, and others on the host → mean cores
    storage: Storage | None
    notes: Mapping[str, Any]
    verdict: Verdict | None = None
    parts: Mapping[str, Any] = field(default_factory=dict)  # the optional parts of the result, unread
    limited: str = ""  # what kept it down that was not the servers: client, router or host
    left_out: bool = False  # limited, where others of the same point were not

    @property
    def seconds(self) -> float | None:
        """Wall time of the phase."""
        return None if self.started is None or self.ended is None else self.ended - self.started

    @property
    def counts(self) -> bool:
        """Whether the value enters the median: valid, there, no drift check and not left out."""
        return self.valid and self.value is not None and self.purpose == "measure" and not self.left_out

    @property
    def client_cores(self) -> float | None:
        """Mean cores the client used: its CPU seconds over wall seconds."""
        if self.client_cpu_seconds is None or not self.seconds or self.seconds <= 0:
            return self.roles.get("client")
        return self.client_cpu_seconds / self.seconds


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """A phase of a point over all its repetitions."""

    phase: str
    kind: str
    metric: str
    unit: str
    better: Better
    measurements: tuple[Measurement, ...]  # in order of execution, drift and invalid ones included
    estimate: Estimate | None  # median of the valid repetitions
    seconds: float | None  # median wall time of the phase
    cpu: CpuSplit | None  # medians over the valid repetitions
    roles: Mapping[str, float]
    client_cores: float | None
    verdict: Verdict | None = None
    speed_up: Estimate | None = None  # against the smallest point of the series
    efficiency: Estimate | None = None  # speed-up / ratio of shards
    efficiency_of_cores: Estimate | None = None  # speed-up / ratio of min(shards, cores)
    further: PhaseDetails | None = None  # what the engine reports besides its metric

    @property
    def values(self) -> tuple[float, ...]:
        """Values of the valid repetitions."""
        return tuple(m.value for m in self.measurements if m.counts and m.value is not None)


@dataclass(frozen=True, slots=True)
class Invalid:
    """A measurement that does not count, and what became of it."""

    point: str  # PointReport.id
    label: str
    step: str
    reasons: tuple[str, ...]
    outcome: str  # "measured again as r1-2: valid"


@dataclass(frozen=True, slots=True)
class PointReport:
    """One point of the experiment."""

    id: str
    label: str
    series: str  # values of the other axes; "" when there is one axis
    x: float | None  # value on the horizontal axis
    axes: Mapping[str, Any]
    topology: str
    shards: int
    state: PointState
    planned: int  # repetitions
    done: int  # repetitions with a result, valid or not
    phases: Mapping[str, PhaseFigures]
    storage: Storage | None
    answers: Answers
    published_speed_up: float | None
    problems: tuple[str, ...]
    plan: Mapping[str, Any]  # Point of plan.json
    invalid: tuple[Invalid, ...] = ()
    logs: Mapping[str, Any] = field(default_factory=dict)  # process → judge/logs.py's summary

    @property
    def size(self) -> int:
        """Data-bearing servers a query is spread over: the shards, or one."""
        return max(self.shards, 1)


@dataclass(frozen=True, slots=True)
class ReferencePoint:
    """A published figure."""

    at: float | str
    value: float | None
    speed_up: float | None
    cpu: CpuSplit | None
    disk_bytes: float | None
    load_seconds: float | None
    label: str


@dataclass(frozen=True, slots=True)
class Reference:
    """The published experiment this one repeats."""

    metric: str
    unit: str
    axis: str
    better: Better
    source: str
    title: str
    host: str
    points: tuple[ReferencePoint, ...]

    def at(self, x: float | None) -> ReferencePoint | None:
        """The first published figure at `x`."""
        return next((point for point in self.points if x is not None and point.at == x), None)


@dataclass(frozen=True, slots=True)
class ReportModel:
    """A whole run, ready to be shown."""

    run_id: str
    experiment: str
    title: str
    version: str  # of the tool that made the run
    created: float | None  # epoch seconds
    started: float | None  # first phase
    ended: float | None  # last phase
    backend: str
    steps_planned: int
    steps_done: int
    repetitions: int
    axis: str | None  # dotted key of the horizontal axis; None when it is only a list of points
    axis_label: str
    cores: int | None  # of the host the shards are on
    embedded: bool | None  # the router is microshard's own, not a mongos of MongoDB
    points: tuple[PointReport, ...]
    series: tuple[str, ...]
    main: str | None  # the phase the headline is about
    load: str | None
    reference: Reference | None
    distance: CurveDistance | None
    usl: UslFit | Refused | None
    notices: tuple[Notice, ...]
    host: Mapping[str, Any]
    versions: Mapping[str, Any]
    hashes: Mapping[str, Any]
    definition: Mapping[str, Any]
    plan: Mapping[str, Any]
    references: Mapping[str, Reference] = field(default_factory=dict)  # by phase; the main one's is `reference`

    @property
    def measure_phases(self) -> tuple[str, ...]:
        """Names of all phases of kind measure, in the order they come."""
        found = (f for p in self.points for f in p.phases.values())
        return tuple(dict.fromkeys(f.phase for f in found if f.kind == "measure"))

    @property
    def complete(self) -> bool:
        """Every planned step has a result."""
        return self.steps_planned > 0 and self.steps_done >= self.steps_planned

    def of(self, series: str) -> list[PointReport]:
        """The points of a series, the smallest first."""
        found = [point for point in self.points if point.series == series]
        return sorted(found, key=lambda point: (point.x is None, point.x or 0.0))

    def figures(self, point: PointReport, phase: str | None = None) -> PhaseFigures | None:
        """The figures of a phase of a point; of the main phase when none is named."""
        name = phase or self.main
        return point.phases.get(name) if name else None

    @property
    def metric(self) -> str:
        """Name of the main metric, with its unit in `unit`."""
        found = next((p.phases[self.main] for p in self.points if self.main and self.main in p.phases), None)
        return found.metric if found else "measurement"

    @property
    def unit(self) -> str:
        """Unit of the main metric."""
        found = next((p.phases[self.main] for p in self.points if self.main and self.main in p.phases), None)
        return found.unit if found else ""

    @property
    def better(self) -> Better:
        """Whether the main metric is better lower or higher."""
        found = next((p.phases[self.main] for p in self.points if self.main and self.main in p.phases), None)
        return found.better if found else "lower"
