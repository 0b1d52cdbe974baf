"""The experiment: the whole file."""

import datetime
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from microshard.model.base import AllowedText, Model, Name, first_duplicate
from microshard.model.infrastructure import Infrastructure
from microshard.model.topology import Topology
from microshard.model.workload import PhaseName, WorkloadStep

DottedKey = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z_]+(\.[A-Za-z0-9_-]+)+$"),
    AllowedText("a dotted key such as topology.shards.count"),
]
AxisValues = Annotated[list[Any], Field(min_length=1, max_length=10_000)]


def _as_date(value: object) -> object:
    """YAML reads 2015-07-03 as a date, JSON as a string; both are meant."""
    return datetime.date.fromisoformat(value) if isinstance(value, str) else value


class Reproduces(Model):
    """The published experiment this one repeats."""

    title: str
    """Title of the publication."""
    authors: str | None = None
    """Who published it."""
    date: Annotated[datetime.date, BeforeValidator(_as_date)] | Annotated[int, Field(ge=1970, le=2200)] | None = None
    """When: the day, or the year where no more is known."""
    host: str | None = None
    """The machine of the publication."""


class ReferencePoint(Model):
    """A published figure."""

    at: Annotated[float, Field()] | str
    """Value of the reference's axis."""
    value: float | None = None
    """The figure, in the reference's unit; null where none was published."""
    where: dict[DottedKey, Any] = Field(default={})
    """Values of other keys at which it was published: {topology.storage.engine: rocksdb}."""
    figures: dict[str, float] = Field(default={})
    """Other published figures of this point, by the name and in the unit that the engine gives them."""
    user: float | None = None
    """User CPU, per cent of the machine."""
    sys: float | None = None
    """System CPU, per cent of the machine."""
    iowait: float | None = None
    """I/O wait, per cent of the machine."""
    idle: float | None = None
    """Idle, per cent of the machine."""
    disk_gb: float | None = None
    """Disk space, GB."""
    load_minutes: float | None = None
    """Time of the load, minutes."""
    label: str | None = None
    """What was special about this point."""
    phase: PhaseName | None = None
    """Name of the phase it was measured in, where the workload has several; the first measurement when left out."""


class Reference(Model):
    """Published values, drawn next to the measured ones."""

    metric: str = "query time"
    """What the values are."""
    unit: str = "s"
    """Their unit."""
    axis: DottedKey = "topology.shards.count"
    """The axis they were measured along."""
    source: str | None = None
    """Where they were published."""
    points: Annotated[list[ReferencePoint], Field(min_length=1)]
    """The values."""


class Question(Model):
    """What the experiment asks: the report's headline, first picture and the labels of points answer it."""

    vary: Annotated[list[DottedKey], Field(min_length=1, max_length=8)]
    """The axis whose values are compared, or several that go together; also a key that the phase itself iterates
    over, as a thread ladder does."""
    by: Annotated[list[DottedKey], Field(max_length=8)] = Field(default=[])
    """Axes whose values are kept apart: the comparison is made at each of them."""
    figure: str
    """The figure that is compared, by the name the engine gives it: its metric or one of its further figures."""
    phase: PhaseName | None = None
    """The measured phase the figure belongs to; the first one when left out."""
    cost: str | None = None
    """Another figure of that phase, named beside the gain as what it costs."""
    baseline: str | None = None
    """The value, or the values joined by ", ", that the others are compared with; the first one when left out."""
    names: dict[str, str] = Field(default={})
    """What values are called in sentences, pictures and labels: value, or values joined by ", ", → words."""


class Client(Model):
    """What the client hosts connect with."""

    driver: Literal["pymongo==3.13"] | None = None
    """Driver of engines, telemetry and set-up, from an environment of its own with locked hashes. pymongo==3.13 speaks
    to MongoDB 3.6 and later, needs Python 3.11 and serves every engine but ycsb; null: that of microshard, for 4.4 and
    later."""


class Matrix(Model):
    """The grid of points. Axes are combined; `zip` varies keys together; include adds points, exclude removes some."""

    axes: Annotated[dict[DottedKey, AxisValues], Field(max_length=32)] = Field(default={})
    """Dotted key of the experiment → values; all combinations."""
    zip: Annotated[dict[DottedKey, AxisValues], Field(max_length=32)] = Field(default={})
    """Dotted keys whose values go together, first with first; one more axis of the grid."""
    include: Annotated[list[dict[DottedKey, Any]], Field(max_length=10_000)] = Field(default=[])
    """Points added to the grid."""
    exclude: Annotated[list[dict[DottedKey, Any]], Field(max_length=1000)] = Field(default=[])
    """Points removed: every one that has all these values."""


class Order(Model):
    """The order of the measurements."""

    policy: Literal["interleaved", "sequential", "random"] = "interleaved"
    """interleaved: every point once, shuffled, then every point again …; sequential: point by point; random: shuffled
    throughout."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the shuffling."""
    repeat_first: bool = False
    """Measure the first point once more at the end, to show drift."""
    redeploy: Literal["auto", "per_point", "per_repetition"] = "auto"
    """per_point: a point is deployed and loaded once and paused (SIGSTOP) while others are measured;
    per_repetition: deployed and loaded for each repetition; auto: per_point where the measurement only reads."""


class Gates(Model):
    """What makes a measurement valid. Errors and the environment are checked always, what is left out is not."""

    max_shard_skew: Annotated[float, Field(ge=1)] | None = None
    """Most documents of a shard over the mean of all shards."""
    max_client_cpu: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the cores of its host that the client may use."""
    max_variation: Annotated[float, Field(gt=0)] | None = None
    """Coefficient of variation over the measurement's windows (over its samples where an engine has no windows)."""
    max_drift: Annotated[float, Field(gt=0)] | None = None
    """Difference of the first point, repeated at the end, from its median, as a share; needs order.repeat_first."""
    max_migrations: Annotated[int, Field(ge=0)] | Literal["auto", "any"] = "auto"
    """Chunk migrations during a measurement; auto: none, but any where the balancer is on or a phase moves chunks."""
    max_checkpoint_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of a measurement during which a mongod may write a checkpoint."""
    initial_sync: Literal["auto", "refuse", "allow"] = "auto"
    """Members in initial sync or recovery during a measurement; auto: refused unless a phase adds members."""
    max_repeats: Annotated[int, Field(ge=0, le=100)] = 2
    """How often an invalid measurement is repeated, where repeating can change the reason."""


class Load(Model):
    """Whether loaded data are kept, to be restored the next time instead of loaded."""

    image: Literal["never", "use", "only"] = "never"
    """never: data are loaded; use: restored from a data image of the same recipe where there is one, else loaded and
    kept as one; only: restored, and the run does not start without."""
    images_gb: Annotated[float, Field(gt=0, json_schema_extra={"unit": "GB"})] = 50.0
    """Disk space of all data images beside the runs; beyond it those that were not used for longest are removed."""


class Budget(Model):
    """What a run may cost."""

    max_hours: Annotated[float, Field(gt=0, json_schema_extra={"unit": "hours"})] | None = None
    """The run stops cleanly after the repetition in which this is reached."""
    max_cost_usd: Annotated[float, Field(gt=0, json_schema_extra={"unit": "USD"})] | None = None
    """The run stops cleanly before this is exceeded."""


class LockedMongoDB(Model):
    """A MongoDB a run used."""

    version: str
    """Version of the mongod, for example 6.0.5."""
    mongod_sha256: str | None = None
    """Hash of the mongod's file."""
    embedded: bool = False
    """Whether the mongos was the embedded one."""


class Lock(Model):
    """Written by a run into its experiment.lock.yml. A run of that file says what is not as it was then."""

    microshard: str
    """Version of the tool."""
    definition_sha256: str | None = None
    """Hash of the experiment file the run was started with."""
    mongodb: Annotated[list[LockedMongoDB], Field(max_length=100)] = Field(default=[])
    """The MongoDBs of its points."""
    host: Annotated[dict[str, Any], Field(max_length=1000)] = Field(default={})
    """The machine: CPU, cores, RAM, kernel, system; of several hosts, by name."""
    packages: Annotated[dict[str, str], Field(max_length=1000)] = Field(default={})
    """Versions of the libraries results depend on."""
    images: Annotated[dict[str, str], Field(max_length=1000)] = Field(default={})
    """Machine images (AMI) by group of hosts."""


class Experiment(Model):
    """An experiment: hosts, topology, workload, matrix, gates and teardown."""

    microshard: Literal[1]
    """Version of the file format."""
    name: Name
    """Short name, used for the run's folder."""
    title: str = ""
    """One line on what is measured."""
    reproduces: Reproduces | None = None
    """The published experiment this one repeats."""
    infrastructure: Infrastructure = Infrastructure()
    """The machines."""
    topology: Topology = Topology()
    """What is deployed."""
    client: Client = Client()
    """What the client hosts connect with."""
    workload: Annotated[list[WorkloadStep], Field(min_length=1, max_length=1000)]
    """The phases, in their order."""
    matrix: Matrix = Matrix()
    """The grid of points; one point when left out."""
    question: Question | None = None
    """What is compared, by what, in which figure; without it the numbers of shards are, else all points."""
    load: Load = Load()
    """How data get into a point."""
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 3
    """Measurements of every point."""
    order: Order = Order()
    """Order of the measurements."""
    gates: Gates = Gates()
    """What makes a measurement valid."""
    budget: Budget = Budget()
    """What a run may cost."""
    teardown: Literal["always", "keep", "keep-on-failure"] = "always"
    """Whether processes and data are removed at the end."""
    reference: Reference | None = None
    """Published values, drawn next to the measured ones."""
    lock: Lock | None = None
    """What the run that wrote this file had resolved; differences are reported when it is run again."""
    scales: Annotated[dict[Name, dict[str, Any]], Field(max_length=20)] = Field(default={})
    """Named changes (dotted key → value) for `--scale NAME`: fewer documents, fewer points, same shape."""

    def _contradictions(self) -> Iterator[str]:
        names = [s.name or s.kind for s in self.workload]
        duplicate = first_duplicate(names)
        if duplicate is not None:
            yield f"workload: two phases are named {duplicate}; give them different names with `name:`"
        if not any(s.kind == "measure" for s in self.workload):
            yield "workload: no measure phase, so there is nothing to report"
