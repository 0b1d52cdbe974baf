"""A real small cluster for tests and benchmarks, and what they read of its processes."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError

from microshard.embedded.sharded_cluster import Client, MongosProcess, ShardedCluster


def wait_until(condition: Callable[[], Any], seconds: float = 60.0, what: str = "the condition") -> Any:
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(PyMongoError, OSError):
            if value := condition():
                return value
        assert time.monotonic() < end, f"{what} did not become true within {seconds} s"
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def direct(port: int, **options: Any) -> Client:
    return Client("127.0.0.1", port, directConnection=True, **options)


class SmallCluster(ShardedCluster):
    """A cluster of which a test knows who owns what."""

    def owners(self, namespace: str) -> set[str]:
        uuid = self.client.config.collections.find_one({"_id": namespace})["uuid"]  # type: ignore[index]
        return set(self.client.config.chunks.distinct("shard", {"uuid": uuid}))


@contextlib.contextmanager
def small_cluster(folder: Path, shards: int = 2) -> Iterator[SmallCluster]:
    with SmallCluster(folder, shards) as cluster:
        yield cluster


@contextlib.contextmanager
def another_mongos(cluster: SmallCluster, folder: Path, *arguments: str) -> Iterator[MongosProcess]:
    """A second mongos of the cluster."""
    started = MongosProcess(cluster.config, folder, list(arguments))
    try:
        started.wait_ready()
        yield started
    finally:
        started.stop(signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def cpu_seconds(pid: int) -> float:
    """Time of CPU a process has used with all its threads, those that have ended too; resolution 1 ns.

    /proc/PID/stat counts in ticks of 10 ms. The clock's number is made as clock_getcpuclockid(3) makes it in glibc.
    """
    return time.clock_gettime((~pid << 3) | 2)
