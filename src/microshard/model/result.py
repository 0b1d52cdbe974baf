"""A result file: what an engine measured in each phase of a step, and what the runner found out about it.

Engines fill `PhaseResult`; the runner adds telemetry, verdict, gates, environment and order (docs/contracts.md).
"""

import statistics
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from microshard.model import OPTIONAL
from microshard.model.telemetry import RungTelemetry, TelemetrySummary

Better = Literal["higher", "lower"]
Number = int | float
INTENDED = "Intended-"  # before the name of an operation: latency from the intended time, in YCSB's word


@dataclass(slots=True)
class Metric:
    """A figure of a phase."""

    name: str
    unit: str
    value: float
    better: Better = "lower"


@dataclass(slots=True)
class ProgressLine:
    """A line of tmp/progress.jsonl: how far the engine is with a phase."""

    phase: str
    done: int
    of: int
    unit: str
    time: float  # epoch seconds
    note: str = ""  # for people, such as the rate


@dataclass(slots=True)
class Windows:
    """Operations in windows of equal length, over the interval of the metric."""

    start: float = 0.0  # epoch seconds
    seconds: float = 1.0  # length of a window
    values: list[Number] = field(default_factory=list)  # operations in each window

    @property
    def rates(self) -> list[float]:
        """Operations a second in each window."""
        return [value / self.seconds for value in self.values] if self.seconds else []

    @property
    def variation(self) -> float | None:
        """Standard deviation of the rates over their mean; None with fewer than three windows."""
        mean = statistics.fmean(self.rates) if len(self.rates) > 2 else 0.0
        return statistics.stdev(self.rates) / mean if mean > 0 else None


@dataclass(slots=True)
class Latency:
    """Latency of one kind of operation, in microseconds."""

    count: int = 0
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    percentiles: dict[str, float] = field(default_factory=dict)  # "50", "90", "95", "99", "99.9"
    histogram: str | None = None  # HdrHistogram V2, compressed, base64


@dataclass(slots=True)
class OpenLoop:
    """How a rate was held: operations were sent when they were due, not when the last answer had come."""

    rate: float = 0.0  # intended, a second, in the unit of the key `rate`
    arrivals: str = "constant"  # or poisson
    achieved: float = 0.0  # a second, sent in the measured time
    reached: bool = True  # whether the sending had caught up at some time in the last fifth of it
    operations: int = 0  # due in the measured time
    backlog: int = 0  # of them not sent by its end; in the histogram from the intended time with what they had waited
    behind_ms: float = 0.0  # how late the sending was at the end
    longest_wait_ms: float = 0.0  # from the intended time to the sending, of YCSB to the answer

    @property
    def sentence(self) -> str:
        """It for people."""
        wanted = f"{self.rate:,.6g}/s ({self.arrivals})"
        if self.reached:
            return f"open: {wanted} held; the longest wait to be sent was {self.longest_wait_ms:,.4g} ms"
        return (
            f"open: the rate was not reached, {self.achieved:,.6g}/s of {wanted}; at the end {self.backlog:,} "
            f"operations waited and the sending was {self.behind_ms:,.4g} ms behind"
        )


@dataclass(slots=True)
class Series:
    """Lines over time."""

    name: str
    unit: str = ""
    stacked: bool = False
    t: list[float] = field(default_factory=list)  # s since `started` of the phase
    lines: dict[str, list[float | None]] = field(default_factory=dict)  # as many values as `t` has


@dataclass(slots=True)
class Stage:
    """A stage of a phase; stages follow one another."""

    name: str
    seconds: float | None = None
    bytes: Number | None = field(default=None, metadata=OPTIONAL)
    documents: Number | None = field(default=None, metadata=OPTIONAL)
    indexes: int | None = field(default=None, metadata=OPTIONAL)
    operations: int | None = field(default=None, metadata=OPTIONAL)


@dataclass(slots=True)
class Rung:
    """A rung of a thread ladder."""

    threads: int
    value: float | None = None  # throughput, in the unit of the metric
    seconds: float | None = None
    latency: dict[str, Latency] = field(default_factory=dict)  # without histograms; "ALL": all operations together
    limited: str | None = None  # client, router or host, where the servers were not the limit
    started: float | None = field(default=None, metadata=OPTIONAL)  # epoch seconds
    ended: float | None = field(default=None, metadata=OPTIONAL)
    cpu: dict[str, Any] = field(default_factory=dict, metadata=OPTIONAL)  # cores in use on the client's host
    telemetry: RungTelemetry | None = field(default=None, metadata=OPTIONAL)  # added by the runner


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    unit: str = ""

    @classmethod
    def several(cls, text: str) -> list[Self]:
        """The columns of "name, unit; name; …"."""
        return [cls(*map(str.strip, column.split(","))) for column in text.split(";")]


@dataclass(slots=True)
class Table:
    """Anything else worth a table."""

    columns: list[Column] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)


@dataclass(slots=True)
class ShardSize:
    """The collection on one shard."""

    documents: Number | None = None
    data_bytes: Number | None = None


@dataclass(slots=True)
class StorageSize:
    """Size of the collection on disk after the phase."""

    data_bytes: Number | None = None  # storageSize
    index_bytes: Number | None = None  # totalIndexSize
    db_path_bytes: Number | None = None  # all dbPaths; null where the engine does not see them
    by_shard: dict[str, ShardSize] = field(default_factory=dict)

    def documents(self) -> dict[str, float]:
        """Documents by shard."""
        return {name: float(size.documents) for name, size in self.by_shard.items() if size.documents is not None}


@dataclass(slots=True)
class PhaseFailure:
    """Why a phase failed."""

    type: str = ""
    message: str = ""


@dataclass(slots=True)
class RunnerUp:
    """The resource that came second to the bottleneck."""

    name: str
    sentence: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    score: float = 0.0  # from 1 on the resource was at its limit
    holds: bool = False


@dataclass(slots=True)
class Verdict:
    """The bottleneck of a phase."""

    name: str
    sentence: str = ""
    figures: dict[str, float] = field(default_factory=dict)  # what the verdict rests on
    runner_up: RunnerUp | None = None


@dataclass(slots=True)
class GateCheck:
    """One gate applied to one phase."""

    gate: str
    phase: str
    value: float | None  # null: it could not be determined
    limit: float
    held: bool
    sentence: str
    repeatable: bool  # another attempt at the step may pass the gate


@dataclass(slots=True)
class PhaseResult:
    """What a phase measured."""

    name: str = "measure"
    kind: str = "measure"  # load, warm_up or measure
    engine: str = ""
    started: float = 0.0  # epoch seconds; the interval of the metric
    ended: float = 0.0
    seconds: float = 0.0  # of the whole phase, with preparation and warm-up before the interval, checks after it
    metric: Metric | None = None
    samples: list[float] = field(default_factory=list)  # one value per repetition inside the phase, unit as the metric
    counters: dict[str, Number] = field(default_factory=dict)  # documents, bytes, operations, errors …
    answer: list[Any] | None = None  # what the query returned, canonical extended JSON
    answer_sha256: str | None = None
    client_cpu_seconds: float | None = None  # user + system of the engine and its children
    storage: StorageSize | None = None
    notes: dict[str, str] = field(default_factory=dict)  # for people, such as how the cache was prepared
    figures: list[Metric] = field(default_factory=list, metadata=OPTIONAL)  # besides the metric
    windows: Windows | None = field(default=None, metadata=OPTIONAL)
    latency: dict[str, Latency] = field(default_factory=dict, metadata=OPTIONAL)  # by operation; Intended-… with a rate
    server_latency: dict[str, Latency] = field(default_factory=dict, metadata=OPTIONAL)  # reads, writes …: $collStats
    open_loop: dict[str, OpenLoop] = field(default_factory=dict, metadata=OPTIONAL)  # by operation; ALL: all of them
    series: list[Series] = field(default_factory=list, metadata=OPTIONAL)
    stages: list[Stage] = field(default_factory=list, metadata=OPTIONAL)
    rungs: list[Rung] = field(default_factory=list, metadata=OPTIONAL)
    table: Table | None = field(default=None, metadata=OPTIONAL)
    details: dict[str, Any] = field(default_factory=dict, metadata=OPTIONAL)  # for programs; not drawn
    error: PhaseFailure | None = field(default=None, metadata=OPTIONAL)
    telemetry: TelemetrySummary | None = field(default=None, metadata=OPTIONAL)  # added by the runner
    verdict: Verdict | None = field(default=None, metadata=OPTIONAL)  # added by the runner

    @property
    def limited(self) -> str:
        """What kept the phase down that was not the servers: client, router or host; empty when nothing did."""
        return str(self.details.get("limited") or "") if self.details else ""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Start and end of the metric's interval; None when the phase has none."""
        return (self.started, self.ended) if self.started and self.ended else None


@dataclass(slots=True)
class StepResult:
    """The result file of one attempt at a step, `results/POINT/STEP.json`."""

    microshard: int = 1  # version of this format
    point: str = ""
    axes: dict[str, Any] = field(default_factory=dict)
    step: str | None = ""  # r1, r2 …, drift; r2-3 is the third attempt at r2
    purpose: str | None = None  # measure or drift
    valid: bool = True
    problems: list[str] = field(default_factory=list)
    phases: list[PhaseResult] = field(default_factory=list)
    repetition: int | None = field(default=None, metadata=OPTIONAL)  # from here on added by the runner
    attempt: int | None = field(default=None, metadata=OPTIONAL)
    order: int | None = field(default=None, metadata=OPTIONAL)  # place among all steps of the run
    environment: dict[str, dict[str, Any]] = field(default_factory=dict, metadata=OPTIONAL)  # host → kernel settings …
    versions: list[str] = field(default_factory=list, metadata=OPTIONAL)  # of the mongods
    driver: str = field(default="", metadata=OPTIONAL)  # of the engines: PyMongo and its version
    data: str | None = field(default=None, metadata=OPTIONAL)  # loaded, or restored from a data image
    data_image: str | None = field(default=None, metadata=OPTIONAL)  # the name of that image
    gates: list[GateCheck] | None = None  # null until the runner has applied the gates
