"""Which queries fix a shard key."""

from typing import Any

import pytest
from bson import Regex

from microshard.embedded.cluster import shard_key_of


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ({"a": 1, "b": "x", "c": 2}, {"a": 1, "b": "x"}),
        ({"b": {"$eq": "x"}, "a": None}, {"a": None, "b": "x"}),
        ({"$and": [{"a": 1}, {"$and": [{"b": 2}]}]}, {"a": 1, "b": 2}),
        ({"a": {"sub": 1}, "b": {}}, {"a": {"sub": 1}, "b": {}}),
        ({"a": 1}, None),
        ({"a": 1, "b": {"$gt": 2}}, None),
        ({"a": 1, "b": {"$in": [2]}}, None),
        ({"a": 1, "b": [2]}, None),
        ({"a": 1, "b": Regex("x")}, None),
        ({"$or": [{"a": 1, "b": 2}]}, None),
    ],
)
def test_only_equality_on_every_field_fixes_the_key(query: dict[str, Any], key: dict[str, Any] | None) -> None:
    assert shard_key_of({"a": 1, "b": 1}, query) == key


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ({"a.b": 1}, {"a.b": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a.b": 1}),
        ({"a": {"c": 2}}, None),
        ({"a": {"$exists": True}}, None),
    ],
)
def test_a_nested_key_is_found_in_both_notations(query: dict[str, Any], key: dict[str, Any] | None) -> None:
    assert shard_key_of({"a.b": "hashed"}, query) == key


def test_a_collation_of_its_own_fixes_numbers_only() -> None:
    french = {"locale": "fr"}
    assert shard_key_of({"a": 1}, {"a": "x"}, french) is None
    assert shard_key_of({"a": 1}, {"a": "x"}, {"locale": "simple"}) == {"a": "x"}
    assert shard_key_of({"a": 1}, {"a": 5}, french) == {"a": 5}
