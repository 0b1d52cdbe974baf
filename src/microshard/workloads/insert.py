"""The engine `insert`: loads a data set with several processes, counts it and measures its size and its cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from microshard.memoize import memoize_by_identity
from microshard.model.base import Namespace
from microshard.model.job import JobError, Phase
from microshard.model.phase import Expected, PhaseKeys, PhaseKind, Rule, Surroundings, unfulfillable
from microshard.model.topology import Topology
from microshard.workloads import datasets, servers, storage
from microshard.workloads.base import Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.streams import assign
from microshard.workloads.windows import Windows
from microshard.workloads.workers import Workers

if TYPE_CHECKING:
    from microshard.workloads.datasets.base import Dataset, Index

MESSAGE_BYTES = 47_000_000  # maxMessageSizeBytes is 48,000,000; a little is the command's
STEADY_SHARE = 0.95  # the insert benchmark's: its "95th percentile rate" is what 95 of 100 windows reach
INDEX_BYTES = 30  # of a document in a secondary index of a few numbers, with prefix compression
LOAD_DOCUMENTS_PER_SECOND = 22_000  # per core, client included
SENT_DOCUMENTS_PER_SECOND = (
    120_000  # per core of the client host: 8 µs for making, sending and routing one (bench/load_rate.py)
)


class InsertPhase(PhaseKeys):
    """Fill a collection with a generated data set."""

    changes_data: ClassVar[bool] = True

    engine: Literal["insert"]
    """insert: several processes, unordered batches."""
    dataset: Literal["mot", "pairs", "purchases", "mails", "tweets", "flights", "tpch", "chunks", "dump"] = "mot"
    """mot: vehicle inspections; pairs: two random numbers; purchases: the insert benchmark's, padded; mails, tweets:
    texts. These are generated, deterministic by seed. flights, tpch: real flights and TPC-H's orders, after `make
    data`; chunks: config.chunks of a cluster; dump: a file of your own."""
    file: str | None = None
    """dump: a file of mongodump (.bson) or of extended JSON, a document a line; beside the experiment file."""
    padding: Annotated[int, Field(ge=0, le=16_000_000, json_schema_extra={"unit": "bytes"})] = 256
    """purchases: bytes of padding in each document, half of them compressible."""
    secondary_indexes: Annotated[int, Field(ge=0, le=3)] = 0
    """How many of the data set's secondary indexes are made before the first document."""
    namespace: Namespace = "vosa.mot_results"
    """Collection to fill."""
    documents: Annotated[int, Field(ge=1, le=10_000_000_000)] | None = None
    """Documents in all; null is every one of a data set that has an end. tpch: a multiple of 7,500 orders; 1,500,000
    are scale factor 1."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of the data; the same seed is the same data, whatever the topology."""
    # 100,000 is maxWriteBatchSize of every server since 3.6.
    batch_size: Annotated[int, Field(ge=1, le=100_000, json_schema_extra={"unit": "documents"})] = 1000
    """Documents per insert command."""
    processes: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = "auto"
    """Loader processes; auto is one per core of the client host, at most one per key range."""
    ordered: bool = False
    """Whether a batch stops at its first error."""
    write_concern: dict[Literal["w", "j", "wtimeout"], int | bool | str] = Field(default={"w": 1})
    """Write concern of the inserts."""
    window_seconds: Annotated[float, Field(ge=0.5, le=600, json_schema_extra={"unit": "s"})] = 10.0
    """Length of the windows over which the rate's steadiness is told."""

    def source(self) -> Dataset:
        """The data set itself."""
        return datasets.make(self.dataset, {name: getattr(self, name) for name in datasets.find(self.dataset).options})

    def chosen_indexes(self, source: Dataset) -> Sequence[Index]:
        """The secondary indexes that are made. Raises DataError when the data set has not so many."""
        known = source.secondary_indexes()
        if self.secondary_indexes > len(known):
            raise datasets.DataError(f"must be at most {len(known)}: {source.indexes_stand()}")
        return known[: self.secondary_indexes]

    def parameters(self, around: Surroundings) -> dict[str, Any]:
        """All keys, with documents and processes as numbers and a file by its whole path."""
        given = super().parameters(around)
        ranges = around.key_ranges.get(self.namespace, 0)
        given["documents"] = self._known()
        if self.file is not None and around.folder is not None:
            given["file"] = str((around.folder / self.file).resolve())
        if self.processes == "auto":
            given["processes"] = min(around.cores, ranges or around.cores)
        return given

    def _known(self) -> int | None:
        """How many documents, as far as that is known without reading the data."""
        if self.documents is not None:
            return self.documents
        return None if self.dataset == "dump" else self.source().total

    def problems(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """Data that is not there, or has not so many indexes."""
        key = "dataset"
        try:
            source = datasets.make(self.dataset, self.parameters(around))
            source.available()
            key = "secondary_indexes"
            self.chosen_indexes(source)
        except datasets.DataError as error:
            yield key, str(error)

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[Rule]:  # noqa: ARG002
        """A write concern nobody can fulfil; batches too large for a message; options of another data set."""
        reason = unfulfillable(self.write_concern, topology)
        if reason:
            yield ("write_concern", "w"), reason, "error"
        yield from _of_data(self)

    def raw_bytes(self) -> int:
        """BSON bytes of the data set, and what its secondary indexes take."""
        return int((self._known() or 0) * (self._each() + self.secondary_indexes * INDEX_BYTES))

    def _each(self) -> float:
        """BSON bytes of a document; 1,000 of a file that is read only when it is loaded."""
        return 1_000.0 if self.dataset == "dump" else self.source().average_bytes

    def adds(self) -> int:
        """Documents of the data set; 0 of a file, which is read only when it is loaded."""
        return self._known() or 0

    def seconds(self, expected: Expected) -> float:
        """By the rate of one core of a 2020s server, client included, mongod 6.0.5."""
        # An index entry costs about half of what a small document does, a kilobyte about as much as one.
        work = 1 + self.secondary_indexes / 2 + self._each() / 1024
        seconds = self.adds() * expected.copies * work / (LOAD_DOCUMENTS_PER_SECOND * max(expected.cores, 1))
        # However many hosts take the data, its clients and the mongos have to make and send it.
        return max(seconds, self.adds() / (SENT_DOCUMENTS_PER_SECOND * max(expected.client_cores, 1)))

    def data(self) -> Any:
        """The data set's name, options, seed and size."""
        keys = ("dataset", "namespace", "documents", "seed", *datasets.find(self.dataset).options)
        return {k: getattr(self, k) for k in keys}


@memoize_by_identity
def _of_data(phase: InsertPhase) -> tuple[Rule, ...]:
    """Options of another data set; more documents than there are, or than a message takes."""
    own = datasets.find(phase.dataset).options
    found: list[Rule] = [
        ((option,), f"has no effect: the data set {phase.dataset} has no {option}", "warning")
        for option in ("padding", "file")
        if option in phase.model_fields_set and option not in own
    ]
    if "file" in own:
        needed: list[Rule] = [(("dataset",), "dump needs the key `file`", "error")] if phase.file is None else []
        return (*found, *needed)
    try:
        return (*found, *_too_many(phase))
    except datasets.DataError as error:
        key = "documents" if "documents" in phase.model_fields_set else "engine"
        return (*found, ((key,), str(error), "error"))


def _too_many(phase: InsertPhase) -> Iterator[Rule]:
    source = phase.source()
    total = source.total
    if total is None and phase.documents is None:
        yield ("engine",), f"documents is missing: the data set {phase.dataset} has no end", "error"
    if total is not None and phase.documents is not None and phase.documents > total:
        yield ("documents",), f"the data set {phase.dataset} has {total:,} documents", "error"
    most = int(MESSAGE_BYTES // source.average_bytes)
    if phase.batch_size > most:
        message = f"{phase.batch_size} documents of this data set do not fit a message of 48 MB; at most {most}"
        yield ("batch_size" if "batch_size" in phase.model_fields_set else "engine",), message, "error"


class Given(InsertPhase):
    """The keys as a plan hands them over: with `processes` as a number."""

    processes: Annotated[int, Field(ge=1)]
    """Loader processes, each with one batch on its way."""


class InsertEngine(Engine):
    """Loads; the parameters are Given's. Where the point has key ranges, `_id` is (range << 32) | i, else it counts."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, Given)
        self.database, _, self.collection = self.keys.namespace.partition(".")
        self.key_ranges = context.job.point.key_ranges(self.keys.namespace)
        self.windows = Windows(self.keys.window_seconds)
        self.documents = self.keys.documents or 0  # 0 until prepare has counted what there is
        try:
            self.dataset = self.keys.source()
        except datasets.DataError as error:
            raise JobError(f"phase {phase.name}: {error}") from None
        self.indexes: Sequence[Index] = ()
        self.before: servers.Counters | None = None
        self.workers = Workers("microshard.workloads.insert_worker")

    def prepare(self) -> None:
        """Start the workers, see that the collection is empty, make its indexes."""
        keys = self.keys
        self._count()
        layout = self.context.job.point.collection(keys.namespace)
        streams = assign(self.documents, self.key_ranges, keys.processes, layout.chunks if layout else ())
        target = {
            "uri": self.context.job.connection_string,
            "database": self.database,
            "collection": self.collection,
            "write_concern": keys.write_concern,
            "ordered": keys.ordered,
        }
        self.workers.start(
            [
                {
                    "target": target,
                    "dataset": keys.dataset,
                    "options": {option: getattr(keys, option) for option in self.dataset.options},
                    "seed": keys.seed,
                    "batch_size": keys.batch_size,
                    "streams": [(stream.first, stream.first_id, stream.count) for stream in mine],
                }
                for mine in streams
            ]
        )
        with self.context.connect() as client:
            collection = client[self.database][self.collection]
            if collection.find_one({}, {"_id": 1}) is not None:
                wanted = "a load needs an empty collection"
                raise PhaseError("NotEmpty", f"{keys.namespace} holds documents already; {wanted}")
            for index in self.indexes:
                collection.create_index(list(index.items()))
        self.before = servers.counters(self.context.job.point.processes)
        for _ in self.workers.messages():
            pass  # each says it is ready

    def _count(self) -> None:
        """See that the data is there, as large as wanted and with its indexes. Raises PhaseError."""
        if self.dataset.own_ids and self.key_ranges:
            raise PhaseError("OwnIds", f"{self.keys.dataset} has `_id`s of its own, which fit no key ranges")
        try:
            there = self.dataset.count()
        except datasets.DataError as error:
            raise PhaseError("NoData", str(error)) from None
        try:
            self.indexes = self.keys.chosen_indexes(self.dataset)
        except datasets.DataError as error:
            raise PhaseError("NoIndexes", f"secondary_indexes {error}") from None
        self.documents = self.documents or there or 0
        if not self.documents or (there is not None and self.documents > there):
            has = "no end" if there is None else f"{there:,} documents"
            raise PhaseError("NoData", f"{self.documents or 'all':,} documents of {self.keys.dataset}, which has {has}")

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
                self.windows.add(seconds, message.get("documents", 0))
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
        result.windows = self.windows.as_json(result.started, seconds)
        self._verify()
        self._add_figures(seconds)

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

    def _add_figures(self, seconds: float) -> None:
        """What the load cost. The traffic is counted up to the end of the checkpoint: until all of it is on storage."""
        result = self.outcome
        after = servers.counters(self.context.job.point.processes)
        length = f"{self.windows.seconds:g} s"
        steady = self.windows.rate_reached_in(STEADY_SHARE, seconds)
        if steady is not None:
            name = f"rate in {STEADY_SHARE:.0%} of windows of {length}"
            result.figures.append(Metric(name, "documents/s", steady, "higher"))
        else:
            result.notes["windows"] = f"the load was shorter than a window of {length}"
        sizes = result.storage or {}
        figures = {
            "data and indexes": sizes["data_bytes"] + sizes["index_bytes"],
            "data": sizes["data_bytes"],
            "indexes": sizes["index_bytes"],
            "resident memory": after.resident_bytes,
        }
        result.figures += [Metric(name, "bytes", size, "lower") for name, size in figures.items()]
        assert self.before is not None  # noqa: S101 - for the type checker: prepare has read them
        result.figures += servers.per_operation(self.before, after, result.counters["documents"])
        if after.reads is None:
            result.notes["storage traffic"] = "not counted by this storage engine; see the telemetry of its host"

    def close(self) -> None:
        """End the workers."""
        self.workers.end()


ENGINE = InsertEngine
KEYS = InsertPhase
