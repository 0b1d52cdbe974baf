"""The engine `aggregate`: times a pipeline and keeps its answer."""

import functools
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from microshard.model.phases.aggregate import AggregateParameters
from microshard.model.result import Metric, PhaseFailure, PhaseResult
from microshard.workloads import answers, pacing, restarts
from microshard.workloads.base import Engine, PhaseError, collection_of
from microshard.workloads.connections import Client
from microshard.workloads.servers import run_in_threads
from microshard.workloads.several_hosts import merge_parts, share


class AggregateEngine(Engine[AggregateParameters]):
    """Runs the pipeline again and again; all answers must be equal."""

    keys_model = AggregateParameters
    client: Client

    @classmethod
    def merge(cls, parts: Mapping[str, PhaseResult], together: PhaseResult) -> PhaseResult:
        """The queries of all client hosts; their answers must be equal."""
        merged = merge_parts(parts, together)
        if merged.metric is not None:
            merged.metric = replace(merged.metric, value=statistics.median(merged.samples))
        answered = {host: part.answer for host, part in parts.items() if part.answer is not None}
        first = next(iter(answered), "")
        for host, answer in answered.items():
            if parts[host].answer_sha256 != parts[first].answer_sha256:
                difference = f"{first} and {host}: {_difference(answered[first], answer)}"
                merged.error = merged.error or PhaseFailure("AnswersDiffer", difference)
        return merged

    def prepare(self) -> None:
        """Connect; nothing has touched the data yet."""
        self.connections = share(self.keys.connections, self.context.job)
        self.client = self.opened(self.context.connect(maxPoolSize=self.keys.connections))
        self.client.admin.command("ping")

    def run(self) -> None:
        """Warm up, then measure. Raises PhaseError when two queries of the phase differ in their answers."""
        keys, result = self.keys, self.outcome
        for _ in range(keys.warm_up_iterations):
            self._query()
        total = keys.iterations * len(self.connections)
        with self.measured():
            try:
                for done in range(1, (0 if keys.rate else keys.iterations) + 1):
                    if keys.cache == "cold":
                        result.notes["cache"] = f"cold: {restarts.empty_caches(self.context)}"
                        restarts.wait_until_answering(self.client, keys.namespace)
                    # All connections start a round together, so that a cold cache is cold for each round.
                    result.samples += run_in_threads([self._query] * len(self.connections))
                    self.report_progress(done * len(self.connections), total, "queries", f"{result.samples[-1]:.3f} s")
                if keys.rate:
                    self._query_at_rate(total)
            finally:
                result.counters = {"queries": len(result.samples), "errors": int(len(result.samples) < total)}
        result.metric = Metric("query time", "s", statistics.median(result.samples), "lower")
        result.notes.setdefault("cache", "warm")
        result.notes["pipeline"] = keys.pipeline_name or "given in the definition"

    def _query_at_rate(self, total: int) -> None:
        """All queries of the phase in an open loop; samples count from the intended time."""
        keys, result, schedule = self.keys, self.outcome, self.keys.schedule(self.keys.rate)
        latency = {number: pacing.PacedLatency() for number in self.connections}

        def connection(number: int) -> None:
            pacer = pacing.Pacer(schedule, number, keys.connections)
            pacer.begin()
            for _ in range(keys.iterations):
                if (intended := pacer.wait()) is not None:
                    sent = time.monotonic()
                    self._query()
                    ended = time.monotonic()
                    latency[number].record(intended, sent, ended)
                    result.samples.append(ended - intended)
                    self.report_progress(len(result.samples), total, "queries", f"{ended - intended:.3f} s")
            latency[number].finish(time.monotonic())

        began = time.monotonic()
        run_in_threads([functools.partial(connection, number) for number in self.connections])
        found = {"AGGREGATE": pacing.merged(latency.values())}
        pacing.report(result, found, {"AGGREGATE": schedule}, time.monotonic() - began)

    def _query(self) -> float:
        """Run the query; seconds from sending to the last document. Its answer must be that of the first query."""
        began = time.perf_counter()
        collection = collection_of(self.client, self.keys.namespace)
        documents = list(collection.aggregate(self.keys.pipeline, allowDiskUse=self.keys.allow_disk_use))
        seconds = time.perf_counter() - began
        answer = answers.canonical(documents)
        digest = answers.sha256(answer)
        if self.outcome.answer is None:
            self.outcome.answer, self.outcome.answer_sha256 = answer, digest
        elif digest != self.outcome.answer_sha256:
            raise PhaseError("AnswersDiffer", _difference(self.outcome.answer, answer))
        return seconds


def _difference(first: list[Any], other: list[Any]) -> str:
    """How two answers differ, for people."""
    if len(first) != len(other):
        return f"two queries of this phase returned {len(first)} and {len(other)} documents"
    row = next(n for n, (a, b) in enumerate(zip(first, other, strict=True)) if a != b)
    return f"two queries of this phase differ in document {row}: {first[row]} and {other[row]}"


ENGINE = AggregateEngine
