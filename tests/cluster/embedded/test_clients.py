"""mlaunch and mongosh with the embedded mongos."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from microshard.embedded.sharded_cluster import Client
from tests.cluster import mongosh as mongosh_from_npm
from tests.cluster.embedded.lab import SmallCluster, wait_until

pytestmark = pytest.mark.cluster
BINARIES = Path(sys.executable).parent


def test_mlaunch_builds_a_cluster(tmp_path: Path) -> None:
    port = free_ports(5)
    data = tmp_path / "data"
    try:
        done = subprocess.run(
            [BINARIES / "mlaunch", "init", "--sharded", "2", "--replicaset", "--nodes", "1", "--bind_ip", "127.0.0.1",
             "--binarypath", BINARIES, "--dir", data, "--port", str(port), "--nounixsocket"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        with Client("127.0.0.1", port) as client:
            assert len(client.admin.command("listShards")["shards"]) == 2
            client.admin.command("shardCollection", "made.by_mlaunch", key={"_id": "hashed"})
            client.made.by_mlaunch.insert_many([{"_id": number} for number in range(100)])
            assert client.made.by_mlaunch.count_documents({}) == 100
    finally:
        end_processes_in(data)


def test_a_cluster_by_one_command(tmp_path: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "microshard.embedded.sharded_cluster",
        "--shards",
        "2",
        "--port",
        "0",
        tmp_path / "new",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with Client(process.stdout.readline().strip()) as client:
            client.admin.command("shardCollection", "shop.orders", key={"_id": "hashed"})
            client.shop.orders.insert_many([{"_id": number} for number in range(100)])
            assert len(client.shop.command("collStats", "orders")["shards"]) == 2
        started = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
    assert process.returncode == 0
    assert len(started) == 5
    wait_until(lambda: not any(child.is_running() for child in started), 10, "the end of the processes")
    again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert again.returncode == 2
    assert "not empty" in again.stderr


@pytest.mark.long
def test_the_fixture_starts_one_too(tmp_path: Path) -> None:
    tmp_path.joinpath("conftest.py").write_text(
        "from microshard.embedded.sharded_cluster import fixture\ncluster = fixture(shards=1)", encoding="utf-8"
    )
    tmp_path.joinpath("test_it.py").write_text(
        "def test_it(cluster):\n    assert cluster.client.admin.command('listShards')['shards']", encoding="utf-8"
    )
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def free_ports(count: int) -> int:
    """The first of so many free ports in a row: mlaunch counts upwards from the one it is given."""
    while True:
        first = random.randrange(20_000, 30_000)  # below the range of outgoing connections
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def end_processes_in(folder: Path) -> None:
    """End the processes with this test's folder on their command line."""
    started = [process for process in psutil.process_iter(["cmdline"])
               if any(str(folder) in argument for argument in process.info["cmdline"] or ())
               and process.pid != os.getpid()]  # fmt: skip
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):  # a router mongod ends with its mongos
            process.send_signal(signal.SIGTERM if "mongos" in process.name() else signal.SIGKILL)
    wait_until(lambda: not any(process.is_running() for process in started), 20, "the end of mlaunch's processes")


@pytest.fixture(scope="module")
def mongosh() -> Path:
    """mongosh from npm."""
    return mongosh_from_npm.installed()


def _run(mongosh: Path, cluster: SmallCluster, script: str, home: Path) -> str:
    done = subprocess.run(
        [mongosh, f"mongodb://127.0.0.1:{cluster.mongos.port}/shell", "--quiet", "--eval", script],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long  # npm installs mongosh first; in `make test-clients` and `make test-embedded` as well
def test_mongosh_administers_and_works(cluster: SmallCluster, mongosh: Path, tmp_path: Path) -> None:
    script = """
        sh.enableSharding("shell");
        sh.shardCollection("shell.things", {k: "hashed"});
        for (let i = 0; i < 50; i++) db.things.insertOne({_id: i, k: i});
        db.things.insertMany([{_id: 100, k: 100}, {_id: 101, k: 101}]);
        db.things.updateOne({k: 3}, {$set: {a: 1}});
        db.things.deleteOne({_id: 101});
        db.things.createIndex({a: 1});
        print(EJSON.stringify({
          n: db.things.countDocuments(), a: db.things.findOne({k: 3}).a, all: db.things.find().toArray().length,
          modified: db.things.findOneAndUpdate({k: 4}, {$set: {b: 2}}, {returnDocument: "after"}).b,
          indexes: db.things.getIndexes().length, distinct: db.things.distinct("k").length,
          sharded: db.things.stats().sharded, collections: db.getCollectionNames(),
          plan: db.things.find({k: 1}).explain().queryPlanner.winningPlan.stage,
          balancer: sh.getBalancerState(), databases: db.adminCommand({listDatabases: 1}).databases.length > 2,
        }));
    """
    answer: dict[str, Any] = json.loads(_run(mongosh, cluster, script, tmp_path).strip().splitlines()[-1])
    cluster.client.drop_database("shell")
    assert answer == {
        "n": 51, "a": 1, "all": 51, "modified": 2, "indexes": 3, "distinct": 51, "sharded": True,
        "collections": ["things"], "plan": "SINGLE_SHARD", "balancer": False, "databases": True,
    }  # fmt: skip


@pytest.mark.long
def test_mongosh_shows_the_status(cluster: SmallCluster, mongosh: Path, sharded: Any, tmp_path: Path) -> None:
    status = _run(mongosh, cluster, "sh.status()", tmp_path)
    for expected in ("shard0", "shard1", sharded.full_name, "active mongoses", "Currently enabled", "{ k: 1 }"):
        assert expected in status, f"{expected} is missing in:\n{status}"
