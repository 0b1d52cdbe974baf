"""The embedded mongos against hostile clients: whatever they send, it serves the others, and its mongod lives.

A client here speaks bytes, not a driver (`hostile`). Between the batches a well-behaved client asks a question whose
answer is known.
"""

import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster.embedded.lab import SmallCluster, children, running
from tests.faults.hostile import ATTACKS, DATABASE, body_of, message, ping
from tests.faults.table import Row

DOCUMENTS = 200
TIMEOUT = 5.0  # seconds a client waits for an answer or for the connection to be closed
# What a process may grow by in a campaign, MiB: caches and allocator pools fill up, a leak goes on. The first batch is
# not counted.
GROWTH_MIB = {"mongos": 40, "router mongod": 120}
CONNECTIONS = 2000


def _send(port: int, data: bytes, rng: random.Random) -> None:
    """Send, perhaps slowly or in parts, read what comes, and leave, perhaps rudely."""
    with socket.socket() as client:
        client.settimeout(TIMEOUT)
        client.connect(("127.0.0.1", port))
        with contextlib.suppress(OSError):
            if rng.random() < 0.1 and len(data) < 300:
                for byte in data:
                    client.sendall(bytes([byte]))
            else:
                cut = rng.randrange(len(data) + 1)
                client.sendall(data[:cut])
                client.sendall(data[cut:])
            if rng.random() < 0.3:  # a reset instead of a farewell
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass


class Watch:
    """The servers while they are attacked: are they the same, do they grow, do they answer?"""

    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self.router = cluster.mongos.router_pid()
        self.pids = {"mongos": cluster.mongos.pid, "router mongod": self.router}
        for number, process in enumerate(cluster.processes):
            self.pids[f"mongod {number}"] = process.pid
        self.before = {name: _rss_mib(pid) for name, pid in self.pids.items()}
        self.files = _open_files(cluster.mongos.pid)

    def wrong(self) -> Iterator[str]:
        """What is not as it was."""
        for name, pid in self.pids.items():
            if not running(pid):
                yield f"{name} died"
        if self.router not in children(self.cluster.mongos.pid):
            yield "the router mongod was replaced"
        try:
            with self.cluster.mongos.client(serverSelectionTimeoutMS=10_000, socketTimeoutMS=20_000) as client:
                numbers = client[DATABASE].numbers
                if (
                    numbers.count_documents({"k": {"$lt": 50}}) != 50
                    or len(list(numbers.find({"even": True}))) != DOCUMENTS // 2
                ):
                    yield "a wrong answer to a well-behaved client"
        except Exception as error:  # noqa: BLE001 - any error is one too many
            yield f"a well-behaved client was not served: {error}"

    def grown(self) -> Iterator[str]:
        """What has grown beyond what caches explain."""
        for name, most in GROWTH_MIB.items():
            grown = _rss_mib(self.pids[name]) - self.before[name]
            if grown > most:
                yield f"{name} grew by {grown:.0f} MiB"
        deadline = time.monotonic() + 60
        while (files := _open_files(self.cluster.mongos.pid)) > self.files + 8 and time.monotonic() < deadline:
            time.sleep(0.2)
        if files > self.files + 8:
            yield f"mongos has {files - self.files} more open files"


def prepare(cluster: SmallCluster) -> None:
    """The data whose answers are known."""
    client = cluster.client
    client.admin.command("enableSharding", DATABASE, primaryShard="shard0")
    client.admin.command("shardCollection", f"{DATABASE}.numbers", key={"k": 1})
    client.admin.command("split", f"{DATABASE}.numbers", middle={"k": DOCUMENTS // 2})
    client.admin.command("moveChunk", f"{DATABASE}.numbers", find={"k": DOCUMENTS // 2}, to="shard1")
    client[DATABASE].numbers.insert_many([{"_id": n, "k": n, "even": n % 2 == 0} for n in range(DOCUMENTS)])


def campaign(
    cluster: SmallCluster,
    seed: int,
    each: int,
    tell: Callable[[str], None] = lambda _: None,
    connections: int = CONNECTIONS,
) -> list[Row]:
    """`each` messages of every kind, in batches of mixed kinds, then many connections at once."""
    rng = random.Random(seed)
    prepare(cluster)
    rows = {name: Row(name, "embedded mongos") for name in ATTACKS}
    plan = [name for name in ATTACKS for _ in range(each)]
    rng.shuffle(plan)
    warm = max(len(ATTACKS) * 5, len(plan) // 5)
    watch = Watch(cluster)
    recent: list[tuple[str, bytes]] = []
    for number, name in enumerate(plan, start=1):
        data = ATTACKS[name](rng)
        recent = [*recent[-49:], (name, data)]
        rows[name].times += 1
        try:
            _send(cluster.mongos.port, data, rng)
        except OSError as error:
            rows[name].lost.append(f"no connection after {data[:200]!r}: {error}")
        if number % 50 == 0 or number == len(plan):
            tell(f"{number:,} of {len(plan):,} messages")
            for wrong in watch.wrong():
                rows[name].lost.append(f"{wrong}; seed {seed}, after {recent!r}")
            if any(row.lost for row in rows.values()):
                return list(rows.values())
        if number == warm:
            watch = Watch(cluster)
    crowd = Row(f"{connections:,} connections", "embedded mongos", times=connections)
    crowd.lost += _crowd(cluster.mongos.port, connections)
    crowd.lost += watch.wrong()
    crowd.left += watch.grown()
    return [*rows.values(), crowd]


def _crowd(port: int, count: int) -> list[str]:
    """Very many clients at once that say nothing, or half a message."""
    clients: list[socket.socket] = []
    try:
        for number in range(count):
            client = socket.socket()
            client.settimeout(TIMEOUT)
            clients.append(client)
            client.connect(("127.0.0.1", port))
            if number % 3 == 0:
                client.sendall(message(body_of(ping()))[: 1 + number % 40])
        with socket.create_connection(("127.0.0.1", port), TIMEOUT) as one_more:
            one_more.sendall(message(body_of(ping())))
            one_more.settimeout(TIMEOUT)
            if not one_more.recv(16):
                return [f"with {count:,} connections no other was served"]
    except OSError as error:
        return [f"connection {len(clients):,}: {error}"]
    finally:
        for client in clients:
            client.close()
    return []


def _rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
