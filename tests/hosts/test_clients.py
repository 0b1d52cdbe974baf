"""YCSB from two client hosts at the same time, and from one of them after the other is gone."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.records.run_folder import find_runs
from microshard.workloads.ycsb.clients import BUILT_JAR
from tests.hosts.bed import Bed
from tests.hosts.controller import Controller, gone, one_point_lost
from tests.hosts.readme_examples import converge
from tests.hosts.test_roles_by_hand import archive_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("jlink") is None, reason="there is no JDK to make a JRE of"),
    pytest.mark.skipif(not BUILT_JAR.exists(), reason="the YCSB client is not built (make clients)"),
]

# What the client and the driver use; machines of the bed reach no package source.
_MODULES = "java.logging,java.management,java.naming,java.security.sasl,java.sql,jdk.crypto.ec,jdk.unsupported"
_JAVA = "/opt/lab-java"
_OPTIONS = ["-XX:TieredStopAtLevel=1", "-Xmx128m"]


@pytest.fixture(scope="module")
def java(lab: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A JRE on the second and the third machine; its path there."""
    made = tmp_path_factory.mktemp("java") / "jre"
    words = ["--add-modules", _MODULES, "--strip-debug", "--no-header-files", "--no-man-pages", "--output", str(made)]
    subprocess.run(["jlink", *words], check=True, timeout=100)
    for machine in lab.machines[1:]:
        shutil.copytree(made, machine.root / _JAVA.lstrip("/"), symlinks=True)
    yield f"{_JAVA}/bin/java"
    for machine in lab.machines[1:]:
        shutil.rmtree(machine.root / _JAVA.lstrip("/"))


@pytest.fixture
def controller(lab: Bed, java: str, tmp_path: Path) -> Iterator[Controller]:
    groups = {"shard_hosts": ["host1"], "client_hosts": ["host2", "host3"]}
    made = Controller(lab, tmp_path, lab.write_inventory(groups, name="clients", ycsb_client_java=java))
    yield made
    made.run("down")


def experiment(*points: tuple[int, int]) -> dict[str, Any]:
    """A load and a measurement, point after point: from so many client hosts, for so many seconds."""
    keys = {"engine": "ycsb", "records": 2000, "clients": 2, "threads": 4, "java_options": _OPTIONS}
    return {
        "microshard": 1,
        "name": "clients",
        "topology": {"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}},
        "workload": [{"load": {**keys, "batch_size": 20}}, {"measure": {**keys, "warm_up_seconds": 2}}],
        "matrix": {
            "include": [
                {"infrastructure.client_hosts.count": hosts, "workload.1.measure.duration_seconds": seconds}
                for hosts, seconds in points
            ]
        },
        "repetitions": 1,
        "order": {"policy": "sequential"},
    }


@pytest.mark.timeout(700)
def test_two_client_hosts_begin_together_and_their_parts_become_one_result(controller: Controller) -> None:
    code, said = controller.run("run", controller.write(experiment((2, 5))), "--on", controller.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    step = folder / "results" / "p01" / "r1"
    load, measure = json.loads(step.with_suffix(".json").read_text())["phases"]
    assert load["counters"]["documents"] == 2000
    assert load["storage"]["data_bytes"] > 0
    parts = [
        json.loads((step / "hosts" / host / "measure.json").read_text())["phases"][0] for host in ("host2", "host3")
    ]
    assert abs(parts[0]["started"] - parts[1]["started"]) < 1.5  # intervals of the logs are a second long
    assert measure["metric"]["value"] == pytest.approx(sum(part["metric"]["value"] for part in parts))
    for name in ("READ", "UPDATE"):
        counts = [part["latency"][name]["count"] for part in parts]
        assert min(counts) > 0
        assert measure["latency"][name]["count"] == sum(counts)
    assert measure["details"]["clients"] == 2
    assert {"client/host2", "client/host3"} <= set(measure["telemetry"]["processes"])
    assert (step / "hosts" / "host3" / "measure" / "measure" / "client2-READ.hdr").exists()
    assert controller.left() == []


@pytest.mark.timeout(700)
def test_a_client_host_that_is_killed_fails_its_point_by_name_and_the_other_points_are_kept(
    controller: Controller,
) -> None:
    lab, host = controller.bed, controller.bed.machines[2]
    with gone(lab, host, "kill") as vanish:
        process = controller.start("run", controller.write(experiment((2, 30), (1, 3))), "--on", controller.inventory)
        logs = "ls /var/lib/microshard/*/results/p01/r1/hosts/host3/measure/measure/client2-READ.hdr"
        deadline = time.monotonic() + 200
        while lab.ssh(host, logs).returncode != 0:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.3)
        vanish()
        one_point_lost(controller, process, "has vanished")


# YCSB's own workload, on the mongod that was installed beside it.
_LOAD = f"""
mkdir /tmp/ycsb
/opt/mongodb-6.0/bin/mongod --fork --dbpath /tmp/ycsb --logpath /tmp/ycsb/log --port 27500 --nounixsocket
{_JAVA}/bin/java -cp /opt/ycsb/ycsb-mongodb.jar site.ycsb.Client -load -db site.ycsb.db.MongoDbClient \\
  -p mongodb.url=mongodb://127.0.0.1:27500/ycsb -p workload=site.ycsb.workloads.CoreWorkload -p recordcount=50 2>&1
/opt/mongodb-6.0/bin/mongod --shutdown --dbpath /tmp/ycsb
rm -rf /opt/mongodb-6.0 /opt/ycsb /tmp/ycsb
"""


@pytest.mark.timeout(400)
def test_mongodb_and_the_client_alone_by_hand(lab: Bed, java: str, tmp_path: Path) -> None:
    archive_of(tmp_path / "mongodb.tgz")
    shutil.copy(BUILT_JAR, tmp_path / "ycsb-mongodb.jar")
    inventory = lab.write_inventory({"client_hosts": ["host2"]}, name="by-hand", ycsb_client_java=java)
    converge(lab, "ycsb_client", tmp_path, inventory=inventory)
    assert "[INSERT], Return=OK, 50" in lab.machines[1].enter("sh", "-c", _LOAD)
