"""The engine `traffic`: a plain load of inserts and reads, to fill collections or to be measured itself."""

from collections.abc import Mapping
from dataclasses import replace

from pymongo import ASCENDING

from microshard.model.phases.traffic import TrafficPhase
from microshard.model.plan import PlannedPhase
from microshard.model.result import PhaseFailure, PhaseResult
from microshard.workloads import servers
from microshard.workloads.background_load import BackgroundLoad, wrong_count
from microshard.workloads.base import Context, Engine, collection_of
from microshard.workloads.connections import Client
from microshard.workloads.several_hosts import is_first, merge_parts


def namespaces_of(namespace: str, databases: int, collections: int) -> list[str]:
    """All that are filled: the one named, then the same with 2, 3 … after either part."""
    database, _, collection = namespace.partition(".")
    return [
        f"{database}{'' if d == 1 else d}.{collection}{'' if c == 1 else c}"
        for d in range(1, databases + 1)
        for c in range(1, collections + 1)
    ]


class TrafficEngine(Engine[TrafficPhase]):
    """Runs the load until it has inserted its documents, or for its time."""

    keys_model = TrafficPhase

    def __init__(self, phase: PlannedPhase, context: Context) -> None:
        super().__init__(phase, context)
        self.namespaces = namespaces_of(self.keys.namespace, self.keys.databases, self.keys.collections)
        self.load = BackgroundLoad(self.keys.load)

    @classmethod
    def merge(cls, parts: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
        """The load of all client hosts: it ends with the last of them."""
        merged, found = merge_parts(parts, together), together.details.get("documents_found")
        if merged.metric is not None:
            rate = merged.counters["documents"] / (merged.ended - merged.started)
            merged.metric, merged.samples = replace(merged.metric, value=rate), [rate]
        if found is not None:
            before = merged.details.pop("documents_before", 0)
            if wrong := wrong_count(before, int(merged.counters["documents"]), found):
                merged.error = merged.error or PhaseFailure("WrongCount", wrong)
        return merged

    def prepare(self) -> None:
        """Create the collections' indexes, count the documents that exist, start the workers."""
        with self.context.connect() as client:
            for namespace in self.namespaces if is_first(self.context.job) else ():
                for n in range(1, self.keys.indexes + 1):
                    collection_of(client, namespace).create_index([(f"f{n}", ASCENDING)])
            self.before = self._count(client)
        self.load.prepare(self, self.namespaces, self.before)

    def _count(self, client: Client) -> int:
        return sum(collection_of(client, namespace).count_documents({}) for namespace in self.namespaces)

    def run(self) -> None:
        """Run the load to its end, and verify it. Raises PhaseError."""
        self.load.measure(self, self.keys.seconds_long)
        details = self.outcome.details
        details["documents_before"] = self.before
        if self.context.job.part.of == 1:  # else the others may still be loading
            self.verify()
            self.load.check_count(details.pop("documents_before"), details.pop("documents_found"))

    def verify(self) -> None:
        """Count, measure the collection's size."""
        processes = self.context.job.point.processes
        with self.context.connect() as client:
            self.outcome.details["documents_found"] = self._count(client)
            if len(self.namespaces) == 1:
                self.outcome.storage = servers.storage_size(client, self.keys.namespace, processes)
            else:
                servers.checkpoint(processes)


ENGINE = TrafficEngine
