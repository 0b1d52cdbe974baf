"""The engine `queries`: how many documents? The same question in several forms, with the plan of each."""

import statistics
import time
from typing import Any

from pymongo.errors import PyMongoError

from microshard.model.phases.queries import QueriesPhase
from microshard.model.result import Column, Metric, Table
from microshard.workloads import answers
from microshard.workloads.base import Engine, PhaseError, collection_of
from microshard.workloads.connections import Client

COLUMNS = Column.several("form; time, s; count, documents; plan; keys examined, keys; documents examined, documents")


class QueriesEngine(Engine[QueriesPhase]):
    """Counts documents by the chosen form."""

    keys_model = QueriesPhase
    client: Client

    def prepare(self) -> None:
        """Create the form's index. Raises PhaseError for an empty collection."""
        self.client = self.opened(self.context.connect())
        self.form = self.keys.forms[self.keys.form]
        collection = collection_of(self.client, self.keys.namespace)
        if collection.find_one({}, {"_id": 1}) is None:
            raise PhaseError("NoDocuments", f"{self.keys.namespace} is empty: there is nothing to count")
        if self.form.index:
            index = collection.create_index(list(self.form.index.items()))
            self.on_close(lambda: self._drop(index))

    def run(self) -> None:
        """Warm up, measure, explain. Raises PhaseError when two queries count differently."""
        keys, result = self.keys, self.outcome
        for _ in range(keys.warm_up_iterations):
            self._count()
        counts = set()
        with self.measured():
            for done in range(1, keys.iterations + 1):
                began = time.perf_counter()
                counts.add(self._count())
                result.samples.append(time.perf_counter() - began)
                self.report_progress(done, keys.iterations, "queries", f"{result.samples[-1]:.3f} s")
        if len(counts) > 1:
            raise PhaseError("AnswersDiffer", f"{keys.form} counted {' and '.join(map(str, sorted(counts)))}")
        count, median = counts.pop(), statistics.median(result.samples)
        result.answer = answers.canonical([{"count": count}])
        result.answer_sha256 = answers.sha256(result.answer)
        result.metric = Metric("query time", "s", median, "lower")
        result.notes["form"] = f"{keys.form}: {self.form.asks}"
        plan = self._plan()
        stages = " ← ".join(plan.stages)
        result.notes["plan"] = stages
        result.counters = {
            "queries": len(result.samples),
            "errors": 0,
            "keys_examined": plan.keys,
            "documents_examined": plan.documents,
        }
        self.add_figure("keys examined", "keys", plan.keys, "lower")
        self.add_figure("documents examined", "documents", plan.documents, "lower")
        result.table = Table(COLUMNS, [[keys.form, median, str(count), stages, plan.keys, plan.documents]])

    def _count(self) -> int:
        """Run the query once."""
        collection = collection_of(self.client, self.keys.namespace)
        if self.form.filter is not None:
            return int(collection.database.command("count", collection.name, query=self.form.filter)["n"])
        found = list(collection.aggregate(self.form.pipeline or []))
        if len(found) > 1 or (found and not isinstance(found[0].get("count"), int | float)):
            raise PhaseError("NoCount", f"{self.keys.form} must end in one document with the number `count`")
        return int(found[0]["count"]) if found else 0

    def _plan(self) -> answers.QueryPlan:
        """The plan with what it examined: one more run of the query, outside the measured time."""
        collection = collection_of(self.client, self.keys.namespace)
        if self.form.filter is not None:
            command: dict[str, Any] = {"count": collection.name, "query": self.form.filter}
        else:
            command = {"aggregate": collection.name, "pipeline": self.form.pipeline, "cursor": {}}
        return answers.query_plan(collection.database.command({"explain": command, "verbosity": "executionStats"}))

    def _drop(self, index: str) -> None:
        """Drop the form's index, so that another form does not use it."""
        try:
            collection_of(self.client, self.keys.namespace).drop_index(index)
        except PyMongoError as error:  # the phase may have failed because the server is gone
            self.outcome.notes["index"] = f"{index} could not be dropped: {error}"


ENGINE = QueriesEngine
