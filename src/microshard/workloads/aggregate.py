"""The engine `aggregate`: times a pipeline and keeps its answer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from microshard.model.base import Namespace
from microshard.model.job import Phase
from microshard.model.phase import Expected, PhaseKeys, Surroundings
from microshard.workloads import answer, cold
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.concurrently import together

SCAN_SECONDS_PER_DOCUMENT = 3.5e-6  # aggregation over a warm cache, one shard on one core


class AggregatePhase(PhaseKeys):
    """Run an aggregation and time it."""

    engine: Literal["aggregate"]
    """aggregate: one query after the other."""
    namespace: Namespace = "vosa.mot_results"
    """Collection to query."""
    pipeline: str | list[dict[str, Any]]
    """Name of a file in experiments/pipelines, or the stages themselves."""
    iterations: Annotated[int, Field(ge=1, le=10_000)] = 3
    """Timed queries in one repetition; their median is the repetition's figure."""
    warm_up_iterations: Annotated[int, Field(ge=0, le=1000)] = 1
    """Queries before the first timed one."""
    cache: Literal["warm", "cold"] = "warm"
    """cold: caches are emptied before every timed query (page cache where the user may, mongods restarted)."""
    allow_disk_use: bool = False
    """`allowDiskUse` of the aggregation."""
    connections: Annotated[int, Field(ge=1, le=1024)] = 1
    """Clients that run the query at the same time."""

    @model_validator(mode="after")
    def _stages(self) -> AggregatePhase:
        if isinstance(self.pipeline, list):
            wrong = next((n for n, stage in enumerate(self.pipeline) if len(stage) != 1), None)
            if wrong is not None:
                raise ValueError(f"pipeline: each stage needs exactly one key, and stage {wrong} has not")
        return self

    @model_validator(mode="after")
    def _no_warm_up_when_cold(self) -> AggregatePhase:
        # The default is as good as not given: a lock file says every default.
        default = type(self).model_fields["warm_up_iterations"].default
        if self.cache == "cold" and self.warm_up_iterations not in {0, default}:
            raise ValueError("warm_up_iterations: a cold measurement has no warm-up; leave it out or set cache: warm")
        return self

    def parameters(self, around: Surroundings) -> dict[str, Any]:
        """All keys; a pipeline given by name becomes its stages."""
        given = super().parameters(around)
        by_name = isinstance(self.pipeline, str)
        given["pipeline_name"] = self.pipeline if by_name else None
        given["pipeline"] = around.pipelines[self.pipeline] if isinstance(self.pipeline, str) else self.pipeline
        if self.cache == "cold":
            given["warm_up_iterations"] = 0
        return given

    def problems(self, around: Surroundings) -> Iterator[tuple[str, str]]:
        """A pipeline that is not there."""
        if isinstance(self.pipeline, str) and self.pipeline not in around.pipelines:
            known = ", ".join(sorted(around.pipelines)) or "none"
            yield "pipeline", f"no pipeline is named {self.pipeline}; there is: {known}"

    def restarts(self) -> int:
        """Once before each round of queries on a cold cache."""
        return self.iterations if self.cache == "cold" else 0

    def seconds(self, expected: Expected) -> float:
        """By the time of a scan over a warm cache, one shard on one core."""
        queries = (self.iterations + (0 if self.cache == "cold" else self.warm_up_iterations)) * self.connections
        return queries * expected.documents * SCAN_SECONDS_PER_DOCUMENT / expected.workers

    def question(self) -> Any:
        """The collection and the pipeline."""
        return {"namespace": self.namespace, "pipeline": self.pipeline}


class Given(AggregatePhase):
    """The keys as a plan hands them over: with the stages, and the name they have for people."""

    pipeline: list[dict[str, Any]]
    """The stages."""
    pipeline_name: str | None
    """null when the stages stand in the definition."""


class AggregateEngine(Engine):
    """Asks; the parameters are Given's."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, Given)
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
KEYS = AggregatePhase
