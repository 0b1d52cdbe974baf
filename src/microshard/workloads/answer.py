"""A query's answer in a form in which equal answers are equal texts, whatever the topology they came from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from bson import json_util
from bson.decimal128 import Decimal128
from bson.int64 import Int64


def _normal(value: Any) -> Any:
    """Whole numbers become 64-bit integers where they fit; everything else is left as it is.

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
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(item) for item in value]
    return value


def canonical(documents: list[Any]) -> list[Any]:
    """Documents as canonical extended JSON; the order of documents and of fields is kept."""
    text = json_util.dumps(_normal(documents), json_options=json_util.CANONICAL_JSON_OPTIONS)
    found: list[Any] = json.loads(text)
    return found


def sha256(answer: list[Any]) -> str:
    """The hash of a canonical answer."""
    return hashlib.sha256(json.dumps(answer, separators=(",", ":"), ensure_ascii=True).encode()).hexdigest()
