"""Child processes that report JSON lines: started together, watched together, ended together."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from microshard.workloads.base import PhaseError

STALL_SECONDS = 120.0  # without a word from any worker; a checkpoint of a slow disk may hold writes for a minute


@dataclass(slots=True)
class Worker:
    """A child and what of its output has not become a line yet."""

    process: subprocess.Popen[bytes]
    rest: bytes = b""
    finished: bool = False


@dataclass(slots=True)
class Workers:
    """The children of one phase."""

    module: str
    members: list[Worker] = field(default_factory=list)

    def start(self, works: list[dict[str, Any]]) -> None:
        """One child for each piece of work; it gets the work as its first line, with our pid in `parent`."""
        for work in works:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
            self.members.append(Worker(process))
            self._send(process, json.dumps(work | {"parent": os.getpid()}))

    def go(self) -> None:
        """Let all of them begin."""
        self.tell("go")

    def tell(self, line: str) -> None:
        """Send a line to each that still works."""
        for worker in self.members:
            if not worker.finished:
                self._send(worker.process, line)

    @staticmethod
    def _send(process: subprocess.Popen[bytes], line: str) -> None:
        assert process.stdin is not None  # noqa: S101 - for the type checker: it was asked for above
        try:
            process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            return  # it has ended; messages() will say so

    def messages(self) -> Iterator[dict[str, Any]]:
        """What the children say, until each has said `ready` (if none is running yet) or `finished`.

        Raises PhaseError for an error they report, for one that ends without a word, and after STALL_SECONDS.
        """
        with selectors.DefaultSelector() as selector:
            for worker in self.members:
                if not worker.finished and worker.process.stdout is not None:
                    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            heard = time.monotonic()
            while selector.get_map():
                events = selector.select(timeout=1.0)
                if not events and time.monotonic() - heard > STALL_SECONDS:
                    raise PhaseError("Stalled", f"no worker has made progress for {STALL_SECONDS:.0f} s")
                for key, _ in events:
                    heard = time.monotonic()
                    worker = key.data
                    data = os.read(key.fd, 65536)
                    for message in self._lines(worker, data):
                        yield message
                        worker.finished = worker.finished or "finished" in message
                        if "ready" in message or worker.finished:
                            selector.unregister(key.fileobj)
                            break

    @staticmethod
    def _lines(worker: Worker, data: bytes) -> list[dict[str, Any]]:
        """The whole lines among what came. Raises PhaseError for an error or an unexpected end."""
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
        """Kill what still runs and reap all. Safe to call again."""
        for worker in self.members:
            if worker.process.poll() is None and not worker.finished:
                worker.process.kill()
        for worker in self.members:
            worker.process.wait()
            for pipe in (worker.process.stdin, worker.process.stdout):
                if pipe is not None:
                    pipe.close()
        self.members.clear()
