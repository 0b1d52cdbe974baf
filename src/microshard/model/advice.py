"""A search for the best shard count: the request, in lock.json, and the answer, in advice.json."""

from dataclasses import dataclass, field
from typing import Any

from microshard.model.result import Better

COST = "cost per operation"  # objectives that are no figure of a phase
LOAD_TIME = "load time"
P99 = "p99 latency"


@dataclass(slots=True)
class SearchLimits:
    """What the recommended point may need at most; None: no limit."""

    ram_gib: float | None = None  # of all its servers on one host
    disk_gib: float | None = None  # of their files on one host
    p99_ms: float | None = None  # latency in the measured phase


@dataclass(slots=True)
class SearchRequest:
    """What `microshard advise` searches. Counts are numbers of shards; a setting is a value of each other axis."""

    counts: list[int]  # of the full grid, ascending
    grid: int  # measurements of the full grid: counts times the experiment's repetitions
    most: int  # measurements the search may take
    most_each: int  # measurements of one count
    certainty: float  # 0 to 1
    tolerance: float  # share of the best figure: counts this close to it are as good
    seed: int
    phase: str  # whose metric is searched
    hours: float | None = None  # the search ends after the measurement in which they are over; None: no limit
    objective: str = ""  # a figure of the phase, COST or LOAD_TIME; empty: the phase's metric
    limits: SearchLimits = field(default_factory=SearchLimits)
    settings: list[dict[str, Any]] = field(default_factory=lambda: [{}])  # of the other axes: key → value


@dataclass(slots=True)
class TriedCount:
    """A measurement of the search."""

    count: int  # shards
    why: str  # bracket, narrow, repeat, or limit: its latency was barely over it
    value: float | None  # in the unit of the advice; None: not valid
    step: str  # point and step of its result file, as in p03/r1
    setting: int = 0  # index in the request's settings


@dataclass(slots=True)
class OtherFleets:
    """What other fleets have measured of a search, for the process of one on EC2."""

    tried: list[TriedCount] = field(default_factory=list)
    excluded: list[TriedCount] = field(default_factory=list)  # why: the reason


@dataclass(slots=True)
class Gain:
    """How many times as fast the recommended count is as the base, without unit."""

    value: float
    low: float  # of the interval with the certainty of the request
    high: float


@dataclass(slots=True)
class CountFigures:
    """What is known of one count at the end."""

    count: int  # shards
    value: float  # median of its valid measurements
    low: float  # of the interval of the ratio to the recommended count, as a value
    high: float
    measurements: int
    bottleneck: str = ""  # the most frequent verdict


@dataclass(slots=True)
class OtherSetting:
    """Another setting than the recommended one, at its best shard count."""

    name: str  # its values in words
    count: int  # shards
    measurements: int  # of all its counts
    behind: Gain  # how many times as fast the recommended point is
    alike: bool  # the two cannot be distinguished


@dataclass(slots=True)
class Advice:
    """advice.json: the recommended shard count, with its certainty and its price."""

    sentence: str
    count: int  # recommended
    base: int  # the fewest shards measured
    gain: Gain  # of count over base
    alike: list[int]  # measured counts that cannot be distinguished from the best one
    close: list[int]  # measured counts within the tolerance of the best one
    known: bool  # to the required certainty; False: the measurements or hours were used up before
    ended: str  # why the search ended
    metric: str
    unit: str
    better: Better
    spread: float  # of repetitions, as a share of their median
    measurements: int
    seconds: float  # of all parts of the run, deployment and loading included
    request: SearchRequest
    tried: list[TriedCount] = field(default_factory=list)  # in the order they were measured
    figures: list[CountFigures] = field(default_factory=list)  # of the recommended setting, ascending
    excluded: dict[str, str] = field(default_factory=dict)  # point in words → why it was left out
    reasons: list[str] = field(default_factory=list)  # why more shards do not help: sentences
    changes: list[str] = field(default_factory=list)  # what would change the answer: sentences
    check: str = ""  # matrix and repetitions of the sweep that checks it, as YAML
    setting: dict[str, Any] = field(default_factory=dict)  # recommended: values of the other axes
    others: list[OtherSetting] = field(default_factory=list)  # the best first
