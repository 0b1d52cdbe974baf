"""A virtual machine by qemu: two NUMA nodes, volumes with serial numbers and limits, SSH on a port of loopback."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microshard.embedded.sharded_cluster import free_port
from tests.hosts.bed.system import BedError
from tests.hosts.vm.image import image

_ROOT = Path(__file__).resolve().parents[3]
_PLAYBOOK = str(Path(sys.executable).with_name("ansible-playbook"))
_BOOT = 500.0  # seconds: software emulation boots in 35 s on a quiet machine, in minutes on a busy one
_KVM_SPEAKS = 10.0  # seconds; where KVM works the kernel says something in one


HOME = "/root"  # of the machine's root


@dataclass(frozen=True, slots=True)
class Disk:
    """A volume of the machine."""

    name: str
    serial: str
    gib: int = 2
    iops: int | None = None
    bus: str = "virtio-blk-pci"  # QEMU's name of the device; nvme is the kernel's own driver for it


def lacking() -> str:
    """Why no virtual machine can be made here; "" when one can."""
    if os.geteuid() != 0:
        return "a virtual machine's image is made by root"
    tools = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "ssh": "openssh-client"}
    missing = [package for tool, package in tools.items() if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)}" if missing else ""


class Machine:
    """A running virtual machine; its disks and keys lie in a folder of its own."""

    def __init__(self, folder: Path, disks: Sequence[Disk], files: Mapping[str, Path] | None = None) -> None:
        self.folder = folder
        self.disks = disks
        self.files = dict(files or {})  # executables of its root folder: name → source
        self.port = free_port()
        self.sockets = tempfile.mkdtemp(prefix="vm-")  # of ssh: their paths must be short
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Boot it, by KVM where that works, and wait for SSH."""
        made = image()
        subprocess.run(["cp", "--sparse=always", str(made / "root.img"), str(self.folder / "root.img")], check=True)
        self._put_key()
        for disk in self.disks:
            with (self.folder / f"{disk.name}.img").open("wb") as file:
                file.truncate(disk.gib * 2**30)
        if not (os.access("/dev/kvm", os.R_OK | os.W_OK) and self._boots(made, "kvm", "host")):
            # Emulated, a string instruction over a page is slower than a loop: zeroing would take five times as long.
            self._launch(made, "tcg,thread=multi", "max,-erms,-fsrm")
        self.wait()

    def _put_key(self) -> None:
        """A key of this machine alone, and a host key that is known."""
        for name in ("key", "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        known = (self.folder / "host.pub").read_text().split()[:2]
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {' '.join(known)}\n")
        # debugfs writes into the image without mounting it.
        lines = [f"mkdir {HOME}/.ssh", f"write {self.folder}/key.pub {HOME}/.ssh/authorized_keys"]
        for suffix in ("", ".pub"):
            target = f"/etc/ssh/ssh_host_ed25519_key{suffix}"
            lines += [f"rm {target}", f"write {self.folder}/host{suffix} {target}"]
        lines += [
            "set_inode_field /etc/ssh/ssh_host_ed25519_key mode 0100600",
            f"set_inode_field {HOME}/.ssh/authorized_keys mode 0100600",
        ]
        for name, source in self.files.items():
            lines += [f"write {source} /{name}", f"set_inode_field /{name} mode 0100755"]
        script = self.folder / "debugfs.txt"
        script.write_text("\n".join(lines) + "\n")
        subprocess.run(
            ["debugfs", "-w", "-f", str(script), str(self.folder / "root.img")], check=True, capture_output=True
        )

    def _boots(self, made: Path, accelerator: str, cpu: str) -> bool:
        """Whether the kernel says anything soon; /dev/kvm may be there and not work."""
        self._launch(made, accelerator, cpu)
        deadline = time.monotonic() + _KVM_SPEAKS
        while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
            if (self.folder / "console.log").stat().st_size > 0:
                return True
            time.sleep(0.2)
        self.stop()
        return False

    def _launch(self, made: Path, accelerator: str, cpu: str) -> None:
        words = ["qemu-system-x86_64", "-accel", accelerator, "-cpu", cpu, "-smp", "2", "-m", "1280"]
        words += ["-nodefaults", "-display", "none", "-serial", f"file:{self.folder}/console.log"]
        for node in (0, 1):
            words += ["-object", f"memory-backend-ram,size=640M,id=m{node}"]
            words += ["-numa", f"node,nodeid={node},cpus={node},memdev=m{node}"]
        words += ["-kernel", str(made / "vmlinuz"), "-initrd", str(made / "initrd")]
        words += ["-append", "root=LABEL=root rw console=ttyS0 mitigations=off"]
        for disk in (Disk("root", "root"), *self.disks):
            limit = f",throttling.iops-total={disk.iops}" if disk.iops else ""
            file = f"file={self.folder}/{disk.name}.img,if=none,id={disk.name},format=raw,cache=unsafe,discard=unmap"
            words += ["-drive", file + limit]
            words += ["-device", f"{disk.bus},drive={disk.name},serial={disk.serial}"]
        # restrict: the machine reaches nothing, it is only reached.
        words += ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"]
        words += ["-device", "virtio-net-pci,netdev=net", "-device", "virtio-rng-pci"]
        (self.folder / "console.log").write_text("")
        with (self.folder / "qemu.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self) -> None:
        """It runs no more; its disks are thrown away."""
        self._let_go()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(timeout=20)

    def wait(self) -> None:
        """Until it answers by SSH."""
        deadline = time.monotonic() + _BOOT
        while time.monotonic() < deadline:
            if self.process is None or self.process.poll() is not None:
                break
            with contextlib.suppress(BedError):
                self.ssh("true", patience=20)
                return
            time.sleep(1)
        console = (self.folder / "console.log").read_text(errors="replace")[-2000:]
        raise BedError(f"the virtual machine does not answer: {(self.folder / 'qemu.log').read_text()}\n{console}")

    def ssh(self, script: str, patience: float = 120) -> str:
        """What a shell script printed there. BedError with its own words when it fails."""
        words = ["ssh", *self.options, *self._kept, "-p", str(self.port), "root@127.0.0.1", script]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience, check=False
            )
        except subprocess.TimeoutExpired:
            raise BedError(f"{script}: no answer in {patience:.0f} s") from None
        if done.returncode:
            raise BedError(f"{script} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    @property
    def options(self) -> list[str]:
        """Of ssh: this machine's key, and its host key alone."""
        given = {
            "BatchMode": "yes",
            "ConnectTimeout": "15",
            "IdentitiesOnly": "yes",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
        }
        return ["-i", str(self.folder / "key"), *(w for k, v in given.items() for w in ("-o", f"{k}={v}"))]

    @property
    def _kept(self) -> list[str]:
        """Of ssh, that connections are kept for the next command: an emulated processor takes 2 s to agree on keys."""
        given = {"ControlMaster": "auto", "ControlPath": f"{self.sockets}/%C", "ControlPersist": "30"}
        given |= {"ServerAliveInterval": "5", "ServerAliveCountMax": "3"}  # one that outlived a reboot
        return [word for key, value in given.items() for word in ("-o", f"{key}={value}")]

    def _let_go(self) -> None:
        """End the kept connection, if there is one."""
        words = ["ssh", *self._kept, "-O", "exit", "-p", str(self.port), "root@127.0.0.1"]
        subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)

    def reboot(self) -> None:
        """Shut down, boot again, and answer; by its own boot id, so that the old system is not taken for the new."""
        before = self.ssh("cat /proc/sys/kernel/random/boot_id")
        with contextlib.suppress(BedError):
            self.ssh("systemctl reboot", patience=20)
        self._let_go()
        deadline = time.monotonic() + _BOOT
        while time.monotonic() < deadline:
            with contextlib.suppress(BedError):
                if self.ssh("cat /proc/sys/kernel/random/boot_id", patience=20) != before:
                    return
            time.sleep(1)
        raise BedError("the virtual machine did not come back after its reboot")

    def play(self, playbook: str, variables: Mapping[str, Any], *options: str) -> Played:
        """Run playbooks/PLAYBOOK.yml, or the playbook at a path without its suffix, on it."""
        host = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.port,
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_private_key_file": str(self.folder / "key"),
            "ansible_ssh_common_args": " ".join(self.options[2:]),
            "microshard_volumes": variables.get("microshard_volumes", []),
        }
        groups = ("shard_hosts", "config_hosts", "mongos_hosts", "client_hosts")
        inventory = {"all": {"hosts": {"vm": host}, "children": {g: {"hosts": {"vm": {}}} for g in groups}}}
        for name, content in (("inventory.yml", inventory), ("vars.yml", dict(variables))):
            (self.folder / name).write_text(json.dumps(content))  # JSON is YAML
        words = [_PLAYBOOK, "-i", str(self.folder / "inventory.yml"), "-e", f"@{self.folder}/vars.yml", *options]
        environment = {
            **os.environ,
            "ANSIBLE_CONFIG": str(_ROOT / "ansible.cfg"),
            "ANSIBLE_HOME": str(self.folder / "ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self.folder / "cp"),  # another machine may have had this port
            "ANSIBLE_NOCOLOR": "1",
        }
        done = subprocess.run(
            [*words, str(_ROOT / "playbooks" / f"{playbook}.yml")],
            cwd=_ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Played(done.returncode, done.stdout + done.stderr)


@dataclass(frozen=True, slots=True)
class Played:
    """How a play ended."""

    code: int
    output: str

    @property
    def changed(self) -> int:
        """Tasks that changed something."""
        recap = self.output[self.output.index("PLAY RECAP") :]
        return int(recap.partition("changed=")[2].split()[0])


@contextlib.contextmanager
def machine(folder: Path, disks: Sequence[Disk], files: Mapping[str, Path] | None = None) -> Iterator[Machine]:
    """A machine that runs while the context is open, with these executables in its root folder."""
    made = Machine(folder, disks, files)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(made.sockets)
