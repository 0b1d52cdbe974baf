"""Real stand-alone mongods, jobs for them and the command that runs a job."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from microshard.embedded.binary import find_mongod, version
from microshard.embedded.sharded_cluster import free_port
from tests.unit.workloads.jobs import parameters

START_SECONDS = 30.0


@dataclass
class Mongod:
    """A stand-alone mongod in a folder of its own, with the files a deployment would have."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]
    role: str = "standalone"

    @property
    def info(self) -> dict[str, Any]:
        """How a job describes it."""
        return {
            "name": self.folder.name,
            "role": self.role,
            "endpoint": f"127.0.0.1:{self.port}",
            "db_path": str(self.folder / "data"),
            "pid_path": str(self.folder / "pid"),
            "host": "local",
        }

    def client(self) -> MongoClient[dict[str, Any]]:
        return MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=5000)

    def pid(self) -> int:
        """The pid that its pid file names now (a cold phase starts it anew)."""
        return int((self.folder / "pid").read_text())


def start_mongod(folder: Path, *options: str) -> Mongod:
    (folder / "data").mkdir(parents=True)
    port = free_port()
    mongod = find_mongod()
    # From 5.0 on: a member would wait for elections on SIGTERM.
    quick = ("--setParameter", "shutdownTimeoutMillisForSignaledShutdown=0") if version(mongod) >= (5, 0) else ()
    command = [
        str(mongod),
        *("--port", str(port), "--bind_ip", "127.0.0.1", "--nounixsocket", "--dbpath", str(folder / "data")),
        *("--logpath", str(folder / "mongod.log"), "--logappend", "--wiredTigerCacheSizeGB", "0.25"),
        *quick,
        *("--setParameter", "diagnosticDataCollectionEnabled=false"),
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (folder / "pid").write_text(f"{process.pid}\n")
    started = Mongod(folder, port, process, "member" if "--replSet" in options else "standalone")
    deadline = time.monotonic() + START_SECONDS
    with started.client() as client:
        while True:
            try:
                client.admin.command("ping")
                return started
            except PyMongoError:
                assert process.poll() is None, (folder / "mongod.log").read_text()[-2000:]
                assert time.monotonic() < deadline
                time.sleep(0.05)


def stop_mongod(mongod: Mongod) -> None:
    """Kill it, and what a cold phase started in its place; the data is thrown away."""
    mongod.process.kill()
    mongod.process.wait()
    pid = mongod.pid()
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        command = b""
    if str(mongod.folder).encode() in command:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(mongod.folder / "data", ignore_errors=True)


PIPELINE = json.loads((Path(__file__).parents[3] / "experiments/pipelines/mot_greenness.json").read_text())
LOAD = parameters("insert", documents=20_000, seed=3, processes=2)
QUERY = parameters("aggregate", pipeline=PIPELINE, iterations=2)


def load(**changes: Any) -> dict[str, Any]:
    return {"name": "load", "kind": "load", "engine": "insert", "parameters": LOAD | changes}


def query(**changes: Any) -> dict[str, Any]:
    return {"name": "measure", "kind": "measure", "engine": "aggregate", "parameters": QUERY | changes}


@dataclass
class Started:
    """The engines' command, running."""

    process: subprocess.Popen[str]
    out: Path
    progress: Path

    def finish(self, seconds: float = 60) -> tuple[int, dict[str, Any], str]:
        """Exit code, result and standard error."""
        _, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, json.loads(self.out.read_text()) if self.out.exists() else {}, errors


RunJob = Callable[..., Started]


def start_replica_set(folder: Path, members: int, *options: str) -> tuple[list[Mongod], str]:
    """Mongods of one replica set, the first of them primary, all caught up; and its connection string."""
    mongods = [start_mongod(folder / f"rs0-{n}", "--replSet", "rs0", *options) for n in range(1, members + 1)]
    # Only the first can become primary, so no election is lost to another candidate.
    hosts: list[dict[str, Any]] = [
        {"_id": n, "host": f"127.0.0.1:{m.port}", "priority": int(n == 0)} for n, m in enumerate(mongods)
    ]
    with mongods[0].client() as client:
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": hosts})
        deadline = time.monotonic() + START_SECONDS
        while True:
            states = [m["stateStr"] for m in client.admin.command("replSetGetStatus")["members"]]
            ready = sorted(states) == ["PRIMARY"] + ["SECONDARY"] * (members - 1)
            if ready and client.admin.command("isMaster")["ismaster"]:  # a primary first has to catch up
                break
            assert time.monotonic() < deadline, states
            time.sleep(0.1)
    return mongods, f"mongodb://{','.join(h['host'] for h in hosts)}/?replicaSet=rs0"


def execute(folder: Path, job: dict[str, Any]) -> Started:
    """Start `python -m microshard.workloads` with this job."""
    number = len(list(folder.glob("job*.json")))
    path, out, progress = (folder / f"{name}{number}.json" for name in ("job", "result", "progress"))
    path.write_text(json.dumps(job))
    command = [sys.executable, "-m", "microshard.workloads", "--job", str(path), "--out", str(out)]
    process = subprocess.Popen([*command, "--progress", str(progress)], stderr=subprocess.PIPE, text=True)
    return Started(process, out, progress)


def shard_infos(ports: Mapping[str, int], folder: Path, pid_path: str) -> list[dict[str, Any]]:
    """The shards of a small cluster as the processes of a job; `pid_path` is that of `{name}`."""
    return [
        {"name": name, "role": "shard", "endpoint": f"127.0.0.1:{port}", "db_path": str(folder / name),
         "pid_path": str(folder / pid_path.format(name=name)), "host": "local"}
        for name, port in ports.items()
    ]  # fmt: skip


def start_job(
    folder: Path, mongods: list[Mongod], *phases: dict[str, Any], uri: str | None = None, ranges: int = 0
) -> Started:
    """Start `python -m microshard.workloads` for these phases against these mongods (the first is the entry point).

    `ranges`: the job says that LOAD's collection has so many key ranges, all on the first mongod.
    """
    bounds = [None, *(k << 32 for k in range(1, ranges)), None]
    chunks = [{"shard": "mongod1", "lower": low, "upper": high} for low, high in pairwise(bounds)]
    point = {
        "id": "p01",
        "shards": 0,
        "topology": "replica_set" if uri else "standalone",
        "cores": 2,
        "processes": [mongod.info for mongod in mongods],
        "collections": [{"namespace": LOAD["namespace"], "chunks": chunks}] if ranges else [],
    }
    uri = uri or f"mongodb://127.0.0.1:{mongods[0].port}/"
    return execute(folder, {"connection_string": uri, "point": point, "phases": phases})
