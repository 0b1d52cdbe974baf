"""What an engine has done on other hosts than its own: mongods restarted, page caches dropped."""

import contextlib
import gzip
import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from microshard.records.run_folder import RunFolder, find_runs
from tests.hosts.bed import Bed, Machine
from tests.hosts.controller import Controller, small

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

READ_ONLY = "not dropped (Read-only file system)"


def cold(iterations: int, **changes: Any) -> dict[str, Any]:
    experiment = small(**changes)
    experiment["topology"]["shards"]["members"] = 1
    experiment["workload"][1]["measure"] |= {"cache": "cold", "iterations": iterations}
    return experiment


def measured(folder: RunFolder) -> dict[str, Any]:
    """The last phase of the only step of the first point."""
    result = json.loads((folder.path / "results" / "p01" / "r1.json").read_text())
    phase: dict[str, Any] = result["phases"][-1]
    return phase


def starts(folder: RunFolder, process: str) -> int:
    """How often a mongod was started, by its log."""
    with gzip.open(folder.path / "logs" / "p01" / f"{process}.log.gz", "rt") as log:
        return log.read().count('"MongoDB starting"')


@contextlib.contextmanager
def undroppable(lab: Bed, machine: Machine) -> Iterator[None]:
    """A machine on which nobody may drop the page cache. That of the others is the same, for all have one kernel."""
    switch = "/proc/sys/vm/drop_caches"
    made = f"mount --bind /etc/hostname {switch} && mount -o remount,bind,ro {switch}"
    assert lab.ssh(machine, "sudo", "sh", "-c", f"'{made}'").returncode == 0
    try:
        yield
    finally:
        lab.ssh(machine, "sudo", "umount", switch)


def test_a_query_on_cold_caches_finds_the_mongods_of_all_hosts_restarted(controller: Controller) -> None:
    lab = controller.bed
    with undroppable(lab, lab.machines[1]):
        code, said = controller.run("run", controller.write(cold(2)), "--on", lab.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    phase = measured(folder)
    # What was not done is said.
    dropped = f"page cache dropped on host1, page cache {READ_ONLY} on host2, page cache dropped on host3"
    assert phase["notes"]["cache"] == f"cold: mongods restarted, {dropped}"
    assert len(phase["samples"]) == 2
    for shard in ("shard01", "shard02", "shard03"):
        assert starts(folder, shard) == 3, "one start and two restarts"
    for untouched in ("config1", "mongos1"):
        assert starts(folder, untouched) <= 1
    assert controller.left() == []


def test_a_syncing_member_on_another_host_is_interrupted_and_syncs_anew(controller: Controller) -> None:
    members: list[dict[str, Any]] = [
        {},
        # Small batches make the clone last longer than the play needs to come and kill it.
        {"initial": False, "mongod": {"setParameter": {"collectionClonerBatchSize": 2}}},
    ]
    experiment = small(
        infrastructure={"shard_hosts": {"count": 2}},
        topology={"kind": "replica_set", "replica_set": {"members": members}},
        workload=[
            {
                "load": {
                    "engine": "traffic",
                    "namespace": "sync.data",
                    "load": {"documents": 120_000, "document_bytes": 500, "threads": 2},
                }
            },
            {"measure": {"engine": "initial_sync", "interruptions": 1, "interrupt_at": 0.1, "time_limit_seconds": 120}},
        ],
        matrix={},
    )
    code, said = controller.run("run", controller.write(experiment), "--on", controller.bed.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    phase = measured(folder)
    lost, *anew = phase["stages"]
    assert lost["name"] == "lost attempt 1"
    assert 0 < lost["documents"] < 120_000
    assert next(stage for stage in anew if stage["name"] == "clone")["documents"] >= 120_000
    assert phase["counters"]["documents on the new member"] == 120_000
    assert sum(stage["seconds"] for stage in phase["stages"]) == pytest.approx(phase["metric"]["value"], rel=0.1)
    assert starts(folder, "rs0-2") == 2
    assert starts(folder, "rs0-1") == 1
    assert controller.left() == []


def test_a_mongod_that_does_not_start_again_fails_the_phase_by_name_and_leaves_nothing(controller: Controller) -> None:
    lab = controller.bed
    two = {"infrastructure": {"shard_hosts": {"count": 2}}, "matrix": {"topology.shards.count": [2]}}
    process = controller.start("run", controller.write(cold(20, **two)), "--on", lab.inventory)
    try:
        answer = "/var/lib/microshard/*/results/p01/r1/restarts/answer-1.json"
        deadline = time.monotonic() + 150
        while lab.ssh(lab.machines[0], f"ls {answer}").returncode != 0:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.3)
        # The next start on host2 finds a data file that is none; those before it are none of the phase.
        spoil = "for file in /var/lib/microshard/*/deployments/p01/shard02/data/WiredTiger.wt; do echo > $file; done"
        assert lab.ssh(lab.machines[1], "sudo", "sh", "-c", f"'{spoil}'").returncode == 0
        said, _ = process.communicate(timeout=100)
    except BaseException:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        raise
    assert process.returncode == 3, said
    (folder,) = find_runs(controller.runs)
    journal = [json.loads(line) for line in (folder.path / "journal.jsonl").read_text().splitlines()]
    (failed,) = [entry for entry in journal if entry["event"] == "point failed"]
    assert "phase measure: DoesNotStart: " in failed["message"]
    assert "shard02 (mongod, " in failed["message"]
    assert "ended with exit code" in failed["message"]
    assert controller.left() == []
