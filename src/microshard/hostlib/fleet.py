"""All processes of a point on one host, brought to a state together."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TypeVar

from . import proc
from .mongo_process import MongoProcess, Outcome, ProcessProblem
from .primary import settle
from .refused import Refused

# A mongod waits for its disk now and then, so two a core keep the cores busy. More do not help: 17 mongods on 2 cores
# listen after 1.7 to 2.1 s with 2, 4, 6 and 18 at a time, but with files not in the page cache all at once took 2.6 s.
_PER_CORE = 2
_START_ORDER = {"config": 0, "mongos": 1}

_Result = TypeVar("_Result")


class Fleet:
    """The processes of this host, and how to do one thing to all of them at the same time."""

    def __init__(self, processes: Iterable[MongoProcess], *, check: bool = False, concurrency: int = 0) -> None:
        self.processes = list(processes)
        self.check = check
        self.concurrency = concurrency or _PER_CORE * (os.cpu_count() or 1)

    def start(self, *, timeout: float, stop_timeout: float) -> list[Outcome]:
        """Every process runs with its configuration and every mongod answers; config servers and mongos first.

        A mongos serves nobody before the config servers are initiated, so it is not waited for.
        """
        deadline = time.monotonic() + timeout
        ordered = sorted(self.processes, key=lambda p: _START_ORDER.get(p.role, 2))
        outcomes = _together(
            self.concurrency,
            [partial(p.start, deadline, stop_timeout=stop_timeout, check=self.check) for p in ordered],
        )
        if not self.check:
            for process in self.processes:
                if process.running() is None:
                    raise ProcessProblem(f"{process.label} ended right after its start.{process.quoted_log()}")
            records = _together(self.concurrency, [partial(p.observe) for p in ordered])
            outcomes = [replace(outcome, record=record) for outcome, record in zip(outcomes, records)]
        return outcomes

    def park(self) -> list[Outcome]:
        """Every process is held. Routers first, so that none of them waits for a shard that is held already."""
        ordered = sorted(self.processes, key=lambda p: p.role != "mongos")
        population = proc.everyone()
        # One at a time keeps the order; the pool's way with failures holds the others also when one has died.
        return _together(1, [partial(p.park, population, check=self.check) for p in ordered], to_the_end=True)

    def resume(self, *, timeout: float) -> list[Outcome]:
        """Every process continues, every replica set has a primary, every mongos routes."""
        deadline = time.monotonic() + timeout
        population = proc.everyone()
        outcomes = [process.wake(population, check=self.check) for process in self.processes]
        if not self.check:
            awakened = {outcome.name for outcome in outcomes if outcome.did}
            sets = [members for members in self._replica_sets() if awakened & {member.name for member in members}]
            _together(len(sets) or 1, [partial(settle, members, deadline) for members in sets])
            _together(len(self.processes) or 1, [partial(p.await_ready, deadline) for p in self.processes])
        return outcomes

    def _replica_sets(self) -> list[list[MongoProcess]]:
        """The sets of several members; a single member stays what it is, however long it was held."""
        sets: dict[str, list[MongoProcess]] = {}
        for process in self.processes:
            if process.replica_set:
                sets.setdefault(process.replica_set, []).append(process)
        return [members for members in sets.values() if len(members) > 1]

    def stop(self, *, timeout: float) -> list[Outcome]:
        """No process runs; each was asked first and had `timeout` seconds."""
        return _together(
            len(self.processes) or 1,
            [partial(p.stop, grace=timeout, check=self.check) for p in self.processes],
        )

    def restart(self, *, timeout: float, stop_timeout: float, between: Callable[[], None]) -> list[Outcome]:
        """Every process has ended and runs again as in `start`; `between` is done while none of them runs."""
        if not self.processes:
            return []
        gone = {outcome.name: outcome.did for outcome in self.stop(timeout=stop_timeout)}
        if not self.check:
            between()
        outcomes = self.start(timeout=timeout, stop_timeout=stop_timeout)
        return [replace(o, did=f"{gone[o.name]} and started" if gone[o.name] else o.did) for o in outcomes]

    def remove(self, *, mongos_grace: float) -> list[Outcome]:
        """No process runs, nothing of them is on disk, and the deployment's folder is gone if it is empty now."""
        population = proc.everyone()
        outcomes = _together(
            len(self.processes) or 1,
            [
                partial(p.remove, mongos_grace=mongos_grace, check=self.check, population=population)
                for p in self.processes
            ],
        )
        if not self.check:
            for parent in {os.path.dirname(p.folder) for p in self.processes}:
                with contextlib.suppress(OSError):
                    os.rmdir(parent)
        return outcomes


def _together(concurrency: int, actions: list[Callable[[], _Result]], *, to_the_end: bool = False) -> list[_Result]:
    """The results of all actions, in their order.

    After a failure nothing more is begun (unless `to_the_end`), what has begun is waited for, and all failures are
    told together.
    """
    with ThreadPoolExecutor(concurrency) as pool:
        futures = [pool.submit(action) for action in actions]
        wait(futures, return_when=ALL_COMPLETED if to_the_end else FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
    failed = [future for future in futures if not future.cancelled() and future.exception()]
    problems = [future.exception() for future in failed]
    for future, problem in zip(failed, problems):
        if not isinstance(problem, (Refused, OSError)):
            future.result()  # a mistake of ours: raised as it is, with its trace
    if problems:
        raise ProcessProblem("\n".join(str(problem) for problem in problems))
    return [future.result() for future in futures]
