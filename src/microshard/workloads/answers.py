"""Answers and plans of queries in a form that can be compared, whatever topology and server version they came from."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bson import json_util
from bson.decimal128 import Decimal128
from bson.int64 import Int64


def canonical(documents: list[Any]) -> list[Any]:
    """Documents as canonical extended JSON; the order of documents and of fields is kept."""
    text = json_util.dumps(_normalized(documents), json_options=json_util.CANONICAL_JSON_OPTIONS)
    found: list[Any] = json.loads(text)
    return found


def _normalized(value: Any) -> Any:
    """Whole numbers as 64-bit integers where they fit; everything else unchanged.

    A sum is an int32, an int64 or a double depending on which shard's part came first, and a group's `_id` 3 may
    come as 3.0 when another shard saw it first. MongoDB calls these equal, so must we.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        whole = number.is_finite() and number == number.to_integral_value()
        return Int64(int(number)) if whole and abs(number) < 2**63 else value
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**63):
        return Int64(int(value))
    if isinstance(value, Mapping):
        return {key: _normalized(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalized(item) for item in value]
    return value


def sha256(answer: list[Any]) -> str:
    """The hash of a canonical answer."""
    return hashlib.sha256(json.dumps(answer, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The stages of a query from the last to the first (the server's names), and what all shards examined."""

    stages: tuple[str, ...]
    keys: int
    documents: int


def query_plan(reply: Mapping[str, Any]) -> QueryPlan:
    """The plan in a reply of `explain` with executionStats: of a count or an aggregation, classic or SBE."""
    after = [name for name in _pipeline_stages(reply) if name != "$cursor"]
    plans = [tuple(_stages(plan)) for plan in _all(reply, "winningPlan")]
    # Every shard has a plan; stages that several of them share are listed once.
    names = list(reversed(list(dict.fromkeys(after)))) + list(dict.fromkeys(name for plan in plans for name in plan))
    statistics = list(_all(reply, "executionStats"))
    return QueryPlan(
        tuple(names),
        sum(int(s.get("totalKeysExamined", 0)) for s in statistics),
        sum(int(s.get("totalDocsExamined", 0)) for s in statistics),
    )


def _all(value: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Every mapping under this key; what is inside of one is part of it."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == key and isinstance(item, Mapping):
                yield item
            elif name != "command":
                yield from _all(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _all(item, key)


def _stages(plan: Any) -> Iterator[str]:
    """The names of a plan's stages, the last one first. SBE keeps the readable plan under queryPlan."""
    if isinstance(plan, list):
        for item in plan:
            yield from _stages(item)
    elif isinstance(plan, Mapping):
        if isinstance(plan.get("queryPlan"), Mapping):
            yield from _stages(plan["queryPlan"])
            return
        if isinstance(plan.get("stage"), str):
            yield plan["stage"]
        for key in ("inputStage", "inputStages", "shards", "winningPlan"):
            yield from _stages(plan.get(key))


def _pipeline_stages(reply: Any) -> Iterator[str]:
    """Names of the aggregation stages that were not pushed down into the query."""
    if isinstance(reply, Mapping):
        for stage in reply.get("stages", []):
            yield next((name for name in stage if name.startswith("$")), "?")
        for shard in (reply.get("shards") or {}).values() if isinstance(reply.get("shards"), Mapping) else ():
            yield from _pipeline_stages(shard)
