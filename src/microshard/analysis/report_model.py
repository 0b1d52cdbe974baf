"""The report as a value: everything that tables, pictures, page and data files are made from.

Times are in the unit of their metric, shares are 0 to 1, CPU use of processes is in cores, sizes are in bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from microshard.analysis.bootstrap import Estimate
from microshard.analysis.curve_distance import CurveDistance
from microshard.analysis.phase_details import PhaseDetails
from microshard.analysis.scaling import Refused, UslFit
from microshard.model.advice import Advice
from microshard.model.plan import Plan, Point
from microshard.model.result import Better, PhaseResult
from microshard.model.run_records import LogSummary

Level = Literal["error", "warning", "note"]
PointState = Literal["done", "partial", "failed", "waiting"]
Answers = Literal["equal", "differs", "none"]


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice that the reader must see before the figures."""

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
class PointStorage:
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
class PointVerdict:
    """The bottleneck of most measurements of a point."""

    name: str
    sentence: str  # of a representative measurement, with the figures it rests on
    figures: Mapping[str, float]
    runner_up: str = ""
    runner_up_sentence: str = ""
    runner_up_holds: bool = False  # it was at its limit too
    votes: int = 1  # measurements with this verdict
    of: int = 1  # measurements with any verdict


@dataclass(frozen=True, slots=True)
class Measurement:
    """One phase in one step."""

    point: str
    step: str  # r1, r2 …, drift
    purpose: str  # measure or drift
    order: int  # place in the order of execution, from 0
    result: PhaseResult
    value: float | None
    valid: bool
    problems: tuple[str, ...] = ()
    question: str = ""  # points with the same question must give the same answer
    cpu: CpuSplit | None = None
    roles: Mapping[str, float] = field(default_factory=dict)  # client, router, shards, config, others → mean cores
    storage: PointStorage | None = None
    data: str = ""  # loaded or restored; "" where the workload loads none
    left_out: bool = False  # something else than the servers was the limit, as it was not in others of the same point

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.result.metric.name if self.result.metric else self.result.name

    @property
    def unit(self) -> str:
        """Unit of the metric."""
        return self.result.metric.unit if self.result.metric else ""

    @property
    def better(self) -> Better:
        """Whether the metric is better lower or higher."""
        return self.result.metric.better if self.result.metric else "lower"

    @property
    def errors(self) -> float:
        """Operations that ended in an error."""
        return self.result.counters.get("errors", 0)

    @property
    def seconds(self) -> float | None:
        """Wall time of the phase."""
        return self.result.ended - self.result.started if self.result.interval else None

    @property
    def counts(self) -> bool:
        """Whether the value enters the median: valid, there, no drift check and not left out."""
        return self.valid and self.value is not None and self.purpose == "measure" and not self.left_out

    @property
    def client_cores(self) -> float | None:
        """Mean cores the client used: its CPU seconds over wall seconds."""
        used = self.result.client_cpu_seconds
        if used is None or not self.seconds or self.seconds <= 0:
            return self.roles.get("client")
        return used / self.seconds


@dataclass(frozen=True, slots=True)
class PhaseFigures:
    """A phase of a point over all its repetitions."""

    phase: str = ""
    kind: str = ""
    metric: str = "measurement"
    unit: str = ""
    better: Better = "lower"
    measurements: tuple[Measurement, ...] = ()  # in order of execution, drift and invalid ones included
    estimate: Estimate | None = None  # median of the valid repetitions
    seconds: float | None = None  # median wall time of the phase
    cpu: CpuSplit | None = None  # medians over the valid repetitions
    roles: Mapping[str, float] = field(default_factory=dict)
    client_cores: float | None = None
    verdict: PointVerdict | None = None
    speed_up: Estimate | None = None  # against the smallest point of the series
    efficiency: Estimate | None = None  # speed-up / ratio of shards
    efficiency_of_cores: Estimate | None = None  # speed-up / ratio of min(shards, cores)
    details: PhaseDetails = field(default_factory=PhaseDetails)  # what the engine reports besides its metric

    @property
    def values(self) -> tuple[float, ...]:
        """Values of the valid repetitions."""
        return tuple(m.value for m in self.measurements if m.counts and m.value is not None)


NOT_MEASURED = PhaseFigures()


@dataclass(frozen=True, slots=True)
class Invalid:
    """A measurement that is not valid, and what was done about it."""

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
    storage: PointStorage | None
    answers: Answers
    published_speed_up: float | None
    problems: tuple[str, ...]
    plan: Point | None  # None where the plan cannot be read
    invalid: tuple[Invalid, ...] = ()
    deploy_seconds: float | None = None  # median of its deployments
    logs: Mapping[str, LogSummary] = field(default_factory=dict)  # by process

    def took(self, *, loading: bool) -> float | None:
        """Median seconds of its load phases, or of the others; None where nothing was measured."""
        found = [f.seconds for f in self.phases.values() if (f.kind == "load") == loading and f.seconds is not None]
        return sum(found) if found else None

    def figures(self, phase: str | None) -> PhaseFigures:
        """The figures of a phase, empty ones where it was not measured."""
        return self.phases.get(phase or "", NOT_MEASURED)

    @property
    def size(self) -> int:
        """Data-bearing servers a query is spread over: the shards, or one."""
        return max(self.shards, 1)


@dataclass(frozen=True, slots=True)
class PublishedPoint:
    """A published figure, as the experiment file gives it."""

    at: float | str | None = None
    value: float | None = None
    where: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    user: float | None = None  # CPU, per cent
    sys: float | None = None
    iowait: float | None = None
    idle: float | None = None
    disk_gb: float | None = None
    load_minutes: float | None = None
    label: str | None = None
    phase: str | None = None
    speed_up: float | None = None  # of `value`, against the smallest published size that was measured too

    @property
    def cpu(self) -> CpuSplit | None:
        """Shares that add up to 1: the published percentages are rounded, and some do not."""
        shares = [share for share in (self.user, self.sys, self.iowait, self.idle) if share is not None]
        return CpuSplit(*(share / sum(shares) for share in shares)) if len(shares) == 4 and sum(shares) > 0 else None


@dataclass(frozen=True, slots=True)
class PublishedValues:
    """The reference block of an experiment file, or the part of it that is about one phase."""

    metric: str = "query time"
    unit: str = "s"
    axis: str = ""
    source: str | None = None
    points: tuple[PublishedPoint, ...] = ()
    title: str = ""  # of the publication
    host: str = ""

    @property
    def better(self) -> Better:
        """Whether the values are better lower or higher: a rate has a "per", a time has none."""
        return "higher" if "/" in self.unit else "lower"

    @property
    def name(self) -> str:
        """What captions call it."""
        return self.host or self.title or self.source or ""

    def curve(self, of: Literal["value", "speed_up"]) -> dict[float, float]:
        """Positive figures by their numeric place on the axis, in its order; of two at one place the first."""
        places = [(p.at, getattr(p, of)) for p in reversed(self.points)]
        return dict(sorted({float(at): y for at, y in places if isinstance(at, int | float) and y and y > 0}.items()))


@dataclass(frozen=True, slots=True)
class Publication:
    """The publication that an experiment repeats."""

    title: str = ""
    host: str | None = None


@dataclass(frozen=True, slots=True)
class DefinitionGates:
    """Limits of an experiment file that notices use too; "auto" where the plan decides."""

    max_client_cpu: float | str | None = None
    max_shard_skew: float | str | None = None


@dataclass(frozen=True, slots=True)
class DefinitionOrder:
    """The order of measurements."""

    policy: str = ""
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class DefinitionTopology:
    """Storage options of an experiment file."""

    storage: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportedQuestion:
    """The question of an experiment file."""

    vary: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    figure: str = ""
    phase: str | None = None
    cost: str | None = None
    baseline: str | None = None
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportedDefinition:
    """What the report shows of an experiment file."""

    title: str | None = None
    question: ReportedQuestion | None = None
    reference: PublishedValues | None = None
    reproduces: Publication | None = None
    gates: DefinitionGates = DefinitionGates()
    order: DefinitionOrder = DefinitionOrder()
    topology: DefinitionTopology = DefinitionTopology()


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
    distance: CurveDistance | None
    usl: UslFit | Refused | None
    notices: tuple[Notice, ...]
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    hashes: Mapping[str, str]
    definition: ReportedDefinition
    plan: Plan | None
    references: Mapping[str | None, PublishedValues] = field(default_factory=dict)  # by phase
    advice: Advice | None = None  # of a search

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

    @property
    def ordered(self) -> list[PointReport]:
        """All points, series by series, the smallest first."""
        return [point for name in self.series for point in self.of(name)]

    def figures(self, point: PointReport, phase: str | None = None) -> PhaseFigures:
        """The figures of a phase of a point; of the main phase when none is named."""
        return point.figures(phase or self.main)

    def measured(self, phase: str | None = None) -> list[tuple[PointReport, PhaseFigures, Estimate]]:
        """The points with valid values of a phase (the main one), series by series, the smallest first."""
        found = ((point, self.figures(point, phase)) for point in self.ordered)
        return [(point, figures, figures.estimate) for point, figures in found if figures.estimate is not None]

    def published(self, phase: str | None = None) -> PublishedValues | None:
        """What was published of a phase (the main one) along the axis of this report."""
        found = self.references.get(phase or self.main)
        return found if found and (self.axis is None or found.axis in {self.axis, ""}) else None

    @property
    def metric(self) -> str:
        """Name of the main metric."""
        return self._main.metric

    @property
    def unit(self) -> str:
        """Unit of the main metric."""
        return self._main.unit

    @property
    def _main(self) -> PhaseFigures:
        return next((f for p in self.points if (f := self.figures(p)) is not NOT_MEASURED), NOT_MEASURED)
