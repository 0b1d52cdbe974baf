"""A real small cluster for tests and benchmarks: config server, shards, embedded mongos, on free loopback ports."""

import concurrent.futures
import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from microshard.embedded import binary
from microshard.embedded.router_mongod import die_with_parent

Client = pymongo.MongoClient[dict[str, Any]]
MONGOS = Path(sys.executable).with_name("mongos")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


class Mongos:
    """One embedded mongos as a child of this process."""

    def __init__(self, config: str, folder: Path, arguments: Sequence[str] = (), port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = folder
        self.log = folder / f"mongos-{self.port}.log"
        self.process = subprocess.Popen(
            [MONGOS, "--configdb", config, "--port", str(self.port), "--logpath", self.log, "--logappend", *arguments],
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - nothing but an exec follows
        )
        self.pid = self.process.pid

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")[-2000:]
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True

        wait_until(ready, what="the mongos")

    def client(self, **options: Any) -> Client:
        return Client("127.0.0.1", self.port, **options)

    def router_pid(self) -> int:
        with self.client() as client:
            return int(client.admin.command("serverStatus")["microshard"]["routerMongod"]["pid"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(30)


class SmallCluster:
    """One config server, some shards, one embedded mongos; everything in one folder."""

    def __init__(self, folder: Path, shards: int = 2) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.config_port = free_port()
        self.config = f"cfg/127.0.0.1:{self.config_port}"
        self.shards = {f"shard{number}": free_port() for number in range(shards)}
        members = [("cfg", self.config_port, "--configsvr")]
        members += [(name, port, "--shardsvr") for name, port in self.shards.items()]
        for name, port, role in members:
            self._spawn(name, port, role)
        self.mongos = Mongos(self.config, folder)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda member: self._initiate(*member), members))
        self.mongos.wait_ready()
        self.client = self.mongos.client()
        for name, port in self.shards.items():
            self.client.admin.command("addShard", f"{name}/127.0.0.1:{port}")

    def _spawn(self, name: str, port: int, role: str) -> None:
        data = self.folder / name
        data.mkdir()
        command: list[str | Path] = [
            binary.find_mongod(), role, "--replSet", name, "--port", str(port), "--bind_ip", "127.0.0.1",
            "--nounixsocket", "--dbpath", data, "--logpath", data / "mongod.log", "--wiredTigerCacheSizeGB", "0.25",
            "--oplogSize", "16", "--setParameter", "diagnosticDataCollectionEnabled=false",
            "--setParameter", "orphanCleanupDelaySecs=1",
        ]  # fmt: skip
        self.processes.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509
        )

    @staticmethod
    def _initiate(name: str, port: int, role: str) -> None:
        with direct(port) as client:
            wait_until(lambda: client.admin.command("ping"), what=name)
            members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
            configsvr = {"configsvr": True} if role == "--configsvr" else {}
            client.admin.command("replSetInitiate", {"_id": name, "members": members, **configsvr})
            wait_until(lambda: client.admin.command("hello")["isWritablePrimary"], what=f"primary of {name}")

    def shard(self, name: str) -> Client:
        return direct(self.shards[name])

    def owners(self, namespace: str) -> set[str]:
        uuid = self.client.config.collections.find_one({"_id": namespace})["uuid"]  # type: ignore[index]
        return set(self.client.config.chunks.distinct("shard", {"uuid": uuid}))

    def stop(self) -> None:
        self.client.close()
        self.mongos.stop(signal.SIGKILL)
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@contextlib.contextmanager
def small_cluster(folder: Path, shards: int = 2) -> Iterator[SmallCluster]:
    cluster = SmallCluster(folder, shards)
    try:
        yield cluster
    finally:
        cluster.stop()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def cpu_seconds(pid: int) -> float:
    """Time of CPU a process has used with all its threads, those that have ended too; resolution 1 ns.

    /proc/PID/stat counts in ticks of 10 ms. The clock's number is made as clock_getcpuclockid(3) makes it in glibc.
    """
    return time.clock_gettime((~pid << 3) | 2)
