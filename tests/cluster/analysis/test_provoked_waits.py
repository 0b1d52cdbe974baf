"""What operations wait for inside the servers, provoked: locks, other members, checkpoints, a router's pool."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from microshard.analysis.bottleneck_rules import candidates
from microshard.hostlib import throttle
from microshard.hostlib.emulated_volumes import group as volume_group
from tests.cluster.analysis.lab import Lab, fill, first_in_line, summary_of, verdict
from tests.cluster.analysis.test_provoked import volume
from tests.cluster.embedded.lab import small_cluster
from tests.cluster.workloads.mongods import Mongod, shard_infos, start_mongod, start_replica_set, stop_mongod

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.long]

Start = Callable[..., Mongod]


@pytest.fixture
def pair(tmp_path: Path, lab: Lab) -> Iterator[Callable[..., list[Mongod]]]:
    """Start a replica set of two: what its secondary has not got is not committed."""
    running: list[Mongod] = []

    def run(*options: str) -> list[Mongod]:
        with first_in_line():
            running.extend(start_replica_set(tmp_path, 2, *options)[0])
        fill(running[0], 1000)
        return running

    yield run
    for mongod in running:
        os.kill(mongod.pid(), signal.SIGCONT)
        stop_mongod(mongod)


def observed(
    lab: Lab, members: Sequence[Mongod], kind: str, meanwhile: Callable[[threading.Event], object], **how: Any
):
    servers = [mongod.info | {"replica_set": "rs0"} for mongod in members]
    uri = f"mongodb://127.0.0.1:{members[0].port}/?directConnection=true"
    return lab.run(servers, kind, uri=uri, meanwhile=meanwhile, **how)


def locked(mongod: Mongod) -> Callable[[threading.Event], None]:
    """Nothing is written by this mongod until the end."""

    def hold(over: threading.Event) -> None:
        with mongod.client() as client:
            client.admin.command("fsync", lock=True)
            over.wait()
            client.admin.command("fsyncUnlock")

    return hold


def test_flow_control_of_a_primary_whose_secondary_writes_nothing(lab: Lab, pair: Callable[..., list[Mongod]]) -> None:
    parameters = ("flowControlTargetLagSeconds=2", "flowControlMinTicketsPerSecond=5")
    members = pair(*(word for each in parameters for word in ("--setParameter", each)))
    seen = observed(lab, members, "update", locked(members[1]), connections=4, seconds=12)
    found = verdict(seen)
    assert found.name == "replication", summary_of(seen)
    assert found.figures["flow_control_wait_share"] > 0.5, summary_of(seen)


def test_a_secondary_that_falls_behind(lab: Lab, pair: Callable[..., list[Mongod]]) -> None:
    members = pair("--setParameter", "enableFlowControl=false")
    seen = observed(lab, members, "seldom", locked(members[1]), seconds=9)
    found = verdict(seen)
    assert found.name == "replication", summary_of(seen)
    assert 5 <= found.figures["lag_seconds"] <= 10
    assert "rs0-2" in found.sentence


def test_a_write_concern_that_waits_for_a_slow_secondary(lab: Lab, pair: Callable[..., list[Mongod]]) -> None:
    members = pair()

    def slow(over: threading.Event) -> None:
        """It runs a fifth of the time."""
        while not over.is_set():
            os.kill(members[1].pid(), signal.SIGSTOP)
            time.sleep(0.08)
            os.kill(members[1].pid(), signal.SIGCONT)
            time.sleep(0.02)

    seen = observed(lab, members, "majority", slow, connections=2, seconds=6)
    found = verdict(seen)
    assert found.name == "replication", summary_of(seen)
    assert found.figures["write_concern_wait_share"] > 0.5


def test_writes_that_wait_for_the_lock_of_a_collection(lab: Lab, tmp_path: Path) -> None:
    with first_in_line():
        mongod = start_mongod(tmp_path / "shard01", "--setParameter", "enableTestCommands=1")
    try:
        fill(mongod, 1000)

        def hold(over: threading.Event) -> None:
            with mongod.client() as client:
                while not over.wait(0.02):
                    client.admin.command({"sleep": 1, "lock": "w", "lockTarget": "test.things", "millis": 300})

        uri = f"mongodb://127.0.0.1:{mongod.port}/?directConnection=true"
        seen = lab.run([mongod.info], "update", uri=uri, connections=4, seconds=5, meanwhile=hold)
    finally:
        stop_mongod(mongod)
    found = verdict(seen)
    assert found.name == "lock or ticket", summary_of(seen)
    assert seen.shards[0].waits["lock"] > 2, "of four connections"


def test_a_checkpoint_of_much_dirty_data_on_a_slow_volume(lab: Lab, tmp_path: Path) -> None:
    """Journaled inserts need little of the volume; for half of the time a checkpoint needs all of it."""
    with volume(tmp_path, throughput_mibps=6):
        with first_in_line():
            mongod = start_mongod(tmp_path / "shard01", "--wiredTigerEngineConfigString", "log=(prealloc=false)")
        if throttle.controller().version == 2:
            group = throttle.controller().group(volume_group(tmp_path, "p01"))
            (group / "cgroup.procs").write_text(str(mongod.pid()))
        fill(mongod, 400, bytes_each=60_000)
        with mongod.client() as client:
            client["test"]["new"].insert_one({"j": True})  # its journal has all of them now

        def write(over: threading.Event) -> None:
            over.wait(3)
            with mongod.client() as client:
                client.admin.command("fsync")

        uri = f"mongodb://127.0.0.1:{mongod.port}/?directConnection=true"
        try:
            seen = lab.run([mongod.info], "paced", uri=uri, connections=2, seconds=12, meanwhile=write)
        finally:
            stop_mongod(mongod)
    found = verdict(seen)
    assert found.name == "checkpoint", summary_of(seen)
    assert 0.1 < found.figures["checkpoint_loss"] < 0.7


def test_operations_that_evict_pages_themselves(lab: Lab, tmp_path: Path) -> None:
    """Every update is of a page that is not in the cache, and makes it one that must be written before it may go."""
    with first_in_line():
        mongod = start_mongod(tmp_path / "shard01", "--wiredTigerEngineConfigString", "cache_size=6M")
    try:
        fill(mongod, 600, bytes_each=60_000)
        uri = f"mongodb://127.0.0.1:{mongod.port}/?directConnection=true"
        seen = lab.run([mongod.info], "update", uri=uri, connections=4, seconds=5)
    finally:
        stop_mongod(mongod)
    # Where two cores do all of it they are the limit; what the cache costs is in the evidence.
    (found,) = [candidate for candidate in candidates(seen) if candidate.name == "cache"]
    assert found.figures["pages_evicted_by_operations"] > 100
    assert found.figures["stall_share"] > 0.1, summary_of(seen)
    assert "evicted" in found.sentence


def test_a_router_with_one_connection_to_a_shard(lab: Lab, tmp_path: Path) -> None:
    with small_cluster(tmp_path, shards=1) as cluster:
        cluster.client["test"]["things"].insert_many([{"_id": n, "n": n} for n in range(5000)])
        cluster.client.admin.command("setParameter", 1, ShardingTaskExecutorPoolMaxSize=1)
        endpoint = f"127.0.0.1:{cluster.mongos.port}"
        servers: list[dict[str, Any]] = [{"name": "mongos1", "role": "mongos", "endpoint": endpoint, "db_path": None}]
        servers[0] |= {"pid_path": str(tmp_path / "mongos1.pid"), "host": "local"}
        (tmp_path / "mongos1.pid").write_text(f"{cluster.mongos.pid}\n")
        servers += shard_infos(cluster.shards, tmp_path, "{name}.pid")
        for name, port in cluster.shards.items():
            pid = next(p.pid for p in cluster.processes if f"'{port}'" in str(p.args))
            (tmp_path / f"{name}.pid").write_text(f"{pid}\n")
        seen = lab.run(servers, "scan", uri=f"mongodb://{endpoint}/", connections=8, seconds=5)
    found = verdict(seen)
    assert found.name == "connection pool", summary_of(seen)
    assert found.figures["no_connection_share"] > 0.6
