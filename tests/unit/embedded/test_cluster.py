"""Which queries fix a shard key, and retries after a routing change."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from bson import Regex

from microshard.embedded.cluster import Cluster, shard_key_of
from microshard.embedded.errors import CommandError, ErrorCode
from microshard.embedded.mongod_connections import ReplicaSetClient


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ({"a": 1, "b": "x", "c": 2}, {"a": 1, "b": "x"}),
        ({"b": {"$eq": "x"}, "a": None}, {"a": None, "b": "x"}),
        ({"$and": [{"a": 1}, {"$and": [{"b": 2}]}]}, {"a": 1, "b": 2}),
        ({"a": {"sub": 1}, "b": {}}, {"a": {"sub": 1}, "b": {}}),
        ({"a": 1}, None),
        ({"a": 1, "b": {"$gt": 2}}, None),
        ({"a": 1, "b": {"$in": [2]}}, {"a": 1, "b": 2}),
        ({"a": 1, "b": {"$in": [2, 3]}}, None),
        ({"a": 1, "b": {"$in": [Regex("x")]}}, None),
        ({"a": 1, "b": [2]}, None),
        ({"a": 1, "b": Regex("x")}, None),
        ({"$or": [{"a": 1, "b": 2}]}, {"a": 1, "b": 2}),
        ({"$or": [{"a": 1, "b": 2}, {"a": 1, "b": 3}]}, None),
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


def _attempts(error: CommandError, failures: int) -> tuple[str, list[Any]]:
    """The result of a command that fails so often, and what the router mongod ran meanwhile."""
    ran: list[Any] = []
    left = iter([error] * failures)

    async def call(_database: str, command: Any) -> None:
        ran.append(command)

    async def attempt() -> str:
        if failure := next(left, None):
            raise failure
        return "done"

    router: Any = SimpleNamespace(pool=SimpleNamespace(call=call))
    return asyncio.run(Cluster(ReplicaSetClient("cfg/127.0.0.1:1"), router).retrying(attempt)), ran


def test_a_command_with_old_routing_runs_again_after_the_routing_was_read() -> None:
    stale = CommandError.from_reply({"ok": 0.0, "code": 13388, "errmsg": "stale", "ns": "a.b"})
    assert _attempts(stale, 2) == ("done", [{"flushRouterConfig": "a.b"}] * 2)
    with pytest.raises(CommandError, match="dropped"):
        _attempts(CommandError(ErrorCode.NamespaceNotFound, "dropped"), 1)
