"""The simulated EC2 on a bed's network: its instances are the bed's machines, and boot and end as instances do."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from microshard.embedded.binary import find_mongod
from tests.cloud.fleets import dummy_environment
from tests.cloud.strict import Machines, Simulation
from tests.cluster.run.conftest import MICROSHARD, Cli
from tests.hosts.bed import Bed, BedError, Machine, bed, lacking, wheels
from tests.hosts.bed.disks import attach
from tests.hosts.bed.system import command
from tests.hosts.needs import need

MONGOD = "opt/microshard-lab/mongod"
# What is at hand instead of a real mongos: the embedded one of the client host's environment, at the address the plan
# gives a mongos. It listens on loopback alone elsewhere.
MONGOS = """#!/bin/sh
if [ "$1" = --version ]; then /opt/microshard-lab/mongod --version | sed 's/^db /mongos /'; exit; fi
export MICROSHARD_MONGOD=/opt/microshard-lab/mongod
exec "$(ls -d /var/lib/microshard/software/*/bin/python | head -n 1)" -c '
from microshard.embedded import mongos, options
options._loopback = lambda text, *, ipv6: tuple(text.split(","))
mongos.main()
' "$@"
"""
USER = "admin"  # of Debian's images

# What an instance that had the machine before has left goes: a new one has empty disks and a new root. Software that
# was sent stays, as in an image of one's own.
_NEW = """
for mount in $(awk '$5 ~ "^/(srv|var/lib)/microshard" {print $5}' /proc/self/mountinfo | sort -r); do
  for attempt in $(seq 50); do umount "$mount" && break; sleep 0.1; done
done
! grep -E ' /(srv|var/lib)/microshard' /proc/self/mountinfo
mkdir -p /var/lib/microshard
find /var/lib/microshard -mindepth 1 -maxdepth 1 ! -name software -exec rm -rf {} +
rm -rf /srv/microshard /etc/microshard
sed -i '/microshard/d' /etc/fstab
"""


class Land(Cli):
    """The account, the machines that stand for its instances, and the command line on their network."""

    seconds = 800.0

    def __init__(self, lab: Bed, folder: Path) -> None:
        super().__init__(folder)
        self.lab = lab
        self.simulation = Simulation(machines=Machines(boot=self._boot, end=self._end))
        self.by_address = {machine.address: machine for machine in lab.machines}

    @property
    def run_folder(self) -> Path:
        """Of the only run."""
        (folder,) = self.runs.iterdir()
        return folder

    def fresh(self) -> None:
        """An empty account whose next instances are the bed's machines."""
        self.simulation.reset()
        self.simulation.machines.addresses[:] = list(self.by_address)
        shutil.rmtree(self.runs, ignore_errors=True)

    def command(self, words: Sequence[str | Path]) -> list[str]:
        return self.lab.inside([MICROSHARD, *words])

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in super().environment.items() if not k.startswith("AWS_")}
        return kept | dummy_environment(self.simulation.url)

    def wait(self, process: subprocess.Popen[str], what: Callable[[], bool]) -> None:
        """Until something is so while a command runs. AssertionError with what it said when it never is."""
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None:
            if what():
                return
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        raise AssertionError(f"it never was so:\n{process.communicate(timeout=120)[0]}\n{self.log()}")

    def until(self, what: Callable[[], bool]) -> None:
        """Until something is so. AssertionError when it never is."""
        deadline = time.monotonic() + 60
        while not what():
            assert time.monotonic() < deadline, "it never was so"
            time.sleep(0.05)

    def log(self) -> str:
        """The end of Ansible's log."""
        return "".join(path.read_text(errors="replace") for path in self.runs.glob("*/logs/ansible.log"))[-6000:]

    def journal(self, event: str) -> list[dict[str, Any]]:
        """Records of the only run."""
        found: list[dict[str, Any]] = []
        for path in self.runs.glob("*/journal.jsonl"):
            lines = path.read_text().splitlines(keepends=True)
            found += [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in found if record["event"] == event]

    def measuring(self) -> bool:
        """Whether the engine on the last machine, the client host, is past loading."""
        root = self.lab.machines[-1].root / "var/lib/microshard"
        progress = [root / run.name / "tmp/progress.jsonl" for run in self.runs.glob("*")]
        return any(path.exists() and '"measure"' in path.read_text(errors="replace") for path in progress)

    def end(self, machine: Machine, reason: str) -> str:
        """Somebody else ends the instance a machine stands for; its id."""
        for region in self.simulation.account.regions.values():
            for name, instance in region.instances().items():
                if instance.state == "running" and instance.private_ip == machine.address:
                    self.simulation.end_instance(name, reason)
                    return name
        raise AssertionError(f"no instance runs on {machine.name}")

    def _boot(self, address: str, key: str, user_data: str, disks: dict[str, int]) -> None:
        """What cloud-init does with what the run gave: its key for the user, its host key for sshd, files, commands."""
        machine = self.by_address[address]
        config = yaml.safe_load(user_data)
        machine.write(f"home/{USER}/.ssh/authorized_keys", f"{key}\n")
        machine.write("etc/ssh/ssh_host_ed25519_key", config["ssh_keys"]["ed25519_private"], 0o600)
        for file in config["write_files"]:
            machine.write(file["path"].lstrip("/"), file["content"], int(file["permissions"], 8))
        if not machine.processes():
            self.lab.boot(machine, wait=False)
            self.until(lambda: _answers(machine))
        machine.join()
        machine.enter("sh", "-ec", _NEW)
        attach(machine, {name.replace("-", ""): gib for name, gib in disks.items()})  # as NVMe disks carry their id
        for pid in machine.processes():
            if _words(pid).startswith(b"sshd: /usr/sbin/sshd"):
                os.kill(pid, signal.SIGHUP)
        for words in config["runcmd"]:
            machine.enter(*words)

    def _end(self, address: str) -> None:
        """It shuts down: what the run has on it ends, logins with it, and then it is not on the network any more."""
        machine = self.by_address[address]
        ours = (b"/opt/microshard-lab/", b"/var/lib/microshard/", b"sshd: admin")
        for pid in machine.processes():
            if any(mark in _words(pid) for mark in ours):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if machine.processes():
            machine.cut()
        free = self.simulation.machines.addresses
        free[:] = sorted([*free, address])  # the next fleet has the same machines


def _answers(machine: Machine) -> bool:
    with contextlib.suppress(BedError):
        return bool(machine.enter("systemctl", "show", "--property=Version"))
    return False


def _words(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def listening(namespace: str, address: str = "127.0.0.1") -> socket.socket:
    """A socket that listens at an address of a network namespace; only the thread that makes it goes there."""
    made: list[socket.socket] = []

    def inside() -> None:
        with Path(f"/run/netns/{namespace}").open() as where:
            if ctypes.CDLL(None, use_errno=True).setns(where.fileno(), 0x40000000):  # CLONE_NEWNET
                return
        made.append(socket.create_server((address, 0), backlog=64))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return made[0]


def as_image(machine: Machine) -> None:
    """What the image would have: the distribution's user, and a mongod."""
    command("chroot", str(machine.root), "useradd", "--create-home", "--shell", "/bin/bash", USER)
    machine.write(f"etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    (machine.root / MONGOD).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(find_mongod(), machine.root / MONGOD)
    (machine.root / MONGOD).chmod(0o755)
    machine.write(str(Path(MONGOD).with_name("mongos")), MONGOS, 0o755)
    command("chroot", str(machine.root), "chown", "-R", USER, f"/home/{USER}")


@contextlib.contextmanager
def land_of(count: int, folder: Path) -> Iterator[Land]:
    """An account with so many machines, for the time of the context. Skips where this machine cannot make them."""
    need(lacking())
    wheels.fetch()
    with bed(count) as lab:
        for machine in lab.machines:
            as_image(machine)
        made = Land(lab, folder)
        with listening(lab.namespace) as socket_, made.simulation.serving(listening=socket_):
            yield made
