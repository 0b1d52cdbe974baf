"""Worker processes of engines, and both ends of the pipes to them.

The engine writes one JSON line with the work and "parent", its pid, and later "go" to the worker's standard input. The
worker writes JSON lines to its standard output: "ready" once it can start, its progress, and at the end one with
"finished", or with "error" and exit code 3. It dies with the engine.
"""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pymongo.errors import PyMongoError

from microshard.hostlib.proc import die_with_parent
from microshard.model.datasets import DataError
from microshard.workloads.base import PhaseError

FAILED = 3
REPORT_SECONDS = 0.25
STALL_SECONDS = 120.0  # without a message of any worker; a checkpoint on a slow disk may block writes for a minute

# --- the worker's end


def send(**message: Any) -> None:
    """Send a message to the engine."""
    print(json.dumps(message), flush=True)


def send_error(kind: str, message: str) -> int:
    """Send an error to the engine; returns the exit code that belongs to it."""
    send(error={"type": kind, "message": message})
    return FAILED


def wait_for_go() -> bool:
    """Wait for the start; False when the engine closes the pipe instead."""
    return sys.stdin.readline().strip() == "go"


def run_worker(work_on: Callable[[dict[str, Any]], int | None]) -> int:
    """Read the work and do it; errors of phase, data and server are sent to the engine. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole terminal; the parent decides
    work = json.loads(sys.stdin.readline())
    die_with_parent(work["parent"])
    try:
        return work_on(work) or 0
    except PhaseError as error:
        return send_error(error.kind, str(error))
    except DataError as error:
        return send_error("NoData", str(error))
    except PyMongoError as error:
        code = getattr(error, "code", None)
        return send_error(type(error).__name__, f"code {code}: {error}" if code is not None else str(error))


# --- the engine's end


@dataclass(slots=True)
class Worker:
    """A worker process and the part of its output that is not a whole line yet."""

    process: subprocess.Popen[bytes]
    rest: bytes = b""
    finished: bool = False


@dataclass(slots=True)
class Workers:
    """The worker processes of one phase: started, watched and ended together."""

    module: str
    workers: list[Worker] = field(default_factory=list)

    def start(self, works: list[dict[str, Any]]) -> None:
        """Start one worker for each piece of work."""
        for work in works:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            self.workers.append(Worker(process))
            self._write(process, json.dumps(work | {"parent": os.getpid()}))

    def wait_ready(self) -> None:
        """Wait until every worker is ready. Raises PhaseError as `messages` does."""
        for _ in self.messages():
            pass

    def go(self) -> None:
        """Let all workers begin."""
        self.send("go")

    def send(self, line: str) -> None:
        """Send a line to every worker that is still working."""
        for worker in self.workers:
            if not worker.finished:
                self._write(worker.process, line)

    @staticmethod
    def _write(process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        try:
            process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            return  # it has ended; messages() reports that

    def messages(self) -> Iterator[dict[str, Any]]:
        """The workers' messages, until each has sent `ready` (before the start) or `finished`.

        Raises PhaseError for an error they report, for one that ends without a message, and after STALL_SECONDS.
        """
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                if not worker.finished and worker.process.stdout is not None:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            last_message = time.monotonic()
            while selector.get_map():
                events = selector.select(timeout=1.0)
                if not events and time.monotonic() - last_message > STALL_SECONDS:
                    raise PhaseError("Stalled", f"no worker has made progress for {STALL_SECONDS:.0f} s")
                for key, _ in events:
                    last_message = time.monotonic()
                    worker = key.data
                    for message in self._parse(worker, os.read(key.fd, 65536)):
                        yield message
                        worker.finished = worker.finished or "finished" in message
                        if "ready" in message or worker.finished:
                            selector.unregister(key.fileobj)
                            break

    @staticmethod
    def _parse(worker: Worker, data: bytes) -> list[dict[str, Any]]:
        """The whole lines in what was read. Raises PhaseError for an error or an unexpected end."""
        if not data:
            code = worker.process.wait()
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            raise PhaseError("WorkerDied", f"a worker process (pid {worker.process.pid}) ended {how} before its work")
        *lines, worker.rest = (worker.rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if "error" in message:
                raise PhaseError(message["error"]["type"], message["error"]["message"])
        return messages

    def end(self) -> None:
        """Kill the workers that still run and reap all. Safe to call again."""
        for worker in self.workers:
            if worker.process.poll() is None and not worker.finished:
                worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    pipe.close()
        self.workers.clear()
