"""Keys of the engine `mix`."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Model, Namespace
from microshard.model.pacing import Paced, RateSearch, Searching
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseKind
from microshard.model.topology import Topology

FROM_DATA = "$from_data"


class Operation(Model):
    """One operation of the mix: a find or an aggregation. `{$from_data: FIELD}` anywhere in it stands for the value
    that a document of the collection has there, another one each time; {$date: …} and the like are extended JSON."""

    share: Annotated[float, Field(gt=0, le=1e9)] = 1.0
    """How often it is chosen, in proportion to the other operations."""
    filter: dict[str, Any] | None = None
    """find: the filter."""
    projection: dict[str, Any] | None = None
    """find: the fields that are returned."""
    sort: dict[str, Literal[1, -1]] | None = None
    """find: the order."""
    limit: Annotated[int, Field(ge=0, le=2**31)] = 0
    """find: the most documents that are returned; 0 is all."""
    pipeline: list[dict[str, Any]] | None = None
    """aggregate: the stages."""

    def _contradictions(self) -> Iterator[str]:
        if (self.filter is None) == (self.pipeline is None):
            yield "filter: an operation has either a filter or a pipeline"
        if any(name in stage for stage in self.pipeline or () for name in ("$out", "$merge")):
            yield "pipeline: a mix reads, and $out and $merge write"
        if self.pipeline is not None and (self.projection or self.sort or self.limit):
            yield "pipeline: projection, sort and limit are stages of it"


class MixPhase(Paced, Searching):
    """Run a mix of finds and aggregations, each as often as its share says."""

    engine: Literal["mix"]
    """mix: finds and aggregations, drawn by their shares."""
    namespace: Namespace
    """Collection to query."""
    operations: Annotated[list[Operation], Field(min_length=1, max_length=1000)]
    """The operations."""
    connections: Annotated[int, Field(ge=1, le=1024)] = 4
    """Clients, each with one operation on its way."""
    seconds_long: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] = 10.0
    """Measured time."""
    settle_seconds: Annotated[float, Field(ge=0, le=3600, json_schema_extra={"unit": "s"})] = 2.0
    """The same before, not measured."""
    max_operation_seconds: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] = 60.0
    """Longest time of an operation (maxTimeMS); one that takes longer fails the phase."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides the order of the operations and the values of placeholders."""

    assumptions: ClassVar[tuple[str, ...]] = ()
    reports_latency: ClassVar[bool] = True

    def rung(self, rate: float, search: RateSearch) -> dict[str, Any]:
        """The mix at this rate, for the time of a rung."""
        times = {"seconds_long": float(search.rung_seconds), "settle_seconds": float(search.settle_seconds)}
        return {"rate": rate, "search": None, **times}

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """Keys beside a search."""
        yield from self.search_findings(kind)
        yield from self.paced_findings(used=self.search is not None)

    def seconds(self, expected: EstimateBasis) -> float:  # noqa: ARG002
        """As the keys say."""
        search = self.search_seconds()
        return self.seconds_long + self.settle_seconds if search is None else search

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures. At a rate the latency is what a deployment can change."""
        return self.reported(*(("p99 latency",) if self.rate else ("throughput", "p99 latency")))


KEYS = MixPhase
