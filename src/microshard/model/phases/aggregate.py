"""Keys of the engine `aggregate`."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.pacing import Paced, RateSearch, Searching
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseContext, PhaseKind
from microshard.model.topology import Topology

SCAN_SECONDS_PER_DOCUMENT = 3.5e-6  # aggregation over a warm cache, one shard on one core


class AggregatePhase(Paced, Searching):
    """Run an aggregation and time it."""

    spreads: ClassVar[bool] = True

    assumptions: ClassVar[tuple[str, ...]] = (
        f"aggregate: {SCAN_SECONDS_PER_DOCUMENT * 1e6:g} µs a document, one shard on one core, warm cache",
    )

    engine: Literal["aggregate"]
    """aggregate: one query after the other, or at a rate."""
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
    """Clients, of all client hosts, that run the query at the same time; those of a host begin each round together."""

    def rung(self, rate: float, search: RateSearch) -> dict[str, Any]:
        """As many queries as the rate makes in the time; what settles is the same queries before."""
        queries = {
            "iterations": max(1, round(rate * search.rung_seconds / self.connections)),
            "warm_up_iterations": max(1, round(rate * search.settle_seconds / self.connections)),
        }
        return {"rate": rate, "search": None, **queries}

    def _contradictions(self) -> Iterator[str]:
        yield from super()._contradictions()
        if isinstance(self.pipeline, list):
            wrong = next((n for n, stage in enumerate(self.pipeline) if len(stage) != 1), None)
            if wrong is not None:
                yield f"pipeline: each stage needs exactly one key, and stage {wrong} has not"

        if self.cache == "cold" and (self.rate is not None or self.search is not None):
            yield "rate: caches are emptied between rounds of queries, so cache: cold has a closed loop"
        # The default is as good as not given: a lock file says every default.
        default = type(self).model_fields["warm_up_iterations"].default
        if self.cache == "cold" and self.warm_up_iterations not in {0, default}:
            yield "warm_up_iterations: a cold measurement has no warm-up; leave it out or set cache: warm"

    def parameters(self, context: PhaseContext) -> dict[str, Any]:
        """All keys; a pipeline given by name becomes its stages."""
        given = super().parameters(context)
        by_name = isinstance(self.pipeline, str)
        given["pipeline_name"] = self.pipeline if by_name else None
        given["pipeline"] = context.pipelines[self.pipeline] if isinstance(self.pipeline, str) else self.pipeline
        if self.cache == "cold":
            given["warm_up_iterations"] = 0
        return given

    def problems(self, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """An unknown pipeline; hosts without a client."""
        yield from self.leaves_hosts_idle("connections", self.connections, context)
        if isinstance(self.pipeline, str) and self.pipeline not in context.pipelines:
            known = ", ".join(sorted(context.pipelines)) or "none"
            yield "pipeline", f"no pipeline is named {self.pipeline}; known: {known}"

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """Keys beside a search."""
        yield from self.search_findings(kind)
        yield from self.paced_findings(used=self.search is not None)

    def restarts(self) -> int:
        """Once before each round of queries on a cold cache."""
        return self.iterations if self.cache == "cold" else 0

    def seconds(self, expected: EstimateBasis) -> float:
        """By the time of a scan over a warm cache, one shard on one core."""
        if (search := self.search_seconds()) is not None:
            return search
        queries = (self.iterations + (0 if self.cache == "cold" else self.warm_up_iterations)) * self.connections
        at_rate = self.iterations * self.connections / self.rate if self.rate else 0.0
        return max(queries * expected.documents * SCAN_SECONDS_PER_DOCUMENT / expected.workers, at_rate)

    def question(self) -> Any:
        """The collection and the pipeline."""
        return {"namespace": self.namespace, "pipeline": self.pipeline}

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures."""
        return self.reported("query time")


class AggregateParameters(AggregatePhase):
    """The keys as a plan hands them over: with the stages, and the name they have for people."""

    pipeline: list[dict[str, Any]]
    """The stages."""
    pipeline_name: str | None
    """null when the stages stand in the definition."""


KEYS = AggregatePhase
