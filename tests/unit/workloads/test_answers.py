"""Answers: equal to MongoDB means equal to us; different stays different."""

from decimal import Decimal
from typing import Any

import pytest
from bson import Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from microshard.workloads.answers import canonical, sha256


@pytest.mark.parametrize("three", [3, 3.0, Int64(3), Decimal128("3"), Decimal128("3.0")])
def test_a_whole_number_is_the_same_in_every_type(three: Any) -> None:
    assert canonical([{"_id": three, "in": [three]}]) == [{"_id": {"$numberLong": "3"}, "in": [{"$numberLong": "3"}]}]


@given(st.integers(-(2**53), 2**53))
def test_a_sum_that_came_as_a_double_is_the_integer(number: int) -> None:
    assert canonical([float(number)]) == canonical([number])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, {"a": True}),
        ({"a": 1.5}, {"a": 1}),
        ({"a": 2**53}, {"a": 2**53 + 1}),
        ({"a": None}, {}),
        ({"a": "1"}, {"a": 1}),
        ({"a": Decimal128("1.5")}, {"a": 1.5}),
    ],
)
def test_what_differs_stays_different(one: Any, other: Any) -> None:
    assert sha256(canonical([one])) != sha256(canonical([other]))


def test_the_order_of_documents_counts() -> None:
    assert sha256(canonical([{"a": 1}, {"a": 2}])) != sha256(canonical([{"a": 2}, {"a": 1}]))


def test_numbers_that_are_no_64_bit_integers_stay_as_they_are() -> None:
    assert canonical([1e300, float("inf"), Decimal128(Decimal("1e40"))]) == [
        {"$numberDouble": "1e+300"},
        {"$numberDouble": "Infinity"},
        {"$numberDecimal": "1E+40"},
    ]
