"""The engine `insert`: loads a data set with several processes, counts it and measures its size and its cost."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from microshard.model.datasets import DataError, Index
from microshard.model.job import JobError
from microshard.model.phases.insert import InsertParameters
from microshard.model.plan import PlannedPhase
from microshard.model.result import Metric, PhaseResult, StorageSize
from microshard.workloads import datasets, pacing, servers
from microshard.workloads.base import Context, Engine, PhaseError, collection_of
from microshard.workloads.recording import OperationRates, rate_reached_in
from microshard.workloads.several_hosts import is_first, merge_parts, share
from microshard.workloads.streams import assign
from microshard.workloads.workers import Workers

STEADY_SHARE = 0.95  # the insert benchmark's "95th percentile rate" is what 95 of 100 windows reach


class InsertEngine(Engine[InsertParameters]):
    """Loads a data set. Where the point has key ranges, `_id` is (range << 32) | i; otherwise it counts up."""

    keys_model = InsertParameters

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.key_ranges = context.job.point.key_ranges(self.keys.namespace)
        self.rates = OperationRates(self.keys.window_seconds)
        try:
            self.dataset = datasets.make(self.keys.dataset, dict(self.keys))
        except DataError as error:
            raise JobError(f"phase {phase.name}: {error}") from None
        self.workers = Workers("microshard.workloads.insert_worker")

    @classmethod
    def merge(cls, parts: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
        """The load of all client hosts: it ends with the last of them."""
        merged = merge_parts(parts, together)
        if merged.metric is not None and "servers_after" in together.details:
            rate = merged.counters["documents"] / (merged.ended - merged.started)
            merged.metric, merged.samples = replace(merged.metric, value=rate), [rate]
            merged.details = merged.details | together.details
            _add_figures(merged)
        return merged

    def prepare(self) -> None:
        """Start the workers, check that the collection is empty, create its indexes."""
        keys, point = self.keys, self.context.job.point
        indexes = self._check_data()
        layout = point.collection(keys.namespace)
        streams = assign(self.documents, self.key_ranges, keys.processes, layout.chunks if layout else ())
        common = keys.model_dump(include={"namespace", "write_concern", "ordered", "dataset", "seed", "batch_size"})
        common["uri"] = self.context.job.connection_string
        common["options"] = {option: getattr(keys, option) for option in self.dataset.info.options}
        common["schedule"] = self.schedule = keys.schedule(keys.rate, each=keys.batch_size)
        self.on_close(self.workers.end)
        self.workers.start(
            [
                common | {"client": n, "clients": keys.processes, "streams": list(map(dataclasses.astuple, streams[n]))}
                for n in share(keys.processes, self.context.job)
            ]
        )
        with self.context.connect() as client:
            target_collection = collection_of(client, keys.namespace)
            if target_collection.find_one({}, {"_id": 1}) is not None:
                message = f"{keys.namespace} holds documents already; a load needs an empty collection"
                raise PhaseError("NotEmpty", message)
            for index in indexes if is_first(self.context.job) else ():
                target_collection.create_index(list(index.items()))
        self.before = servers.server_counters(point.processes)
        self.workers.wait_ready()

    def _check_data(self) -> Sequence[Index]:
        """Determine the number of documents and the indexes to create. Raises PhaseError when the data has fewer."""
        keys, info = self.keys, self.dataset.info
        if info.own_ids and self.key_ranges:
            raise PhaseError("OwnIds", f"{keys.dataset} has `_id`s of its own, which do not fit key ranges")
        try:
            available = self.dataset.count()
        except DataError as error:
            raise PhaseError("NoData", str(error)) from None
        try:
            indexes = keys.chosen_indexes(info)
        except DataError as error:
            raise PhaseError("NoIndexes", f"secondary_indexes {error}") from None
        self.documents = keys.documents or available or 0
        if not self.documents or (available is not None and self.documents > available):
            has = "no end" if available is None else f"{available:,} documents"
            raise PhaseError("NoData", f"{self.documents or 'all':,} documents of {keys.dataset}, which has {has}")
        return indexes

    def run(self) -> None:
        """Load, then count and measure. `started` and `ended` enclose the load alone."""
        result, workers_cpu, done, size, errors = self.outcome, 0.0, 0, 0, 1
        latency = pacing.PacedLatency()
        began = time.monotonic()
        try:
            with self.measured(lambda: workers_cpu):
                self.workers.go()
                for message in self.workers.messages():
                    done += message.get("documents", 0)
                    size += message.get("bytes", 0)
                    if "latency" in message:
                        latency.add(pacing.PacedLatency.of_message(message["latency"]))
                    workers_cpu += message.get("cpu_seconds", 0.0)
                    seconds = time.monotonic() - began
                    self.rates.add(seconds, message.get("documents", 0))
                    note = f"{done / seconds:,.0f} documents/s" if seconds > 0 else ""
                    self.report_progress(done, self.documents, "documents", note)
            errors = 0  # the first one ends the load
        finally:
            seconds = time.monotonic() - began
            result.ended = result.started + seconds
            result.counters = {"documents": done, "bytes": size, "errors": errors}
        self.set_metric("load rate", "documents/s", done / seconds, "higher")
        pacing.report(result, {"INSERT": latency}, {"INSERT": self.schedule}, seconds)
        result.windows = self.rates.windows(result.started, seconds)
        result.details["servers_before"] = self.before
        if self.context.job.part.of == 1:  # else the others may still be loading
            self.verify()
            _add_figures(result)

    def verify(self) -> None:
        """Count, write a checkpoint, measure. Raises PhaseError when a document is missing or there twice."""
        keys, result = self.keys, self.outcome
        if self.context.job.after:
            self._check_data()
        began = time.monotonic()
        with self.context.connect() as client:
            found = collection_of(client, keys.namespace).count_documents({})
            if found != self.documents:
                raise PhaseError("WrongCount", f"{self.documents} documents were acknowledged, {found} are there")
            counted = time.monotonic()
            result.storage = servers.storage_size(client, keys.namespace, self.context.job.point.processes)
        result.notes["verification"] = f"count {counted - began:.2f} s, checkpoint {time.monotonic() - counted:.2f} s"
        on_shards = int(sum(result.storage.documents().values()))
        if on_shards < self.documents:
            raise PhaseError("WrongCount", f"the shards' counts add up to {on_shards} of {self.documents} documents")
        if on_shards > self.documents:
            # Only a migration leaves copies behind, and only until the range deleter has removed them.
            result.notes["orphans"] = f"{on_shards - self.documents} copies left by migrations on their old shards"
        if result.storage.db_path_bytes is None:
            result.notes["disk"] = "the dbPaths are not on this machine; see the telemetry of their hosts"
        result.details["servers_after"] = servers.server_counters(self.context.job.point.processes)


def _add_figures(result: PhaseResult) -> None:
    """Add what the load cost; storage traffic is counted up to the end of the checkpoint."""
    documents = int(result.counters["documents"])
    before, after = result.details.pop("servers_before"), result.details.pop("servers_after")
    result.notes["average document"] = f"{result.counters['bytes'] / documents:.1f} bytes"
    steady = rate_reached_in(STEADY_SHARE, result.windows)
    if result.windows is not None and steady is not None:
        name = f"rate in {STEADY_SHARE:.0%} of windows of {result.windows.seconds:g} s"
        result.figures.append(Metric(name, "documents/s", steady, "higher"))
    else:
        result.notes["windows"] = "the load was shorter than a window (window_seconds)"
    size = result.storage or StorageSize()
    data, indexes = size.data_bytes or 0, size.index_bytes or 0
    for name, value in (
        ("data and indexes", data + indexes),
        ("data", data),
        ("indexes", indexes),
        ("resident memory", after["resident"]),
    ):
        result.figures.append(Metric(name, "bytes", value, "lower"))
    result.figures += servers.storage_traffic(before, after, documents)
    if "reads" not in after:
        result.notes["storage traffic"] = "not counted by this storage engine; see the telemetry of its host"


ENGINE = InsertEngine
