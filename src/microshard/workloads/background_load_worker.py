"""A worker process of a background load: `python -m microshard.workloads.background_load_worker`.

Standard input: one JSON line with its work, later the line "go", later, if it is to end early, "stop". Standard output,
JSON lines: {"ready"}, every quarter of a second {"inserts": [[end, µs, µs it had waited to be sent] …], "reads": […],
"documents"}, at the end {"finished", "unsent" (PacedLatency by operation), "cpu_seconds"} or {"error"} and exit code 3.
It dies with the process that started it.

A document is a function of its number, so that every `_id` is known: {_id, n, f1 … f8, pad}. n is its number, f1 to f8
are pseudo-random 32-bit integers for secondary indexes, pad is binary, random for one part and one repeated byte for
the other.
"""

import math
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from bson import Binary, Int64, encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from microshard.hostlib.proc import leave
from microshard.model.phases.traffic import FIELDS
from microshard.workloads.base import PhaseError, collection_of
from microshard.workloads.connections import connect
from microshard.workloads.insert_worker import check
from microshard.workloads.pacing import PacedLatency, Pacer
from microshard.workloads.workers import REPORT_SECONDS, run_worker, send, wait_for_go

UNPLACED_SPAN = 1 << 62  # of the `_id`s of a collection without key ranges
_MIX = 0x2545F4914F6CDD1D
_FIXED_BYTES = 103  # of a document without the content of its padding
_NOISE_BYTES = 1 << 20  # random padding, read from different places
Sample = tuple[
    float, int, int
]  # end, epoch seconds; µs from the sending to it; µs from the intended time to the sending


def id_span(key_ranges: int) -> int:
    """The `_id`s are below this: as many ranges of 2^32 as the plan has placed, or 2^62 where it has placed none."""
    return key_ranges << 32 if key_ranges else UNPLACED_SPAN


class DocumentGenerator:
    """Documents of one size. Equal numbers give equal `_id`s and fields; `order` is "random" or "ascending"."""

    def __init__(self, document_bytes: int, compressible: float, order: str, span: int) -> None:
        padding = max(document_bytes - _FIXED_BYTES, 0)
        self._random_bytes = round(padding * (1 - compressible))
        self._repeated = b"x" * (padding - self._random_bytes)
        # A fixed seed: the same experiment sends the same bytes.
        self._noise = random.Random(20170601).randbytes(_NOISE_BYTES + self._random_bytes)  # noqa: S311 - padding, no secret
        self._ascending, self._span = order == "ascending", span
        self._multiplier = _MIX
        while math.gcd(self._multiplier, span) != 1:  # or some numbers would share an `_id`
            self._multiplier += 2

    def id_of(self, number: int) -> int:
        """The `_id` of document `number`: itself, or scattered over 0 … span."""
        return number if self._ascending else number * self._multiplier % self._span

    def document(self, number: int) -> dict[str, Any]:
        """Document `number`."""
        mixed = (number * _MIX + 0x632BE59BD9B4E019) % (1 << 64)
        fields = {f"f{n}": ((mixed >> (4 * n)) ^ (mixed >> 33)) % (1 << 31) for n in range(1, FIELDS + 1)}
        start = mixed % _NOISE_BYTES
        pad = Binary(self._noise[start : start + self._random_bytes] + self._repeated)
        return {"_id": Int64(self.id_of(number)), "n": Int64(number), **fields, "pad": pad}


@dataclass
class WorkerState:
    """What the threads of a process share."""

    work: dict[str, Any]
    next_number: int
    inserts: list[Sample] = field(default_factory=list)
    reads: list[Sample] = field(default_factory=list)
    unsent: dict[str, PacedLatency] = field(default_factory=lambda: {n: PacedLatency() for n in ("INSERT", "READ")})
    documents: int = 0  # since the last report
    total: int = 0  # acknowledged
    assigned: int = 0  # given to threads
    pending: set[int] = field(default_factory=set)  # first numbers of batches not acknowledged yet
    stop: threading.Event = field(default_factory=threading.Event)
    stopped: float = 0.0  # time.monotonic()
    error: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_batch(self) -> range:
        """The numbers of the next batch; empty when all documents are assigned."""
        with self.lock:
            count = self.work["batch_size"]
            if self.work["documents"] is not None:
                count = min(count, self.work["documents"] - self.assigned)
            step = self.work["step"]
            first = self.next_number
            self.next_number += count * step
            self.assigned += count
            if count:
                self.pending.add(first)
            return range(first, first + count * step, step)

    def number_to_read(self, chance: random.Random) -> int:
        """The number of a document that certainly exists; -1 when there is none yet."""
        with self.lock:
            if self.total and (not self.work["known"] or chance.random() < 0.5):
                # Threads acknowledge out of order: only documents below the oldest pending batch certainly exist.
                oldest = min(self.pending, default=self.next_number)
                certain = (oldest - self.work["first"]) // self.work["step"]
                if certain > 0:
                    return int(self.work["first"] + self.work["step"] * chance.randrange(certain))
        known: int = self.work["known"]
        return chance.randrange(known) if known else -1


def operate(state: WorkerState, number: int) -> None:
    """Insert and read with one thread until all is inserted or the load is stopped."""
    work = state.work
    chance = random.Random(work["seed"] * 1000 + number)  # noqa: S311 - which document is read, no secret
    generator = DocumentGenerator(
        work["document_bytes"], work["compressible"], work["keys"], id_span(work["key_ranges"])
    )
    pacer = Pacer(work["schedule"], work["client"] + number, work["clients"])
    try:
        with connect(work["uri"], maxPoolSize=1, **work["options"]) as client:
            targets = [collection_of(client, namespace) for namespace in work["namespaces"]]
            pacer.begin()
            while (intended := pacer.wait(state.stop)) is not None:
                target = targets[chance.randrange(len(targets))] if len(targets) > 1 else targets[0]
                if work["reads"] and chance.random() < work["reads"]:
                    read_number = state.number_to_read(chance)
                    if read_number >= 0:
                        _read(state, target, read_number, generator.id_of(read_number), intended)
                        continue
                if work["reads"] == 1:
                    raise PhaseError("NothingToRead", "a load of reads alone needs a collection with documents")
                numbers = state.next_batch()
                if not numbers:
                    return
                batch = [RawBSONDocument(encode(generator.document(n))) for n in numbers]
                _insert(state, target, numbers[0], batch, intended)
        unsent = list(pacer.unsent(state.stopped))
        reads = [at for at in unsent if chance.random() < work["reads"]]
        with state.lock:
            state.unsent["READ"].finish(state.stopped, reads)
            state.unsent["INSERT"].finish(state.stopped, sorted(set(unsent) - set(reads)))
    except (PhaseError, PyMongoError) as error:
        with state.lock:
            state.error = state.error or error
        state.stop.set()


def _sample(intended: float, sent: float) -> Sample:
    """The sample of an operation that has just ended."""
    return round(time.time(), 3), int((time.monotonic() - sent) * 1e6), int((sent - intended) * 1e6)


def _insert(state: WorkerState, target: Any, first: int, batch: list[RawBSONDocument], intended: float) -> None:
    command = {"insert": target.name, "documents": batch, "ordered": False, "writeConcern": state.work["write_concern"]}
    sent = time.monotonic()
    reply = target.database.command(command)
    sample = _sample(intended, sent)
    check(reply, len(batch))
    with state.lock:
        state.inserts.append(sample)
        state.documents += len(batch)
        state.total += len(batch)
        state.pending.discard(first)


def _read(state: WorkerState, target: Any, number: int, identifier: int, intended: float) -> None:
    sent = time.monotonic()
    found = target.find_one({"_id": identifier})
    sample = _sample(intended, sent)
    # Which of several collections has the document is not known here.
    if len(state.work["namespaces"]) == 1 and (found is None or found["n"] != number):
        raise PhaseError("LostDocument", f"document {number} was acknowledged and is not found by its _id")
    with state.lock:
        state.reads.append(sample)


def report(state: WorkerState) -> None:
    """Send the parent what was done since the last report."""
    with state.lock:
        inserts, reads, documents = state.inserts, state.reads, state.documents
        state.inserts, state.reads, state.documents = [], [], 0
    send(inserts=inserts, reads=reads, documents=documents)


def listen(state: WorkerState) -> None:
    """Wait for "stop", or until the parent closes the pipe."""
    sys.stdin.readline()
    state.stopped = time.monotonic()
    state.stop.set()


def run(work: dict[str, Any]) -> None:
    """Connect, wait for the start, operate with all threads. Raises the first error of a thread."""
    state = WorkerState(work, next_number=work["first"])
    with connect(work["uri"], maxPoolSize=1, **work["options"]) as client:
        client.admin.command("ping")
    send(ready=True)
    if not wait_for_go():
        return
    began = time.process_time()
    threads = [threading.Thread(target=operate, args=(state, n), daemon=True) for n in range(work["threads"])]
    threading.Thread(target=listen, args=(state,), daemon=True).start()
    for thread in threads:
        thread.start()
    while running := [thread for thread in threads if thread.is_alive()]:
        running[0].join(REPORT_SECONDS)
        report(state)
        if state.error is not None:
            break
    if state.error is not None:
        raise state.error
    report(state)
    unsent = {name: one.message() for name, one in state.unsent.items()}
    send(finished=True, total=state.total, unsent=unsent, cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    leave(run_worker(run))
