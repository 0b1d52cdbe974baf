"""Chunks move under a running workload: no read is wrong and no error reaches a client."""

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pymongo import ReplaceOne, ReturnDocument, UpdateOne

from tests.cluster.embedded.lab import SmallCluster, wait_until

pytestmark = pytest.mark.cluster
DOCUMENTS = 3000
MOVES = 10


class Workload:
    """Threads that read and write what they know the answer to, until stopped."""

    def __init__(self, cluster: SmallCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.stop = threading.Event()
        self.problems: list[str] = []
        self.done: dict[str, int] = {}
        self._threads: list[threading.Thread] = []

    def start(self, *works: Callable[[Any, random.Random], None]) -> None:
        for number, work in enumerate(works):
            thread = threading.Thread(target=self._run, args=(work, number))
            thread.start()
            self._threads.append(thread)

    def _run(self, work: Callable[[Any, random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        with self.cluster.mongos.client(retryReads=False) as client:
            while not self.stop.is_set():
                try:
                    work(client[self.name], chance)
                except Exception as error:  # noqa: BLE001 - whatever reaches a client here is a failure of the router
                    self.problems.append(f"{work.__name__}: {error!r}")
                    return
                self.done[work.__name__] = self.done.get(work.__name__, 0) + 1

    def finish(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()


def point_reads(db: Any, chance: random.Random) -> None:
    key = chance.randrange(DOCUMENTS)
    found = db.moving.find_one({"k": key})
    assert found is not None, f"point read of {key} found nothing"
    assert found["_id"] == key


def scans(db: Any, _chance: random.Random) -> None:
    keys = [document["k"] for document in db.moving.find({}, {"k": 1}, batch_size=400).sort("k", 1)]
    assert keys == list(range(DOCUMENTS)), f"scan found {len(keys)} documents"


def aggregations(db: Any, _chance: random.Random) -> None:
    (result,) = db.moving.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}, "sum": {"$sum": "$k"}}}])
    assert (result["n"], result["sum"]) == (DOCUMENTS, DOCUMENTS * (DOCUMENTS - 1) // 2)


def counts(db: Any, chance: random.Random) -> None:
    low = chance.randrange(DOCUMENTS - 100)
    assert db.command("count", "moving", query={"k": {"$gte": low, "$lt": low + 100}})["n"] == 100
    assert db.moving.distinct("k", {"k": {"$gte": low, "$lt": low + 10}}) == list(range(low, low + 10))


def updates(db: Any, chance: random.Random) -> None:
    keys = chance.sample(range(DOCUMENTS), 20)
    result = db.moving.bulk_write([UpdateOne({"k": key}, {"$inc": {"updates": 1}}) for key in keys], ordered=False)
    assert result.matched_count == 20
    db.tally.insert_one({"by": "updates", "n": 20})


def modifications(db: Any, chance: random.Random) -> None:
    key = chance.randrange(DOCUMENTS)
    change = {"$inc": {"updates": 1}}
    found = db.moving.find_one_and_update({"k": key}, change, return_document=ReturnDocument.AFTER)
    assert found is not None, f"findAndModify of {key} found nothing"
    assert found["updates"] >= 1
    db.tally.insert_one({"by": "modifications", "n": 1})


def replacements(db: Any, chance: random.Random) -> None:
    key = DOCUMENTS + 10_000 + chance.randrange(50)
    db.others.bulk_write([ReplaceOne({"k": key}, {"k": key, "r": chance.random()}, upsert=True)])
    assert db.others.count_documents({"k": key}) == 1


def _prepare(cluster: SmallCluster, db: Any) -> None:
    for name in ("moving", "others"):
        cluster.client.admin.command("shardCollection", f"{db.name}.{name}", key={"k": 1})
    db.moving.insert_many([{"_id": key, "k": key, "updates": 0, "pad": "x" * 2500} for key in range(DOCUMENTS)])


def _verify(db: Any, load: Workload) -> None:
    assert load.problems == []
    assert min(load.done.values()) > 0
    assert len(load.done) == 7, f"every kind of work was done: {load.done}"
    promised = sum(entry["n"] for entry in db.tally.find())
    (kept,) = db.moving.aggregate([{"$group": {"_id": None, "n": {"$sum": "$updates"}}}])
    assert kept["n"] == promised, "an update was lost or done twice"


WORKS = (point_reads, scans, aggregations, counts, updates, modifications, replacements)


@pytest.mark.long
def test_moved_chunks_do_not_disturb_clients(cluster: SmallCluster, db: Any) -> None:
    _prepare(cluster, db)
    admin, namespace = cluster.client.admin, db.moving.full_name
    for key in (1000, 2000):
        admin.command("split", namespace, middle={"k": key})
    load = Workload(cluster, db.name)
    load.start(*WORKS)
    try:
        for move in range(MOVES):
            target = ("shard1", "shard0")[(move // 2) % 2]
            admin.command("moveChunk", namespace, find={"k": (500, 1500)[move % 2]}, to=target)
            admin.command("moveRange", db.others.full_name, min={"k": DOCUMENTS + 10_000 + move}, toShard=target)
    finally:
        load.finish()
    _verify(db, load)


def test_the_balancer_does_not_disturb_clients(cluster: SmallCluster, db: Any) -> None:
    _prepare(cluster, db)
    admin = cluster.client.admin
    # 1 MiB, the least: the balancer moves when two shards differ by three times as much
    admin.command("configureCollectionBalancing", db.moving.full_name, chunkSize=1)
    load = Workload(cluster, db.name)
    load.start(*WORKS)
    try:
        admin.command("balancerStart")
        wait_until(lambda: len(cluster.owners(db.moving.full_name)) == 2, 40, "a chunk moved by the balancer")
    finally:
        admin.command("balancerStop")
        load.finish()
    _verify(db, load)
