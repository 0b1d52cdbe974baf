"""Keys of the engine `insert`."""

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from microshard.model.base import Namespace
from microshard.model.datasets import DATASETS, DataError, DatasetInfo, Index, dataset_info
from microshard.model.pacing import Paced
from microshard.model.phase import EstimateBasis, KeyFinding, PhaseContext, PhaseKeys, PhaseKind, write_concern_findings
from microshard.model.topology import Topology

MESSAGE_BYTES = 47_000_000  # maxMessageSizeBytes is 48,000,000; a little is the command's
MOST_INDEXES = 3  # of a generated data set; a dump has its own
INDEX_BYTES = 30  # of a document in a secondary index of a few numbers, with prefix compression
# Measured rates of small documents. What limits a load is the slowest of them, and the volumes.
LOAD_DOCUMENTS_PER_SECOND = 22_000  # per core, client included
# One mongod, whatever its cores: 580,650,946 in 88 min on 16 (mot-analytics), 100,484/s on 40 (insert-benchmark).
MONGOD_DOCUMENTS_PER_SECOND = 110_000
SENT_DOCUMENTS_PER_SECOND = 120_000  # per core of the client host: 8 µs to make, send and route (bench/load_rate.py)


class InsertPhase(Paced, PhaseKeys):
    """Fill a collection with a generated data set."""

    changes_data: ClassVar[bool] = True
    spreads: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = (
        f"insert: {LOAD_DOCUMENTS_PER_SECOND:,} documents/s per core of the data hosts; "
        f"{MONGOD_DOCUMENTS_PER_SECOND:,} per mongod (580,650,946 in 88 min on 16 cores: mot-analytics); "
        f"{SENT_DOCUMENTS_PER_SECOND:,} per core of the client hosts (bench/load_rate.py); what the data volumes take",
    )

    engine: Literal["insert"]
    """insert: several processes, unordered batches."""
    dataset: Literal[
        "mot", "mot_compact", "pairs", "purchases", "mails", "tweets", "flights", "tpch", "chunks", "dump"
    ] = "mot"
    """mot: vehicle inspections; mot_compact: the same in 153 bytes, as the published ones, not 237; pairs: two random
    numbers; purchases: the insert benchmark's, padded; mails, tweets: texts. These are generated, deterministic by
    seed. flights, tpch: real flights and TPC-H's orders, after `make data`; chunks: config.chunks of a cluster; dump: a
    user's file."""
    file: str | None = None
    """dump: a file of mongodump (.bson) or of extended JSON, a document a line; relative to the experiment file."""
    padding: Annotated[int, Field(ge=0, le=16_000_000, json_schema_extra={"unit": "bytes"})] = 256
    """purchases: bytes of padding in each document, half of them compressible."""
    secondary_indexes: Annotated[int, Field(ge=0, le=63)] = 0
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
    """Loader processes; auto is one per core of the client hosts, at most one per key range."""
    rate: Annotated[float, Field(gt=0, le=1e9, json_schema_extra={"unit": "documents/s"})] | None = None
    """Open loop: documents a second of all processes together, each batch sent when it is due, whatever the answers
    take; its latency counts from when it was due. null: closed loop, a batch follows the last one's answer."""
    ordered: bool = False
    """Whether a batch stops at its first error."""
    write_concern: dict[Literal["w", "j", "wtimeout"], int | bool | str] = Field(default={"w": 1})
    """Write concern of the inserts."""
    window_seconds: Annotated[float, Field(ge=0.5, le=600, json_schema_extra={"unit": "s"})] = 10.0
    """Length of the windows over which the variation of the rate is measured."""

    @functools.cached_property
    def dataset_info(self) -> DatasetInfo:
        """The facts about the chosen data set."""
        return dataset_info(self.dataset, dict(self))

    def chosen_indexes(self, info: DatasetInfo) -> Sequence[Index]:
        """The secondary indexes to create. Raises DataError when the data set has fewer."""
        known = info.secondary_indexes()
        if self.secondary_indexes > len(known):
            raise DataError(f"must be at most {len(known)}: {info.index_limit}")
        return known[: self.secondary_indexes]

    def parameters(self, context: PhaseContext) -> dict[str, Any]:
        """All keys, with documents and processes as numbers and a file by its whole path."""
        given = super().parameters(context) | {"documents": self._known(), "file": self._path(context)}
        ranges = context.key_ranges.get(self.namespace, 0)
        if self.processes == "auto":
            cores = context.cores * context.client_hosts
            given["processes"] = max(min(cores, ranges or cores), context.client_hosts)
        return given

    @model_validator(mode="after")
    def _indexes_of_the_data_set(self) -> Self:
        if self.dataset != "dump" and self.secondary_indexes > MOST_INDEXES:
            raise ValueError(f"secondary_indexes: at most {MOST_INDEXES} of the data set {self.dataset}")
        return self

    def _path(self, context: PhaseContext) -> str | None:
        if self.file is None or context.folder is None:
            return self.file
        return str((context.folder / self.file).resolve())

    def _known(self) -> int | None:
        """How many documents, as far as that is known without reading the data."""
        if self.documents is not None:
            return self.documents
        return None if self.dataset == "dump" else self.dataset_info.total

    def problems(self, context: PhaseContext) -> Iterator[tuple[str, str]]:
        """Data that is not available, or has fewer indexes; hosts without a process."""
        if self.processes != "auto":
            yield from self.leaves_hosts_idle("processes", self.processes, context)
        key = "dataset"
        try:
            info = dataset_info(self.dataset, dict(self) | {"documents": self._known(), "file": self._path(context)})
            info.check_available()
            key = "secondary_indexes"
            self.chosen_indexes(info)
        except DataError as error:
            yield key, str(error)

    def findings(self, topology: Topology, kind: PhaseKind) -> Iterator[KeyFinding]:  # noqa: ARG002
        """A write concern nobody can fulfil; batches too large for a message; options of another data set."""
        yield from write_concern_findings(self.write_concern, topology, "write_concern", "w")
        yield from self.paced_findings()
        yield from _dataset_findings(self)

    def raw_bytes(self) -> int:
        """BSON bytes of the data set, and what its secondary indexes take."""
        return int((self._known() or 0) * (self.dataset_info.average_bytes + self.secondary_indexes * INDEX_BYTES))

    def adds(self) -> int:
        """Documents of the data set; 0 of a file, which is read only when it is loaded."""
        return self._known() or 0

    def seconds(self, expected: EstimateBasis) -> float:
        """By the rate of one core of a 2020s server, client included, mongod 6.0.5."""
        # An index entry costs about half of what a small document does, a kilobyte about as much as one.
        work = 1 + self.secondary_indexes / 2 + self.dataset_info.average_bytes / 1024
        servers = self.adds() * expected.copies * work / (LOAD_DOCUMENTS_PER_SECOND * max(expected.cores, 1))
        shards = self.adds() * work / (MONGOD_DOCUMENTS_PER_SECOND * expected.workers)
        # However many hosts take the data, the loaders and the mongos have to make and send it.
        loaders = expected.client_cores if self.processes == "auto" else min(self.processes, expected.client_cores)
        clients = self.adds() / (SENT_DOCUMENTS_PER_SECOND * max(loaders, 1))
        at_rate = self.adds() / self.rate if self.rate else 0.0
        written = self.raw_bytes() * expected.copies * expected.disk_share / 2**20
        return max(servers, shards, clients, at_rate, written / expected.volume_mibps if expected.volume_mibps else 0.0)

    def data(self) -> Any:
        """The data set's name, options, seed and size."""
        keys = ("dataset", "namespace", "documents", "seed", *DATASETS[self.dataset].options)
        return {k: getattr(self, k) for k in keys}

    def figures(self) -> tuple[str, ...]:
        """The metric, and the further figures."""
        return (
            "load rate", f"rate in 95% of windows of {self.window_seconds:g} s", "data and indexes", "data", "indexes",
            "resident memory", "storage reads per insert", "storage read per insert", "storage written per insert",
        )  # fmt: skip


def _dataset_findings(phase: InsertPhase) -> Iterator[KeyFinding]:
    """Options of another data set; more documents than it has, or than a message takes."""
    options = DATASETS[phase.dataset].options
    for option in ("padding", "file"):
        if option in phase.model_fields_set and option not in options:
            yield (option,), f"has no effect: the data set {phase.dataset} has no {option}", "warning"
    if "file" in options:
        if phase.file is None:
            yield ("dataset",), "dump needs the key `file`", "error"
        return
    try:
        info = phase.dataset_info
    except DataError as error:
        yield ("documents" if "documents" in phase.model_fields_set else "engine",), str(error), "error"
        return
    if info.total is None and phase.documents is None:
        yield ("engine",), f"documents is missing: the data set {phase.dataset} has no end", "error"
    if info.total is not None and phase.documents is not None and phase.documents > info.total:
        yield ("documents",), f"the data set {phase.dataset} has {info.total:,} documents", "error"
    most = int(MESSAGE_BYTES // info.average_bytes)
    if phase.batch_size > most:
        message = f"{phase.batch_size} documents of this data set do not fit a message of 48 MB; at most {most}"
        yield ("batch_size" if "batch_size" in phase.model_fields_set else "engine",), message, "error"


class InsertParameters(InsertPhase):
    """The keys as a plan hands them over: with `processes` as a number."""

    processes: Annotated[int, Field(ge=1)]
    """Loader processes, each with one batch on its way."""


KEYS = InsertPhase
