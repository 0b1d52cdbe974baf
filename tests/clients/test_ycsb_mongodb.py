"""YCSB with the binding of clients/ycsb-mongodb, as a built jar, through the embedded mongos."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.lab import SmallCluster, small_cluster

JAR = Path(__file__).parents[2] / "clients" / "ycsb-mongodb" / "target" / "ycsb-mongodb.jar"
RECORDS = 1050

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no java"),
    pytest.mark.skipif(not JAR.exists(), reason="clients/ycsb-mongodb is not built (mvn -q -DskipTests package)"),
]


@dataclass(frozen=True)
class Run:
    """What one YCSB client left: exit code, its results as {(series, measure): value}, report, standard error."""

    code: int
    results: dict[tuple[str, str], float]
    report: dict[str, Any]
    stderr: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallCluster]:
    with small_cluster(tmp_path_factory.mktemp("ycsb")) as started:
        yield started


@pytest.fixture(autouse=True)
def table(cluster: SmallCluster) -> Any:
    """YCSB's table, empty and sharded by the hash of its key, as the experiments have it."""
    cluster.client.drop_database("ycsb")
    cluster.client.admin.command("enableSharding", "ycsb")
    cluster.client.admin.command("shardCollection", "ycsb.usertable", key={"_id": "hashed"})
    return cluster.client["ycsb"]["usertable"]


def ycsb(cluster: SmallCluster, folder: Path, phase: str, **properties: object) -> Run:
    report = folder / "report.json"
    every = {
        "workload": "site.ycsb.workloads.CoreWorkload",
        "recordcount": RECORDS,
        "operationcount": 1000,
        "threadcount": 4,
        "mongodb.url": f"mongodb://127.0.0.1:{cluster.mongos.port}/ycsb",
        "mongodb.report": report,
    } | {name.replace("_", "."): value for name, value in properties.items()}
    command = ["java", "-cp", str(JAR), "site.ycsb.Client", phase, "-db", "site.ycsb.db.MongoDbClient"]
    for name, value in every.items():
        command += ["-p", f"{name}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    results = {}
    for line in done.stdout.splitlines():
        if line.startswith("[") and line.count(", ") == 2:
            series, measure, value = line.split(", ")
            results[series.strip("[]"), measure] = float(value)
    return Run(done.returncode, results, json.loads(report.read_text(encoding="utf-8")), done.stderr)


def test_a_load_in_batches_is_spread_over_the_shards(cluster: SmallCluster, table: Any, tmp_path: Path) -> None:
    run = ycsb(cluster, tmp_path, "-load", mongodb_batchsize=100)
    assert run.code == 0, run.stderr
    assert run.report["errors"] == []
    assert run.report["inserts"]["documents"] == RECORDS
    assert run.results["INSERT", "Operations"] == run.report["inserts"]["commands"]
    assert table.count_documents({}) == RECORDS
    held = [cluster.shard(name)["ycsb"]["usertable"].estimated_document_count() for name in cluster.shards]
    assert sum(held) == RECORDS
    assert min(held) > RECORDS / 4


def test_reads_updates_inserts_and_scans_go_through(cluster: SmallCluster, table: Any, tmp_path: Path) -> None:
    assert ycsb(cluster, tmp_path, "-load", dataintegrity="true").code == 0
    run = ycsb(
        cluster,
        tmp_path,
        "-t",
        dataintegrity="true",
        readproportion=0.4,
        updateproportion=0.3,
        insertproportion=0.2,
        scanproportion=0.1,
        maxscanlength=200,
    )
    assert run.code == 0, run.stderr
    assert run.report["errors"] == []
    done = {name: run.results[name, "Return=OK"] for name in ("READ", "UPDATE", "INSERT", "SCAN")}
    assert sum(done.values()) == 1000
    assert run.results["VERIFY", "Return=OK"] == done["READ"]
    assert table.count_documents({}) == RECORDS + done["INSERT"]


def test_errors_of_shards_are_counted_by_their_code(cluster: SmallCluster, table: Any, tmp_path: Path) -> None:
    assert ycsb(cluster, tmp_path, "-load", mongodb_batchsize=100, insertcount=200).code == 0
    # One thread gives up after its first failed batch: YCSB's rule for loads.
    run = ycsb(cluster, tmp_path, "-load", mongodb_batchsize=300, threadcount=1)
    [error] = run.report["errors"]
    assert (error["operation"], error["code"], error["name"], error["count"]) == ("INSERT", 11000, "DuplicateKey", 200)
    assert run.results["INSERT", "Return=ERROR_11000"] == 1
    assert table.count_documents({}) == 300


@pytest.mark.parametrize("concern", ["majority", "unacknowledged"])
def test_write_concerns_go_through(cluster: SmallCluster, table: Any, tmp_path: Path, concern: str) -> None:
    run = ycsb(cluster, tmp_path, "-load", mongodb_writeConcern=concern, mongodb_upsert="true")
    assert run.code == 0, run.stderr
    assert run.report["errors"] == []
    assert run.results["INSERT", "Return=OK"] == RECORDS
