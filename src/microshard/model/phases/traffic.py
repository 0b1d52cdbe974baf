"""Keys of the engine `traffic`."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.model.base import Namespace
from microshard.model.pacing import Paced, RateSearch, Searching
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseContext, PhaseKind, write_concern_findings
from microshard.model.topology import Topology

FIELDS = 8  # random integers f1, f2 … of each document
BYTES_PER_CORE_AND_SECOND = 12_000_000  # inserted by pymongo through one mongod, client included

WriteConcern = dict[Literal["w", "j", "wtimeout"], int | bool | str]


class Traffic(Paced):
    """Inserts in batches and reads by `_id`, by several threads, until so many documents are in or it is ended."""

    threads: Annotated[int, Field(ge=1, le=1024)] = 4
    """Clients of all client hosts, each with one operation on its way."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes the threads are spread over, at least one for each client host; one uses about one core at most."""
    batch_size: Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"unit": "documents"})] = 100
    """Documents of an insert."""
    document_bytes: Annotated[int, Field(ge=160, le=1_000_000, json_schema_extra={"unit": "bytes"})] = 1000
    """BSON size of a document, within a few bytes."""
    compressible: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of a document's padding that repeats itself; the rest is random."""
    reads: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the operations that read one document by its `_id`."""
    keys: Literal["random", "ascending"] = "random"
    """Order of the `_id`s: scattered over the whole key range, or each above the last one."""
    documents: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """The load ends when so many are inserted; null goes on until the measurement ends."""
    write_concern: WriteConcern = Field(default={"w": 1})
    """Write concern of the inserts."""

    def work(self) -> dict[str, Any]:
        """The keys as a worker takes them."""
        return self.model_dump(mode="json")


class TrafficPhase(Searching):
    """Insert and read generated documents, by threads."""

    changes_data: ClassVar[bool] = True
    spreads: ClassVar[bool] = True

    assumptions: ClassVar[tuple[str, ...]] = (f"traffic: {BYTES_PER_CORE_AND_SECOND / 1e6:g} MB/s of inserts a core",)

    engine: Literal["traffic"]
    """traffic: inserts in batches and reads by `_id`."""
    namespace: Namespace
    """Collection to fill; with several databases or collections the first of them."""
    databases: Annotated[int, Field(ge=1, le=1000)] = 1
    """Databases that are filled: the one named, and the same name with 2, 3 … behind it."""
    collections: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Collections of each database, named alike."""
    indexes: Annotated[int, Field(ge=0, le=FIELDS)] = 0
    """Secondary indexes of each collection, on f1, f2 … (random integers); made before the first document."""
    load: Traffic
    """The load. It ends after so many `documents` or `seconds`; one of the two is needed."""
    seconds_long: Annotated[float, Field(gt=0, le=86_400, json_schema_extra={"unit": "s"})] | None = None
    """The load ends after this time."""

    def rung(self, rate: float, search: RateSearch) -> dict[str, Any]:
        """The load at this rate, for the time of a rung."""
        load = self.load.work() | {"rate": rate}
        return {"load": load, "search": None, "seconds_long": float(search.rung_seconds)}

    def _contradictions(self) -> Iterator[str]:
        if self.search is not None:
            if self.load.rate is not None or self.load.documents is not None:
                yield "search: looks for load.rate and ends each rung by its time, so load has no rate or documents"
            return
        if (self.load.documents is None) == (self.seconds_long is None):
            yield "load: needs either load.documents or seconds_long, so that it ends"

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:
        """Keys beside a search; a write concern nobody can fulfil."""
        yield from self.search_findings(kind)
        yield from self.load.paced_findings("load", used=self.search is not None)
        yield from write_concern_findings(self.load.write_concern, topology, "load", "write_concern")

    def problems(self, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """Reads that cannot be checked; hosts without a thread."""
        yield from self.leaves_hosts_idle("load.threads", self.load.threads, context)
        if self.load.reads and self.databases * self.collections > 1:
            yield "load.reads", "reads are checked, so they need one collection; give each load collections: 1"

    def adds(self) -> int:
        """Documents it ends after."""
        return self.load.documents or 0

    def raw_bytes(self) -> int:
        """BSON bytes of them."""
        return self.adds() * self.load.document_bytes

    def seconds(self, expected: EstimateBasis) -> float:
        """By the bytes one core inserts."""
        if (search := self.search_seconds()) is not None:
            return search
        if self.seconds_long is not None:
            return self.seconds_long
        size = self.raw_bytes() * expected.copies * (1 + 0.3 * self.indexes)
        return size / (BYTES_PER_CORE_AND_SECOND * max(expected.cores, 1))

    def data(self) -> Any:
        """Where how many of which documents are."""
        keys = ("namespace", "databases", "collections")
        return {k: getattr(self, k) for k in keys} | {"load": self.load.work()} if self.load.documents else None

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures."""
        return self.reported("load rate")


KEYS = TrafficPhase
