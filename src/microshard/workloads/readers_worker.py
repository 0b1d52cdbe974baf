"""A worker of the engine `readers`: `python -m microshard.workloads.readers_worker`, one for readers, one for writers.

It forks one process per thread of the experiment: Python's threads would wait for each other and measure that. Its
messages (workers.py has the protocol): {"ready"}, {"operations"} four times a second (increments), at the end
{"finished", "histogram", "documents", "missing", "cpu_seconds"}.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference, UpdateOne
from pymongo.errors import PyMongoError

from microshard.hostlib.proc import die_with_parent, leave
from microshard.workloads import recording
from microshard.workloads.base import cpu_seconds
from microshard.workloads.connections import connect
from microshard.workloads.workers import REPORT_SECONDS, run_worker, send, send_error, wait_for_go

PREFERENCES = {
    "primary": ReadPreference.PRIMARY,
    "primaryPreferred": ReadPreference.PRIMARY_PREFERRED,
    "secondary": ReadPreference.SECONDARY,
    "secondaryPreferred": ReadPreference.SECONDARY_PREFERRED,
    "nearest": ReadPreference.NEAREST,
}
# Of each process in the shared memory: operations so far, and its state.
CELL = struct.Struct("<QQ")
CONNECTED, FAILED = 1, 2
Operation = Callable[[], tuple[int, int]]  # returns documents found or changed, and missing


@dataclass(slots=True)
class ProcessResult:
    """What one process did in the measured time."""

    histogram: str = ""
    operations: int = 0
    documents: int = 0
    missing: int = 0
    error: str = ""
    cpu_seconds: float = 0.0


def reader(work: dict[str, Any], client: MongoClient[Any], random_: random.Random) -> Operation:
    """Reading one document by its `_id`."""
    preference = PREFERENCES[work["read_preference"]]
    collection = client.get_database(work["database"], read_preference=preference)[work["collection"]]
    pick = id_picker(work["ids"], random_)
    return lambda: (1, 0) if collection.find_one({"_id": pick()}) is not None else (0, 1)


def writer(work: dict[str, Any], client: MongoClient[Any], random_: random.Random) -> Operation:
    """Updating a batch of random documents."""
    collection = client[work["database"]][work["collection"]]
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


def operate(work: dict[str, Any], number: int, cell: memoryview, gate: int) -> ProcessResult:
    """Connect, wait for the start, operate until the end; latencies are counted after the warm-up."""
    random_ = random.Random(f"{work['seed']}-{work['role']}-{number}")  # noqa: S311 - which documents, not a secret
    result, latencies = ProcessResult(), recording.new_histogram()
    # Monitors of each process only need to see a lost primary.
    with connect(work["uri"], maxPoolSize=1, heartbeatFrequencyMS=10_000, document_class=RawBSONDocument) as client:
        client.admin.command("ping")
        operation = (reader if work["role"] == "read" else writer)(work, client, random_)
        operation()  # connects to the member that will be used
        CELL.pack_into(cell, 0, 0, CONNECTED)
        os.read(gate, 1)  # end of file: all begin together
        began = time.monotonic()
        measure_from, until = began + work["warm_up_seconds"], began + work["warm_up_seconds"] + work["seconds"]
        pause = work["batch"] * work["count"] / work["rate"] if work.get("rate") else 0.0
        due, cpu = began, cpu_seconds()
        while (start := time.monotonic()) < until:
            documents, missing = operation()
            end = time.monotonic()
            if start >= measure_from and end <= until:
                recording.record(latencies, (end - start) * 1e6)
                result.operations += 1
                result.documents += documents
                result.missing += missing
                CELL.pack_into(cell, 0, result.operations, CONNECTED)
            if pause:
                due += pause
                time.sleep(max(0.0, due - time.monotonic()))
        result.cpu_seconds = cpu_seconds() - cpu
    result.histogram = recording.encode(latencies)
    return result


def run_process(work: dict[str, Any], number: int, cell: memoryview, gate: int, out: int) -> None:
    """The whole life of a forked process; its result goes into a pipe."""
    try:
        die_with_parent(work["worker"])
        result = operate(work, number, cell, gate)
    except PyMongoError as error:
        result = ProcessResult(error=f"{type(error).__name__}: {error}")
        CELL.pack_into(cell, 0, 0, FAILED)
    with os.fdopen(out, "w", encoding="utf-8") as pipe:
        json.dump(asdict(result), pipe)
    os._exit(0)


def fork_all(work: dict[str, Any], cells: memoryview) -> tuple[list[int], int]:
    """Fork the processes; the pipes of their results, and the gate whose closing starts them all together."""
    work["worker"] = os.getpid()
    gate_in, gate_out = os.pipe()
    pipes: list[int] = []
    for number in range(work["count"]):
        source, sink = os.pipe()
        if os.fork() == 0:
            os.close(gate_out)
            os.close(source)
            for other in pipes:
                os.close(other)
            run_process(work, number, cells[number * CELL.size : (number + 1) * CELL.size], gate_in, sink)
        os.close(sink)
        pipes.append(source)
    os.close(gate_in)
    return pipes, gate_out


def run(work: dict[str, Any]) -> int:
    """Fork, report when all are connected, start them, report their progress and results. Returns the exit code."""
    count, role = work["count"], work["role"]
    shared = mmap.mmap(-1, CELL.size * count)
    pipes, gate = fork_all(work, memoryview(shared))

    def cells() -> list[tuple[int, int]]:
        return [CELL.unpack_from(shared, n * CELL.size) for n in range(count)]

    def failed() -> bool:
        return any(state == FAILED for _, state in cells())

    while not all(state for _, state in cells()):
        time.sleep(0.02)
    if not failed():
        send(role=role, ready=True)
        if not wait_for_go():
            os.close(gate)
            return 0
    os.close(gate)
    ends, reported = time.monotonic() + work["warm_up_seconds"] + work["seconds"], 0
    while time.monotonic() < ends and not failed():
        time.sleep(min(REPORT_SECONDS, max(0.0, ends - time.monotonic())))
        done = sum(operations for operations, _ in cells())
        send(role=role, operations=done - reported)
        reported = done
    results = [read_result(pipe) for pipe in pipes]
    for _ in range(count):
        os.wait()
    return send_results(role, results, reported)


def read_result(pipe: int) -> ProcessResult:
    """What a process wrote before it ended; an error when it wrote nothing."""
    with os.fdopen(pipe, encoding="utf-8") as source:
        text = source.read()
    return ProcessResult(**json.loads(text)) if text else ProcessResult(error="WorkerDied: a process ended early")


def send_results(role: str, results: list[ProcessResult], reported: int) -> int:
    """Send the sums of all processes, or their first error; returns the exit code."""
    errors = [result.error for result in results if result.error]
    if errors:
        kind, _, message = errors[0].partition(": ")
        more = f" (and {len(errors) - 1} more of {len(results)})" if len(errors) > 1 else ""
        return send_error(kind, message + more)
    send(role=role, operations=sum(result.operations for result in results) - reported)
    send(
        role=role,
        finished=True,
        histogram=recording.encode(recording.merge(recording.decode(result.histogram) for result in results)),
        documents=sum(result.documents for result in results),
        missing=sum(result.missing for result in results),
        cpu_seconds=sum(result.cpu_seconds for result in results),
    )
    return 0


if __name__ == "__main__":
    leave(run_worker(run))
