"""Which shard a message goes to, and which messages have to go through the router mongod."""

import asyncio
import itertools
import random
from typing import Any, cast

import bson
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from microshard.embedded import wire
from microshard.embedded.cluster import Cluster
from microshard.embedded.mongod_connections import ReplicaSetClient
from microshard.embedded.router_mongod import RouterMongod
from microshard.embedded.targeting import Target, Targeting, make_route
from tests.faults.two_ways import operation

A, B = "shard0", "shard1"
NODES = {name: ReplicaSetClient(f"{name}/127.0.0.1:1") for name in (A, B)}


def _table(key: dict[str, Any], *bounds: Any) -> dict[str, Any]:
    """A document of config.collections with its chunks: shard0 and shard1 in turn, between these bounds."""
    ends = [dict.fromkeys(key, MinKey()), *bounds, dict.fromkeys(key, MaxKey())]
    chunks = [
        {"min": low, "max": high, "shard": (A, B)[n % 2], "lastmod": Timestamp(n + 1, n)}
        for n, (low, high) in enumerate(itertools.pairwise(ends))
    ]
    document = {"key": key, "lastmodEpoch": ObjectId(), "timestamp": Timestamp(5, 1), "chunks": chunks}
    return dict(bson.decode(bson.encode(document), wire.RAW))


def _targeting(key: dict[str, Any], *bounds: Any) -> Targeting:
    # No config server listens there, so that the table is what is given here.
    found = Targeting(Cluster(ReplicaSetClient("cfg/127.0.0.1:1"), cast(RouterMongod, None)))
    route = make_route(b"d.c", _table(key, *bounds), NODES)
    assert route is not None
    found.routes[b"d.c"] = route
    return found


def _owner(table: Targeting, command: dict[str, Any], sequence: str = "") -> str | None:
    documents = command.pop(sequence, ())
    content = sequence.encode() + b"\0" + b"".join(map(bson.encode, documents))
    sequences = b"\x01" + (4 + len(content)).to_bytes(4, "little") + content if sequence else b""
    return _owner_of(table, wire.build(bson.encode({**command, "$db": "d"}), sequences=sequences), next(iter(command)))


def _owner_of(table: Targeting, message: bytes, command: str) -> str | None:
    name_end, body_end = message.index(0, 25), 21 + int.from_bytes(message[21:25], "little")

    async def target() -> Target | None:
        if known := table.remembered(message):
            assert known[0][1:4] == (message[25:name_end], name_end, body_end)
            return known[1]
        return table.target(message, name_end, body_end, command)

    found = asyncio.run(target())
    return found.shard if found else None


def _find(query: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"find": "c", "filter": query, **options}


def _write(name: str, **statement: Any) -> dict[str, Any]:
    return {name: "c", f"{name}s": [statement]}


SET = {"$set": {"x": 1}}


@pytest.mark.parametrize(("command", "owner"), [
    (_find({"k": 4}), A), (_find({"k": 5}), B), (_find({"k": Int64(5)}), B), (_find({"k": 5.0}), B),
    (_find({"k": 4.999}), A), (_find({"k": -0.0}), A), (_find({"k": float("inf")}), B), (_find({"k": "a"}), B),
    (_find({"a": 1, "k": 4, "b": {"$gt": 1}}), A), (_find({"k": 4}, limit=1, singleBatch=True, projection={"a": 1}), A),
    (_find({"k": 4}, **{"$readPreference": {"mode": "primary"}}), A),
    ({"insert": "c", "documents": [{"_id": 1, "x": {"k": 9}, "k": 4}]}, A),
    (_write("update", q={"k": 7}, u=SET), B), (_write("update", q={"k": 7}, u=SET, multi=False, upsert=False), B),
    (_write("delete", q={"k": 7}, limit=1), B),
    ({**_write("delete", q={"k": 7}, limit=1), "writeConcern": {"w": 1}}, B),
])  # fmt: skip
def test_a_whole_shard_key_names_a_shard(command: dict[str, Any], owner: str) -> None:
    table = _targeting({"k": 1}, {"k": 5})
    assert _owner(table, command) == owner
    name = next(iter(command))
    if name != "find":
        assert _owner(table, command, {"insert": "documents"}.get(name, f"{name}s")) == owner


@pytest.mark.parametrize("command", [
    _find({}), _find({"j": 4}), _find({"k": None}), _find({"k": [4]}), _find({"k": Regex("^a")}),
    _find({"k": {"a": 1}}),
    _find({"k": {"$gt": 4}}), _find({"k": {"$in": [4]}}), _find({"k": float("nan")}), _find({"k": Decimal128("4")}),
    _find({"k": MinKey()}), _find({"k": Timestamp(4, 4)}), _find({"k.a": 4}), _find({"k": 4, "$or": [{"a": 1}]}),
    _find({"k": 4}, collation={"locale": "en"}), _find({"k": 4}, readConcern={"level": "snapshot"}),
    _find({"k": 4}, tailable=True), _find({"k": 4}, let={"a": 1}), _find({"k": 4}, apiVersion="1"),
    _find({"k": 4}, **{"$readPreference": {"mode": "secondary"}}), {"find": "c"}, {"find": "other", "filter": {"k": 4}},
    {"find": 1, "filter": {"k": 4}}, {"find": "c", "filter": 4}, {"aggregate": "c", "pipeline": []},
    {"insert": "c", "documents": [{"_id": 1}]}, {"insert": "c", "documents": [{"k": 4}, {"k": 4}]},
    {"insert": "c", "documents": []}, {"insert": "c", "documents": [4]}, {"insert": "c", "documents": [{"k": [4]}]},
    _write("update", q={"k": 4}, u=SET, upsert=True), _write("update", q={"k": 4}, u=SET, multi=True),
    _write("update", q={"k": 4}, u={"k": 7}), _write("update", q={"k": 4}, u=[SET]), _write("update", q={"k": 4}, u={}),
    _write("update", q={"k": 4}, u=SET, collation={"locale": "en"}), _write("update", q={"j": 4}, u=SET),
    _write("update", q={"k": 4}, u=SET, arrayFilters=[]), _write("delete", q={"k": 4}, limit=0),
    _write("delete", q={}, limit=1),
    {"update": "c", "updates": [{"q": {"k": 4}, "u": SET}] * 2},
    {**_write("delete", q={"k": 4}, limit=1), "writeConcern": {"w": 0}},
])  # fmt: skip
def test_everything_else_goes_through_the_router_mongod(command: dict[str, Any]) -> None:
    assert _owner(_targeting({"k": 1}, {"k": 5}), command) is None


def test_a_field_that_occurs_twice_names_no_shard() -> None:
    once = bson.encode({"k": 4})
    twice = (len(once) * 2 - 5).to_bytes(4, "little") + once[4:-1] * 2 + b"\0"
    command = {"find": "c", "filter": RawBSONDocument(twice)}
    assert _owner(_targeting({"k": 1}, {"k": 5}), command) is None


@pytest.mark.parametrize(("key", "bounds", "query", "owner"), [
    ({"a": 1, "b": 1}, [{"a": 5, "b": "m"}], {"b": "l", "a": 5}, A),
    ({"a": 1, "b": 1}, [{"a": 5, "b": "m"}], {"b": "m", "a": 5}, B),
    ({"a": 1, "b": 1}, [{"a": 5, "b": MinKey()}], {"b": False, "a": 5}, B),
    ({"a": 1, "b": 1}, [{"a": 5, "b": "m"}], {"a": 5}, None),
    ({"a": 1}, [{"a": None}], {"a": -1e300}, B),
    ({"a": 1}, [{"a": ObjectId(b"m" * 12)}], {"a": ObjectId(b"l" * 12)}, A),
    ({"a": 1}, [{"a": Binary(b"zz")}], {"a": Binary(b"aaa")}, B),  # shorter binaries come first
    ({"a": 1}, [{"a": "aa"}], {"a": "a"}, A),
])  # fmt: skip
def test_values_are_ordered_as_the_server_orders_them(
    key: dict[str, Any], bounds: list[Any], query: dict[str, Any], owner: str | None
) -> None:
    assert _owner(_targeting(key, *bounds), _find(query)) == owner


def test_a_message_that_is_cut_or_garbled_is_left_to_the_router_mongod() -> None:
    """Whatever is found in it, no error."""
    table, chance = _targeting({"k": 1}, {"k": 5}), random.Random(1)

    async def garble(name: str, whole: bytes) -> None:
        for _ in range(1000):
            message = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                message[chance.randrange(25, len(message))] = chance.choice((0, 1, 5, 255, chance.randrange(256)))
            for garbled in (bytes(message), whole[: chance.randrange(26, len(whole))]):
                table.target(garbled, whole.index(0, 25), len(whole), name)

    insert = {"insert": "c", "documents": [{"k": 1}]}
    for command in (_find({"k": 4, "s": "x"}), _write("update", q={"k": 4}, u=SET), insert):
        asyncio.run(garble(next(iter(command)), wire.build(bson.encode({**command, "$db": "d"}))))


@pytest.mark.parametrize("change", [
    lambda table: table["chunks"].pop(0), lambda table: table["chunks"].pop(), lambda table: table["chunks"].pop(1),
    lambda table: table["chunks"].clear(),
])  # fmt: skip
def test_a_table_with_a_gap_is_none(change: Any) -> None:
    table = _table({"k": 1}, {"k": 5}, {"k": 6})
    change(table)
    assert make_route(b"d.c", table, NODES) is None


@pytest.mark.parametrize("bound", [{"k": Decimal128("5")}, {"j": 5}, {"k": 5, "j": 1}])
def test_a_table_with_bounds_of_unknown_order_is_none(bound: dict[str, Any]) -> None:
    assert make_route(b"d.c", _table({"k": 1}, bound), NODES) is None


def test_an_operation_carries_the_newest_version_of_its_shard() -> None:
    table = _table({"k": 1}, {"k": 5}, {"k": 6})
    route = make_route(b"d.c", table, NODES)
    assert route is not None
    element = route.owners[0].version
    carried = bson.decode((len(element) + 5).to_bytes(4, "little") + element + b"\0")
    assert carried == {"shardVersion": {"e": table["lastmodEpoch"], "t": Timestamp(5, 1), "v": Timestamp(3, 2)}}


@pytest.mark.parametrize("key", [{"k": 1}, {"k": "hashed"}, {"k": 1, "j": 1}, {"_id": "hashed"}], ids=str)
def test_what_is_remembered_of_other_messages_decides_nothing_else(key: dict[str, Any]) -> None:
    chance = random.Random(5)
    bound = {name: Int64(0) if kind == "hashed" else 1 for name, kind in key.items()}
    remembering, message, name, owners = _targeting(key, bound), b"", "", set()
    remembered = 0
    for number in range(800):
        if not message or chance.random() < 0.5:
            command = operation(chance, number % 3, key)
            name = next(iter(command))
            clock = {"$clusterTime": {"clusterTime": Timestamp(number, 1)}}
            message = wire.build(bson.encode({**command, name: "c", **clock, "$db": "d"}))
        else:  # the same with one byte changed, after the command's name
            at = chance.randrange(27 + len(name), len(message))
            message = message[:at] + bytes([chance.choice((0, 1, 2, 3, 16, 36))]) + message[at + 1 :]
        remembered += remembering.remembered(message) is not None
        owner = _owner_of(remembering, message, name)
        assert owner == _owner_of(_targeting(key, bound), message, name)
        owners.add(owner)
    assert owners == {A, B, None}
    assert remembered > 40
