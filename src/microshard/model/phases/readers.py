"""Keys of the engine `readers`."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.pacing import Paced, RateSearch, Searching
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseContext, PhaseKind
from microshard.model.topology import Topology, data_members


class ReadersPhase(Paced, Searching):
    """Read documents by `_id` with many clients at a time, with or without a write load."""

    changes_data: ClassVar[bool] = True
    spreads: ClassVar[bool] = True
    reports_latency: ClassVar[bool] = True

    engine: Literal["readers"]
    """readers: a process a client, one read after the other."""
    namespace: Namespace = "vosa.mot_results"
    """Collection to read; its `_id`s are whole numbers, as every load makes them."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 8
    """Readers at the same time, of all client hosts."""
    read_preference: Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"] = "secondary"
    """Which members serve the reads."""
    duration_seconds: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] = 60.0
    """Length of the measurement."""
    warm_up_seconds: Annotated[float, Field(ge=0, le=3600, json_schema_extra={"unit": "s"})] = 5.0
    """Reading and writing before the measurement begins."""
    writers: Annotated[int, Field(ge=0, le=1024)] = 0
    """Writers at the same time, of all client hosts: each updates random documents, batch after batch."""
    write_batch: Annotated[int, Field(ge=1, le=100_000, json_schema_extra={"unit": "documents"})] = 100
    """Updates in a batch."""
    write_rate: Annotated[float, Field(gt=0, json_schema_extra={"unit": "documents/s"})] | None = None
    """Updates of all writers together, in an open loop as `rate`; null is as many as they can."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides which documents are read and written."""

    def rung(self, rate: float, search: RateSearch) -> dict[str, Any]:
        """Reads at this rate; the writers go on as they do."""
        times = {"duration_seconds": float(search.rung_seconds), "warm_up_seconds": float(search.settle_seconds)}
        return {"rate": rate, "search": None, **times}

    def problems(self, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """Hosts without a reader."""
        yield from self.leaves_hosts_idle("threads", self.threads, context)

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:
        """A preference nobody can fulfil; a rate for nobody; keys beside a search."""
        yield from self.search_findings(kind)
        yield from self.paced_findings(used=self.search is not None or self.write_rate is not None)
        if self.read_preference == "secondary" and data_members(topology) == 1:
            yield ("read_preference",), "there is one member, so no secondary would ever answer", "error"
        if self.write_rate is not None and not self.writers:
            yield ("write_rate",), "has no effect: there are no writers", "warning"

    def writes(self) -> bool:
        """Whether anybody writes: reads alone leave the data as they are."""
        return self.writers > 0

    def seconds(self, expected: EstimateBasis) -> float:  # noqa: ARG002
        """Of one repetition."""
        return self.search_seconds() or self.warm_up_seconds + self.duration_seconds

    def figures(self) -> tuple[str, ...]:
        """Every figure it can report; some keys leave some of them out."""
        latencies = ("p95 read latency", "p50 read latency", "p99 read latency")
        return self.reported(*latencies, "reads", "documents written", "p95 lag", "largest lag")


KEYS = ReadersPhase
