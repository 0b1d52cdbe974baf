"""An experiment on EC2 from its plan to the empty account: the API is simulated, the hosts it hands out are real."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from microshard.embedded.binary import find_mongod
from tests.cloud.fleets import dummy_environment
from tests.cloud.strict import Boots, Simulation
from tests.hosts.bed import Bed, Machine, bed, lacking, wheels
from tests.hosts.bed.lab import OPEN_FILES
from tests.hosts.bed.machine import _family
from tests.hosts.bed.system import command
from tests.hosts.needs import need

MONGOD = "opt/microshard-lab/mongod"
USER = "admin"  # of Debian's images
MICROSHARD = str(Path(sys.executable).with_name("microshard"))
FILE = """\
microshard: 1
name: joined
infrastructure:
  ec2: {region: us-east-1, controller_cidrs: [10.89.0.1/32], owner: tester}
  shard_hosts: {instance_type: c5.xlarge, image: debian-12, market: spot, kernel: {open_files: OPEN_FILES}}
  client_hosts: {instance_type: c5.large, image: debian-12}
topology:
  kind: standalone
  mongodb: {source: path, path: /opt/microshard-lab, version: "6.0"}
  storage: {cache: {policy: per_process_mb, value: 256}}
workload:
  - load: {engine: insert, documents: 20000}
  - measure: {engine: aggregate, pipeline: mot_greenness, iterations: 2, warm_up_iterations: 0}
repetitions: 2
budget: {max_hours: 1, max_cost_usd: 5}
"""


class Land:
    """The simulated EC2 on a bed's network, with the bed's machines as its instances."""

    def __init__(self, lab: Bed, folder: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.simulation = Simulation(boots=Boots(boot=self._boot, end=self._end))
        self.by_address = {machine.address: machine for machine in lab.machines}

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def fresh(self) -> None:
        """An empty account whose next instances are the bed's machines."""
        self.simulation.reset()
        self.simulation.boots.addresses[:] = list(self.by_address)

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The command line, on the bed's network."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
            **dummy_environment(self.simulation.url),
        }
        return subprocess.Popen(
            self.lab.inside([MICROSHARD, *words]), cwd=self.folder, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=400)
        return process.returncode, said

    def _boot(self, address: str, key: str, user_data: str) -> None:
        """What cloud-init does with what the run gave: its key for the user, its host key for sshd."""
        machine = self.by_address[address]
        config = yaml.safe_load(user_data)
        machine.write(f"home/{USER}/.ssh/authorized_keys", f"{key}\n")
        machine.write("etc/ssh/ssh_host_ed25519_key", config["ssh_keys"]["ed25519_private"], 0o600)
        machine.join()
        for pid in _family(machine.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if words.startswith((b"/opt/microshard-lab/mongod", b"/var/lib/microshard")):
                    os.kill(pid, signal.SIGKILL)  # of an instance that had this machine before
                elif words.startswith(b"sshd: /usr/sbin/sshd"):
                    os.kill(pid, signal.SIGHUP)

    def _end(self, address: str) -> None:
        self.by_address[address].cut()


def _listening(namespace: str) -> socket.socket:
    """A socket that listens on loopback of a network namespace; only the thread that makes it goes there."""
    made: list[socket.socket] = []

    def inside() -> None:
        with Path(f"/run/netns/{namespace}").open() as where:
            if ctypes.CDLL(None, use_errno=True).setns(where.fileno(), 0x40000000):  # CLONE_NEWNET
                return
        made.append(socket.create_server(("127.0.0.1", 0), backlog=64))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return made[0]


def _as_image(machine: Machine) -> None:
    """What the image would have: the distribution's user, and a mongod."""
    command("chroot", str(machine.root), "useradd", "--create-home", "--shell", "/bin/bash", USER)
    machine.write(f"etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    (machine.root / MONGOD).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(find_mongod(), machine.root / MONGOD)
    (machine.root / MONGOD).chmod(0o755)
    command("chroot", str(machine.root), "chown", "-R", USER, f"/home/{USER}")


@pytest.fixture(scope="module")
def _land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    need(lacking())
    wheels.fetch()
    with bed(2) as lab:
        for machine in lab.machines:
            _as_image(machine)
        land = Land(lab, tmp_path_factory.mktemp("ec2"))
        with _listening(lab.namespace) as listening, land.simulation.serving(listening=listening):
            yield land


@pytest.fixture
def land(_land: Land) -> Iterator[Land]:
    _land.fresh()
    shutil.rmtree(_land.runs, ignore_errors=True)
    (_land.folder / "joined.yml").write_text(FILE.replace("OPEN_FILES", str(OPEN_FILES)))
    yield _land
    assert _land.simulation.everything() == {}


@pytest.mark.long
def test_from_the_plan_to_the_empty_account(land: Land) -> None:
    code, said = land.run("plan", "joined.yml", "--on", "ec2")
    assert code == 0, said
    assert "fleet1: 2 hosts in us-east-1 for point p01" in said
    assert land.simulation.everything() == {}
    code, said = land.run("run", "joined.yml", "--on", "ec2")
    log = "".join(p.read_text() for p in land.runs.glob("*/logs/ansible.log"))[-6000:]
    assert code == 0, f"{said}\n{log}"
    (folder,) = land.runs.iterdir()
    results = [json.loads(p.read_text()) for p in sorted((folder / "results" / "p01").glob("r*.json"))]
    assert [r["valid"] for r in results] == [True, True]
    plan = json.loads((folder / "plan.json").read_text())
    assert {h["address"] for h in plan["hosts"]} == {"10.89.0.11", "10.89.0.12"}
    assert (folder / "report" / "report.html").exists()
    assert list(folder.glob("logs/**/*mongod1*")), "logs came back before the hosts went"
    assert land.simulation.actions().count("RunInstances") == 2
