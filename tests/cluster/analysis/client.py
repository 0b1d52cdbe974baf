"""A load client: `python client.py URI KIND CONNECTIONS SECONDS` prints when it began, ended, and its times.

KIND is scan (an aggregation over all documents), count (one that computes little), find (single documents by _id),
insert (one, with j: true), blob (one of 200 kB that no compressor makes smaller, with j: true), update (of a document,
w: 1), majority (the same, w: majority), idle (a find and a pause) or seldom (an update
and a pause). Each connection repeats it until the time is over.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from pymongo import MongoClient, WriteConcern

PIPELINE = [{"$group": {"_id": {"$mod": ["$n", 7]}, "sum": {"$sum": {"$sqrt": {"$add": ["$n", 1]}}}}}]


def work(kind: str, client: MongoClient[dict[str, Any]]) -> Callable[[], object]:
    """One operation of this kind."""
    collection = client["test"]["things"]
    journaled = client["test"].get_collection("new", write_concern=WriteConcern(w=1, j=True))
    written = {w: client["test"].get_collection("things", write_concern=WriteConcern(w=w)) for w in (1, "majority")}
    documents = max(collection.estimated_document_count(), 1)

    def paced() -> None:
        """As many a second on a quick machine as on a slow one: the volume has room for them on both."""
        journaled.insert_one({"text": "x" * 100})
        time.sleep(0.01)

    return {
        "scan": lambda: list(collection.aggregate(PIPELINE)),
        "count": lambda: list(collection.aggregate([{"$match": {"n": {"$gte": 0}}}, {"$count": "n"}])),
        "find": lambda: collection.find_one({"_id": random.randrange(documents)}),
        "insert": lambda: journaled.insert_one({"text": "x" * 100}),
        "paced": paced,
        "blob": lambda: journaled.insert_one({"bytes": random.randbytes(200_000)}),
        "update": lambda: written[1].update_one({"_id": random.randrange(documents)}, {"$inc": {"k": 1}}),
        "majority": lambda: written["majority"].update_one({"_id": random.randrange(documents)}, {"$inc": {"k": 1}}),
        "seldom": lambda: written[1].update_one({"_id": 1}, {"$inc": {"k": 1}}),
        "idle": lambda: collection.find_one({"_id": 1}),
    }[kind]


def main() -> None:
    """Work, then say how it went."""
    uri, kind, connections, seconds = sys.argv[1:]
    client: MongoClient[dict[str, Any]] = MongoClient(uri, maxPoolSize=int(connections), retryReads=False)
    operation = work(kind, client)
    operation()
    samples: list[float] = []
    started = time.time()
    deadline = time.monotonic() + float(seconds)

    def repeat() -> None:
        while time.monotonic() < deadline:
            begun = time.monotonic()
            operation()
            samples.append(time.monotonic() - begun)
            if kind in {"idle", "seldom"}:
                time.sleep(0.05)

    threads = [threading.Thread(target=repeat) for _ in range(int(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"started": started, "ended": time.time(), "samples": samples}))


if __name__ == "__main__":
    main()
