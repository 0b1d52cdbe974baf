"""The engine `traffic`: a plain load of inserts and reads, to fill collections or to be measured itself."""

from __future__ import annotations

import time
from typing import Any

from pymongo import ASCENDING

from microshard.model.job import Phase
from microshard.model.phases.traffic import TrafficPhase
from microshard.workloads import storage
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Context, Engine, Metric, PhaseError, cpu_seconds, read_keys


def targets_of(namespace: str, databases: int, collections: int) -> list[tuple[str, str]]:
    """Database and collection of all targets: the one named, then the same with 2, 3 … after either part."""
    database, _, collection = namespace.partition(".")
    return [
        (f"{database}{'' if d == 1 else d}", f"{collection}{'' if c == 1 else c}")
        for d in range(1, databases + 1)
        for c in range(1, collections + 1)
    ]


class TrafficEngine(Engine):
    """See TrafficPhase."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, TrafficPhase)
        self.targets = targets_of(self.keys.namespace, self.keys.databases, self.keys.collections)
        self.load = BackgroundLoad(self.keys.load)
        self.before = 0

    def prepare(self) -> None:
        """Collections with their indexes; how many documents are there already; workers that are ready."""
        with self.context.connect() as client:
            for database, collection in self.targets:
                for n in range(1, self.keys.indexes + 1):
                    client[database][collection].create_index([(f"f{n}", ASCENDING)])
            self.before = self._count(client)
        self.load.prepare(self.context.job.connection_string, self.targets, known=self.before,
                          key_ranges=self.context.job.point.key_ranges(self.keys.namespace))  # fmt: skip

    def _count(self, client: Any) -> int:
        return sum(client[d][c].count_documents({}) for d, c in self.targets)

    def run(self) -> None:
        """Let it run to its end, then count."""
        keys, result = self.keys, self.outcome
        cpu = cpu_seconds()
        result.started = self.load.begin("load")
        try:
            while self.load.running:
                seconds = time.time() - result.started
                done = self.load.inserted
                note = f"{done / seconds:,.0f} documents/s" if seconds > 0 else ""
                if keys.seconds_long is None:
                    self.context.progress.report(self.phase.name, done, keys.load.documents or 0, "documents", note)
                else:
                    self.context.progress.report(self.phase.name, int(seconds), int(keys.seconds_long), "s", note)
                    if seconds >= keys.seconds_long:
                        self.load.end()
                time.sleep(0.05)
            self.load.join()
        finally:
            result.ended = self.load.ended or time.time()
            result.counters = {"documents": self.load.inserted, "errors": int(self.load.failed)}
            result.client_cpu_seconds = cpu_seconds() - cpu + self.load.cpu_seconds
            result.latency = self.load.latency()
            result.windows = self.load.windows()
        rate = self.load.inserted / (result.ended - result.started)
        result.metric = Metric("load rate", "documents/s", rate, "higher")
        result.samples = [rate]
        self._verify()

    def _verify(self) -> None:
        """Raises PhaseError unless every acknowledged document is there once."""
        with self.context.connect() as client:
            found = self._count(client)
            if found != self.before + self.load.inserted:
                raise PhaseError(
                    "WrongCount",
                    f"{self.before} documents and {self.load.inserted} acknowledged inserts, but {found} are there",
                )
            storage.checkpoint(self.context.job.point.processes)
            if len(self.targets) == 1:
                ((database, collection),) = self.targets
                self.outcome.storage = storage.measure(client, database, collection, self.context.job.point.processes)

    def close(self) -> None:
        """End the workers."""
        self.load.close()


ENGINE = TrafficEngine
