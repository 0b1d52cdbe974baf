"""A relay as a process of its own: `python -m microshard.workloads.link.relay`.

Standard input: one JSON line {"host", "port", "delay_ms", "rate_mbps", "parent"}, later "stop". Standard output:
{"port"} where it listens on loopback, at the end {"up", "down"}: bytes it has carried to the server and from it. All
connections share the link. A piece of data leaves when those before it have left at the given rate, and arrives
`delay_ms` later; each direction has its own rate, as a full-duplex line has. It is no network: no packets, no loss.
"bind" is another address to listen on. With "namespace" it connects from a network namespace of its own (kernel.py) and
is told the port in a second line.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

from microshard.hostlib.lifetime import die_with_parent

PIECE = 16_384  # bytes read at a time: 1 ms of a link of 131 Mbit/s
CLONE_NEWNET = 0x40000000  # linux/sched.h
QUEUE = 64  # pieces under way a connection; beyond that the sender has to wait, as with full socket buffers


@dataclass(slots=True)
class Direction:
    """One direction of the link."""

    delay: float  # s
    bytes_per_second: float | None
    carried: int = 0
    free_at: float = 0.0

    def arrives(self, size: int, now: float) -> float:
        """When a piece that comes now is at the other end."""
        self.carried += size
        if self.bytes_per_second:
            self.free_at = max(self.free_at, now) + size / self.bytes_per_second
            return self.free_at + self.delay
        return now + self.delay


@dataclass(slots=True)
class Link:
    """The link and who uses it."""

    host: str
    port: int
    up: Direction
    down: Direction
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        try:
            there_reader, there_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            carry(reader, there_writer, self.up), carry(there_reader, writer, self.down), return_exceptions=True
        )


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction) -> None:
    """Bytes from one socket to the other, late and no faster than the link."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE)

    async def deliver() -> None:
        while True:
            at, data = await queue.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    delivery = loop.create_task(deliver())
    try:
        while data := await reader.read(PIECE):
            await queue.put((way.arrives(len(data), loop.time()), data))
    except OSError:
        pass
    await queue.put((way.arrives(0, loop.time()), b""))
    await delivery


def leave_network() -> None:
    """Connect from a network namespace of one's own from now on; what listens goes on where it was."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace: {os.strerror(number)}")


async def run(work: dict[str, Any]) -> None:
    """Listen until told to stop."""
    rate = None if work["rate_mbps"] is None else work["rate_mbps"] * 1e6 / 8
    delay = work["delay_ms"] / 1000
    link = Link(work["host"], work["port"], Direction(delay, rate), Direction(delay, rate))
    server = await asyncio.start_server(link.serve, work.get("bind", "127.0.0.1"), 0)
    if work.get("namespace"):
        leave_network()
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    if work.get("namespace"):
        # Its network is made meanwhile; then it is told where to connect to.
        line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        link.port = int(json.loads(line)["port"])
        print("{}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print(json.dumps({"up": link.up.carried, "down": link.down.carried}), flush=True)


def main() -> int:
    """The command; returns the exit code."""
    work = json.loads(sys.stdin.readline())
    die_with_parent(work["parent"])
    asyncio.run(run(work))
    return 0


if __name__ == "__main__":
    sys.exit(main())
