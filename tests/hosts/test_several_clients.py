"""Every engine on two and three client hosts: the totals and answers of one, and the loss of a host by name."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.records.run_folder import find_runs
from tests.hosts.bed import Bed
from tests.hosts.controller import Controller, gone, one_point_lost

pytestmark = pytest.mark.long
NAMESPACE = "lab.pairs"


@pytest.fixture
def controller(lab: Bed, tmp_path: Path) -> Iterator[Controller]:
    groups = {"shard_hosts": ["host1"], "client_hosts": ["host2", "host3", "host1"]}
    made = Controller(lab, tmp_path, lab.write_inventory(groups, name="several"))
    yield made
    made.run("down")


def experiment(*workload: dict[str, Any], points: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "microshard": 1,
        "name": "several",
        "topology": {"kind": "standalone", "storage": {"cache": {"policy": "host_total_mb", "value": 256}}},
        "workload": list(workload),
        "matrix": {"include": points},
        "repetitions": 1,
        "order": {"policy": "sequential"},
    }


INSERT = {"engine": "insert", "dataset": "pairs", "namespace": NAMESPACE, "documents": 9001, "processes": 3}
SUM = {"$group": {"_id": None, "n": {"$sum": 1}, "ids": {"$sum": "$_id"}}}
AGGREGATE = {"engine": "aggregate", "namespace": NAMESPACE, "pipeline": [SUM], "iterations": 4, "connections": 3}
LOAD = {"threads": 3, "documents": 2001, "batch_size": 50, "document_bytes": 400}
TRAFFIC = {"engine": "traffic", "namespace": NAMESPACE, "load": LOAD}
READERS = {"engine": "readers", "namespace": NAMESPACE, "threads": 3, "rate": 90, "read_preference": "primary"}
TIMES = {"duration_seconds": 3, "warm_up_seconds": 1}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("loaded", "measured", "documents", "operations"),
    [(INSERT, AGGREGATE, 9001, 12), (TRAFFIC, READERS | TIMES, 2001, 270)],
    ids=["insert and aggregate", "traffic and readers"],
)
def test_two_and_three_client_hosts_do_what_one_does(
    controller: Controller, loaded: dict[str, Any], measured: dict[str, Any], documents: int, operations: int
) -> None:
    points = [{"infrastructure.client_hosts.count": count} for count in (1, 2, 3)]
    file = controller.write(experiment({"load": loaded}, {"measure": measured}, points=points))
    code, said = controller.run("run", file, "--on", controller.inventory, timeout=600)
    assert code == 0, said  # 3 where an answer differs from that of one client host
    (folder,) = find_runs(controller.runs)
    for number in (1, 2, 3):
        step = folder / "results" / f"p{number:02}" / "r1"
        load, measure = json.loads(step.with_suffix(".json").read_text())["phases"]
        assert load["counters"]["documents"] == documents
        assert load["storage"]["data_bytes"] > 0
        done = measure["counters"].get("queries") or measure["counters"]["reads"]
        assert done == pytest.approx(operations, abs=0 if "queries" in measure["counters"] else 4)
        parts = [json.loads(path.read_text())["phases"] for path in (step / "hosts").glob("*/measure.json")]
        assert len(parts) == (number if number > 1 else 0)
        starts = [part["started"] - part["details"]["clock_offset"] for (part,) in parts]
        assert not starts or max(starts) - min(starts) < 0.3
        for name, latency in measure.get("latency", {}).items() if parts else ():
            counts = [part["latency"][name]["count"] for (part,) in parts]
            assert min(counts) > 0
            assert latency["count"] == sum(counts)
    assert controller.left() == []


@pytest.mark.timeout(600)
def test_a_client_host_that_dies_is_named_and_its_part_is_not_made_up(controller: Controller) -> None:
    lab, host = controller.bed, controller.bed.machines[2]
    groups = {"shard_hosts": ["host1"], "client_hosts": ["host2", "host3"]}
    controller.inventory = lab.write_inventory(groups, name="losing")
    reading = READERS | TIMES
    points = [
        {"infrastructure.client_hosts.count": hosts, "workload.1.measure.duration_seconds": seconds}
        for hosts, seconds in ((2, 60), (1, 3))
    ]
    with gone(lab, host, "kill") as vanish:
        file = controller.write(experiment({"load": INSERT}, {"measure": reading}, points=points))
        process = controller.start("run", file, "--on", controller.inventory)
        started = "ls /var/lib/microshard/*/results/p01/r1/hosts/host3/measure/measure/start"
        deadline = time.monotonic() + 300
        while lab.ssh(host, started).returncode != 0:
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.3)
        time.sleep(8)
        vanish()
        folder = one_point_lost(controller, process, "has vanished")
    path = folder / "results" / "p01" / "r1.json"
    if path.exists():  # what the other host had left, with the name of the one that is missing, and no figure of both
        result = json.loads(path.read_text())
        assert not result["valid"]
        assert any("from host3" in problem for problem in result["problems"])
        assert [phase.get("metric") for phase in result["phases"] if phase["kind"] == "measure"] in ([], [None])
