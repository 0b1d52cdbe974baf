"""mongod processes as systemd's services on a machine that boots."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.embedded.binary import find_mongod
from tests.cluster.ansible import points
from tests.cluster.ansible.lab import BIN, RUN_VARIABLES, Lab, Played
from tests.hosts.bed import Bed
from tests.hosts.bed.lab import LIMITS
from tests.hosts.readme_examples import converge, succeed

RUN = "/srv/microshard-lab/run-1"


class Services(Lab):
    """A replica set of two members on one machine of the bed."""

    def __init__(self, folder: Path, bed: Bed, options: dict[str, Any]) -> None:
        self.bed, self.machine = bed, bed.machines[1]
        members = [{}, {"mongod": {"operationProfiling": {"slowOpThresholdMs": 77}}}]
        definition = {"kind": "replica_set", "replica_set": {"members": members}}
        super().__init__(folder, points.Layout(definition=definition, first_port=27100))
        everything = json.dumps(self.variables).replace(str(folder), RUN).replace("127.0.0.1", self.machine.address)
        self.variables = json.loads(everything)
        self.variables["microshard_run"] |= {"process_manager": "systemd"}
        self.variables["microshard_run"]["bin"]["mongod"] = "/opt/microshard-lab/mongod"
        self.variables["mongo_processes_records"] = str(folder / "processes")
        self.variables |= options
        for process in self.variables["microshard_point"]["processes"]:
            process["host"] = self.machine.name
        groups = {"shard_hosts": [self.machine.name], "config_hosts": [], "mongos_hosts": [], "client_hosts": []}
        self.inventory = bed.write_inventory(groups, name="services")
        content = json.loads(self.inventory.read_text(encoding="utf-8"))
        here = {"ansible_connection": "local", "ansible_python_interpreter": str(BIN / "python")}
        content["all"]["children"]["controller"] = {"hosts": {"here": here}}
        self.inventory.write_text(json.dumps(content), encoding="utf-8")

    def ssh(self, *words: str) -> str:
        """What a command says, as root."""
        return self.bed.ssh(self.machine, "sudo", *words).stdout.strip()

    def play(self, name: str, *arguments: str) -> Played:
        return super().play(name, "-i", str(self.inventory), *arguments)

    def wrapped(self, command: list[Any]) -> list[Any]:
        return self.bed.inside(command)

    def bring(self, state: str) -> Played:
        """The processes in a state, by the role alone."""
        role = {"role": "microshard.lab.mongo_processes", "vars": {"mongo_processes_state": state}}
        return self.role("shard_hosts", role)

    def form(self) -> Played:
        """Their topology, by the role alone: no machine of the bed has a driver, so the controller does it."""
        return self.role("controller", {"role": "microshard.lab.mongo_topology"})

    def role(self, hosts: str, role: dict[str, Any]) -> Played:
        playbook = self.folder / "role.yml"
        play = {
            "name": "A role",
            "hosts": hosts,
            "become": hosts == "shard_hosts",
            "vars_files": [str(RUN_VARIABLES)],
            "roles": [role],
        }
        playbook.write_text(json.dumps([play]), encoding="utf-8")
        return self.succeed(str(playbook))

    def leads(self) -> list[bool]:
        """Whether each member says that it is the primary, in their order."""
        processes = self.variables["microshard_point"]["processes"]
        ask = "import sys, pymongo; print(pymongo.MongoClient(sys.argv[1], directConnection=True).is_primary)"
        return [
            subprocess.check_output(
                self.bed.inside([BIN / "python", "-c", ask, f"mongodb://{p['address']}:{p['port']}"]), text=True
            ).strip()
            == "True"
            for p in processes
        ]

    def units(self) -> list[str]:
        """Instances systemd knows, and how they are."""
        listed = self.ssh("systemctl", "list-units", "--all", "--plain", "--no-legend", "'microshard@*'")
        return [line.split()[2] for line in listed.splitlines()]

    def record(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / "processes" / f"{name}.json").read_text(encoding="utf-8"))
        return content


@pytest.fixture
def services(lab: Bed, tmp_path: Path) -> Iterator[Services]:
    made = Services(tmp_path, lab, {"mongo_processes_numa": {"policy": "interleave", "nodes": None}})
    root = made.machine.root
    (root / "opt/microshard-lab").mkdir()
    shutil.copy(made.mongod, root / "opt/microshard-lab/mongod")
    made.machine.write(f"{RUN[1:]}/run.json", json.dumps({"microshard": "0.1.0", "run_id": "run-1"}))
    made.ssh("useradd", "--system", "--no-create-home", "microshard")
    yield made
    made.ssh("systemctl", "kill", "--signal=KILL", "'microshard@*'")
    made.ssh("rm", "-rf", "/opt/microshard-lab", "/srv/microshard-lab")
    made.ssh("userdel", "microshard")


@pytest.mark.long
def test_processes_are_units_bound_limited_and_recorded_as_planned(services: Services) -> None:
    checked = services.succeed("deploy", "--check", "--diff", "--limit", "host2")
    assert checked.changed == 1
    assert f"+LimitNOFILE={LIMITS['nofile']}" in checked.output
    assert services.units() == []

    services.succeed("deploy")
    assert services.units() == ["active", "active"]
    record = services.record("rs0-2")
    assert record["host"] == "host2"
    assert record["command"][0] == "/opt/microshard-lab/mongod"
    assert record["started_by"][:2] == ["numactl", "--interleave=0"]
    assert record["memory_policies"].keys() >= {"interleave:0"}
    assert record["limits"]["nofile"] == [str(LIMITS["nofile"])] * 2
    assert record["limits"]["nproc"] == ["64000", "64000"]
    assert record["options"]["operationProfiling"]["slowOpThresholdMs"] == 77
    assert services.ssh("stat", "-c", "%U", f"{RUN}/deployments/p01/rs0-1/data") == "microshard"
    assert services.ssh("ps", "-o", "user=", "-C", "mongod").split() == ["microshard"] * 2

    assert services.succeed("deploy").changed == 0

    # One dies later on
    services.ssh("kill", "-ABRT", str(record["pid"]))
    deadline = time.monotonic() + 60
    while services.units() == ["active", "active"]:
        assert time.monotonic() < deadline
    failure = services.play("resume").failure
    assert f"rs0-2 (mongod, {services.machine.address}:27101) does not run any more." in failure
    assert "Last lines of its log" in failure
    assert services.succeed("deploy").changed == 1
    assert services.units() == ["active", "active"]

    services.bring("absent")
    assert services.units() == []
    assert services.ssh("ls", "/etc/systemd/system", "|", "grep", "microshard") == ""
    assert services.ssh("ps", "-C", "mongod", "-o", "pid=") == ""
    assert services.bring("absent").changed == 0


@pytest.mark.long
def test_a_set_that_was_held_for_longer_than_its_election_timeout_has_a_primary_again(services: Services) -> None:
    services.succeed("deploy")
    # Members that are no set yet are held and go on as they are: there is no primary to wait for.
    assert services.succeed("pause").changed == 1
    assert services.succeed("resume").changed == 1
    services.form()
    assert services.leads() == [True, False]
    assert services.succeed("pause").changed == 1
    time.sleep(11)
    assert services.succeed("resume").changed == 1
    assert services.leads() == [True, False]


@pytest.mark.long
def test_what_the_machine_cannot_give_is_refused_with_its_name(services: Services) -> None:
    services.variables["mongo_processes_numa"] = {"policy": "interleave", "nodes": [0, 7]}
    played = services.play("deploy")
    assert "this host has no NUMA node 7" in played.failure
    assert "fatal: [host2]" in played.output
    services.variables["mongo_processes_numa"] = {}
    services.variables["mongo_processes_limits"] = {**LIMITS, "nofile": 2**30}
    assert "has the limit nofile " in services.play("deploy").failure
    services.bring("absent")
    assert services.units() == []


@pytest.mark.long
def test_three_mongods_run_by_the_example_of_the_role(lab: Bed, tmp_path: Path) -> None:
    mongod, folder = {"mongo_processes_mongod": "/opt/microshard-lab/mongod"}, "/var/lib/microshard/by-hand"
    for machine in lab.machines:
        (machine.root / "opt/microshard-lab").mkdir()
        shutil.copy(find_mongod(), machine.root / "opt/microshard-lab/mongod")
    try:
        converge(lab, "mongo_processes", tmp_path, **mongod)
        for machine in lab.machines:
            pids = machine.enter("sh", "-c", f"cat {folder}/deployments/by-hand/*/pid").split()
            assert len(pids) == 3
            for pid in pids:
                assert "interleave:0" in machine.enter("cat", f"/proc/{pid}/numa_maps")
            said = machine.enter("cat", f"{folder}/deployments/by-hand/mongod3/mongod.conf")
            assert "configString: cache_size=2M" in said
        succeed(lab, "mongo_processes", tmp_path, **mongod, mongo_processes_state="absent")
        for machine in lab.machines:
            assert "mongod" not in machine.enter("ps", "-A", "-o", "comm=")
    finally:
        for machine in lab.machines:
            machine.enter("sh", "-c", f"rm -rf /opt/microshard-lab {folder}")
