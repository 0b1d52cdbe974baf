"""The engine `aggregate`: times a pipeline and keeps its answer."""

from __future__ import annotations

import statistics
import time
from typing import Any

from microshard.model.job import Phase
from microshard.model.phases.aggregate import AggregateParameters
from microshard.workloads import answer, cold
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.concurrently import together


class AggregateEngine(Engine):
    """Asks; the parameters are AggregateParameters's."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, AggregateParameters)
        self.database, _, self.collection = self.keys.namespace.partition(".")
        self._client: Client | None = None
        self._first: tuple[list[Any], str] | None = None

    def prepare(self) -> None:
        """Connect; nothing has touched the data yet."""
        self._client = self.context.connect(maxPoolSize=self.keys.connections)
        self._client.admin.command("ping")

    def run(self) -> None:
        """Warm up, then measure. Raises PhaseError when two queries of the phase differ in their answers."""
        result = self.outcome
        for _ in range(self.keys.warm_up_iterations):
            self._query()
        total = self.keys.iterations * self.keys.connections
        result.started = time.time()
        cpu = cpu_seconds()
        try:
            for done in range(1, self.keys.iterations + 1):
                if self.keys.cache == "cold":
                    self._make_cold()
                # All connections start a round together, so that a cold cache is cold for each round.
                result.samples += together([self._query] * self.keys.connections)
                note = f"{result.samples[-1]:.3f} s"
                self.context.progress.report(self.phase.name, done * self.keys.connections, total, "queries", note)
        finally:
            result.ended = time.time()
            result.client_cpu_seconds = cpu_seconds() - cpu
            result.counters = {"queries": len(result.samples), "errors": int(len(result.samples) < total)}
        result.metric = Metric("query time", "s", statistics.median(result.samples), "lower")
        result.notes.setdefault("cache", "warm")
        result.notes["pipeline"] = self.keys.pipeline_name or "given in the definition"

    def _query(self) -> float:
        """Ask once; seconds from sending to the last document. The answer must be that of the first query."""
        assert self._client is not None  # noqa: S101 - for the type checker: prepare has connected
        began = time.perf_counter()
        collection = self._client[self.database][self.collection]
        documents = list(collection.aggregate(self.keys.pipeline, allowDiskUse=self.keys.allow_disk_use))
        seconds = time.perf_counter() - began
        found = answer.canonical(documents)
        digest = answer.sha256(found)
        if self._first is None:
            self._first = (found, digest)
            self.outcome.answer, self.outcome.answer_sha256 = found, digest
        elif digest != self._first[1]:
            raise PhaseError("AnswersDiffer", _difference(self._first[0], found))
        return seconds

    def _make_cold(self) -> None:
        """Empty the caches and say in the notes how; then wait until the point answers again."""
        self.outcome.notes["cache"] = f"cold: {cold.make_cold(self.context)}"
        assert self._client is not None  # noqa: S101 - for the type checker: prepare has connected
        cold.wait_until_answering(self._client, self.database, self.collection)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()


def _difference(first: list[Any], other: list[Any]) -> str:
    """Where two answers part, for people."""
    if len(first) != len(other):
        return f"two queries of this phase returned {len(first)} and {len(other)} documents"
    row = next(n for n, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
    return f"two queries of this phase differ in document {row}: {first[row]} and {other[row]}"


ENGINE = AggregateEngine
