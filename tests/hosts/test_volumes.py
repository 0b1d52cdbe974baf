"""Volumes of their own for data, journal and log, logins and encryption: on three machines, until nothing is left."""

import json
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.records.run_folder import find_runs
from tests.hosts.bed import Bed
from tests.hosts.controller import Controller, small

SEARCH = """
import json, os
secrets = [word.encode() for word in json.load(open("/var/tmp/secrets.json"))]
found = []
def look(path):
    try:
        with open(path, "rb") as file:
            if any(word in file.read() for word in secrets):
                found.append(path)
    except OSError:
        pass
for top in ("/etc", "/home", "/tmp", "/run/log", "/var/log", "/var/lib/microshard", "/srv", "/root"):
    for parent, folders, files in os.walk(top):
        # What a server keeps of its users in its data files is hashed, and they are large.
        folders[:] = [name for name in folders if name not in ("secrets", "data", "journal", "software")]
        for name in files:
            look(os.path.join(parent, name))
for pid in filter(str.isdigit, os.listdir("/proc")):
    look(f"/proc/{pid}/cmdline")
    look(f"/proc/{pid}/environ")
print(json.dumps([path for path in found if path != "/var/tmp/secrets.json"]))
"""
ASK = """
import json, sys
from pymongo import MongoClient
where, options = sys.argv[1], json.load(sys.stdin)
try:
    with MongoClient(where, serverSelectionTimeoutMS=4000, **options) as client:
        print(sorted(client.list_database_names()))
except Exception as error:
    print(type(error).__name__, str(error)[:200])
"""


class Machines(Controller):
    """The command line, and the commands on the machines."""

    def output_of(self, number: int, script: str) -> str:
        done = self.bed.ssh(self.bed.machines[number], f"sudo sh -c '{script}'")
        return done.stdout.strip()

    def mounts(self, number: int) -> dict[str, str]:
        """Mount point → which of the machine's devices, of all volumes of ours."""
        names = {device: name for name, device in self.bed.machines[number].devices.items()}
        listed = self.output_of(number, "findmnt -rno TARGET,SOURCE | grep microshard").splitlines()
        return {target: names[source] for target, source in (line.split() for line in listed)}

    def lies(self, number: int, path: str) -> str:
        """Mount point of the volume that holds a file."""
        return self.output_of(number, f"df --output=target $(realpath {path}) | tail -1")

    def leaks(self, words: list[str]) -> list[str]:
        """Files and processes of all machines in which one of these words stands."""
        found = []
        for machine in self.bed.machines:
            machine.write("var/tmp/secrets.json", json.dumps(words), 0o600)
            machine.write("var/tmp/search.py", SEARCH, 0o600)
            script = "sudo python3 /var/tmp/search.py; sudo rm /var/tmp/secrets.json /var/tmp/search.py"
            done = self.bed.ssh(machine, script)
            found += [f"{machine.name}: {path}" for path in json.loads(done.stdout)]
        return found

    def client(self, endpoint: str, **options: Any) -> str:
        words = self.bed.inside([sys.executable, "-c", ASK, f"mongodb://{endpoint}/"])
        return subprocess.run(words, input=json.dumps(options), capture_output=True, text=True, check=True).stdout


@pytest.fixture
def machines(lab: Bed, tmp_path: Path) -> Iterator[Machines]:
    made = Machines(lab, tmp_path)
    yield made
    made.run("down")


def secrets_of(run: Path) -> tuple[list[str], dict[str, Any]]:
    users = json.loads((run / "secrets" / "users.json").read_text())
    key = (run / "secrets" / "keyfile").read_text()[:40]
    private = (run / "secrets" / "server.pem").read_text().splitlines()[1]
    return [key, private, *(user["password"] for user in users.values())], users["admin"]


def inventory_and_experiment(bed: Bed) -> tuple[Path, dict[str, Any]]:
    """An inventory, and an experiment with volumes on its hosts."""
    volume = {"type": "existing", "size_gib": 2}
    text = {**volume, "filesystem": "ext4"}
    # Two machines have a volume for each of their shards; the third, which has the config server, one for its journal.
    groups = {"shard_hosts": ["host1", "host2"], "config_hosts": ["host3"], "client_hosts": ["host1"]}
    several = {"data": {**volume, "policy": "per_shard", "count": 2}, "log": text}
    single = {"data": volume, "journal": volume, "log": text}
    purposes = {"data": "data", "journal": "{{ 'journal' if 'config_hosts' in group_names else 'data' }}", "log": "log"}
    named = [{"purpose": purpose, "device": f"{{{{ bed_devices.{name} }}}}"} for name, purpose in purposes.items()]
    inventory = bed.write_inventory(groups, name="volumes", microshard_volumes=named)
    infrastructure = {
        "shard_hosts": {"count": 2, "volumes": several}, "config_hosts": {"count": 1, "volumes": single},
    }  # fmt: skip
    return inventory, small(infrastructure=infrastructure, matrix={"topology.shards.count": [2]})


def all_on_their_volumes(machines: Machines, run: Path, deployment: str) -> None:
    """Where files lie, by the machines' own word."""
    wheres = {"/srv/microshard/journal": "journal", "/srv/microshard/log": "log", "/var/lib/microshard": "data"}
    assert machines.mounts(2) == wheres
    for path, mount in (
        ("config1/data", "/var/lib/microshard"),
        ("config1/data/journal", "/srv/microshard/journal"),
        ("config1/mongod.log", "/srv/microshard/log"),
    ):
        assert machines.lies(2, f"{deployment}/{path}") == mount
    each = {"/srv/microshard/data-01": "data", "/srv/microshard/data-02": "journal", "/srv/microshard/log": "log"}
    for number in (0, 1):
        assert machines.mounts(number) == each
        members = machines.output_of(number, f"ls {deployment} | grep shard").split()
        assert len(members) == 2
        data = [machines.lies(number, f"{deployment}/{name}/data/WiredTiger.wt") for name in members]
        assert data == ["/srv/microshard/data-01", "/srv/microshard/data-02"]
        recorded = json.loads((run / f"hosts/host{number + 1}/storage.json").read_text())
        assert [volume["name"] for volume in recorded] == ["data-01", "data-02", "log"]


@pytest.mark.long
@pytest.mark.timeout(700)
def test_what_an_axis_sets_on_the_hosts_is_in_force_for_each_of_its_points(machines: Machines) -> None:
    groups = {"shard_hosts": ["host1"], "client_hosts": ["host1"]}
    named = [{"purpose": "data", "device": "{{ bed_devices.data }}"}]
    inventory = machines.bed.write_inventory(groups, name="readahead", microshard_volumes=named)
    hosts = {"count": 1, "volumes": {"data": {"type": "existing", "size_gib": 2}}}
    experiment = small(
        infrastructure={"shard_hosts": hosts},
        matrix={"infrastructure.shard_hosts.kernel.readahead_sectors": [32, 512]},
        repetitions=2,
    )
    experiment["topology"] = {"kind": "standalone"}
    code, said = machines.run("run", machines.write(experiment), "--on", inventory, timeout=600)
    assert code == 0, said
    (run,) = [found.path for found in find_runs(machines.runs)]
    plan = json.loads((run / "plan.json").read_text())
    for point in plan["points"]:
        sectors = point["machines"]["shard_hosts"]["kernel"]["readahead_sectors"]
        for file in sorted((run / "results" / point["id"]).glob("r*.json")):
            ((_, environment),) = json.loads(file.read_text())["environment"].items()
            assert str(sectors // 2) in environment["readahead_kib"].values(), (point["id"], file.name)
    # r1 of both points, then r2: the point measured last begins the second round.
    events = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    assert sum(event["event"] == "hosts prepared" for event in events) == 2
    assert machines.mounts(0) == {}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_files_lie_on_their_volumes_servers_keep_to_themselves_and_nothing_is_left(machines: Machines) -> None:
    inventory, experiment = inventory_and_experiment(machines.bed)
    code, said = machines.run("up", machines.write(experiment), "--on", inventory, timeout=250)
    assert code == 0, said
    (run,) = [found.path for found in find_runs(machines.runs)]

    deployment = f"/var/lib/microshard/{run.name}/deployments/p01"
    all_on_their_volumes(machines, run, deployment)
    here = f"{deployment}/config1"
    assert "WiredTigerLog" in machines.output_of(2, f"ls {here}/data/journal/")
    assert machines.output_of(2, f"grep -c . {here}/mongod.log") > "10"

    # systemd is what hosts that have it use
    assert json.loads((run / "points/p01/processes/config1.json").read_text())["unit"].startswith("microshard@")
    assert machines.output_of(2, "ps -o user= -C mongod | sort -u") == "microshard"

    # Rotated by size: the server goes on in a new file, and not a line is lost
    rotation = f"/etc/logrotate.d/microshard-{run.name}"
    rotated = machines.output_of(2, f"logrotate --verbose --force --state /var/tmp/state {rotation} 2>&1")
    log = f"/srv/microshard/log/{run.name}/p01/config1/mongod.log"
    machines.output_of(2, f"for n in $(seq 100); do test -e {log} && break; sleep 0.1; done")
    assert machines.output_of(2, f"ls {log} {log}.1") == f"{log}\n{log}.1", rotated

    # Who has no password, or speaks in the open, is not served
    secrets, admin = secrets_of(run)
    endpoint = next(
        p["endpoint"]
        for p in json.loads((run / "points/p01/vars.json").read_text())["microshard_point"]["processes"]
        if p["name"] == "shard01-1"
    )
    tls = {"tls": True, "tlsCAFile": str(run / "secrets/ca.pem"), "directConnection": True}
    assert "ServerSelectionTimeoutError" in machines.client(endpoint, directConnection=True)
    assert "requires authentication" in machines.client(endpoint, **tls)
    assert "'admin'" in machines.client(
        endpoint, **tls, username=admin["user"], password=admin["password"], authSource="admin"
    )

    # Secrets are their owner's alone, and nowhere else
    folder = f"/var/lib/microshard/{run.name}/secrets"
    modes = machines.output_of(1, f'stat -c "%U %a %n" {folder} {folder}/*').splitlines()
    assert modes == [
        f"microshard 700 {folder}",
        *(f"microshard 600 {folder}/{name}" for name in ("ca.pem", "keyfile", "server.pem")),
    ]
    assert machines.leaks(secrets) == []
    assert stat.S_IMODE((run / "secrets").stat().st_mode) == 0o700

    code, said = machines.run("down")
    assert code == 0, said
    assert machines.left() == []
    assert machines.leaks(secrets) == []
    files = [path for path in run.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if any(word.encode() in path.read_bytes() for word in secrets)]
    assert not (run / "secrets").exists()
    for number in range(3):
        assert machines.output_of(number, "findmnt -rno TARGET | grep -c microshard || true") == "0"
        assert (
            machines.output_of(number, f"ls {rotation} /etc/systemd/system/microshard@.service 2>/dev/null || true")
            == ""
        )
        assert machines.output_of(number, "find /srv/microshard -type f || true") == ""
