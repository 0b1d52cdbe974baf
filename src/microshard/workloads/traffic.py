"""The engine `traffic`: a plain load of inserts and reads, to fill collections or to be measured itself."""

from pymongo import ASCENDING

from microshard.model.phases.traffic import TrafficPhase
from microshard.model.plan import PlannedPhase
from microshard.workloads import servers
from microshard.workloads.background_load import BackgroundLoad
from microshard.workloads.base import Context, Engine, collection_of
from microshard.workloads.connections import Client


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

    def prepare(self) -> None:
        """Create the collections' indexes, count the documents that exist, start the workers."""
        with self.context.connect() as client:
            for namespace in self.namespaces:
                for n in range(1, self.keys.indexes + 1):
                    collection_of(client, namespace).create_index([(f"f{n}", ASCENDING)])
            self.before = self._count(client)
        self.load.prepare(self, self.namespaces, self.before)

    def _count(self, client: Client) -> int:
        return sum(collection_of(client, namespace).count_documents({}) for namespace in self.namespaces)

    def run(self) -> None:
        """Run the load to its end, count, measure the collection's size. Raises PhaseError."""
        self.load.measure(self, self.keys.seconds_long)
        processes = self.context.job.point.processes
        with self.context.connect() as client:
            self.load.check_count(self.before, self._count(client))
            if len(self.namespaces) == 1:
                self.outcome.storage = servers.storage_size(client, self.keys.namespace, processes)
            else:
                servers.checkpoint(processes)


ENGINE = TrafficEngine
