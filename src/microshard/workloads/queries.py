"""The engine `queries`: how many documents? The same question in several forms, with the plan of each."""

from __future__ import annotations

import statistics
import time
from typing import Any

from pymongo.errors import PyMongoError

from microshard.model.job import Phase
from microshard.model.phases.queries import QueriesPhase
from microshard.workloads import answer
from microshard.workloads.base import Client, Context, Engine, Metric, PhaseError, cpu_seconds, read_keys
from microshard.workloads.explained import Explained, explained


class QueriesEngine(Engine):
    """Asks the chosen form; the parameters are QueriesPhase's."""

    def __init__(self, phase: Phase, context: Context) -> None:
        super().__init__(phase, context)
        self.keys = read_keys(phase, QueriesPhase)
        self.form = self.keys.forms[self.keys.form]
        self.database, _, self.collection = self.keys.namespace.partition(".")
        self._client: Client | None = None
        self._index: str | None = None

    @property
    def client(self) -> Client:
        """The connection that prepare has made."""
        assert self._client is not None  # noqa: S101 - for the type checker
        return self._client

    def prepare(self) -> None:
        """Make the form's index, then see the other forms' gone. Raises PhaseError for an empty collection."""
        self._client = self.context.connect()
        collection = self.client[self.database][self.collection]
        if collection.find_one({}, {"_id": 1}) is None:
            raise PhaseError("NoDocuments", f"{self.keys.namespace} is empty: there is nothing to count")
        if self.form.index:
            self._index = collection.create_index(list(self.form.index.items()))

    def run(self) -> None:
        """Warm up, measure, explain. Raises PhaseError when two queries count differently."""
        result = self.outcome
        for _ in range(self.keys.warm_up_iterations):
            self._ask()
        counts = set()
        result.started, cpu = time.time(), cpu_seconds()
        for done in range(1, self.keys.iterations + 1):
            began = time.perf_counter()
            counts.add(self._ask())
            result.samples.append(time.perf_counter() - began)
            note = f"{result.samples[-1]:.3f} s"
            self.context.progress.report(self.phase.name, done, self.keys.iterations, "queries", note)
        result.ended, result.client_cpu_seconds = time.time(), cpu_seconds() - cpu
        if len(counts) > 1:
            raise PhaseError("AnswersDiffer", f"{self.keys.form} counted {' and '.join(map(str, sorted(counts)))}")
        result.answer = answer.canonical([{"count": counts.pop()}])
        result.answer_sha256 = answer.sha256(result.answer)
        result.counters = {"queries": len(result.samples), "errors": 0}
        result.metric = Metric("query time", "s", statistics.median(result.samples), "lower")
        result.notes["form"] = f"{self.keys.form}: {self.form.asks}"
        self._tell(self._explain())

    def _ask(self) -> int:
        """How many, once."""
        database = self.client[self.database]
        if self.form.filter is not None:
            return int(database.command("count", self.collection, query=self.form.filter)["n"])
        found = list(database[self.collection].aggregate(self.form.pipeline or []))
        if len(found) > 1 or (found and not isinstance(found[0].get("count"), int | float)):
            raise PhaseError("NoCount", f"{self.keys.form} must end in one document with the number `count`")
        return int(found[0]["count"]) if found else 0

    def _explain(self) -> Explained:
        """The plan with what it examined: one more run of the query, outside the measured time."""
        if self.form.filter is not None:
            command: dict[str, Any] = {"count": self.collection, "query": self.form.filter}
        else:
            command = {"aggregate": self.collection, "pipeline": self.form.pipeline, "cursor": {}}
        reply = self.client[self.database].command({"explain": command, "verbosity": "executionStats"})
        return explained(reply)

    def _tell(self, plan: Explained) -> None:
        result = self.outcome
        result.notes["plan"] = " ← ".join(plan.stages)
        result.counters |= {"keys_examined": plan.keys, "documents_examined": plan.documents}
        result.figures = [
            Metric("keys examined", "keys", plan.keys, "lower"),
            Metric("documents examined", "documents", plan.documents, "lower"),
        ]
        result.table = {
            "columns": [{"name": n, "unit": u} for n, u in _COLUMNS],
            "rows": [
                [
                    self.keys.form,
                    result.metric.value if result.metric else None,
                    result.answer[0]["count"]["$numberLong"] if result.answer else None,
                    " ← ".join(plan.stages),
                    plan.keys,
                    plan.documents,
                ]
            ],
        }

    def close(self) -> None:
        """Drop the form's index, so that another form does not find it; close the connection."""
        if self._client is None:
            return
        client, self._client = self._client, None
        with client:
            if self._index is not None:
                try:
                    client[self.database][self.collection].drop_index(self._index)
                except PyMongoError as error:  # the phase may have failed because the server is gone
                    self.outcome.notes["index"] = f"{self._index} could not be dropped: {error}"


_COLUMNS = (
    ("form", ""),
    ("time", "s"),
    ("count", "documents"),
    ("plan", ""),
    ("keys examined", "keys"),
    ("documents examined", "documents"),
)

ENGINE = QueriesEngine
