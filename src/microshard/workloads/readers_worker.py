"""A worker of the engine `readers`: `python -m microshard.workloads.readers_worker`, one for readers, one for writers.

It forks one process a thread of the definition: Python's threads would wait for each other and measure that. Standard
input: one JSON line, later "go". Standard output, JSON lines: {"ready"}, {"operations"} four times a second
(increments), at the end {"finished", "histogram", "documents", "missing", "cpu_seconds"}, or {"error"} and exit code 3.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient, ReadPreference, UpdateOne
from pymongo.errors import PyMongoError

from microshard.hostlib.lifetime import die_with_parent, leave
from microshard.workloads.base import connect, cpu_seconds
from microshard.workloads.child import REPORT_SECONDS, fail, say, serve, told_to_go
from microshard.workloads.histograms import histogram, merged

PREFERENCES = {
    "primary": ReadPreference.PRIMARY,
    "primaryPreferred": ReadPreference.PRIMARY_PREFERRED,
    "secondary": ReadPreference.SECONDARY,
    "secondaryPreferred": ReadPreference.SECONDARY_PREFERRED,
    "nearest": ReadPreference.NEAREST,
}
# Of each process in the shared memory: operations so far, and whether it is connected (1) or has failed (2).
CELL = struct.Struct("<QQ")


@dataclass(slots=True)
class Tally:
    """What one process did in the measured time."""

    histogram: str = ""
    operations: int = 0
    documents: int = 0
    missing: int = 0
    error: str = ""
    cpu_seconds: float = 0.0


def reader(work: dict[str, Any], client: MongoClient[Any], dice: random.Random) -> Callable[[], tuple[int, int]]:
    """One operation: a document by its `_id`; returns documents found and missing."""
    collection = client.get_database(work["database"], read_preference=PREFERENCES[work["read_preference"]])[
        work["collection"]
    ]
    pick = picker(work["ids"], dice)

    def read() -> tuple[int, int]:
        found = collection.find_one({"_id": pick()})
        return (1, 0) if found is not None else (0, 1)

    return read


def writer(work: dict[str, Any], client: MongoClient[Any], dice: random.Random) -> Callable[[], tuple[int, int]]:
    """One operation: a batch of updates of random documents; returns documents changed and missing."""
    collection = client[work["database"]][work["collection"]]
    pick = picker(work["ids"], dice)
    size = work["batch"]

    def write() -> tuple[int, int]:
        changes = [UpdateOne({"_id": pick()}, {"$set": {"w": dice.getrandbits(62)}}) for _ in range(size)]
        done = collection.bulk_write(changes, ordered=False)
        return done.matched_count, size - done.matched_count

    return write


def picker(ids: dict[str, Any], dice: random.Random) -> Callable[[], int]:
    """A random `_id`: of a whole range, or of a list."""
    if "list" in ids:
        known = ids["list"]
        return lambda: int(known[int(dice.random() * len(known))])
    first, count = ids["first"], ids["count"]
    return lambda: int(first + int(dice.random() * count))


def operate(work: dict[str, Any], number: int, cell: memoryview, gate: int) -> Tally:
    """Connect, wait for the start, operate until the end; latencies are counted from `measure_from` on."""
    dice = random.Random(f"{work['seed']}-{work['role']}-{number}")  # noqa: S311 - which documents, not a secret
    tally, found = Tally(), histogram()
    # Monitors of each process only need to see a lost primary.
    with connect(work["uri"], maxPoolSize=1, heartbeatFrequencyMS=10_000, document_class=RawBSONDocument) as client:
        client.admin.command("ping")
        operation = (reader if work["role"] == "read" else writer)(work, client, dice)
        operation()  # connects to the member that will be asked
        CELL.pack_into(cell, 0, 0, 1)
        os.read(gate, 1)  # end of file: all begin together
        began = time.monotonic()
        measure_from, until = began + work["warm_up_seconds"], began + work["warm_up_seconds"] + work["seconds"]
        pause = work["batch"] * work["count"] / work["rate"] if work.get("rate") else 0.0
        due, cpu = began, cpu_seconds()
        while True:
            start = time.monotonic()
            if start >= until:
                break
            documents, missing = operation()
            end = time.monotonic()
            if start >= measure_from and end <= until:
                found.record_value(max(1, int((end - start) * 1e6)))
                tally.operations += 1
                tally.documents += documents
                tally.missing += missing
                CELL.pack_into(cell, 0, tally.operations, 1)
            if pause:
                due += pause
                time.sleep(max(0.0, due - time.monotonic()))
        tally.cpu_seconds = cpu_seconds() - cpu
    tally.histogram = found.encode().decode("ascii")
    return tally


def child(work: dict[str, Any], number: int, cell: memoryview, gate: int, out: int) -> None:
    """The whole life of a forked process; its tally goes into a pipe."""
    try:
        die_with_parent(work["worker"])
        tally = operate(work, number, cell, gate)
    except PyMongoError as error:
        tally = Tally(error=f"{type(error).__name__}: {error}")
        CELL.pack_into(cell, 0, 0, 2)
    with os.fdopen(out, "w", encoding="utf-8") as pipe:
        json.dump({name: getattr(tally, name) for name in Tally.__slots__}, pipe)
    os._exit(0)


def run(work: dict[str, Any]) -> int:
    """Fork, tell when all are connected, start them, tell how far they are and what they did."""
    count = work["count"]
    work["worker"] = os.getpid()
    shared = mmap.mmap(-1, CELL.size * count)
    gate_in, gate_out = os.pipe()
    pipes: list[int] = []
    for number in range(count):
        source, sink = os.pipe()
        if os.fork() == 0:
            os.close(gate_out)
            os.close(source)
            for other in pipes:
                os.close(other)
            cell = memoryview(shared)[number * CELL.size : (number + 1) * CELL.size]
            child(work, number, cell, gate_in, sink)
        os.close(sink)
        pipes.append(source)
    os.close(gate_in)

    def state() -> list[tuple[int, int]]:
        return [CELL.unpack_from(shared, n * CELL.size) for n in range(count)]

    while not all(flag for _, flag in state()):
        time.sleep(0.02)
    if not any(flag == 2 for _, flag in state()):
        say(role=work["role"], ready=True)
        if not told_to_go():
            os.close(gate_out)
            return 0
    os.close(gate_out)
    ends, told = time.monotonic() + work["warm_up_seconds"] + work["seconds"], 0
    while time.monotonic() < ends and not any(flag == 2 for _, flag in state()):
        time.sleep(min(REPORT_SECONDS, max(0.0, ends - time.monotonic())))
        done = sum(operations for operations, _ in state())
        say(role=work["role"], operations=done - told)
        told = done
    tallies = [read_tally(pipe) for pipe in pipes]
    for _ in range(count):
        os.wait()
    return tell(work["role"], tallies, told)


def read_tally(pipe: int) -> Tally:
    """What a process wrote before it ended; an error when it ended without."""
    with os.fdopen(pipe, encoding="utf-8") as source:
        text = source.read()
    return Tally(**json.loads(text)) if text else Tally(error="WorkerDied: a process ended before its time")


def tell(role: str, tallies: list[Tally], told: int) -> int:
    """The sums of all processes, or their first error; the exit code."""
    wrong = [tally.error for tally in tallies if tally.error]
    if wrong:
        kind, _, message = wrong[0].partition(": ")
        more = f" (and {len(wrong) - 1} more of {len(tallies)})" if len(wrong) > 1 else ""
        return fail(kind, message + more)
    say(role=role, operations=sum(tally.operations for tally in tallies) - told)
    say(
        role=role,
        finished=True,
        histogram=merged([tally.histogram for tally in tallies]).encode().decode("ascii"),
        documents=sum(tally.documents for tally in tallies),
        missing=sum(tally.missing for tally in tallies),
        cpu_seconds=sum(tally.cpu_seconds for tally in tallies),
    )
    return 0


if __name__ == "__main__":
    leave(serve(run))
