"""A worker process of the engine `insert`: `python -m microshard.workloads.insert_worker`.

Its messages (workers.py has the protocol): {"ready"}, {"documents", "bytes"} now and then (increments), at the end
{"finished", "latency" (of the batches, PacedLatency), "cpu_seconds"}.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np
from bson.raw_bson import RawBSONDocument

from microshard.hostlib.proc import leave
from microshard.workloads import datasets
from microshard.workloads.base import PhaseError, collection_of
from microshard.workloads.connections import connect
from microshard.workloads.datasets import Dataset
from microshard.workloads.pacing import PacedLatency, Pacer
from microshard.workloads.streams import Stream
from microshard.workloads.workers import REPORT_SECONDS, run_worker, send, wait_for_go

BLOCK_DOCUMENTS = 4096  # generated at a time: large enough for numpy, 1 MB of inspections …
BLOCK_BYTES = 4 << 20  # … and no more than this of large documents, unless a batch is more
BUFFERED_BYTES = 60_000_000  # over all streams of a process
SENDING_SECONDS = 0.003  # a command of 1,000 inspections is encoded, and through the mongos, in 2 ms


def batches(dataset: Dataset[Any], stream: Stream, seed: int, size: int, block: int) -> Iterator[list[RawBSONDocument]]:
    """Batches of `size` documents of a stream, generated `block` at a time (a multiple of `size`)."""
    for offset in range(0, stream.count, block):
        count = min(block, stream.count - offset)
        ids = np.arange(stream.first_id + offset, stream.first_id + offset + count, dtype=np.int64)
        encoded, starts = dataset.encode(stream.first + offset, ids, seed)
        edges: list[int] = starts.tolist()
        for first in range(0, count, size):
            ends = edges[first : min(first + size, count) + 1]
            yield [RawBSONDocument(encoded[a:b]) for a, b in pairwise(ends)]


def interleaved(dataset: Dataset[Any], streams: list[Stream], seed: int, size: int) -> Iterator[list[RawBSONDocument]]:
    """One batch of each stream after the other until all are empty."""
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
    """Raise PhaseError unless the reply to an insert acknowledges every document with the requested write concern."""
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


def insert(work: dict[str, Any]) -> None:
    """Insert the streams of this process, reporting to the engine. Raises the first PhaseError or PyMongoError.

    The documents go out as one `insert` command a batch, encoded already (RawBSONDocument): half a microsecond of
    the client's time a document instead of six with insert_many, which looks at each of them. Database.command
    sends once and never again, so nothing can be in twice. One command is under way at a time, so a stream keeps its
    order; the next batch is generated meanwhile, or the server would wait for it.
    """
    streams = [Stream(*stream) for stream in work["streams"]]
    dataset = datasets.make(work["dataset"], work["options"])
    with connect(work["uri"], maxPoolSize=1) as client, ThreadPoolExecutor(1, "command") as sender:
        client.admin.command("ping")
        target = collection_of(client, work["namespace"])
        send(ready=True)
        if not wait_for_go():
            return
        began, reported = time.process_time(), time.monotonic()
        documents = size_bytes = 0
        pacer, latency = Pacer(work["schedule"], work["client"], work["clients"]), PacedLatency()
        pacer.begin()

        def command(given: dict[str, Any]) -> tuple[dict[str, Any], float, float]:
            sent = time.monotonic()
            return target.database.command(given), sent, time.monotonic()

        spare = 0.0  # s, of the last reply
        waiting = interleaved(dataset, streams, work["seed"], work["batch_size"])
        batch = next(waiting, None)
        while batch is not None and (intended := pacer.wait()) is not None:
            count = len(batch)
            options = {"ordered": work["ordered"], "writeConcern": work["write_concern"]}
            sending = sender.submit(command, {"insert": target.name, "documents": batch, **options})
            # Sending comes first: generating documents meanwhile takes interpreter and core from it. Wait no longer
            # than for the last reply, or the server would wait for the next batch.
            wait([sending], timeout=min(spare, SENDING_SECONDS))
            sent_bytes = sum(len(document.raw) for document in batch)
            batch = next(waiting, None)
            generated = time.monotonic()
            reply, sent, ended = sending.result()
            check(reply, count)
            latency.record(intended, sent, ended)
            documents += count
            size_bytes += sent_bytes
            now = time.monotonic()
            spare = now - generated
            if now - reported >= REPORT_SECONDS:
                send(documents=documents, bytes=size_bytes)
                documents = size_bytes = 0
                reported = now
        send(documents=documents, bytes=size_bytes)
        latency.finish(time.monotonic())
        send(finished=True, latency=latency.message(), cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    leave(run_worker(insert))
