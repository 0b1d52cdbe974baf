"""The embedded mongos's two ways to a shard: the same operations by each, while somebody else changes the cluster.

Two collections start equal and are changed alike. Random operations on one go through a mongos that sends point
operations straight to their shard, those on the other through a second mongos that sends everything through its router
mongod. Every answer has to be the same, and in the end the documents. That second mongos is also the somebody
else: it splits, refines, renames, drops and creates both collections anew, and the first is not informed; meanwhile a
thread moves chunks.
"""

import contextlib
import datetime
import random
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bson
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from pymongo.errors import OperationFailure

from microshard.embedded.errors import without_clocks
from microshard.embedded.sharded_cluster import Client, MongosProcess
from tests.cluster.embedded.lab import SmallCluster
from tests.faults.table import Row

DATABASE, TARGETED, ROUTED = "two_ways", "targeted", "routed"
EVERY = 40  # operations between two changes of the cluster
KEYS: tuple[dict[str, Any], ...] = (
    {"k": 1}, {"k": 1}, {"k": "hashed"}, {"k": 1, "j": 1}, {"j": 1, "k": "hashed"}, {"_id": 1}, {"_id": "hashed"},
)  # fmt: skip
_DAY = datetime.datetime(2020, 1, 1)
Document = dict[str, Any]
_NOT_SPLIT = (2, 9, 20, 72, 96)  # codes for a chunk that begins there already


def scalar(chance: random.Random) -> Any:
    """A value an equality fixes to one place; few of each type, so that most are met again."""
    return chance.choice((
        lambda: chance.randrange(-40, 40), lambda: chance.randrange(-40, 40), lambda: Int64(chance.randrange(-40, 40)),
        lambda: chance.randrange(-80, 80) / 2, lambda: chance.choice((2.0**40, -(2.0**60), float("inf"), -0.0)),
        lambda: Int64(chance.choice((2**40, -(2**60), 2**63 - 1, 2**53 + 1))),
        lambda: f"s{chance.randrange(40)}", lambda: chance.choice(("", "s\0", "ä", "S1")),
        lambda: ObjectId(bytes([chance.randrange(20)] * 12)), lambda: chance.random() < 0.5,
        lambda: _DAY + datetime.timedelta(days=chance.randrange(-20_000, 20)),
        lambda: Binary(bytes([chance.randrange(9)] * chance.randrange(5)), chance.choice((0, 4, 128))),
        lambda: Binary.from_uuid(uuid.UUID(int=chance.randrange(9))),
    ))()  # fmt: skip


def _odd(chance: random.Random) -> Any:
    """A value that has to take the way through the router mongod, or is refused."""
    return chance.choice((None, float("nan"), Decimal128(str(chance.randrange(-40, 40))), {"a": chance.randrange(9)},
                          Timestamp(chance.randrange(9), 1), MinKey(), MaxKey(), Regex("^s1"), [1, 2]))  # fmt: skip


def _value(chance: random.Random) -> Any:
    return _odd(chance) if chance.random() < 0.06 else scalar(chance)


def _identity(value: Any) -> str:
    """The same for values that compare equal, so that no two documents have one `k` and any order is no matter."""
    if isinstance(value, Decimal128):
        value = float(value.to_decimal())
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"n{value}"
    return f"{type(value).__name__} {value!r}"


def _j(value: Any) -> int:
    """What a document's `j` is: it goes with its `k`, so that both decide alike where it belongs."""
    return zlib.crc32(_identity(value).encode()) % 4


def _shuffled(chance: random.Random, document: Document) -> Document:
    return dict(chance.sample(list(document.items()), len(document)))


def _document(chance: random.Random, number: int) -> Document:
    value = _value(chance)
    document = {"_id": _identity(value), "n": number, "k": value, "j": _j(value)}
    if chance.random() < 0.02:
        document |= {"_id": f"without k {number}"}
        del document["k"]
    elif chance.random() < 0.02:
        document |= {"_id": f"without j {number}", "k": f"without j {number}"}
        del document["j"]
    return _shuffled(chance, document)


def _filter(chance: random.Random, key: Document, value: Any, *, whole: bool = False) -> Document:
    """A filter for one `k`; with `whole` it has every field of the shard key."""
    wanted: Document = {"k": value}
    if (whole and "j" in key) or chance.random() < 0.7:
        wanted["j"] = _j(value) if whole or chance.random() < 0.9 else chance.randrange(4)
    if (whole and "_id" in key) or chance.random() < (0.8 if "_id" in key else 0.2):
        wanted |= {"_id": _identity(value), "j": _j(value)}
    if chance.random() < 0.1:
        wanted |= chance.choice(({"n": {"$gte": 3}}, {"$or": [{"n": {"$gt": 5}}, {"j": 1}]}, {"k": {"$eq": value}},
                                 {"$expr": {"$gt": ["$n", 1]}}, {"missing": None},
                                 {"k": {"$in": [value]}}))  # fmt: skip
    return _shuffled(chance, wanted)


def _write_filter(chance: random.Random, key: Document) -> Document:
    """A filter that fits one document at most, or is refused.

    Not by an array or a regular expression: what they may mean is the write of one shard or, refused (61, 72), of
    several, as the chunks' owners happen to be, which nobody keeps equal.
    """
    value = _value(chance)
    while isinstance(value, (list, Regex)):
        value = _value(chance)
    q = _filter(chance, key, value, whole=True)
    if value is None:
        q |= {"_id": _identity(None), "j": _j(None)}
    elif isinstance(q["k"], dict) and "_id" not in key:
        q.pop("_id", None)
    return q


def _find(chance: random.Random, _number: int, key: Document) -> Document:
    command: Document = {"find": "", "filter": _filter(chance, key, _value(chance))}
    if chance.random() < 0.4:
        command |= chance.choice((
            {"limit": 1, "singleBatch": True, "sort": {"_id": 1}}, {"projection": {"n": 1}},
            {"sort": {"_id": 1}, "batchSize": 1}, {"skip": 1, "sort": {"_id": 1}}, {"maxTimeMS": 20_000},
            {"comment": {"filter": {"k": 1}}}, {"hint": "_id_"},
            # Not by equality: a shard leaves its filter of orphans out where the whole shard key is given, although
            # such a find goes to every shard.
            {"collation": {"locale": "en", "strength": 2}, "filter": {"k": {"$in": [_value(chance), _value(chance)]}}},
            {"readConcern": {"level": "majority"}}, {"batchSize": 0}, {"filter": {"k": {"$lte": 3}}},
            {"$readPreference": {"mode": chance.choice(("primary", "primaryPreferred", "nearest"))}},
            {"apiVersion": "1"}, {"nonsense": 1}, {"limit": "x"}, {"allowPartialResults": True}, {"let": {"a": 1}},
        ))  # fmt: skip
    return command


def _insert(chance: random.Random, number: int, _key: Document) -> Document:
    several = chance.choice((1, 1, 1, 4))
    return {"insert": "", "documents": [_document(chance, number) for _ in range(several)]}


def _update(chance: random.Random, number: int, key: Document) -> Document:
    q, other = _write_filter(chance, key), _value(chance)
    changes: list[Any] = [
        {"$inc": {"n": 1}}, {"$inc": {"n": 1}}, {"$set": {"x": other}}, {"$set": {"k": q["k"]}},
        {"$set": {"j": _j(q["k"])}},
        {"n": number, "k": q["k"], "j": _j(q["k"])}, [{"$set": {"p": number}}], {"$set": {"n": 1}, "$nonsense": {}},
        {"$push": {"list": other}}, {"$rename": {"n": "m"}},
    ]  # fmt: skip
    if "k" in key:  # which then must not change
        changes += [{"$set": {"k": other}}, {"$unset": {"k": 1}}, {}, {"$inc": {"k": 1}}]
    change = chance.choice(changes)
    statement: Document = {"q": q, "u": change}
    if chance.random() < 0.3:
        statement |= chance.choice(({"multi": False}, {"upsert": False}, {"hint": {"_id": 1}}, {"nonsense": 1},
                                    {"collation": {"locale": "simple"}}))  # fmt: skip
    elif chance.random() < 0.1 and not isinstance(q["k"], dict) and change in changes[:3]:
        # Whether an upsert may change the shard key depends on which shards own both values.
        q |= {"_id": _identity(q["k"]), "j": _j(q["k"])}
        statement["upsert"] = True
    elif chance.random() < 0.1 and _is_one_place(q, key):
        statement["multi"] = True
    return {"update": "", "updates": [statement]}


def _is_one_place(q: Document, key: Document) -> bool:
    """Whether the filter fixes the whole shard key: what several shards do at a time may meet a document twice."""
    return "k" in key and "j" in q and not isinstance(q["k"], dict)


def _delete(chance: random.Random, _number: int, key: Document) -> Document:
    q = _write_filter(chance, key)
    return {"delete": "", "deletes": [{"q": q, "limit": 0 if _is_one_place(q, key) and chance.random() < 0.3 else 1}]}


_OPERATIONS: tuple[Callable[[random.Random, int, Document], Document], ...] = (
    _find, _find, _find, _insert, _insert, _update, _update, _delete,
)  # fmt: skip


def operation(chance: random.Random, number: int, key: Document) -> Document:
    """A random command for collections with this shard key; the name of the collection is still empty."""
    command = chance.choice(_OPERATIONS)(chance, number, key)
    if "find" not in command and chance.random() < 0.2:
        command |= chance.choice(({"writeConcern": {"w": 1}}, {"ordered": False}, {"writeConcern": {"w": "majority"}},
                                  {"writeConcern": {"w": 0}}, {"bypassDocumentValidation": True},
                                  {"comment": "x"}))  # fmt: skip
    return command


def answer(client: Client, collection: str, command: Document, words: list[str]) -> Any:
    """The answer to a command, without what may differ: clocks, words of an error, the order of several documents.

    `words` gets those of errors.
    """
    name = next(iter(command))
    database = client[DATABASE]
    try:
        reply = without_clocks(database.command({**command, name: collection}, check=False))
        found = reply.get("cursor")
        if found is not None:
            documents = found["firstBatch"]
            while found["id"]:
                found = database.command({"getMore": found["id"], "collection": collection})["cursor"]
                documents += found["nextBatch"]
            return documents if "sort" in command else sorted(documents, key=repr)
    except OperationFailure as error:
        words.append(str(error))
        return "getMore", error.code
    if not reply["ok"]:
        words.append(reply.get("errmsg", ""))
        return "not ok", reply.get("code")
    words += (error.get("errmsg", "") for error in reply.get("writeErrors", ()))
    reply.pop("electionId", None)
    errors = [(error["index"], error["code"], error.get("keyValue")) for error in reply.pop("writeErrors", ())]
    return sorted(reply.items(), key=repr), errors


class SomebodyElse:
    """Changes both collections alike through the second mongos, and moves chunks of both all the time."""

    def __init__(self, client: Client, shards: list[str], chance: random.Random) -> None:
        self._client, self._shards, self._chance = client, shards, chance
        self._stopped = threading.Event()
        self._mover = threading.Thread(target=self._move, args=(random.Random(chance.random()),))
        self.changes: dict[str, int] = {}
        self.key: Document = {}  # of both collections, now

    @contextlib.contextmanager
    def moving(self) -> Iterator[None]:
        """Moves chunks until left."""
        self._mover.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._mover.join()

    def _move(self, chance: random.Random) -> None:
        while not self._stopped.wait(0.02):
            name = chance.choice((TARGETED, ROUTED))
            with contextlib.suppress(OperationFailure, TypeError, IndexError):  # dropped meanwhile, or has it already
                chunk = chance.choice(self._chunks(name))
                move = {"moveRange": f"{DATABASE}.{name}", "min": chunk["min"], "toShard": chance.choice(self._shards)}
                self._client.admin.command(move)
                self._count("moveRange")

    def _chunks(self, name: str) -> list[Document]:
        found: Any = self._client.config.collections.find_one({"_id": f"{DATABASE}.{name}"})
        return list(self._client.config.chunks.find({"uuid": found["uuid"]}))

    def chunks(self) -> dict[str, list[str]]:
        """The chunks of both collections, for people."""
        return {
            name: [f"{c['min']} {c['shard']} {c['lastmod']}" for c in self._chunks(name)] for name in (TARGETED, ROUTED)
        }

    def _count(self, what: str) -> None:
        self.changes[what] = self.changes.get(what, 0) + 1

    def create(self) -> None:
        """Create both anew, sharded by one of several keys, with the same chunks."""
        self.key = key = self._chance.choice(KEYS)
        values = [scalar(self._chance) for _ in range(6)]
        for name in (TARGETED, ROUTED):
            self._repeat({"drop": name}, DATABASE, 26)
            self._repeat({"shardCollection": f"{DATABASE}.{name}", "key": key})
            for value in values if "hashed" not in key.values() else ():
                self._repeat({"split": f"{DATABASE}.{name}", "middle": self._place(value)}, "admin", *_NOT_SPLIT)
        self._count("drop and create")

    def _place(self, value: Any) -> Document:
        return {name: _identity(value) if name == "_id" else value if name == "k" else _j(value) for name in self.key}

    def change(self) -> None:
        """One change of both."""
        what = self._chance.choices((self._split, self._refine, self._rename, self.create), (10, 2, 2, 3))[0]
        what()

    def _split(self) -> None:
        if "hashed" in self.key.values():
            return
        place = self._place(scalar(self._chance))
        for name in (TARGETED, ROUTED):
            self._repeat({"split": f"{DATABASE}.{name}", "middle": place}, "admin", *_NOT_SPLIT)
        self._count("split")

    def _refine(self) -> None:
        if len(self.key) > 1 or "_id" in self.key:
            return
        self.key = {**self.key, "j": 1}
        for name in (TARGETED, ROUTED):
            self._client[DATABASE][name].create_index(list(self.key.items()))
            self._repeat({"refineCollectionShardKey": f"{DATABASE}.{name}", "key": self.key})
        self._count("refineCollectionShardKey")

    def _rename(self) -> None:
        """Away, and another in its place."""
        for name in (TARGETED, ROUTED):
            self._repeat({"drop": f"{name}_away"}, DATABASE, 26)
            away = {"renameCollection": f"{DATABASE}.{name}", "to": f"{DATABASE}.{name}_away"}
            self._repeat(away)
        self._count("renameCollection")
        self.create()

    def _repeat(self, command: Document, database: str = "admin", *allowed: int) -> None:
        """Run a command until no migration is in its way; `allowed` are codes that are as good as done."""
        end = time.monotonic() + 30
        while True:
            try:
                self._client[database].command(command)
            except OperationFailure as error:
                if error.code in allowed:
                    return
                # ConflictingOperationInProgress, LockBusy, LockTimeout, a collection that is being moved
                if error.code not in {117, 46, 24, 236, 13388} or time.monotonic() > end:
                    raise
                time.sleep(0.02)
            else:
                return


def _contents(cluster: SmallCluster, name: str) -> list[bytes]:
    """Every document of a collection in no order, with its types."""
    documents = cluster.client[DATABASE][name].find()
    return sorted(bson.encode({key: document[key] for key in sorted(document)}) for document in documents)


def campaign(cluster: SmallCluster, seed: int, operations: int, tell: Callable[[str], None] = print) -> Row:
    """Random operations both ways; the row has every different answer."""
    chance = random.Random(seed)
    row = Row("random operations by two ways", "embedded mongos")
    folder = Path(cluster.folder) / "two_ways"
    folder.mkdir()
    both = [
        MongosProcess(cluster.config, folder, ["--setParameter", f"microshardTargeting={on}"])
        for on in ("true", "false")
    ]
    try:
        for mongos in both:
            mongos.wait_ready()
        with both[0].client(retryReads=False) as first, both[1].client(retryReads=False) as second:
            else_ = SomebodyElse(second, list(cluster.shards), chance)
            else_.create()
            with else_.moving():
                for number in range(operations):
                    if number % EVERY == EVERY - 1:
                        else_.change()
                    command = operation(chance, number, else_.key)
                    words: list[str] = []
                    ours, theirs = answer(first, TARGETED, command, words), answer(second, ROUTED, command, words)
                    row.times += 1
                    if repr(ours) != repr(theirs):
                        seen = f"straight {ours}, through the router {theirs}; {words}; chunks {else_.chunks()}"
                        row.lost.append(f"operation {number}, {command}: {seen}")
            if _contents(cluster, TARGETED) != _contents(cluster, ROUTED):
                row.lost.append("the documents differ in the end")
            counted = [client.admin.command("serverStatus")["microshard"]["targeting"] for client in (first, second)]
            tell(f"{operations} operations; {else_.changes}; {counted[0]}")
            if not counted[0]["toShards"] > operations / 5 or not counted[0]["staleVersions"] or counted[1]["toShards"]:
                row.lost.append(f"the ways were not those meant: {counted}")
    finally:
        for mongos in both:
            mongos.stop()
    return row
