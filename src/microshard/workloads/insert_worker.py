"""A worker process of the engine `insert`: `python -m microshard.workloads.insert_worker`.

Standard input: one JSON line that says what to insert, later the line "go". Standard output, JSON lines: {"ready"},
{"documents", "bytes"} now and then (increments), at the end {"finished", "cpu_seconds"}, or {"error"} and exit code 3.
It dies with the process that started it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from bson.raw_bson import RawBSONDocument

from microshard.hostlib.lifetime import leave
from microshard.workloads import datasets
from microshard.workloads.base import PhaseError, connect
from microshard.workloads.child import REPORT_SECONDS, say, serve, told_to_go
from microshard.workloads.datasets import Dataset
from microshard.workloads.streams import Stream

BLOCK_DOCUMENTS = 4096  # generated at a time: large enough for numpy, 1 MB of inspections …
BLOCK_BYTES = 4 << 20  # … and no more than this of large documents, unless a batch is more
BUFFERED_BYTES = 60_000_000  # over all streams of a process
SENDING_SECONDS = 0.003  # a command of 1,000 inspections is encoded, and through the mongos, in 2 ms


@dataclass(frozen=True, slots=True)
class Target:
    """Where documents go and how."""

    uri: str
    database: str
    collection: str
    write_concern: dict[str, Any]
    ordered: bool


def batches(dataset: Dataset[Any], stream: Stream, seed: int, size: int, block: int) -> Iterator[list[RawBSONDocument]]:
    """The documents of a stream in batches of `size`, generated `block` at a time (a multiple of `size`)."""
    for offset in range(0, stream.count, block):
        count = min(block, stream.count - offset)
        ids = np.arange(stream.first_id + offset, stream.first_id + offset + count, dtype=np.int64)
        encoded, starts = dataset.encode(stream.first + offset, ids, seed)
        edges: list[int] = starts.tolist()
        for first in range(0, count, size):
            ends = edges[first : min(first + size, count) + 1]
            yield [RawBSONDocument(encoded[a:b]) for a, b in pairwise(ends)]


def in_turn(dataset: Dataset[Any], streams: list[Stream], seed: int, size: int) -> Iterator[list[RawBSONDocument]]:
    """A batch of each stream in turn until all are empty."""
    buffered = min(BLOCK_BYTES, BUFFERED_BYTES // max(len(streams), 1))
    share = min(BLOCK_DOCUMENTS, int(buffered / dataset.average_bytes))
    block = size * max(1, share // size)
    waiting = deque(batches(dataset, stream, seed, size, block) for stream in streams)
    while waiting:
        source = waiting.popleft()
        batch = next(source, None)
        if batch is not None:
            yield batch
            waiting.append(source)


def check(reply: dict[str, Any], sent: int) -> None:
    """Raises PhaseError unless the reply to an insert says that all documents are in and acknowledged as asked."""
    errors = reply.get("writeErrors")
    if errors:
        first = errors[0]
        more = f" (and {len(errors) - 1} more in this batch)" if len(errors) > 1 else ""
        raise PhaseError("WriteError", f"code {first['code']}: {first['errmsg']}{more}")
    concern = reply.get("writeConcernError")
    if concern:
        raise PhaseError("WriteConcernError", f"code {concern['code']}: {concern['errmsg']}")
    if reply.get("n") != sent:
        raise PhaseError("WriteError", f"{sent} documents were sent, the reply says {reply.get('n')}")


def insert(target: Target, dataset: Dataset[Any], streams: list[Stream], seed: int, size: int) -> None:
    """Insert everything, reporting to the parent. Raises PhaseError and PyMongoError at the first error.

    The documents go out as one `insert` command a batch, encoded already (RawBSONDocument): half a microsecond of
    the client's time a document instead of six with insert_many, which looks at each of them. Database.command
    sends once and never again, so nothing can be in twice. One command is under way at a time, so a stream keeps its
    order; the next batch is generated meanwhile, or the server would wait for it.
    """
    with connect(target.uri, maxPoolSize=1) as client, ThreadPoolExecutor(1, "command") as sender:
        client.admin.command("ping")
        database = client[target.database]
        say(ready=True)
        if not told_to_go():
            return
        began, reported = time.process_time(), time.monotonic()
        documents = size_bytes = 0
        spare = 0.0  # s, of the last reply
        waiting = in_turn(dataset, streams, seed, size)
        batch = next(waiting, None)
        while batch is not None:
            sent = len(batch)
            reply = sender.submit(
                database.command,
                {
                    "insert": target.collection,
                    "documents": batch,
                    "ordered": target.ordered,
                    "writeConcern": target.write_concern,
                },
            )
            # Sending comes first: to generate beside it takes interpreter and core from it, and lets the server wait.
            # No longer than the last reply had to be waited for anyway, or the server would wait for the next batch.
            wait([reply], timeout=min(spare, SENDING_SECONDS))
            sent_bytes = sum(len(document.raw) for document in batch)
            batch = next(waiting, None)
            generated = time.monotonic()
            check(reply.result(), sent)
            documents += sent
            size_bytes += sent_bytes
            now = time.monotonic()
            spare = now - generated
            if now - reported >= REPORT_SECONDS:
                say(documents=documents, bytes=size_bytes)
                documents = size_bytes = 0
                reported = now
        say(documents=documents, bytes=size_bytes)
        say(finished=True, cpu_seconds=time.process_time() - began)


def work_on(work: dict[str, Any]) -> None:
    """Insert the streams of this process."""
    streams = [Stream(*stream) for stream in work["streams"]]
    dataset = datasets.make(work["dataset"], work["options"])
    insert(Target(**work["target"]), dataset, streams, work["seed"], work["batch_size"])


if __name__ == "__main__":
    leave(serve(work_on))
