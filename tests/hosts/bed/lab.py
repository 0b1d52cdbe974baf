"""A bed: a network namespace with a bridge, machines on it, and the files that lead to them."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.hosts.bed.machine import Machine
from tests.hosts.bed.root import LAB, PLAIN, SUITE, shared_root
from tests.hosts.bed.system import BedError, command

_TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "losetup": "mount",
}
_SUBNET = "10.89.0"  # every bed may have the same: each namespace is a world of its own
_BRIDGE = "br0"
# A container cannot raise limits beyond what its own manager was given: less than a real host has.
OPEN_FILES = min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
LIMITS = {"nofile": OPEN_FILES, "nproc": 64000, "fsize": "infinity"}
GROUPS = ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")


def lacking() -> str:
    """What this machine lacks for a bed, in a line; empty when nothing."""
    if os.geteuid() != 0:
        return "a test bed of containers needs root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = sorted({package for tool, package in _TOOLS.items() if not shutil.which(tool, path=path)})
    if missing:
        return f"a test bed of containers needs {', '.join(missing)} (apt-get install)"
    if not Path("/dev/loop-control").exists():
        return "a test bed of containers needs loop devices"
    return ""


def beds_folder() -> Path:
    """Where the folders of all beds of this machine lie: MICROSHARD_BEDS, else in the folder for temporary files."""
    return Path(os.environ.get("MICROSHARD_BEDS", Path(tempfile.gettempdir()) / "microshard-beds"))


@dataclass
class Bed:
    """Machines host1 … hostN that can be reached by SSH from inside the bed's network namespace."""

    name: str
    folder: Path
    owner: int | None  # pid of the process it belongs to; None: it stays until somebody takes it down
    machines: list[Machine] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """Name of the network namespace, as in `ip netns`."""
        return f"microshard-{self.name}"

    @property
    def address(self) -> str:
        """What the machines reach this machine by, where something listens in the namespace."""
        return f"{_SUBNET}.1"

    @property
    def inventory(self) -> Path:
        """An Ansible inventory of all machines: host1 is client host too, every machine a shard host."""
        return self.folder / "inventory" / "hosts.yml"

    @property
    def ssh_options(self) -> list[str]:
        """What ssh needs to know; only the host keys made for this bed are taken."""
        return [
            *("-i", str(self.folder / "id_ed25519"), "-o", "IdentitiesOnly=yes", "-F", "none"),
            *("-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", "-o", "GlobalKnownHostsFile=/dev/null"),
            *("-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"),
        ]

    def inside(self, words: Sequence[str | Path]) -> list[str]:
        """A command line as it has to be started to be on the bed's network. It sees no other network."""
        # All beds have the same addresses: a connection Ansible left open must not be taken for one of another bed.
        connections = f"ANSIBLE_SSH_CONTROL_PATH_DIR={self.folder / 'cp'}"
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "env", connections, *map(str, words)]

    def ssh(self, machine: Machine, *words: str, user: str = LAB) -> subprocess.CompletedProcess[str]:
        """Run a command (words, quoted by the caller where a shell would mind) on a machine."""
        return subprocess.run(
            self.inside(["ssh", *self.ssh_options, f"{user}@{machine.address}", *words]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def reboot(self, machine: Machine) -> None:
        """Restart a machine by its own means and wait until it is back."""
        before = self.ssh(machine, "cat", "/proc/sys/kernel/random/boot_id", "&&", "stat", "-c", "%Z", "/proc/1").stdout
        self.ssh(machine, "sudo", "systemctl", "reboot")
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            now = self.ssh(machine, "cat", "/proc/sys/kernel/random/boot_id", "&&", "stat", "-c", "%Z", "/proc/1")
            if now.returncode == 0 and now.stdout != before:
                return
            time.sleep(0.3)
        raise BedError(f"{machine.name} did not come back after its reboot")

    def write_inventory(
        self,
        groups: Mapping[str, Sequence[str]] | None = None,
        *,
        name: str = "inventory",
        user: str = LAB,
        **variables: Any,
    ) -> Path:
        """An inventory with these groups (all machines shard hosts, host1 client host) and variables for all hosts."""
        names = [m.name for m in self.machines]
        chosen = groups or {"shard_hosts": names, "client_hosts": names[:1]}
        hosts = {m.name: {"ansible_host": m.address, "bed_devices": m.devices} for m in self.machines}
        content = {
            "all": {
                "hosts": hosts,
                "vars": {
                    "ansible_user": user,
                    "ansible_ssh_private_key_file": str(self.folder / "id_ed25519"),
                    "ansible_ssh_common_args": " ".join(self.ssh_options[2:]),
                    "ansible_python_interpreter": "/usr/bin/python3",
                    "mongo_processes_limits": LIMITS,
                    **variables,
                },
                "children": {group: {"hosts": {member: {} for member in members}} for group, members in chosen.items()},
            }
        }
        path = self.folder / name / "hosts.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")  # JSON is YAML
        return path

    def up(self, suites: Sequence[str]) -> None:
        """Make namespace, a machine of each of these systems, and files; wait until every one can be logged into."""
        bases = [shared_root(suite) for suite in suites]
        self.folder.mkdir(parents=True, mode=0o755)
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(self.folder / "id_ed25519"))
        self.machines = [
            Machine(
                name=f"host{n}",
                address=f"{_SUBNET}.{10 + n}",
                folder=self.folder / f"host{n}",
                namespace=self.namespace,
                bridge=_BRIDGE,
                machine=f"{self.name[-9:]}-{n}",
            )
            for n in range(1, len(suites) + 1)
        ]
        self._save()
        self._network()
        key = (self.folder / "id_ed25519.pub").read_text(encoding="ascii")
        names = "127.0.0.1 localhost\n" + "".join(f"{m.address} {m.name}\n" for m in self.machines)
        for machine, base in zip(self.machines, bases, strict=True):
            machine.make(base, key, names)
            machine.boot()
            self._save()
        (self.folder / "known_hosts").write_text("".join(f"{m.public_key}\n" for m in self.machines), encoding="ascii")
        self.write_inventory()
        for machine in self.machines:
            self._await(machine)

    def boot(self, machine: Machine, *, wait: bool = True) -> None:
        """Start a machine that is off, with what is on its disks, and wait until it can be logged into."""
        machine.boot()
        self._save()
        if wait:
            self._await(machine)

    def _await(self, machine: Machine) -> None:
        booted = "systemctl is-system-running | grep -qE 'running|degraded'"
        machine.await_ssh(self.inside(["ssh", *self.ssh_options, f"{LAB}@{machine.address}", booted]))

    def _network(self) -> None:
        command("ip", "netns", "add", self.namespace)
        for words in (
            ("link", "set", "lo", "up"),
            ("link", "add", _BRIDGE, "type", "bridge"),
            ("address", "add", f"{self.address}/24", "dev", _BRIDGE),
            ("link", "set", _BRIDGE, "up"),
        ):
            command("ip", "-n", self.namespace, *words)

    def down(self) -> None:
        """Remove everything of the bed. BedError with what is left."""
        left = [problem for machine in self.machines for problem in machine.remove()]
        if Path(f"/run/netns/{self.namespace}").exists():
            with contextlib.suppress(BedError):
                command("ip", "netns", "delete", self.namespace)
        if Path(f"/run/netns/{self.namespace}").exists():
            left.append(f"network namespace {self.namespace}")
        if not left:
            shutil.rmtree(self.folder)
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()
        else:
            raise BedError(f"{self.name} could not be removed: " + "; ".join(left))

    def _save(self) -> None:
        state = {"owner": self.owner, "started": _started(self.owner), "machines": [asdict(m) for m in self.machines]}
        (self.folder / "bed.json").write_text(json.dumps(state, default=str, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Bed:
        """A bed that is there."""
        state = json.loads((folder / "bed.json").read_text(encoding="utf-8"))
        machines = [Machine(**{**m, "folder": Path(m["folder"])}) for m in state["machines"]]
        for machine in machines:
            machine.pid = machine.pid if _is_bed(machine) else 0
        return cls(folder.name, folder, state["owner"], machines)

    @property
    def orphaned(self) -> bool:
        """Whether the process it belongs to is gone."""
        state = json.loads((self.folder / "bed.json").read_text(encoding="utf-8"))
        return self.owner is not None and _started(self.owner) != state["started"]


def _is_bed(machine: Machine) -> bool:
    """Whether the recorded pid is still this machine's: a pid is given out again."""
    try:
        words = Path(f"/proc/{machine.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"bed:{machine.machine}".encode() in words


def _started(pid: int | None) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except OSError:
        return ""


def beds() -> list[Bed]:
    """All beds of this machine."""
    return [Bed.load(file.parent) for file in sorted(beds_folder().glob("*/bed.json"))]


def make(count: int, *, owner: int | None, suites: Sequence[str] = ()) -> Bed:
    """A bed of so many machines, or of these systems; when that fails nothing is left. Orphans are swept away first."""
    for orphan in [other for other in beds() if other.orphaned]:
        orphan.down()
    number = next(n for n in range(1, 1000) if not (beds_folder() / f"bed{os.getpid()}-{n}").exists())
    new = Bed(f"bed{os.getpid()}-{number}", beds_folder() / f"bed{os.getpid()}-{number}", owner)
    try:
        new.up(suites or [SUITE] * count)
    except BaseException:
        new.down()
        raise
    return new


@contextlib.contextmanager
def bed(count: int = 1, *, suites: Sequence[str] = ()) -> Iterator[Bed]:
    """A bed for the time of the context, of so many machines or of these systems; removed whatever happens."""
    made = make(count, owner=os.getpid(), suites=suites)
    try:
        yield made
    finally:
        made.down()


__all__ = ["GROUPS", "LAB", "PLAIN", "Bed", "BedError", "bed", "beds", "lacking", "make"]
