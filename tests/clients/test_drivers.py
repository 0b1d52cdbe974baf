"""Node's and Go's drivers: the same program against one mongod and against the embedded mongos, answers compared.

`make compare-mongos MONGOS=/path/to/mongos` compares with that mongos, on the same cluster, instead of with a mongod.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.embedded.sharded_cluster import Client, free_port
from tests.cluster.embedded.lab import SmallCluster, small_cluster
from tests.cluster.mongosh import npm_package
from tests.cluster.workloads.mongods import start_mongod, stop_mongod

HERE = Path(__file__).parent
NODE_DRIVER = "mongodb@6.22.0"
GO_DRIVER = "go.mongodb.org/mongo-driver/v2@v2.10.0"

pytestmark = [pytest.mark.cluster, pytest.mark.long]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    with small_cluster(tmp_path_factory.mktemp("drivers")) as started:
        yield started


@pytest.fixture(scope="module")
def reference(cluster: SmallCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of the server whose answers are right."""
    folder = tmp_path_factory.mktemp("reference")
    if real := os.environ.get("MICROSHARD_COMPARE_MONGOS"):
        port = free_port()
        command = [real, "--configdb", cluster.config, "--port", str(port), "--logpath", str(folder / "log")]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as mongos:
            yield f"mongodb://127.0.0.1:{port}/"
            mongos.terminate()
    else:
        mongod = start_mongod(folder)
        yield f"mongodb://127.0.0.1:{mongod.port}/"
        stop_mongod(mongod)


def node(folder: Path) -> list[str]:
    """The command that runs the program of Node's driver."""
    (folder / "node_modules").symlink_to(npm_package(NODE_DRIVER))
    return ["node", str(shutil.copy(HERE / "works.mjs", folder / "works.mjs"))]


def go(folder: Path) -> list[str]:
    """The command that runs the program of Go's driver, built once for each version of it."""
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    cache = Path(tempfile.gettempdir(), f"microshard-test-go-{os.getuid()}")
    environment = {**os.environ, "GOPATH": str(cache), "GOCACHE": str(cache / "build"), "GOFLAGS": "-modcacherw"}
    shutil.copy(HERE / "works.go", folder)
    for arguments in (["mod", "init", "works"], ["get", GO_DRIVER], ["mod", "tidy"], ["build", "-o", "works", "."]):
        done = subprocess.run(
            ["go", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        if arguments[0] == "get" and done.returncode:
            pytest.skip(f"go cannot get {GO_DRIVER}: {done.stderr.strip()[-200:]}")
        assert done.returncode == 0, done.stderr
    return [str(folder / "works")]


def answers(command: list[str], uri: str) -> dict[str, Any]:
    done = subprocess.run([*command, uri], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("program", [node, go])
def test_answers_are_those_of_the_reference(
    cluster: SmallCluster, reference: str, program: Any, tmp_path: Path
) -> None:
    command = program(tmp_path)
    found = []
    for uri in (reference, cluster.uri):
        for server in (uri, cluster.uri):
            with Client(server) as client:
                client.drop_database("works")
        cluster.client.admin.command("shardCollection", "works.docs", key={"k": "hashed"})
        found.append(answers(command, uri))
    expected, seen = found
    assert len(expected) > 20
    assert {name: (seen.get(name), value) for name, value in expected.items() if seen.get(name) != value} == {}
    assert cluster.client.works.command("collStats", "docs")["shards"].keys() == {"shard0", "shard1"}
