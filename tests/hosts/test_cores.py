"""Processes on cores of their own, on a machine whose preparations are shown before they are made."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microshard.records.run_folder import find_runs
from microshard.run import secrets
from tests.cluster import mongosh
from tests.hosts.bed import Bed, Machine
from tests.hosts.controller import ANSIBLE_PLAYBOOK, Controller, small

pytestmark = [pytest.mark.long, pytest.mark.timeout(450)]

# As an image has it: nothing of ours, and disks with nothing on them.
_FRESH = """
rm -rf /var/lib/microshard /srv/microshard /etc/microshard
userdel microshard 2>/dev/null
for disk in {disks}; do wipefs --all --quiet $disk; done
true
"""
# What mkfs has left for later, before a kernel thread can have done it.
_MKFS = """#!/bin/sh
/sbin/mkfs.ext4 "$@" || exit
for last; do :; done
dumpe2fs "$last" >/var/tmp/made$(echo "$last" | tr / -) 2>/dev/null
"""
_LOOK = "find / -xdev -not -path '/proc/*' -path '*microshard*'; id microshard; wipefs --no-act --noheadings {disks}"


class Cores(Controller):
    """The command line, and the second machine of the bed alone."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        groups = {name: ["host2"] for name in ("shard_hosts", "client_hosts")}
        volumes = [{"purpose": name, "device": f"{{{{ bed_devices.{name} }}}}"} for name in ("data", "log")]
        super().__init__(bed, folder, bed.write_inventory(groups, name="cores", microshard_volumes=volumes))
        self.disks = " ".join(self.machine.devices[name] for name in ("data", "log"))

    @property
    def machine(self) -> Machine:
        """The only one that is meant."""
        return self.bed.machines[1]

    def output_of(self, script: str) -> str:
        """What a script says on it, as root, however it ends."""
        return self.machine.enter("sh", "-c", f"{script}\ntrue")

    def fresh(self) -> None:
        """The machine has nothing of ours."""
        self.output_of(_FRESH.format(disks=self.disks))

    def experiment(self, shards: int) -> Path:
        volume = {"type": "existing", "size_gib": 2, "filesystem": "ext4"}
        host = {
            "count": 1,
            "numa": {"policy": "cores_per_shard", "reserved_cores": 1},
            "kernel": {"somaxconn": 3210},
            "volumes": {"data": volume, "log": {**volume, "lazy_init": True}},
        }
        experiment = small(infrastructure={"shard_hosts": host}, matrix={"topology.shards.count": [shards]})
        experiment["topology"]["shards"]["members"] = 1
        return self.write(experiment)

    def played(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A playbook for the youngest run, which is over."""
        run = find_runs(self.runs)[-1].path
        secrets.make(run / "secrets", [self.machine.address])  # they went with it
        variables = f"@{run / 'points/p01/vars.json'}"
        words: list[str | Path] = [
            ANSIBLE_PLAYBOOK,
            *options,
            "-i",
            self.inventory,
            "-e",
            variables,
            f"playbooks/{name}.yml",
        ]
        root = Path(__file__).parents[2]
        return subprocess.run(self.bed.inside(words), cwd=root, capture_output=True, text=True, check=False)

    def uninitialised(self, volume: str) -> int:
        """Groups whose inode tables mkfs has left to the kernel; at least one group was there."""
        said = self.output_of(f"cat /var/tmp/made{self.machine.devices[volume].replace('/', '-')}")
        groups = re.findall(r"^Group \d+: .*\n?.*", said, re.MULTILINE)
        assert groups
        return sum("ITABLE_ZEROED" not in group for group in groups)


@pytest.fixture
def cores(lab: Bed, tmp_path: Path) -> Iterator[Cores]:
    made = Cores(lab, tmp_path)
    made.machine.write("usr/local/sbin/mkfs.ext4", _MKFS, 0o755)
    made.fresh()
    yield made
    made.run("down")
    made.output_of("rm -f /usr/local/sbin/mkfs.ext4 /var/tmp/made-*")


def test_every_process_has_its_cores_and_preparations_are_shown_before_they_are_made(cores: Cores) -> None:
    usable = sorted(os.sched_getaffinity(0))
    backlog = cores.output_of("cat /proc/sys/net/core/somaxconn")
    code, said = cores.run("up", cores.experiment(len(usable)), "--on", cores.inventory)
    assert code == 2
    few = f"host2 has {len(usable)} cores, 1 of them reserved: cores_per_shard cannot give {len(usable)} data-bearing"
    assert few in " ".join(said.split())

    # One for the data, one for all others
    code, said = cores.run("up", cores.experiment(len(usable) - 1), "--on", cores.inventory)
    assert code == 0, said
    folder = find_runs(cores.runs)[-1].path
    records = {path.stem: json.loads(path.read_text()) for path in folder.glob("points/p01/processes/*.json")}
    assert {"shard01", "config1"} <= records.keys()
    for name, record in records.items():
        core = usable[int(name.removeprefix("shard"))] if name.startswith("shard") else usable[0]
        is_bound(cores, record, core)
    assert cores.uninitialised("data") == 0
    assert cores.uninitialised("log") > 0
    assert cores.output_of("cat /proc/sys/net/core/somaxconn") == "3210"
    kernel = json.loads((folder / "hosts/host2/kernel.json").read_text())
    assert kernel["planned"]["somaxconn"] == {"value": "3210", "source": "the experiment"}
    assert (kernel["is"]["somaxconn"], kernel["before"]["somaxconn"]) == ("3210", backlog)
    assert shell(cores, "shard01") == ["shard01", "microshard-admin"]
    code, said = cores.run("down")
    assert code == 0, said
    assert cores.output_of("cat /proc/sys/net/core/somaxconn") == backlog

    # What would be done on a machine that has nothing yet, and is done then
    cores.fresh()
    before = cores.output_of(_LOOK.format(disks=cores.disks))
    checked = cores.played("prepare", "--check", "--diff")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    for change in (
        "+net.core.somaxconn = 3210\n",
        "(item=net.core.somaxconn = 3210)",
        f"(item=ext4 ms-data on {cores.machine.devices['data']}, mounted at /var/lib/microshard)",
        f"(item=ext4 ms-log on {cores.machine.devices['log']}, mounted at /srv/microshard/log)",
    ):
        assert change in checked.stdout, checked.stdout
    assert cores.output_of(_LOOK.format(disks=cores.disks)) == before
    try:
        made = cores.played("prepare")
        assert made.returncode == 0, made.stdout + made.stderr
        again = cores.played("prepare", "--check", "--diff")
        assert (again.returncode, " changed=0 " in again.stdout) == (0, True), again.stdout + again.stderr
    finally:
        restored = cores.played("restore")
    assert restored.returncode == 0, restored.stdout + restored.stderr


def is_bound(cores: Cores, record: dict[str, Any], core: int) -> None:
    """A process may run on one core alone, by its record and by the kernel."""
    assert record["started_by"][:3] == ["numactl", f"--physcpubind={core}", "--localalloc"]
    assert record["numa_policy"] == "cores_per_shard"
    assert record["cpus_allowed"] == str(core)
    assert f"Cpus_allowed_list:\t{core}\n" in cores.output_of(f"cat /proc/{record['pid']}/status")
    assert max(record["memory_policies"], key=record["memory_policies"].__getitem__) == "local"


def shell(cores: Cores, name: str) -> list[Any]:
    """Of a process of the machine its set and who is logged in, as mongosh on this machine sees them."""
    os.environ["MICROSHARD_MONGOSH"] = str(mongosh.installed())
    try:
        users = "db.adminCommand({connectionStatus: 1}).authInfo.authenticatedUsers"
        script = f"print(JSON.stringify([db.hello().setName, ...{users}.map(({{user}}) => user)]))"
        code, said = cores.run("mongosh", name, "--quiet", "--eval", script)
    finally:
        del os.environ["MICROSHARD_MONGOSH"]
    assert code == 0, said
    answer: list[Any] = json.loads(said.strip().splitlines()[-1])
    return answer
