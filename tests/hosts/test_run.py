"""An experiment over SSH on three machines, from prepare to teardown, and what happens when they fail."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.embedded.binary import find_mongod
from microshard.run.folder import RunFolder, find_runs
from tests.cluster.run.conftest import definition
from tests.hosts.bed import Bed, Machine

MICROSHARD = Path(sys.executable).with_name("microshard")


def small(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "infrastructure": {"shard_hosts": {"count": 3}},
        "matrix": {"topology.shards.count": [3]},
        "repetitions": 1,
    }
    base = definition(**{**given, **changes})
    if base["topology"]["kind"] == "sharded":
        base["topology"]["shards"] = {"members": 2}
        base["topology"]["storage"]["cache"]["value"] = 128
    return base


class Controller:
    """The command line on a bed's network."""

    def __init__(self, bed: Bed, folder: Path, inventory: Path | None = None) -> None:
        self.bed, self.folder, self.runs = bed, folder, folder / "runs"
        self.inventory = inventory or bed.inventory
        self.file = folder / "experiment.yml"

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.bed.inside([MICROSHARD, *words, "--runs-dir", self.runs]),
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "200"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *words: str | Path, patience: float = 280) -> tuple[int, str]:
        process = self.start(*words)
        try:
            said, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=60)
            pytest.fail(f"microshard {words} did not end:\n{said}")
        return process.returncode, said

    def write(self, experiment: dict[str, Any]) -> Path:
        self.file.write_text(json.dumps(experiment))
        return self.file

    def left(self) -> list[str]:
        """What of runs is on the machines that can be reached."""
        found = []
        for machine in self.bed.machines:
            done = self.bed.ssh(machine, "ls -d /var/lib/microshard/*-* 2>/dev/null; pgrep -a mongo")
            found += [f"{machine.name}: {line}" for line in done.stdout.splitlines()]
        return found


@pytest.fixture
def controller(lab: Bed, tmp_path: Path) -> Iterator[Controller]:
    made = Controller(lab, tmp_path)
    yield made
    made.run("down")


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
            MICROSHARD.with_name("ansible-playbook"),
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
@pytest.mark.timeout(300)
def test_what_a_host_lacks_is_told_by_its_name_and_with_the_next_step(controller: Controller, tmp_path: Path) -> None:
    file, lab = controller.write(small()), controller.bed
    plain = lab.write_inventory(name="plain", user="plain", microshard_folder="/opt/lab/runs")
    code, said = controller.run("plan", file, "--on", plain)
    assert code == 4
    assert "host2: /opt/lab/runs cannot be written and plain may not use sudo" in said
    nobody = lab.write_inventory(name="nobody", user="nobody-there")
    code, said = controller.run("plan", file, "--on", nobody)
    assert (code, "host1: it does not take this user's key; check ansible_user" in said) == (4, True), said
    python = lab.write_inventory(name="python", ansible_python_interpreter="/usr/bin/python9")
    code, said = controller.run("plan", file, "--on", python)
    assert (code, "Python is missing on it" in said) == (4, True), said
    known = lab.folder / "known_hosts"
    right = known.read_text()
    known.write_text("".join(f"{line}\n" for line in right.splitlines() if lab.machines[2].address not in line))
    try:
        code, said = controller.run("plan", file, "--on", lab.inventory)
    finally:
        known.write_text(right)
    assert (code, "host3: its host key is not the one in known_hosts" in said) == (4, True), said
    four = small(infrastructure={"shard_hosts": {"count": 4}})
    code, said = controller.run("plan", controller.write(four), "--on", lab.inventory)
    assert code == 2
    assert "4 asked for" in said
    assert "host1, host2, host3" in said


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_member_that_cannot_reach_another_is_told_by_both_names(controller: Controller) -> None:
    lab = controller.bed
    one, other = lab.machines[1:]
    lab.ssh(other, "sudo", "ip", "route", "add", "unreachable", one.address)
    try:
        code, said = controller.run("run", controller.write(small()), "--on", lab.inventory)
    finally:
        lab.ssh(other, "sudo", "ip", "route", "del", "unreachable", one.address)
    assert code == 3, said
    said = " ".join(said.split())
    assert f"replSetInitiate of shard02 on {one.address}:27101 (shard02-1 on host2): " in said
    assert f"{other.address}:27100 (shard02-2 on host3) failed with Couldn't get a connection" in said
    assert "these hosts must reach one another (routes, firewall)" in said
    assert controller.left() == []


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_tarball_is_sent_once_to_every_host_and_its_mongod_is_run(controller: Controller) -> None:
    archive = controller.folder / "mongodb.tgz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(find_mongod(), arcname="mongodb-linux-x86_64-debian12-6.0.5/bin/mongod")
        tar.add(__file__, arcname="mongodb-linux-x86_64-debian12-6.0.5/README")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    experiment = small(matrix={}, topology={"kind": "replica_set", "replica_set": {"members": 3}})
    experiment["topology"]["mongodb"] = {
        "source": "tarball", "version": "6.0", "tarball": str(archive), "sha256": sha256,
    }  # fmt: skip
    code, said = controller.run("run", controller.write(experiment), "--on", controller.bed.inventory)
    assert code == 0, said
    (folder,) = find_runs(controller.runs)
    there = f"/var/lib/microshard/software/mongodb-6.0-{sha256[:12]}"
    for machine in controller.bed.machines:
        assert controller.bed.ssh(machine, "find", there, "-type", "f").stdout.split() == [f"{there}/bin/mongod"]
    record = json.loads((folder / "points" / "p01" / "processes" / "rs0-3.json").read_text())
    assert record["command"][0] == f"{there}/bin/mongod"
    assert controller.left() == []
    archive.write_bytes(archive.read_bytes() + b"altered")
    code, said = controller.run("run", controller.file, "--on", controller.bed.inventory)
    assert (code, f"not {sha256}" in said) == (4, True), said


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


def one_point_lost(controller: Controller, process: subprocess.Popen[str], words: str) -> RunFolder:
    """The run whose first point failed with host3, in these words, and whose second one did not; its folder."""
    said, _ = process.communicate(timeout=360)
    assert process.returncode == 5, said  # what is on the lost host could not be removed, and is told
    assert "left behind: host3: " in said
    (folder,) = find_runs(controller.runs)
    journal = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    (failed,) = [entry for entry in journal if entry["event"] == "point failed"]
    assert failed["point"] == "p01"
    assert words in failed["message"]
    assert json.loads((folder / "results" / "p02" / "r1.json").read_text())["valid"], said
    return folder


@contextlib.contextmanager
def gone(lab: Bed, machine: Machine, how: str) -> Iterator[Callable[[], None]]:
    """A way to lose a machine, which is back afterwards."""
    try:
        yield machine.cut if how == "cut" else machine.kill
    finally:
        if how == "kill":
            lab.boot(machine)
        else:
            machine.join()


def _measuring(controller: Controller) -> bool:
    """Whether the engine on the client host is past loading. Ansible tells of a task only when it has a result."""
    progress = "/var/lib/microshard/*/tmp/progress.jsonl"
    return controller.bed.ssh(controller.bed.machines[0], f"grep -qs measure {progress}").returncode == 0
