"""What an `explain` says, whatever its shape: of a count or an aggregation, classic or SBE, of one or many shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Explained:
    """The stages from the last to the first (names of the server), and what was examined in all."""

    stages: tuple[str, ...]
    keys: int
    documents: int


def explained(reply: Mapping[str, Any]) -> Explained:
    """The plan in a reply of `explain` with verbosity executionStats."""
    after = [name for name in _pipeline_stages(reply) if name != "$cursor"]
    plans = [tuple(_stages(plan)) for plan in _all(reply, "winningPlan")]
    # Every shard has a plan of its own; they are told once where they are the same.
    names = list(reversed(list(dict.fromkeys(after)))) + list(dict.fromkeys(name for plan in plans for name in plan))
    statistics = list(_all(reply, "executionStats"))
    return Explained(
        tuple(names),
        sum(int(s.get("totalKeysExamined", 0)) for s in statistics),
        sum(int(s.get("totalDocsExamined", 0)) for s in statistics),
    )


def _all(value: Any, key: str) -> Iterator[Mapping[str, Any]]:
    """Every mapping under this key; what lies inside of one is part of it."""
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
    """Names of the aggregation's own stages, as far as they were not pushed down into the query."""
    if isinstance(reply, Mapping):
        for stage in reply.get("stages", []):
            yield next((name for name in stage if name.startswith("$")), "?")
        for shard in (reply.get("shards") or {}).values() if isinstance(reply.get("shards"), Mapping) else ():
            yield from _pipeline_stages(shard)
