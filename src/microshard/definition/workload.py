"""What is done to the deployment: phases and the engines that execute them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from microshard.definition.base import InWords, Model, Namespace

PhaseName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,40}$"),
    InWords("a name of lower-case letters, digits, _ and - (a letter first, at most 41)"),
]


class InsertPhase(Model):
    """Fill a collection with a generated data set."""

    engine: Literal["insert"]
    """insert: several processes, unordered batches."""
    dataset: Literal["mot"] = "mot"
    """mot: vehicle-inspection records, deterministic by seed."""
    namespace: Namespace = "vosa.mot_results"
    """Collection to fill."""
    documents: Annotated[int, Field(ge=1, le=10_000_000_000)]
    """Documents in all."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the data; the same seed is the same data, whatever the topology."""
    batch_size: Annotated[int, Field(ge=1, le=100_000, json_schema_extra={"unit": "documents"})] = 1000
    """Documents per insert command."""
    processes: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = "auto"
    """Loader processes; auto is one per core of the client host, at most one per key range."""
    ordered: bool = False
    """Whether a batch stops at its first error."""
    write_concern: dict[Literal["w", "j", "wtimeout"], int | bool | str] = Field(default={"w": 1})
    """Write concern of the inserts."""


class AggregatePhase(Model):
    """Run an aggregation and time it."""

    engine: Literal["aggregate"]
    """aggregate: one query after the other."""
    namespace: Namespace = "vosa.mot_results"
    """Collection to query."""
    pipeline: str | list[dict[str, Any]]
    """Name of a file in experiments/pipelines, or the stages themselves."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 3
    """Timed queries in one repetition; their median is the repetition's figure."""
    warm_up_iterations: Annotated[int, Field(ge=0, le=1000)] = 1
    """Queries before the first timed one."""
    cache: Literal["warm", "cold"] = "warm"
    """cold: caches are emptied before every timed query (page cache where the user may, mongods restarted)."""
    allow_disk_use: bool = False
    """`allowDiskUse` of the aggregation."""
    connections: Annotated[int, Field(ge=1, le=1024)] = 1
    """Clients that run the query at the same time."""

    @model_validator(mode="after")
    def _no_warm_up_when_cold(self) -> AggregatePhase:
        if self.cache == "cold" and "warm_up_iterations" in self.model_fields_set and self.warm_up_iterations:
            raise ValueError("warm_up_iterations: a cold measurement has no warm-up; leave it out or set cache: warm")
        return self


AnyPhase = Annotated[InsertPhase | AggregatePhase, Field(discriminator="engine")]


class WorkloadStep(Model):
    """One phase: exactly one of load, warm_up and measure."""

    load: AnyPhase | None = None
    """Brings data in; done once for every deployment."""
    warm_up: AnyPhase | None = None
    """Done before every measurement, never reported."""
    measure: AnyPhase | None = None
    """The measurement; done once in every repetition."""
    name: PhaseName | None = None
    """Name of the phase in results; its kind when left out."""

    @model_validator(mode="after")
    def _exactly_one(self) -> WorkloadStep:
        given = [k for k in ("load", "warm_up", "measure") if getattr(self, k) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"exactly one of load, warm_up and measure, found {found}")
        return self

    @property
    def kind(self) -> Literal["load", "warm_up", "measure"]:
        """Which of the three it is."""
        if self.load is not None:
            return "load"
        return "warm_up" if self.warm_up is not None else "measure"

    @property
    def phase(self) -> InsertPhase | AggregatePhase:
        """The phase itself."""
        phase = self.load or self.warm_up or self.measure
        assert phase is not None  # noqa: S101 - ensured by the validator, here for the type checker
        return phase
