from typing import Any

import pytest

from microshard.search.shard_keys import candidate, ranked
from tests.shop import orders

ORDERS = orders(1000)
QUERIES = [
    {"filter": {"customer.id": 3}, "share": 6.0},
    {"filter": {"$and": [{"_id": {"$eq": 5}}, {"total": {"$gt": 3}}]}, "share": 2.0},
    {"pipeline": [{"$match": {"state": "paid"}}], "share": 1.0},
    {"filter": {"_id": {"$gt": 5}}, "share": 1.0},
]


@pytest.mark.parametrize(
    ("field", "shards", "why"),
    [
        ("state", 4, "4 values do not spread over 4 shards"),
        ("state", 1, ""),
        ("items.sku", 2, "it holds arrays"),
        ("items", 2, "it holds arrays"),
        ("customer.id", 2, ""),
        ("customer.id", 8, "times its share of 8"),  # a few customers order often
        ("nothing", 2, "1 values do not spread"),
        ("_id", 64, ""),
    ],
)
def test_candidates_that_leave_shards_idle_are_dropped_with_the_reason(field: str, shards: int, why: str) -> None:
    found = candidate(field, ORDERS, QUERIES, shards)
    assert why in found.hopeless
    assert bool(found.hopeless) is bool(why)
    assert field in found.sentence()


def test_the_one_that_targets_most_queries_is_first() -> None:
    found: list[Any] = [candidate(field, ORDERS, QUERIES, 2) for field in ("_id", "total", "customer.id", "state")]
    assert [each.field for each in ranked(found)] == ["customer.id", "_id", "total"]
    assert [each.targeted for each in found] == [0.2, 0.0, 0.6, 0.1]
    assert candidate("_id", ORDERS, [], 2).targeted is None
