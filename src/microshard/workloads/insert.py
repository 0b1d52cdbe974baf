"""The engine `insert`: loads a data set with several processes, counts it and measures its size and its cost."""

from __future__ import annotations

import time
from collections.abc import Sequence

from microshard.model.datasets import DATASETS, DataError, Index
from microshard.model.job import JobError, Phase
from microshard.model.phases.insert import InsertParameters
from microshard.workloads import datasets, servers, storage
from microshard.workloads.base import Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.streams import assign
from microshard.workloads.windows import Windows
from microshard.workloads.workers import Workers

STEADY_SHARE = 0.95  # the insert benchmark's: its "95th percentile rate" is what 95 of 100 windows reach


class InsertEngine(Engine):
    """Load the data set. Where the point has key ranges, `_id` is (range << 32) | i; otherwise it counts up."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, InsertParameters)
        self.database, _, self.collection = self.keys.namespace.partition(".")
        self.key_ranges = context.job.point.key_ranges(self.keys.namespace)
        self.windows = Windows(self.keys.window_seconds)
        self.documents = self.keys.documents or 0  # 0 until prepare has counted what there is
        try:
            self.dataset = datasets.make(self.keys.dataset, dict(self.keys))
        except DataError as error:
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
                    "options": {option: getattr(keys, option) for option in DATASETS[self.keys.dataset].options},
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
        if self.dataset.info.own_ids and self.key_ranges:
            raise PhaseError("OwnIds", f"{self.keys.dataset} has `_id`s of its own, which fit no key ranges")
        try:
            there = self.dataset.count()
        except DataError as error:
            raise PhaseError("NoData", str(error)) from None
        try:
            self.indexes = self.keys.chosen_indexes(self.dataset.info)
        except DataError as error:
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
