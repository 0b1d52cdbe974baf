"""The engine `insert`: loads a generated data set with several processes, counts it and measures its size."""

from __future__ import annotations

import time

from microshard.engines import storage
from microshard.engines.base import Context, Engine, Metric, PhaseError, cpu_seconds
from microshard.engines.job import JobError, Parameters, Phase
from microshard.engines.streams import assign
from microshard.engines.workers import Workers

MAX_BATCH = 100_000  # maxWriteBatchSize of every server since 3.6; 24 MB of inspections, below the 48 MB of a message
MAX_RANGES = 1 << 31  # the upper half of a signed 64-bit `_id`


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
