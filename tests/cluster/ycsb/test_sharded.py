"""Several clients through several mongos: each has one; one that dies is named."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.embedded.sharded_cluster import MongosProcess
from microshard.model.result import PhaseResult
from microshard.records import codec
from microshard.workloads.ycsb.engine import YcsbEngine
from tests.cluster.embedded.lab import SmallCluster, small_cluster, wait_until
from tests.cluster.workloads.mongods import Started, execute, shard_infos
from tests.cluster.ycsb.conftest import phase

pytestmark = pytest.mark.long


@pytest.fixture
def two_routers(tmp_path: Path) -> Iterator[tuple[SmallCluster, MongosProcess]]:
    """Two shards, two mongos, YCSB's collection sharded by the hash of its key."""
    with small_cluster(tmp_path) as cluster:
        second = MongosProcess(cluster.config, tmp_path)
        second.wait_ready()
        cluster.client.admin.command("enableSharding", "ycsb")
        cluster.client.admin.command("shardCollection", "ycsb.usertable", key={"_id": "hashed"})
        yield cluster, second
        second.stop(signal.SIGKILL)


def start(
    folder: Path,
    cluster: SmallCluster,
    second: MongosProcess,
    *phases: dict[str, Any],
    part: dict[str, int] | None = None,
) -> Started:
    """A job against both mongos, for one of several client hosts if `part` says so."""
    routers = {"mongos1": cluster.mongos, "mongos2": second}
    processes = shard_infos(cluster.shards, folder, "{name}/pid")
    for name, mongos in routers.items():
        pid = folder / f"{name}.pid"  # next to the log that the command line names
        pid.write_text(f"{mongos.pid}\n")
        processes.append(
            {"name": name, "role": "mongos", "endpoint": f"127.0.0.1:{mongos.port}", "db_path": None,
             "pid_path": str(pid), "host": "local"}
        )  # fmt: skip
    point = {"id": "p01", "shards": 2, "topology": "sharded", "cores": 2, "processes": processes, "collections": []}
    uri = "mongodb://" + ",".join(f"127.0.0.1:{mongos.port}" for mongos in routers.values()) + "/"
    job = {"connection_string": uri, "point": point, "phases": phases}
    return execute(folder, job | ({"part": part} if part else {}))


def _ended(started: Started) -> bool:
    return started.process.poll() is not None


def test_every_client_uses_its_own_mongos_and_a_dead_one_is_named(
    two_routers: tuple[SmallCluster, MongosProcess], tmp_path: Path
) -> None:
    cluster, second = two_routers
    started = start(
        tmp_path,
        cluster,
        second,
        phase("load", clients=2, mongos="own", batch_size=50),
        phase("measure", clients=2, mongos="own", duration_seconds=90),
    )
    log = started.out.with_suffix("") / "measure" / "client2-READ.hdr"
    wait_until(
        lambda: _ended(started) or (log.exists() and log.read_text().count("\n") > 4), 100, "the first operations"
    )
    assert not _ended(started), started.finish()
    os.kill(second.pid, signal.SIGKILL)
    second.process.wait()
    code, result, errors = started.finish(120)
    assert code == 3, errors
    assert result["phases"][0]["counters"]["documents"] == 2000
    assert set(result["phases"][0]["storage"]["by_shard"]) == {"shard0", "shard1"}
    error = result["phases"][1]["error"]
    assert error["type"] == "ProcessDied"
    assert f"mongos2 (127.0.0.1:{second.port})" in error["message"]
    assert "client2" in error["message"]


def test_two_client_hosts_load_their_shares_and_merge_into_one_result(
    two_routers: tuple[SmallCluster, MongosProcess], tmp_path: Path
) -> None:
    cluster, second = two_routers
    read: dict[str, Any] = {"read": 1.0}
    load = phase("load", clients=2, batch_size=50)
    # Both begin at once, since every host checks that the collection is empty.
    loads = [start(tmp_path, cluster, second, load, part={"index": n, "of": 2}) for n in (0, 1)]
    assert [job.finish(120)[0] for job in loads] == [0, 0]
    assert cluster.client["ycsb"]["usertable"].count_documents({}) == 2000
    run = phase("measure", clients=2, warm_up_seconds=2, duration_seconds=4, proportions=read)
    runs = [start(tmp_path, cluster, second, run, part={"index": n, "of": 2}) for n in (0, 1)]
    results = [job.finish(120) for job in runs]
    assert [code for code, _, _ in results] == [0, 0], [errors for _, _, errors in results]
    single = [result["phases"][0] for _, result, _ in results]
    merged = YcsbEngine.merge(
        {f"c{n}": codec.decode(PhaseResult, each) for n, each in enumerate(single)}, PhaseResult()
    )
    assert merged.latency["READ"].count == sum(p["latency"]["READ"]["count"] for p in single)
    assert merged.metric is not None
    assert merged.metric.value == pytest.approx(sum(p["metric"]["value"] for p in single))
    assert merged.details["clients"] == 2
    for part in single:
        assert part["details"]["routing"]["toShards"] > 100
