from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from microshard.model.phases.mix import Operation
from microshard.workloads.datasets.copied import APPLICATION, Hashing, SourceError
from microshard.workloads.mix import values_at
from microshard.workloads.recorded import MOST, from_log
from tests.shop import NAMESPACE, log_line, orders, queries

OPEN = Hashing()


def find(wanted: Any, **more: Any) -> dict[str, Any]:
    return {"find": "orders", "filter": wanted, "lsid": {}, "$db": "shop", **more}


def aggregate(pipeline: Any) -> dict[str, Any]:
    return {"aggregate": "orders", "pipeline": pipeline, "cursor": {}, "$db": "shop"}


def written(folder: Path, *lines: str) -> Path:
    path = folder / "mongod.log"
    path.write_text("\n".join(lines))
    return path


def test_a_log_becomes_operations_with_their_shares(tmp_path: Path) -> None:
    lines = [log_line(find(wanted) if kind == "find" else aggregate(wanted)) for kind, wanted in queries(2000)]
    found = from_log(written(tmp_path, *lines), NAMESPACE, OPEN, 1)
    assert (found.queries, found.forms) == (2000, 4)
    assert sum(each["share"] for each in found.operations) == pytest.approx(1)
    assert len(found.operations) == pytest.approx(MOST, abs=3)
    of_customers = sum(each["share"] for each in found.operations if "customer.id" in each.get("filter", {}))
    assert of_customers == pytest.approx(0.6, abs=0.04)
    known = {order["_id"] for order in orders(200)}
    for each in found.operations:  # what an experiment file takes, with the values of the log
        operation = Operation.model_validate(each)
        wanted = json_util.loads(json_util.dumps(operation.filter or {}))
        assert "_id" not in wanted or wanted["_id"] in known
    assert from_log(tmp_path / "mongod.log", NAMESPACE, OPEN, 1).operations == found.operations


def test_what_is_no_read_of_the_collection_is_left_out_and_said(tmp_path: Path) -> None:
    lines = [
        '{"id": 20883, "msg": "Interrupted operation"}',
        log_line(find({"a": 1}, sort={"b": -1}, limit=3, projection={"a": 1})),
        log_line(find({"a": 2}), namespace="shop.other"),
        log_line({"count": "orders", "query": {"a": 3}}),
        log_line(find({}), app=APPLICATION),
        log_line({"getMore": 7, "collection": "orders"}),
        log_line({"q": {"a": 1}, "u": {"$set": {"b": 1}}, "multi": False}),
        log_line(aggregate([{"$match": {}}, {"$out": "copy"}])),
        log_line(find({"a": 9}), truncated={"command": {}}),
    ]
    found = from_log(written(tmp_path, *lines), NAMESPACE, OPEN, 1)
    assert [{k: v for k, v in each.items() if k != "share"} for each in found.operations] == [
        {"filter": {"a": 1}, "sort": {"b": -1}, "limit": 3, "projection": {"a": 1}},
        {"pipeline": [{"$match": {"a": 3}}, {"$count": "count"}]},
    ]
    for words in ("1 getMore", "1 q commands", "1 aggregations that write", "1 too long for the log"):
        assert words in found.summary()


def test_queries_of_a_hashed_field_are_hashed_alike(tmp_path: Path) -> None:
    hashing = Hashing(frozenset({"mail"}))
    found = from_log(written(tmp_path, log_line(find({"mail": "a@b"}))), NAMESPACE, hashing, 1)
    assert found.operations[0]["filter"] == {"mail": hashing.leaves("a@b")}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("2019-03-01T10:00:00.000+0000 I COMMAND [conn1] command shop.orders command: find", "JSON from 4.4 on"),
        (log_line(find({"a": 1}))[:-30], ":1: a damaged line"),
        (log_line(find({"a": "###"})), "is redacted"),
        (log_line(find({"a": 1}), namespace="shop.other"), "no read of shop.orders"),
        ("", "no read of shop.orders"),
    ],
)
def test_a_log_that_gives_nothing_is_a_sentence(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        from_log(written(tmp_path, line), NAMESPACE, OPEN, 1)


def test_a_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        from_log(tmp_path / "none.log", NAMESPACE, OPEN, 1)


@pytest.mark.parametrize(
    ("path", "expected"), [("a", [1]), ("b.c", [2]), ("d.e", [3, 4]), ("f", [5, 6]), ("x", []), ("a.b", [])]
)
def test_placeholders_take_the_values_of_a_field(path: str, expected: list[int]) -> None:
    document = {"a": 1, "b": {"c": 2}, "d": [{"e": 3}, {"e": 4}, {}], "f": [5, 6]}
    assert values_at(document, path.split(".")) == expected
