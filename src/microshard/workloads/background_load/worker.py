"""A worker process of such a load: `python -m microshard.workloads.background_load.worker`.

Standard input: one JSON line that says what to do, later the line "go", later, if it is to end early, "stop". Standard
output, JSON lines: {"ready"}, every quarter of a second {"inserts": [[end, µs] …], "reads": […], "documents"}, at the
end {"finished", "documents", "cpu_seconds"} or {"error"} and exit code 3. It dies with the process that started it.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from bson import encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from microshard.hostlib.lifetime import leave
from microshard.workloads.background_load.documents import Maker, key
from microshard.workloads.base import PhaseError, connect
from microshard.workloads.child import REPORT_SECONDS, say, serve, told_to_go
from microshard.workloads.insert_worker import check


@dataclass
class Shared:
    """What the threads of a process have in common."""

    work: dict[str, Any]
    next_number: int
    inserts: list[tuple[float, int]] = field(default_factory=list)
    reads: list[tuple[float, int]] = field(default_factory=list)
    documents: int = 0  # since the last report
    total: int = 0  # acknowledged
    taken: int = 0  # handed out to threads
    under_way: set[int] = field(default_factory=set)  # first numbers of batches not acknowledged yet
    stop: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> range:
        """The numbers of the next batch; empty when all are taken."""
        with self.lock:
            count = self.work["batch_size"]
            if self.work["documents"] is not None:
                count = min(count, self.work["documents"] - self.taken)
            step = self.work["step"]
            first = self.next_number
            self.next_number += count * step
            self.taken += count
            if count:
                self.under_way.add(first)
            return range(first, first + count * step, step)

    def known(self, chance: random.Random) -> int:
        """The number of a document that is surely there; -1 when there is none yet."""
        with self.lock:
            if self.total and (not self.work["known"] or chance.random() < 0.5):
                # Threads acknowledge out of order: only what is below the oldest batch under way is surely there.
                oldest = min(self.under_way, default=self.next_number)
                sure = (oldest - self.work["first"]) // self.work["step"]
                if sure > 0:
                    return int(self.work["first"] + self.work["step"] * chance.randrange(sure))
        known: int = self.work["known"]
        return chance.randrange(known) if known else -1


def operate(shared: Shared, number: int) -> None:
    """The life of one thread."""
    work = shared.work
    chance = random.Random(work["seed"] * 1000 + number)  # noqa: S311 - which document is read, no secret
    maker = Maker(work["document_bytes"], work["compressible"], work["keys"], work["span"])
    rate = work["documents_per_second"]
    pause = work["batch_size"] * work["threads"] / rate if rate else 0.0
    due = time.monotonic() + pause * number / work["threads"]
    try:
        with connect(work["uri"], maxPoolSize=1, **work["options"]) as client:
            targets = [client.get_database(d).get_collection(c) for d, c in work["targets"]]
            while not shared.stop.is_set():
                target = targets[chance.randrange(len(targets))] if len(targets) > 1 else targets[0]
                if work["reads"] and chance.random() < work["reads"]:
                    wanted = shared.known(chance)
                    if wanted >= 0:
                        _read(shared, target, wanted, several=len(targets) > 1)
                        continue
                if work["reads"] == 1:
                    raise PhaseError("NothingToRead", "a load of reads alone needs documents that are there before it")
                if pause:
                    if shared.stop.wait(max(0.0, due - time.monotonic())):
                        return
                    due = max(due + pause, time.monotonic() - pause)
                numbers = shared.take()
                if not numbers:
                    return
                _insert(shared, target, numbers[0], [RawBSONDocument(encode(maker.document(n))) for n in numbers])
    except (PhaseError, PyMongoError) as error:
        with shared.lock:
            shared.error = shared.error or error
        shared.stop.set()


def _insert(shared: Shared, target: Any, first: int, batch: list[RawBSONDocument]) -> None:
    began = time.perf_counter()
    reply = target.database.command(
        {
            "insert": target.name,
            "documents": batch,
            "ordered": False,
            "writeConcern": shared.work["write_concern"],
        }
    )
    micros = int((time.perf_counter() - began) * 1e6)
    check(reply, len(batch))
    with shared.lock:
        shared.inserts.append((time.time(), micros))
        shared.documents += len(batch)
        shared.total += len(batch)
        shared.under_way.discard(first)


def _read(shared: Shared, target: Any, number: int, *, several: bool) -> None:
    began = time.perf_counter()
    found = target.find_one({"_id": key(number, shared.work["keys"], shared.work["span"])})
    micros = int((time.perf_counter() - began) * 1e6)
    # Over several collections a document is in one of them only, and which is not known here.
    if not several and (found is None or found["n"] != number):
        raise PhaseError("LostDocument", f"document {number} was acknowledged and is not found by its _id")
    with shared.lock:
        shared.reads.append((time.time(), micros))


def report(shared: Shared) -> None:
    """Tell the parent what was done since the last time."""
    with shared.lock:
        inserts, reads, documents = shared.inserts, shared.reads, shared.documents
        shared.inserts, shared.reads, shared.documents = [], [], 0
    say(inserts=[(round(t, 3), us) for t, us in inserts], reads=[(round(t, 3), us) for t, us in reads],
        documents=documents)  # fmt: skip


def listen(shared: Shared) -> None:
    """Wait for "stop", or for the end of the parent's line."""
    sys.stdin.readline()
    shared.stop.set()


def run(work: dict[str, Any]) -> None:
    """All of it. Raises what a thread has met."""
    shared = Shared(work, next_number=work["first"])
    with connect(work["uri"], maxPoolSize=1, **work["options"]) as client:
        client.admin.command("ping")
    say(ready=True)
    if not told_to_go():
        return
    began = time.process_time()
    threads = [threading.Thread(target=operate, args=(shared, n), daemon=True) for n in range(work["threads"])]
    threading.Thread(target=listen, args=(shared,), daemon=True).start()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            if thread.is_alive():
                thread.join(REPORT_SECONDS)
                break
        report(shared)
        if shared.error is not None:
            raise shared.error
    if shared.error is not None:
        raise shared.error
    report(shared)
    say(finished=True, total=shared.total, cpu_seconds=time.process_time() - began)


if __name__ == "__main__":
    leave(serve(run))
