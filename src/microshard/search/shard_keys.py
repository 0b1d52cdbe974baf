"""Candidates of a shard key, judged by counting: which would leave shards idle, and which queries they target.

MongoDB 7.0 has `analyzeShardKey`; this counts the same on a copy of the data, whatever server it came from. Keys are
hashed, so that ascending values spread and chunks can be placed before the data is there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_VALUES_PER_SHARD = 4  # fewer, and shards differ by whole values
_MOST_OF_A_SHARE = 1.2  # documents with the most frequent value, over a shard's equal share


@dataclass(frozen=True, slots=True)
class KeyCandidate:
    """A field as a hashed shard key, for so many shards."""

    field: str
    distinct: int  # values
    most_frequent: float  # share of the documents that have the most frequent value
    targeted: float | None  # share of the queries that go to one shard; None without queries
    hopeless: str = ""  # why it cannot be a shard key of so many shards

    def sentence(self) -> str:
        """What was counted."""
        text = f"{self.field}: {self.distinct:,} values, the most frequent in {self.most_frequent:.2%} of the documents"
        if self.targeted is not None:
            text += f", {self.targeted:.0%} of the queries go to one shard"
        return text + (f"; dropped: {self.hopeless}" if self.hopeless else "")


def candidate(
    field: str, documents: Iterable[Mapping[str, Any]], operations: Sequence[Mapping[str, Any]], shards: int
) -> KeyCandidate:
    """Judge a field (dotted) by documents and by the operations of a mix."""
    counts: Counter[str] = Counter()
    array = False
    for document in documents:
        value: Any = document
        for part in field.split("."):
            array |= isinstance(value, list)
            value = value.get(part) if isinstance(value, Mapping) else None
        array |= isinstance(value, list)
        counts[repr(value)] += 1  # a missing field counts as null
    total, distinct = counts.total(), len(counts)
    share = counts.most_common(1)[0][1] / total if total else 1.0
    hopeless = ""
    if array:
        hopeless = "it holds arrays, and a shard key may not"
    elif distinct < _VALUES_PER_SHARD * shards:
        hopeless = f"{distinct:,} values do not spread over {shards} shards"
    elif share * shards > _MOST_OF_A_SHARE:
        hopeless = f"the shard with its most frequent value would have {share * shards:.1f} times its share of {shards}"
    return KeyCandidate(field, distinct, share, _targeted(field, operations), hopeless)


def ranked(candidates: Iterable[KeyCandidate]) -> list[KeyCandidate]:
    """Those that are not hopeless: the one that targets most queries first, of equals the more even one."""
    fit = [each for each in candidates if not each.hopeless]
    return sorted(fit, key=lambda each: (-(each.targeted or 0.0), each.most_frequent, each.field))


def _targeted(field: str, operations: Sequence[Mapping[str, Any]]) -> float | None:
    if not operations:
        return None
    whole: float = sum(each.get("share", 1.0) for each in operations)
    wanted: float = sum(each.get("share", 1.0) for each in operations if _filters_by(field, _filter_of(each)))
    return wanted / whole


def _filter_of(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an operation asks for: its filter, or the `$match` its pipeline begins with."""
    pipeline = operation.get("pipeline")
    found = pipeline[0].get("$match", {}) if pipeline else operation.get("filter")
    return found if isinstance(found, Mapping) else {}


def _filters_by(field: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a filter needs one value of the field: an equality, alone or in `$and`."""
    if any(_filters_by(field, part) for part in wanted.get("$and", [])):
        return True
    if field not in wanted:
        return False
    value = wanted[field]
    operators = [name for name in value if name.startswith("$")] if isinstance(value, Mapping) else []
    return not operators or operators[0] in {
        "$eq",
        "$from_data",
        "$oid",
        "$date",
        "$numberLong",
        "$numberDecimal",
        "$uuid",
    }
