"""An experiment over SSH on three machines, from prepare to teardown, and what happens when they fail."""

import json
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from microshard.records.run_folder import find_runs
from tests.hosts.controller import ANSIBLE_PLAYBOOK, Controller, gone, one_point_lost, small


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_cluster_spread_over_three_hosts_is_measured_and_leaves_nothing(controller: Controller) -> None:
    code, said = controller.run("run", controller.write(small()), "--on", controller.bed.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    (result,) = [json.loads(path.read_text()) for path in folder.path.glob("results/*/r1.json")]
    by_shard = result["phases"][0]["storage"]["by_shard"]
    assert sorted(by_shard) == ["shard01", "shard02", "shard03"]
    assert sum(shard["documents"] for shard in by_shard.values()) == 20000
    assert set(result["phases"][-1]["telemetry"]["hosts"]) == {"host1", "host2", "host3"}
    logs = folder / "logs" / "p01"
    assert {path.name for path in logs.glob("*.log.gz")} >= {"shard01-1.log.gz", "mongos1.log.gz"}
    with tarfile.open(logs / "shard03-2.diagnostic.tar.gz") as diagnostics:
        assert any(name.startswith("shard03-2/diagnostic.data/metrics.") for name in diagnostics.getnames())
    plan = json.loads((folder / "plan.json").read_text())
    for replica_set in plan["points"][0]["replica_sets"]:
        hosts = [m["endpoint"].partition(":")[0] for m in replica_set["members"]]
        assert len(set(hosts)) == len(hosts)
    assert abs(json.loads((folder / "backend.json").read_text())["hosts"]["host2"]["clock_offset"]) < 5
    assert controller.left() == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_deployment_stays_is_deployed_again_without_a_change_and_can_be_looked_at(controller: Controller) -> None:
    code, said = controller.run("up", controller.write(small()), "--on", controller.bed.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    again = controller.bed.inside(
        [
            ANSIBLE_PLAYBOOK,
            "--inventory",
            controller.bed.inventory,
            "playbooks/deploy.yml",
            "--extra-vars",
            f"@{folder / 'points' / 'p01' / 'vars.json'}",
        ]
    )
    done = subprocess.run(again, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout
    assert "changed=1" not in done.stdout
    folders = f"/var/lib/microshard/{folder.run_id}/deployments/p01"
    assert "shard02-1" in controller.run("ssh", "shard02-1", "ls", folders)[1]
    assert "Waiting for connections" in controller.run("logs", "shard03-2", "-n", "2000")[1]
    assert "9 processes" in controller.run("status")[1]  # the router mongod of the embedded mongos too
    code, said = controller.run("down")
    assert code == 0, said
    assert controller.left() == []


@pytest.mark.long
@pytest.mark.timeout(700)
@pytest.mark.parametrize("how", ["cut", "kill"])
def test_a_host_that_vanishes_fails_its_point_by_name_and_not_the_run(controller: Controller, how: str) -> None:
    lab = controller.bed
    experiment = small(order={"policy": "sequential"})
    experiment["workload"][1]["measure"]["iterations"] = 300
    # The second point is on the first host alone.
    experiment["matrix"] = {"infrastructure.shard_hosts.count": [3, 1]}
    experiment["topology"]["shards"] = {"count": 3, "members": 1}
    with gone(lab, lab.machines[2], how) as vanish:
        process = controller.start("run", controller.write(experiment), "--on", lab.inventory)
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None and not _measuring(controller):
            time.sleep(0.3)
        if not _measuring(controller):
            process.send_signal(signal.SIGTERM)
            pytest.fail(f"it did not measure:\n{process.communicate(timeout=60)[0]}")
        vanish()
        folder = one_point_lost(controller, process, "host3: it cannot be reached over the network")
    assert not (folder / "results" / "p01" / "r1.json").exists()
    # Once the host is back a second attempt finishes what was left.
    code, said = controller.run("down")
    assert (code, controller.left()) == (0, []), said


def _measuring(controller: Controller) -> bool:
    """Whether the engine on the client host is past loading. Ansible tells of a task only when it has a result."""
    progress = "/var/lib/microshard/*/tmp/progress.jsonl"
    return controller.bed.ssh(controller.bed.machines[0], f"grep -qs measure {progress}").returncode == 0
