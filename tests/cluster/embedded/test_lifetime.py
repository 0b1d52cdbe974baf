"""Start, end and failures of the embedded mongos and its router mongod."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Int64
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError
from pymongo.server_api import ServerApi

from microshard.embedded import router_mongod
from microshard.embedded.mongod_connections import NO_CREDENTIALS, MongodConnection, MongodPool
from microshard.embedded.options import Options
from microshard.embedded.server_log import ServerLog
from microshard.embedded.sharded_cluster import Client, MongosProcess, free_port
from tests.cluster.embedded.lab import SmallCluster, another_mongos, direct, running, wait_until

pytestmark = pytest.mark.cluster
MONGOS = Path(sys.executable).with_name("mongos")


@pytest.fixture
def mongos(cluster: SmallCluster, tmp_path: Path) -> Iterator[MongosProcess]:
    """A second mongos of the cluster, for this test only."""
    with another_mongos(cluster, tmp_path) as started:
        yield started


@pytest.fixture
def things(cluster: SmallCluster) -> Iterator[Any]:
    """A collection with one document."""
    cluster.client.survives.things.insert_one({"_id": 1})
    yield cluster.client.survives.things
    cluster.client.drop_database("survives")


def _router_folders(folder: Path) -> list[Path]:
    return list(folder.glob("**/mongos-*-router"))


def test_sigterm_leaves_no_process_and_no_files(mongos: MongosProcess, tmp_path: Path) -> None:
    router = mongos.router_pid()
    assert running(router)
    assert len(_router_folders(tmp_path)) == 1
    assert mongos.stop() == 0
    assert not running(router)
    assert [path.name for path in tmp_path.iterdir()] == [mongos.log.name]
    assert not Path(f"/tmp/mongodb-{mongos.port}.sock").exists()  # noqa: S108 - where the server would put it


def test_the_command_shutdown_ends_it_too(mongos: MongosProcess, tmp_path: Path) -> None:
    # As with a real one, the connection may close before the answer.
    with mongos.client() as client, contextlib.suppress(AutoReconnect):
        client.admin.command("shutdown")
    assert mongos.process.wait(20) == 0
    assert _router_folders(tmp_path) == []


def test_a_killed_mongos_takes_its_router_mongod_along(
    cluster: SmallCluster, mongos: MongosProcess, tmp_path: Path
) -> None:
    router = mongos.router_pid()
    mongos.stop(signal.SIGKILL)
    wait_until(lambda: not running(router), 10, "the end of the router mongod")
    (left,) = _router_folders(tmp_path)
    foreign = tmp_path / "mongos-1-router"
    foreign.mkdir()
    live = MongosProcess(cluster.config, tmp_path)
    live.wait_ready()
    again = MongosProcess(cluster.config, tmp_path)
    try:
        again.wait_ready()
        assert not left.exists()
        assert foreign.exists(), "a folder without an owner is not removed"
        assert running(live.router_pid()), "nor is that of a living mongos"
    finally:
        again.stop()
        live.stop()


def test_every_command_names_its_api_version_where_that_is_required(mongos: MongosProcess, things: Any) -> None:
    with mongos.client() as client, mongos.client(server_api=ServerApi("1", strict=True)) as versioned:
        assert client.survives.things.find_one()
        assert client.admin.command("setParameter", requireApiVersion=True)["was"] is False
        for command in ({"ping": 1}, {"find": "things"}, {"getMore": Int64(1), "collection": "things"}):
            with pytest.raises(OperationFailure) as refused:
                client.survives.command(command)
            assert refused.value.code == 498870
        assert versioned.survives.things.count_documents({}) == 1
        assert versioned.survives.things.find_one() == {"_id": 1}
    with mongos.client(server_api=ServerApi("1")) as client:
        parameters = client.admin.command("getParameter", requireApiVersion=1)
        assert parameters["requireApiVersion"] is True
        assert client.admin.command("setParameter", requireApiVersion=False)["was"] is True
    assert things.find_one() == {"_id": 1}


def test_that_can_be_required_from_the_start(cluster: SmallCluster, tmp_path: Path) -> None:
    with (
        another_mongos(cluster, tmp_path, "--setParameter", "requireApiVersion=true") as required,
        required.client(serverSelectionTimeoutMS=1000) as client,
        required.client(server_api=ServerApi("1")) as versioned,
    ):
        with pytest.raises(PyMongoError, match="apiVersion parameter is required"):
            client.admin.command("ping")
        assert versioned.admin.command("getParameter", requireApiVersion=1)["requireApiVersion"] is True


def test_a_port_that_another_mongod_was_quicker_to_take(
    cluster: SmallCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([cluster.config_port, free_port()])
    monkeypatch.setattr(router_mongod, "free_ports", lambda _count: [next(ports)])
    router = router_mongod.RouterMongod(cluster.mongod, tmp_path, Options(port=1), NO_CREDENTIALS, ServerLog())
    try:
        router.spawn()
        asyncio.run(router.become_primary())
        assert router.port != cluster.config_port
    finally:
        router.remove()
    with direct(cluster.config_port) as client:
        assert client.admin.command("hello")["setName"] == "cfg"


def test_a_killed_router_mongod_is_restarted_and_the_error_is_retryable(mongos: MongosProcess, things: Any) -> None:
    with mongos.client(retryReads=False) as client:
        things = client.survives.things
        assert things.find_one() == {"_id": 1}
        before = mongos.router_pid()
        sleep = {"$function": {"body": "function() { sleep(5000); return 1; }", "args": [], "lang": "js"}}
        failed: list[PyMongoError] = []

        def slow() -> None:
            try:
                list(things.aggregate([{"$set": {"x": sleep}}], comment="slow"))
            except PyMongoError as error:
                failed.append(error)

        thread = threading.Thread(target=slow)
        thread.start()
        time.sleep(0.5)
        killed = time.monotonic()
        os.kill(before, signal.SIGKILL)
        thread.join(10)
        assert time.monotonic() - killed < 5
        # HostUnreachable: drivers retry a read after it
        assert [error.code for error in failed if isinstance(error, OperationFailure)] == [6]
        wait_until(things.find_one, 20, "an answer after the restart")
        assert mongos.router_pid() not in (0, before)
        assert client.admin.command("serverStatus")["microshard"]["routerMongod"]["restarts"] == 1


def test_reads_with_default_options_survive_a_killed_router_mongod(mongos: MongosProcess, things: Any) -> None:
    with mongos.client() as client:
        client.survives.things.find_one()
        os.kill(mongos.router_pid(), signal.SIGKILL)
        for _ in range(20):
            assert client.survives.things.find_one() == {"_id": 1}


def test_a_client_that_leaves_as_its_reply_comes_breaks_no_other_request(cluster: SmallCluster) -> None:
    async def exchange() -> None:
        loop, ping = asyncio.get_running_loop(), {"ping": 1}

        class Pool(MongodPool):
            def release(self, connection: MongodConnection) -> None:
                """The reply has come: before its coroutine runs, another takes the connection."""
                super().release(connection)
                if not following:
                    following.append(loop.create_task(self.call("admin", ping)))
                    loop.call_soon(leaving.cancel)

        following: list[asyncio.Task[Any]] = []
        pool = Pool(("127.0.0.1", cluster.config_port))
        leaving = loop.create_task(pool.call("admin", ping))
        with pytest.raises(asyncio.CancelledError):
            await leaving
        assert await following[0]
        assert len(pool.idle) == 1  # one connection served both
        # A client that leaves before the reply takes the operation with it.
        slow = loop.create_task(pool.call("admin", {"hello": 1, "maxAwaitTimeMS": 60_000, "topologyVersion": version}))
        await asyncio.sleep(0.2)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await asyncio.sleep(0.1)
        assert not pool.in_use
        pool.close()

    version = direct(cluster.config_port).admin.command("hello")["topologyVersion"]
    asyncio.run(exchange())


def test_it_waits_for_its_config_server(tmp_path: Path) -> None:
    waiting = MongosProcess(f"cfg/127.0.0.1:{free_port()}", tmp_path)
    try:
        wait_until(lambda: list(tmp_path.glob("*/data/WiredTiger")), 20, "the router mongod")
        assert waiting.process.poll() is None
    finally:
        assert waiting.stop() == 0
    assert _router_folders(tmp_path) == []


def test_a_signal_during_the_start_leaves_nothing(cluster: SmallCluster, tmp_path: Path) -> None:
    for number in range(3):
        early = MongosProcess(cluster.config, tmp_path)
        wait_until(lambda: list(tmp_path.glob("*/owner.json")), 20, "the router mongod's folder")
        time.sleep(0.05 * number)
        assert early.stop() == 0
        assert _router_folders(tmp_path) == []


def _fork(config: str, log: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [MONGOS, "--configdb", config, "--fork", "--logpath", log, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_fork_returns_when_it_serves(cluster: SmallCluster, tmp_path: Path) -> None:
    port, pid_file = free_port(), tmp_path / "mongos.pid"
    done = _fork(cluster.config, tmp_path / "log", "--port", str(port), "--pidfilepath", pid_file)
    pid = int(pid_file.read_text(encoding="ascii"))
    try:
        assert done.returncode == 0
        assert f"forked process: {pid}" in done.stdout
        with Client("127.0.0.1", port) as client:
            assert client.admin.command("hello")["msg"] == "isdbgrid"
            router = client.admin.command("serverStatus")["microshard"]["routerMongod"]["pid"]
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not running(pid), 20, "the end of the forked mongos")
    assert not running(router)
    assert not pid_file.exists()


def test_a_fork_that_fails_says_so(tmp_path: Path) -> None:
    done = _fork("cfg/127.0.0.1:1", tmp_path / "log", "--setParameter", "noSuch=1")
    assert done.returncode != 0
    assert "ERROR: child process failed" in done.stdout
    assert "noSuch" in (tmp_path / "log").read_text(encoding="utf-8")


def test_options_of_a_yaml_file_take_effect(cluster: SmallCluster, tmp_path: Path) -> None:
    port, routers, log = free_port(), tmp_path / "routers", tmp_path / "log"
    config = {
        "net": {"port": port, "bindIp": "127.0.0.1", "unixDomainSocket": {"enabled": False},
                "compression": {"compressors": "snappy,zlib"}, "maxIncomingConnections": 100},
        "sharding": {"configDB": cluster.config},
        "systemLog": {"destination": "file", "path": str(log), "logAppend": True, "logRotate": "reopen"},
        "processManagement": {"pidFilePath": str(tmp_path / "pid")},
        "operationProfiling": {"slowOpThresholdMs": 50},
        "setParameter": {"microshardRouterPath": str(routers), "ShardingTaskExecutorPoolMinSize": 2},
    }  # fmt: skip
    (tmp_path / "mongos.conf").write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
    process = subprocess.Popen([MONGOS, "--config", tmp_path / "mongos.conf"])
    try:
        wait_until((tmp_path / "pid").exists, 30, "the pid file")
        with Client("127.0.0.1", port, compressors="zlib") as client:
            offered = ["zstd", "snappy", "zlib"]
            assert client.admin.command("hello", compression=offered)["compression"] == ["snappy", "zlib"]
            assert client.admin.command("getCmdLineOpts")["parsed"]["net"]["port"] == port
            pool = client.admin.command("getParameter", ShardingTaskExecutorPoolMinSize=1)
            assert pool["ShardingTaskExecutorPoolMinSize"] == 2
            assert client.admin.command("serverStatus")["connections"]["available"] < 100
        assert len(_router_folders(routers)) == 1
        logged = log.read_text(encoding="utf-8")
        assert '"option": "slowms"' in logged, "an option without effect is named in the log"
        log.rename(tmp_path / "log.old")
        process.send_signal(signal.SIGUSR1)
        wait_until(log.exists, 10, "the reopened log")
    finally:
        process.terminate()
        assert process.wait(20) == 0
    assert not routers.exists()
    assert not (tmp_path / "pid").exists()


def test_a_taken_port_is_named(cluster: SmallCluster, tmp_path: Path) -> None:
    second = MongosProcess(cluster.config, tmp_path, port=cluster.mongos.port)
    assert second.process.wait(30) == 48
    assert str(cluster.mongos.port) in second.log.read_text(encoding="utf-8")
    assert _router_folders(tmp_path) == []


def test_the_log_has_the_servers_format(mongos: MongosProcess) -> None:
    for line in mongos.log.read_text(encoding="utf-8").splitlines():
        assert {"t", "s", "c", "id", "ctx", "msg"} <= json.loads(line).keys()
