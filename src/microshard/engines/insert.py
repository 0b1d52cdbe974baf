"""The engine `insert`: loads a generated data set with several processes, counts it and measures its size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.definition.base import Namespace
from microshard.definition.phase import Expected, PhaseKeys, PhaseKind, Rule, Surroundings
from microshard.definition.topology import Topology, data_members
from microshard.engines import storage
from microshard.engines.base import Context, Engine, Metric, PhaseError, cpu_seconds
from microshard.engines.job import JobError, Parameters, Phase
from microshard.engines.streams import assign
from microshard.engines.workers import Workers

MAX_BATCH = 100_000  # maxWriteBatchSize of every server since 3.6; 24 MB of inspections, below the 48 MB of a message
MAX_RANGES = 1 << 31  # the upper half of a signed 64-bit `_id`
DOCUMENT_BYTES = {"mot": 239}  # BSON, average; the source states 239 bytes a record
LOAD_DOCUMENTS_PER_SECOND = 22_000  # per core, client included


class InsertPhase(PhaseKeys):
    """Fill a collection with a generated data set."""

    changes_data: ClassVar[bool] = True

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

    def parameters(self, around: Surroundings) -> dict[str, Any]:
        """All keys, and how many key ranges the plan has placed for this collection."""
        given = super().parameters(around)
        ranges = around.key_ranges.get(self.namespace, 0)
        given["key_ranges"] = ranges
        if self.processes == "auto":
            given["processes"] = min(around.cores, ranges or around.cores)
        return given

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[Rule]:  # noqa: ARG002
        """A write concern nobody can fulfil."""
        wanted, members = self.write_concern.get("w"), data_members(topology)
        at = ("write_concern", "w")
        if isinstance(wanted, bool) or (isinstance(wanted, int) and wanted < 0):
            yield at, 'needs a number of members or "majority"', "error"
        elif isinstance(wanted, int) and wanted > members:
            only = "is one member" if members == 1 else f"are {members} members"
            yield at, f"waits for {wanted} members where there {only}, so no insert would end", "error"

    def raw_bytes(self) -> int:
        """BSON bytes of the data set."""
        return self.documents * DOCUMENT_BYTES[self.dataset]

    def adds(self) -> int:
        """Documents of the data set."""
        return self.documents

    def seconds(self, expected: Expected) -> float:
        """By the rate of one core of a 2020s server, client included, mongod 6.0.5."""
        return self.documents * expected.copies / (LOAD_DOCUMENTS_PER_SECOND * max(expected.cores, 1))

    def data(self) -> Any:
        """The data set's name, seed and size."""
        return {k: getattr(self, k) for k in ("dataset", "namespace", "documents", "seed")}


class InsertEngine(Engine):
    """Parameters (all needed; counts are integers):

    dataset        "mot"
    namespace      "database.collection", must be empty
    documents      how many
    seed           of the data set; content does not depend on any other parameter
    batch_size     documents an insert command
    processes      worker processes, each with one batch on its way
    key_ranges     loaders in the source's sense: `_id` = (range << 32) | i; 0: `_id` is a running number
    write_concern  of each batch, as in the insert command; w 0 is refused, nothing could be counted
    ordered        whether a batch stops at its first error
    """

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        given = Parameters(phase)
        given.choice("dataset", ("mot",))
        self.database, self.collection = given.namespace()
        self.documents = given.at_least("documents", 1)
        self.seed = given.at_least("seed", 0)
        self.batch_size = given.at_least("batch_size", 1)
        self.processes = given.at_least("processes", 1)
        self.key_ranges = given.at_least("key_ranges", 0)
        self.write_concern = given.take("write_concern", dict)
        self.ordered = given.take("ordered", bool)
        given.done()
        if self.batch_size > MAX_BATCH:
            raise JobError(f"phase {phase.name}: batch_size must be at most {MAX_BATCH}, not {self.batch_size}")
        if self.key_ranges > MAX_RANGES:
            raise JobError(f"phase {phase.name}: key_ranges must be at most {MAX_RANGES}, not {self.key_ranges}")
        if self.write_concern.get("w") == 0:
            raise JobError(f"phase {phase.name}: write_concern w 0 is not acknowledged, so nothing can be counted")
        self.workers = Workers("microshard.engines.insert_worker")

    def prepare(self) -> None:
        """Start the workers and see that the collection is empty."""
        namespace = f"{self.database}.{self.collection}"
        layout = self.context.job.point.collection(namespace)
        streams = assign(self.documents, self.key_ranges, self.processes, layout.chunks if layout else ())
        target = {
            "uri": self.context.job.connection_string,
            "database": self.database,
            "collection": self.collection,
            "write_concern": self.write_concern,
            "ordered": self.ordered,
        }
        self.workers.start(
            [
                {
                    "target": target,
                    "seed": self.seed,
                    "batch_size": self.batch_size,
                    "streams": [(stream.first, stream.first_id, stream.count) for stream in mine],
                }
                for mine in streams
            ]
        )
        with self.context.connect() as client:
            if client[self.database][self.collection].find_one({}, {"_id": 1}) is not None:
                raise PhaseError("NotEmpty", f"{namespace} holds documents already; a load needs an empty collection")
        for _ in self.workers.messages():
            pass  # each says it is ready

    def run(self) -> None:
        """Load, then count and measure. `started` and `ended` enclose the load alone."""
        result = self.outcome
        cpu, children_cpu = cpu_seconds(), 0.0
        done = size = errors = 0
        result.started, began = time.time(), time.monotonic()
        self.workers.go()
        try:
            for message in self.workers.messages():
                done += message.get("documents", 0)
                size += message.get("bytes", 0)
                children_cpu += message.get("cpu_seconds", 0.0)
                seconds = time.monotonic() - began
                note = f"{done / seconds:,.0f} documents/s" if seconds > 0 else ""
                self.context.progress.report(self.phase.name, done, self.documents, "documents", note)
        except PhaseError:
            errors = 1  # the first one ends the load
            raise
        finally:
            seconds = time.monotonic() - began
            result.ended = result.started + seconds
            result.counters = {"documents": done, "bytes": size, "errors": errors}
            result.client_cpu_seconds = cpu_seconds() - cpu + children_cpu
        rate = done / seconds
        result.metric = Metric("load rate", "documents/s", rate, "higher")
        result.samples = [rate]
        result.notes["average document"] = f"{size / done:.1f} bytes"
        self._verify()

    def _verify(self) -> None:
        """Count, write a checkpoint, measure. Raises PhaseError if a document is missing or there twice."""
        result = self.outcome
        began = time.monotonic()
        processes = self.context.job.point.processes
        with self.context.connect() as client:
            found = client[self.database][self.collection].count_documents({})
            if found != self.documents:
                raise PhaseError("WrongCount", f"{self.documents} documents were acknowledged, {found} are there")
            counted = time.monotonic()
            storage.checkpoint(processes)
            result.storage = storage.measure(client, self.database, self.collection, processes)
        result.notes["verification"] = f"count {counted - began:.2f} s, checkpoint {time.monotonic() - counted:.2f} s"
        there = sum(shard["documents"] for shard in result.storage["by_shard"].values())
        if there < self.documents:
            raise PhaseError("WrongCount", f"the shards' own counts add up to {there} of {self.documents} documents")
        if there > self.documents:
            # Only a migration leaves copies behind, and only until the range deleter has come by.
            result.notes["orphans"] = f"{there - self.documents} copies left by migrations on their old shards"
        if result.storage["db_path_bytes"] is None:
            result.notes["disk"] = "the dbPaths are not on this machine; see the telemetry of their hosts"

    def close(self) -> None:
        """End the workers."""
        self.workers.end()


ENGINE = InsertEngine
KEYS = InsertPhase
