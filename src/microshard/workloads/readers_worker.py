"""A worker of the engine `readers`: `python -m microshard.workloads.readers_worker`, one for readers, one for writers.

It forks one process per thread of the experiment: Python's threads would wait for each other and measure that. Its
messages (workers.py has the protocol): {"ready"}, {"operations"} four times a second (increments), at the end
{"finished", "latency", "documents", "missing", "cpu_seconds"}.
"""

from __future__ import annotations  # the classes of PyMongo 3.13 take no parameters

import multiprocessing
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference, UpdateOne
from pymongo.errors import PyMongoError

from microshard.hostlib.proc import die_with_parent, leave
from microshard.workloads.base import collection_of, cpu_seconds
from microshard.workloads.connections import connect
from microshard.workloads.pacing import PacedLatency, Pacer, merged
from microshard.workloads.workers import REPORT_SECONDS, run_worker, send, send_error, wait_for_go

PREFERENCES = {
    "primary": ReadPreference.PRIMARY,
    "primaryPreferred": ReadPreference.PRIMARY_PREFERRED,
    "secondary": ReadPreference.SECONDARY,
    "secondaryPreferred": ReadPreference.SECONDARY_PREFERRED,
    "nearest": ReadPreference.NEAREST,
}
Operation = Callable[[], tuple[int, int]]  # returns documents found or changed, and missing


@dataclass(slots=True)
class ProcessResult:
    """What one process did in the measured time."""

    latency: dict[str, Any] | None = None  # of PacedLatency
    documents: int = 0
    missing: int = 0
    error: str = ""
    cpu_seconds: float = 0.0


def reader(work: dict[str, Any], client: MongoClient[Any], random_: random.Random) -> Operation:
    """Reading one document by its `_id`."""
    preference = PREFERENCES[work["read_preference"]]
    collection = collection_of(client, work["namespace"]).with_options(read_preference=preference)
    pick = id_picker(work["ids"], random_)
    return lambda: (1, 0) if collection.find_one({"_id": pick()}) is not None else (0, 1)


def writer(work: dict[str, Any], client: MongoClient[Any], random_: random.Random) -> Operation:
    """Updating a batch of random documents."""
    collection = collection_of(client, work["namespace"])
    pick, size = id_picker(work["ids"], random_), work["batch"]

    def write() -> tuple[int, int]:
        changes = [UpdateOne({"_id": pick()}, {"$set": {"w": random_.getrandbits(62)}}) for _ in range(size)]
        done = collection.bulk_write(changes, ordered=False)
        return done.matched_count, size - done.matched_count

    return write


def id_picker(ids: dict[str, Any], random_: random.Random) -> Callable[[], int]:
    """A random `_id`: of a whole range, or of a list."""
    if "list" in ids:
        known = ids["list"]
        return lambda: int(known[int(random_.random() * len(known))])
    first, count = ids["first"], ids["count"]
    return lambda: int(first + int(random_.random() * count))


def operate(work: dict[str, Any], number: int, counts: Any, start: Event, pipe: Connection) -> ProcessResult:
    """Connect, wait for the start, operate until the end; latencies are counted after the warm-up."""
    random_ = random.Random(f"{work['seed']}-{work['role']}-{number}")  # noqa: S311 - which documents, not a secret
    result, latency = ProcessResult(), PacedLatency()
    pacer, place = Pacer(work["schedule"], number, work["of"]), work["numbers"].index(number)
    # Monitors of each process only need to see a lost primary.
    with connect(work["uri"], maxPoolSize=1, heartbeatFrequencyMS=10_000, document_class=RawBSONDocument) as client:
        client.admin.command("ping")
        operation = (reader if work["role"] == "read" else writer)(work, client, random_)
        operation()  # connects to the member that will be used
        pipe.send(None)
        start.wait()
        measure_from = pacer.begin(work["warm_up_seconds"] + work["seconds"]) + work["warm_up_seconds"]
        until, cpu = measure_from + work["seconds"], cpu_seconds()
        while (intended := pacer.wait()) is not None:
            sent = time.monotonic()
            documents, missing = operation()
            end = time.monotonic()
            # In an open loop what is on its way at the end counts: it may be there for as long as the server stalls.
            if sent >= measure_from and (end <= until or pacer.open):
                latency.record(intended, sent, end)
                counts[place] += 1
                result.documents += documents
                result.missing += missing
        latency.finish(until, pacer.unsent(until))
        result.cpu_seconds = cpu_seconds() - cpu
    result.latency = latency.message()
    return result


def run_process(work: dict[str, Any], number: int, counts: Any, start: Event, pipe: Connection) -> None:
    """The whole life of a forked process: it sends None once it is connected, and its result."""
    try:
        die_with_parent(work["worker"])
        pipe.send(operate(work, number, counts, start, pipe))
    except PyMongoError as error:
        pipe.send(ProcessResult(error=f"{type(error).__name__}: {error}"))


def receive(pipe: Connection) -> ProcessResult | None:
    """What a process sends next; an error when it ended without."""
    try:
        found: ProcessResult | None = pipe.recv()
    except EOFError:
        return ProcessResult(error="WorkerDied: a process ended early")
    return found


def run(work: dict[str, Any]) -> int:
    """Fork, report when all are connected, start them, report their progress and results. Returns the exit code."""
    count, role = len(work["numbers"]), work["role"]
    work["worker"] = os.getpid()
    context = multiprocessing.get_context("fork")
    counts, start = context.Array("Q", count, lock=False), context.Event()
    pipes: list[Connection] = []
    for number in work["numbers"]:
        pipe, other_end = context.Pipe(duplex=False)
        context.Process(target=run_process, args=(work, number, counts, start, other_end)).start()
        other_end.close()
        pipes.append(pipe)
    results = [result for pipe in pipes if (result := receive(pipe)) is not None]
    if not results:
        send(role=role, ready=True)
        if not wait_for_go():
            return 0
        start.set()
        ends, reported = time.monotonic() + work["warm_up_seconds"] + work["seconds"], 0
        # A process that sends something before the end has failed.
        while (left := ends - time.monotonic()) > 0 and not wait(pipes, min(REPORT_SECONDS, left)):
            done = sum(counts)
            send(role=role, operations=done - reported)
            reported = done
        results = [result for pipe in pipes if (result := receive(pipe)) is not None]
        send(role=role, operations=sum(counts) - reported)
    if errors := [result.error for result in results if result.error]:
        kind, _, message = errors[0].partition(": ")
        more = f" (and {len(errors) - 1} more of {count})" if len(errors) > 1 else ""
        return send_error(kind, message + more)
    send(
        role=role,
        finished=True,
        latency=merged(PacedLatency.of_message(result.latency) for result in results if result.latency).message(),
        documents=sum(result.documents for result in results),
        missing=sum(result.missing for result in results),
        cpu_seconds=sum(result.cpu_seconds for result in results),
    )
    return 0


if __name__ == "__main__":
    leave(run_worker(run))
