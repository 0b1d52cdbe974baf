"""The engine `mix`: finds and aggregations in their shares, for a time, in a closed loop or at a rate."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bson import CodecOptions, json_util
from bson.raw_bson import RawBSONDocument
from pymongo.errors import ExecutionTimeout, PyMongoError

from microshard.model.phases.mix import FROM_DATA, MixPhase, Operation
from microshard.model.result import Column, Table
from microshard.workloads import pacing
from microshard.workloads.base import Engine, PhaseError, collection_of
from microshard.workloads.recorded import form_of
from microshard.workloads.servers import run_in_threads

COLUMNS = Column.several("operation; share, %; done; mean, ms")
DRAWN = 1000  # documents whose values placeholders take
_SHOWN, _MOST_ROWS = 120, 20


@dataclass(slots=True)
class _Connection:
    """What one client has done."""

    latency: dict[str, pacing.PacedLatency] = field(
        default_factory=lambda: {kind: pacing.PacedLatency() for kind in ("FIND", "AGGREGATE")}
    )
    seconds: dict[str, list[float]] = field(default_factory=dict)  # of each operation, by form
    lasted: float = 0.0  # s, from the start to the end of its last operation


class MixEngine(Engine[MixPhase]):
    """Runs the operations by threads; every document of an answer is fetched."""

    keys_model = MixPhase

    def prepare(self) -> None:
        """Draw the values of placeholders. Raises PhaseError for an empty collection, or a field no document has."""
        keys = self.keys
        self.client = self.opened(self.context.connect(maxPoolSize=keys.connections))
        options: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
        self.collection = collection_of(self.client, keys.namespace).with_options(options)
        self.operations = [(each, _form(each), json_util.loads(_text(each))) for each in keys.operations]
        self.weights = [each.share for each in keys.operations]
        if self.collection.find_one({}, {"_id": 1}) is None:
            raise PhaseError("NoDocuments", f"{keys.namespace} is empty: there is nothing to query")
        fields = sorted({found for _, _, given in self.operations for found in _placeholders(given)})
        self.values: dict[str, list[Any]] = {name: [] for name in fields}
        for document in (
            collection_of(self.client, keys.namespace).aggregate([{"$sample": {"size": DRAWN}}]) if fields else ()
        ):
            for name in fields:
                self.values[name] += values_at(document, name.split("."))
        if missing := [name for name, values in self.values.items() if not values]:
            raise PhaseError("NoValues", f"{FROM_DATA}: no document of {keys.namespace} has {', '.join(missing)}")

    def run(self) -> None:
        """Settle, then measure. Raises PhaseError for an operation that fails or takes too long."""
        keys, result = self.keys, self.outcome
        if keys.settle_seconds:
            self._all(keys.settle_seconds, "settle")
        with self.measured():
            began = time.monotonic()
            done = self._all(keys.seconds_long, "measure")
            lasted = time.monotonic() - began
        latency = {kind: pacing.merged(each.latency[kind] for each in done) for kind in ("FIND", "AGGREGATE")}
        whole = pacing.merged(latency.values())
        count = whole.sent.get_total_count()
        result.counters = {"operations": count, "errors": 0}
        pacing.report(result, latency, {"ALL": keys.schedule(keys.rate)}, lasted)
        tail = (whole.intended if keys.rate else whole.sent).get_value_at_percentile(99) / 1000
        if not keys.rate:
            # By connection, to the end of its last operation: else one that ends late would count as idle time.
            rate = sum(sum(map(len, each.seconds.values())) / each.lasted for each in done if each.lasted)
            self.set_metric("throughput", "operations/s", rate, "higher")
            self.add_figure("p99 latency", "ms", tail, "lower")
        else:
            self.set_metric("p99 latency", "ms", tail, "lower")
        result.table = Table(COLUMNS, list(self._rows(done))[:_MOST_ROWS])

    def _all(self, seconds: float, purpose: str) -> list[_Connection]:
        connections = range(self.keys.connections)
        return run_in_threads([partial(self._connection, n, seconds, purpose) for n in connections])

    def _connection(self, number: int, seconds: float, purpose: str) -> _Connection:
        """One client, for its time."""
        keys, done = self.keys, _Connection()
        rng = random.Random(f"{keys.seed}-{purpose}-{number}")  # noqa: S311 - no secret
        pacer = pacing.Pacer(keys.schedule(keys.rate), number, keys.connections)
        began = pacer.begin(seconds)
        while (intended := pacer.wait()) is not None:
            operation, form, given = rng.choices(self.operations, self.weights)[0]
            sent = time.monotonic()
            self._execute(operation, form, self._filled(given, rng))
            ended = time.monotonic()
            done.latency["AGGREGATE" if operation.filter is None else "FIND"].record(intended, sent, ended)
            done.seconds.setdefault(form, []).append(ended - sent)
            done.lasted = ended - began
            if number == 0 and purpose == "measure":
                self.report_progress(min(done.lasted, seconds), seconds, "s")
        now = time.monotonic()
        done.latency["FIND"].finish(now, pacer.unsent(began + seconds))
        done.latency["AGGREGATE"].finish(now)
        return done

    def _execute(self, operation: Operation, form: str, given: dict[str, Any]) -> None:
        limit = int(self.keys.max_operation_seconds * 1000)
        try:
            if operation.filter is None:
                cursor: Any = self.collection.aggregate(given["pipeline"], maxTimeMS=limit)
            else:
                sort = list(given["sort"].items()) if given.get("sort") else None
                cursor = self.collection.find(
                    given["filter"], given.get("projection"), sort=sort, limit=operation.limit, max_time_ms=limit
                )
            for _ in cursor:
                pass
        except ExecutionTimeout:
            longest = f"{self.keys.max_operation_seconds:g} s (max_operation_seconds)"
            raise PhaseError("TooLate", f"an operation took longer than {longest}: {form[:_SHOWN]}") from None
        except PyMongoError as error:
            raise PhaseError(type(error).__name__, f"{error}: {form[:_SHOWN]}") from None

    def _filled(self, value: Any, rng: random.Random) -> Any:
        """A value with its placeholders replaced."""
        if isinstance(value, dict):
            if FROM_DATA in value:
                return rng.choice(self.values[value[FROM_DATA]])
            return {name: self._filled(item, rng) for name, item in value.items()}
        return [self._filled(item, rng) for item in value] if isinstance(value, list) else value

    def _rows(self, done: list[_Connection]) -> Iterator[list[Any]]:
        """By form, the most frequent first."""
        shares: dict[str, float] = {}
        for operation, form, _ in self.operations:
            shares[form] = shares.get(form, 0.0) + operation.share
        for form, share in sorted(shares.items(), key=lambda each: -each[1]):
            times = [seconds for each in done for seconds in each.seconds.get(form, ())]
            mean = round(sum(times) / len(times) * 1000, 3) if times else None
            yield [form[:_SHOWN], round(share / sum(self.weights) * 100, 1), len(times), mean]


def _text(operation: Operation) -> str:
    return json.dumps(operation.model_dump(mode="json", exclude={"share", "limit"}, exclude_none=True))


def _form(operation: Operation) -> str:
    """An operation without its values, for people."""
    return json.dumps(form_of(json.loads(_text(operation)))).replace('"', "")


def _placeholders(value: Any) -> Iterator[str]:
    """The fields of all placeholders in an operation. Raises PhaseError for one that names none."""
    if isinstance(value, dict) and FROM_DATA in value:
        if not isinstance(value[FROM_DATA], str) or len(value) > 1:
            raise PhaseError("BadPlaceholder", f"{{{FROM_DATA}: FIELD}} is needed, not {value}")
        yield value[FROM_DATA]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _placeholders(item)


def values_at(value: Any, path: list[str]) -> list[Any]:
    """The values a document has at a field; each element of an array has its own."""
    if isinstance(value, list):
        return [found for item in value for found in values_at(item, path)]
    if not path:
        return [value]
    return values_at(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else []


ENGINE = MixEngine
