"""The engine `traffic`: a plain load of inserts and reads, to fill collections or to be measured itself."""

from __future__ import annotations

import time

from pymongo import ASCENDING

from microshard.model.job import Phase
from microshard.model.phases.traffic import TrafficPhase
from microshard.workloads import servers
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Context, Engine, PhaseError
from microshard.workloads.connections import Client


def targets_of(namespace: str, databases: int, collections: int) -> list[tuple[str, str]]:
    """Database and collection of all targets: the one named, then the same with 2, 3 … after either part."""
    database, _, collection = namespace.partition(".")
    return [
        (f"{database}{'' if d == 1 else d}", f"{collection}{'' if c == 1 else c}")
        for d in range(1, databases + 1)
        for c in range(1, collections + 1)
    ]


class TrafficEngine(Engine[TrafficPhase]):
    """Runs the load until it has inserted its documents, or for its time."""

    keys_model = TrafficPhase

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.targets = targets_of(self.keys.namespace, self.keys.databases, self.keys.collections)
        self.load = BackgroundLoad(self.keys.load)

    def prepare(self) -> None:
        """Create the collections' indexes, count the documents that exist, start the workers."""
        with self.context.connect() as client:
            for database, collection in self.targets:
                for n in range(1, self.keys.indexes + 1):
                    client[database][collection].create_index([(f"f{n}", ASCENDING)])
            self.before = self._count(client)
        self.on_close(self.load.close)
        self.load.prepare(self.context.job.connection_string, self.targets, known=self.before,
                          key_ranges=self.context.job.point.key_ranges(self.keys.namespace))  # fmt: skip

    def _count(self, client: Client) -> int:
        return sum(client[database][collection].count_documents({}) for database, collection in self.targets)

    def run(self) -> None:
        """Run the load to its end, then count. Raises PhaseError."""
        keys, result, load = self.keys, self.outcome, self.load
        with self.measured(lambda: load.cpu_seconds):
            try:
                began = load.begin("load")
                while load.running:
                    seconds = time.time() - began
                    note = f"{load.inserted / seconds:,.0f} documents/s" if seconds > 0 else ""
                    if keys.seconds_long is None:
                        self.report_progress(load.inserted, keys.load.documents or 0, "documents", note)
                    else:
                        self.report_progress(seconds, keys.seconds_long, "s", note)
                        if seconds >= keys.seconds_long:
                            load.end()
                    time.sleep(0.05)
                load.join()
            finally:
                result.counters = {"documents": load.inserted, "errors": int(load.failed)}
                result.latency, result.windows = load.latency(), load.windows()
        result.started, result.ended = load.began, load.ended or result.ended
        self.set_metric("load rate", "documents/s", load.inserted / (result.ended - result.started), "higher")
        self._verify()

    def _verify(self) -> None:
        """Raise PhaseError unless every acknowledged document is there once; measure the collection's size."""
        processes = self.context.job.point.processes
        with self.context.connect() as client:
            found = self._count(client)
            if found != self.before + self.load.inserted:
                raise PhaseError(
                    "WrongCount",
                    f"{self.before} documents and {self.load.inserted} acknowledged inserts, but {found} are there",
                )
            if len(self.targets) == 1:
                self.outcome.storage = servers.storage_size(client, self.keys.namespace, processes)
            else:
                servers.checkpoint(processes)


ENGINE = TrafficEngine
