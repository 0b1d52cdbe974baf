"""A sharded cluster for tests and trying out: a config server, shards and an embedded mongos, in one folder.

    python -m microshard.embedded.sharded_cluster --shards 2 --port 27017 FOLDER

Every replica set has one member, every process listens on loopback and ends with the process that started it. From
Python it is a context manager (`ShardedCluster(folder)`), for pytest a fixture (`fixture`).
"""

import argparse
import concurrent.futures
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pymongo
from pymongo.errors import PyMongoError

from microshard.embedded.binary import BinaryError, find_mongod
from microshard.embedded.router_mongod import die_with_parent, free_ports

Client = pymongo.MongoClient[dict[str, Any]]
START_LIMIT = 60.0  # s, for every step of the start
_STOP_LIMIT = 30.0  # s


class StartError(RuntimeError):
    """A process of the cluster ended or did not answer in time; the message has the last lines of its log."""


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens at the moment, none of those that clients are given."""
    return free_ports(1)[0]


def _wait_until(condition: Callable[[], Any], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_LIMIT
    while True:
        with contextlib.suppress(PyMongoError, OSError):
            if condition():
                return
        if process.poll() is not None or time.monotonic() > end:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:] if log.exists() else []
            raise StartError(f"{log.stem} did not start (exit code {process.poll()}):\n" + "\n".join(lines))
        time.sleep(0.02)


class MongosProcess:
    """One embedded mongos as a child of this process."""

    def __init__(self, config: str, folder: Path, arguments: Sequence[str | Path] = (), port: int = 0) -> None:
        """Start it for the config servers `replicaSet/host:port`; `arguments` are further options of mongos."""
        self.port = port or free_port()
        self.log = folder / f"mongos-{self.port}.log"
        program = [sys.executable, "-m", "microshard.embedded.mongos"]
        options = ["--configdb", config, "--port", str(self.port), "--logpath", self.log, "--logappend", *arguments]
        self.process = subprocess.Popen(
            [*program, *options],
            stdout=subprocess.DEVNULL,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - nothing but an exec follows
        )
        self.pid = self.process.pid

    def wait_ready(self) -> None:
        """Wait until it accepts clients. StartError."""

        def accepts() -> bool:
            # its log, not its port: on a busy machine another process may have been quicker to take that
            return '"Waiting for connections"' in self.log.read_text(encoding="utf-8")

        _wait_until(accepts, self.process, self.log)

    def client(self, **options: Any) -> Client:
        """A new client of it."""
        return Client("127.0.0.1", self.port, **options)

    def router_pid(self) -> int:
        """Process id of its router mongod."""
        with self.client() as client:
            return int(client.admin.command("serverStatus")["microshard"]["routerMongod"]["pid"])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(_STOP_LIMIT)


class ShardedCluster:
    """One config server, some shards and one embedded mongos; leaving the context ends them, their files stay."""

    def __init__(self, folder: Path, shards: int = 2, *, port: int = 0, mongod: Path | None = None) -> None:
        """Start it in a folder, which is made when it does not exist, and wait until it takes writes.

        `port` is the mongos's (0: a free one), `mongod` the program (None: the packaged one). StartError, BinaryError.
        """
        self.folder = folder
        self.mongod = mongod or find_mongod()
        self.processes: list[subprocess.Popen[bytes]] = []  # the config server's and the shards'
        self.config_port, mongos_port, *ports = free_ports(shards + 2)
        self.config = f"cfg/127.0.0.1:{self.config_port}"
        self.shards = {f"shard{number}": port for number, port in enumerate(ports)}
        members = [("cfg", self.config_port, "--configsvr")]
        members += [(name, shard, "--shardsvr") for name, shard in self.shards.items()]
        for name, member, role in members:
            self._spawn(name, member, role)
        parameter = ["--setParameter", f"microshardMongod={mongod}"] if mongod else []
        self.mongos = MongosProcess(self.config, folder, parameter, port or mongos_port)
        try:
            with concurrent.futures.ThreadPoolExecutor() as pool:
                list(pool.map(self._initiate, members, self.processes))
            self.mongos.wait_ready()
            self.client = self.mongos.client()
            for name, shard in self.shards.items():
                self.client.admin.command("addShard", f"{name}/127.0.0.1:{shard}")
        except BaseException:
            self._kill()
            raise

    @property
    def uri(self) -> str:
        """The connection string of its mongos."""
        return f"mongodb://127.0.0.1:{self.mongos.port}/"

    def _spawn(self, name: str, port: int, role: str) -> None:
        data = self.folder / name
        data.mkdir(parents=True)
        command: list[str | Path] = [
            self.mongod, role, "--replSet", name, "--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket",
            "--dbpath", data, "--logpath", data / "mongod.log", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "16",
            "--setParameter", "diagnosticDataCollectionEnabled=false", "--setParameter", "orphanCleanupDelaySecs=1",
        ]  # fmt: skip
        self.processes.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509
        )

    def _initiate(self, member: tuple[str, int, str], process: subprocess.Popen[bytes]) -> None:
        name, port, role = member
        log = self.folder / name / "mongod.log"
        with Client("127.0.0.1", port, directConnection=True) as client:
            _wait_until(lambda: client.admin.command("ping"), process, log)
            members = [{"_id": 0, "host": f"127.0.0.1:{port}"}]
            configsvr = {"configsvr": True} if role == "--configsvr" else {}
            client.admin.command("replSetInitiate", {"_id": name, "members": members, **configsvr})
            _wait_until(lambda: client.admin.command("hello")["isWritablePrimary"], process, log)

    def shard(self, name: str) -> Client:
        """A new client of one shard itself."""
        return Client("127.0.0.1", self.shards[name], directConnection=True)

    def stop(self) -> None:
        """End every process at once; the data is not meant to be opened again."""
        self.client.close()
        self._kill()

    def _kill(self) -> None:
        self.mongos.stop(signal.SIGKILL)
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait(_STOP_LIMIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def fixture(shards: int = 2, *, scope: Any = "session", **options: Any) -> Any:
    """A pytest fixture that starts a cluster in a temporary folder; a conftest.py has `cluster = fixture(shards=2)`."""
    import pytest  # noqa: PLC0415 - only tests have it

    @pytest.fixture(scope=scope)
    def cluster(tmp_path_factory: Any) -> Iterator[ShardedCluster]:
        with ShardedCluster(tmp_path_factory.mktemp("cluster"), shards, **options) as started:
            yield started

    return cluster


def main(argv: Sequence[str] | None = None) -> int:
    """Start a cluster, print its connection string, and end it at a signal. 1 when it does not start."""
    parser = argparse.ArgumentParser(prog="microshard-cluster", description="A sharded MongoDB cluster for tests.")
    parser.add_argument("folder", nargs="?", type=Path, help="new folder for data and logs (default: a temporary one)")
    parser.add_argument("--shards", type=int, default=2, help="their number (default: 2)")
    parser.add_argument("--port", type=int, default=27017, help="of the mongos, 0 for a free one (default: 27017)")
    parser.add_argument("--mongod", type=Path, help="the program to use instead of the packaged one")
    chosen = parser.parse_args(argv)
    if chosen.folder and chosen.folder.exists() and any(chosen.folder.iterdir()):
        parser.error(f"{chosen.folder} is not empty")
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with tempfile.TemporaryDirectory(prefix="microshard-cluster-") as temporary:
        try:
            with ShardedCluster(chosen.folder or Path(temporary), chosen.shards, port=chosen.port,
                                mongod=chosen.mongod) as cluster:  # fmt: skip
                print(cluster.uri, flush=True)
                ended.wait()
        except (StartError, BinaryError, PyMongoError) as error:
            print(f"microshard-cluster: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
